"""The lanes of a run on several machines: what its workers report of them, and the sums.

A worker reports a few times a second what its lanes have done since its session began. The activity of the
run gets the differences, so that progress, timelines and waits are those of a run on one machine.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from trioeval.kernel import LaneStatistics
from trioeval.kernel.events import Waiting
from trioeval.rates import BreakerState
from trioeval.report.activity import Activity, LaneCounts
from trioeval.report.run_state import LaneState, WorkerState

_NO_COUNTS = LaneCounts()
_MOODS = (BreakerState.CLOSED, BreakerState.HALF_OPEN, BreakerState.OPEN)
"""The states of a lane, the one that serves most calls first."""


@attrs.frozen(kw_only=True)
class LaneReport:
    """A lane of a worker."""

    state: LaneState
    statistics: LaneStatistics
    """Its instants are those of the clock of the worker, and are not used."""
    counts: LaneCounts
    """Since the session of the worker began."""
    unfailed: int
    """Calls that ended without a failure, those that were cancelled included."""
    most_in_flight: int
    """The most calls in flight since the last report."""


@attrs.frozen(kw_only=True)
class WorkerReport:
    """All lanes that a worker has used."""

    worker: str
    """Its address."""
    name: str
    """Its name for people."""
    session: str
    """Different for each start of its process."""
    at: float
    """The instant on the clock of the worker."""
    rows: int
    """Rows that it has finished."""
    lanes: Mapping[str, LaneReport]


@attrs.define(eq=False, repr=False)
class _KnownWorker:
    """The last report of a worker."""

    report: WorkerReport
    received_at: float


@attrs.define(eq=False, repr=False)
class WorkerLanes:
    """The lanes of all workers of a run."""

    activity: Activity
    """The activity of the run, to which that of the workers is added."""
    on_calls: Callable[[str, int, int], None] | None = None
    """Called with a lane, and the numbers of calls that ended since, with a failure and without one."""
    _workers: dict[str, _KnownWorker] = attrs.field(init=False, factory=dict)
    _lost: dict[str, LaneStatistics] = attrs.field(init=False, factory=dict)
    """The sums over lost workers, by lane."""

    def on_report(self, report: WorkerReport, now: float) -> None:
        """Handle a report of a worker, which arrived at an instant of the own clock."""
        known = self._workers.get(report.worker)
        if known is not None and known.report.session != report.session:
            self.on_loss(report.worker, now)
            known = None
        self._workers[report.worker] = _KnownWorker(report, now)
        before: Mapping[str, LaneReport] = {} if known is None else known.report.lanes
        for name, lane in report.lanes.items():
            self._add(name, lane, before.get(name), now)

    def on_loss(self, worker: str, now: float) -> None:
        """Handle the loss of a worker: nothing is in flight there any more; its past remains counted."""
        known = self._workers.pop(worker, None)
        for name, lane in {} if known is None else known.report.lanes.items():
            activity, flying = self.activity.lane(name), lane.statistics.in_flight
            activity.add(_NO_COUNTS, now, in_flight=-flying, most=0)
            activity.wait_elsewhere = None
            past = self._lost.get(name)
            self._lost[name] = lane.statistics if past is None else _sum([past, lane.statistics])

    def statistics(self, own: Mapping[str, LaneStatistics]) -> Mapping[str, LaneStatistics]:
        """Return the sums of the lanes over all workers that use them.

        Args:
            own: The lanes of this process, which count if they have been used.
        """
        return {name: self._statistics(name, lane) for name, lane in own.items()}

    def states(self, now: float) -> tuple[WorkerState, ...]:
        """Return the states of the workers, by name."""
        found = [_worker_state(one, now) for one in self._workers.values()]
        return tuple(sorted(found, key=lambda one: (len(one.name), one.name)))

    def _statistics(self, name: str, own: LaneStatistics) -> LaneStatistics:
        reports = [one.report.lanes.get(name) for one in self._workers.values()]
        found = [one.statistics for one in reports if one is not None]
        if own.started or not found:
            found.append(own)
        present, past = _sum(found), self._lost.get(name)
        return present if past is None else _with_past(present, past)

    def _add(self, name: str, lane: LaneReport, before: LaneReport | None, now: float) -> None:
        counts = lane.counts if before is None else lane.counts.since(before.counts)
        flying = 0 if before is None else before.statistics.in_flight
        activity = self.activity.lane(name)
        activity.add(
            counts,
            now,
            in_flight=lane.statistics.in_flight - flying,
            most=lane.most_in_flight - flying,
        )
        activity.closed = lane.state.reason
        activity.wait_elsewhere = _wait(name, lane.state, now)
        if self.on_calls is not None:
            unfailed = lane.unfailed - (0 if before is None else before.unfailed)
            self.on_calls(name, counts.failed, unfailed)


def _wait(lane: str, state: LaneState, now: float) -> Waiting | None:
    if state.why is None:
        return None
    until = None if state.wait_s is None else now + state.wait_s
    return Waiting(now, lane, state.why, until, None)


def _worker_state(known: _KnownWorker, now: float) -> WorkerState:
    report, passed = known.report, now - known.received_at
    lanes = [one.state for one in report.lanes.values()]
    return WorkerState(
        name=report.name,
        rows=report.rows,
        lanes=tuple(
            lane
            if lane.wait_s is None
            else attrs.evolve(lane, wait_s=max(0.0, lane.wait_s - passed))
            for lane in lanes
        ),
    )


def _with_past(present: LaneStatistics, past: LaneStatistics) -> LaneStatistics:
    """Return the present state with the calls of lost workers."""
    return attrs.evolve(
        present,
        started=present.started + past.started,
        succeeded=present.succeeded + past.succeeded,
        refused=present.refused + past.refused,
        retried=present.retried + past.retried,
        cuts=present.cuts + past.cuts,
    )


def _sum(lanes: Sequence[LaneStatistics]) -> LaneStatistics:
    """Return the sums of one lane of several processes.

    It is closed, or paused, only if it is so in all of them; it waits for what the process with the longest
    queue waits for.
    """
    longest = max(lanes, key=lambda lane: (lane.why is not None, lane.waiting + lane.resting))
    reasons = [lane.reason for lane in lanes]
    return LaneStatistics(
        name=lanes[0].name,
        max_concurrency=sum(lane.max_concurrency for lane in lanes),
        limit=sum(lane.limit for lane in lanes),
        in_flight=sum(lane.in_flight for lane in lanes),
        waiting=sum(lane.waiting for lane in lanes),
        resting=sum(lane.resting for lane in lanes),
        why=longest.why,
        next_start_at=min(lane.next_start_at for lane in lanes),
        blocked_until=min(lane.blocked_until for lane in lanes),
        state=min((lane.state for lane in lanes), key=_MOODS.index),
        paused=all(lane.paused for lane in lanes),
        reason=None if None in reasons else reasons[0],
        started=sum(lane.started for lane in lanes),
        succeeded=sum(lane.succeeded for lane in lanes),
        refused=sum(lane.refused for lane in lanes),
        retried=sum(lane.retried for lane in lanes),
        cuts=sum(lane.cuts for lane in lanes),
        rpm=_total(lane.rpm for lane in lanes),
        tpm=_total(lane.tpm for lane in lanes),
    )


def _total(rates: Iterable[float | None]) -> float | None:
    """Return the sum of rates; None if one of them is unlimited."""
    found = [*rates]
    known = [rate for rate in found if rate is not None]
    return sum(known) if len(known) == len(found) else None
