"""A second scheduler, written from the rules alone, to compare the kernel with.

It computes for a scripted run when every call starts and ends and how every job ends, and it shares no code
with the kernel: no Trio, no tasks, no limiter. Where the kernel stores one float, this one stores all past
starts and computes the rule from its definition; where the kernel has a queue, this one searches all jobs. It
is a loop over a heap of events, slow and easy to read.

**Plain scenarios** only: every job is exactly one `CallScript` on its own lane, no lane adapts to latency; a
job that needs no lane is a single `Pause`. Covered are: max concurrency, request and token pace, minimum gap,
blocks and the recovery from them, limits that learn from refusals, rates that are reported or measured,
breakers, retries and back-offs, timeouts, serial jobs, keys, edges, salvage rounds, jobs on no lane, deadline
and stop.

**Ties.** Trio runs the tasks of one instant in any order. What the rules leave open at an instant, such as a
call that ends on a lane just as a back-off on that lane is over, `predict` decides arbitrarily and reports in
`Prediction.tied_at`; `predictions` enumerates all decisions, and the run must be one of them.

Rejected: a model that steps through time on a grid. Exact instants of sums of durations need a fine grid, and
the steps hide the order in which the events of one instant were taken.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

import attrs

from trioeval.errors import Fault, UsageError
from trioeval.kernel import LaneSpec
from trioeval.testing.model_lane import ModelLane
from trioeval.testing.model_parts import Kind, ModelJob, PredictedCall, PredictedOutcome, Prediction
from trioeval.testing.scenario import AttemptScript, CallScript, Pause, RunScenario

_OFTEN = 2  # refusals of one call after which it no longer goes before new jobs
_CHANCE = 1e-6
_LASTING = 4  # the part of the patience after which refusals with nothing served between them count
_NO_LANE = "no lane"
_CURABLE = (Fault.TRANSIENT, Fault.RATE_LIMITED)


def predict(scenario: RunScenario) -> Prediction:
    """Return the run of a plain scenario.

    Args:
        scenario: The scenario; times in whole numbers or dyadic fractions make the prediction exact.

    Raises:
        UsageError: The scenario is not plain.

    Example:
        >>> from trioeval.kernel import LaneSpec
        >>> from trioeval.testing.scenario import CallScript, RunScenario, JobScript
        >>> script = JobScript("a", (CallScript("a", 2.0),))
        >>> lanes = (LaneSpec("a", 1, adaptive="off"),)
        >>> [call.started_at for call in predict(RunScenario(lanes, (script, script))).calls]
        [0.0, 2.0]
    """
    return _ModelRun(scenario).play()


def predictions(scenario: RunScenario) -> Iterator[Prediction]:
    """Yield every possible run of a plain scenario, that of `predict` first.

    Where events of one instant affect each other, all their orders are tried, and after each event whether
    the next job starts before the others. There may be very many runs, with duplicates.

    Raises:
        UsageError: The scenario is not plain.
    """
    script: tuple[int, ...] | None = ()
    while script is not None:
        run = _ModelRun(scenario, script)
        yield run.play()
        while run.picked and run.picked[-1][0] + 1 == run.picked[-1][1]:
            run.picked.pop()
        made = [choice for choice, _ in run.picked]
        script = (*made[:-1], made[-1] + 1) if made else None


_Event: TypeAlias = tuple[float, int, str, Callable[[float], None]]


@attrs.define(eq=False, repr=False)
class _ModelRun:
    scenario: RunScenario
    script: tuple[int, ...] = ()
    """The decisions of what the rules leave open, one after another."""
    picked: list[tuple[int, int]] = attrs.field(factory=list)
    """The decisions made, each with the number of options."""
    lanes: dict[str, ModelLane] = attrs.field(init=False)
    jobs: list[ModelJob] = attrs.field(init=False)
    alone: list[int] = attrs.field(init=False)
    """Serial jobs that are not over, in order."""
    stopped: bool = False
    agenda: list[_Event] = attrs.field(factory=list)
    ticks: Iterator[int] = attrs.field(factory=itertools.count)
    arrivals: Iterator[int] = attrs.field(factory=itertools.count)
    """The order of calls in the queue of a lane."""
    calls: list[PredictedCall] = attrs.field(factory=list)
    outcomes: dict[int, PredictedOutcome] = attrs.field(factory=dict)
    tied_at: set[float] = attrs.field(factory=set)
    moved_at: float = -math.inf
    """The instant at which a job was last found to need no lane."""

    def __attrs_post_init__(self) -> None:
        scenario = self.scenario
        self.lanes = {spec.name: ModelLane(spec) for spec in scenario.lanes}
        self.jobs = [
            ModelJob(
                index, _only_call(scenario, index), script.timeout, on_lane=script.lane is not None
            )
            for index, script in enumerate(scenario.scripts)
        ]
        every = range(len(self.jobs))
        self.alone = list(every) if scenario.serial else sorted(scenario.serial_indices)
        _require(
            all(spec.adaptive != "latency" for spec in scenario.lanes), "a lane adapts to latency"
        )
        _require(scenario.cancel_at == math.inf, "its caller cancels it")
        _require(scenario.reorder_window is None, "it has a window")
        _require(scenario.budget is None and scenario.cap is None, "it has a budget or a cap")
        _require(not scenario.retunes, "its lanes are changed while it runs")
        _require(not scenario.shared, "its lanes have permits")
        _require(not self.alone or not scenario.salvage_rounds, "serial jobs are salvaged")

    def play(self) -> Prediction:
        now, deadline = self.scenario.start_at, self.scenario.deadline
        if now < self.scenario.stop_at < math.inf:
            self._at(self.scenario.stop_at, "", self._stop)
        self.stopped = self.scenario.stop_at <= now
        if now < deadline:
            self._serve(now)
        while self.agenda and len(self.outcomes) < len(self.jobs) and self.agenda[0][0] < deadline:
            now = self.agenda[0][0]
            events = []
            while self.agenda and self.agenda[0][0] == now:
                events.append(heapq.heappop(self.agenda))
            tied = self._are_tied([lane for _, _, lane, _ in events])
            if tied:
                self.tied_at.add(now)
            while events:
                _, _, _, happen = events.pop(self._pick(len(events)) if tied else 0)
                happen(now)
                if tied and events and self._pick(2):
                    self._serve(
                        now
                    )  # the first to end may start the next job before the others end
            self._serve(now)
        if len(self.outcomes) < len(self.jobs):
            now = max(now, deadline)
            _require(now < math.inf, "its jobs wait for each other")
            self._cut(now)
        return Prediction(
            tuple(sorted(self.calls)),
            tuple(self.outcomes[job.index] for job in self.jobs),
            tuple(lane.predicted() for lane in self.lanes.values()),
            now,
            frozenset(self.tied_at),
        )

    def _pick(self, options: int) -> int:
        """Decide what the rules leave open: by the script of this run, or else the first option."""
        number = len(self.picked)
        choice = self.script[number] if number < len(self.script) else 0
        self.picked.append((choice, options))
        return choice

    def _at(self, at: float, lane: str, happen: Callable[[float], None]) -> None:
        heapq.heappush(self.agenda, (at, next(self.ticks), lane, happen))

    def _are_tied(self, lanes: list[str]) -> bool:
        """Return whether events of one instant affect each other."""
        scenario = self.scenario
        joined = (
            "" in lanes  # the stop concerns every lane
            or self.alone
            or scenario.edges
            or scenario.salvage_rounds
            or any(script.key is not None for script in scenario.scripts)
        )
        return len(lanes) > (1 if joined else len(set(lanes)))

    # Starts

    def _serve(self, now: float) -> None:
        """Start all that can start now, and return when a blocked start becomes possible."""
        started = True
        while started:
            # One start per lane in turn, because a serial job closes the gate for all others.
            started = any([self._go_on(lane, now) for lane in self.lanes.values()])  # noqa: C419 - no short cut
            started = self._start_on_no_lane(now) or started
        if any(job.live or self._may_start(job) for job in self.jobs):
            return
        failed = [job for job in self.jobs if job.state == "failed"]
        if self.stopped:
            self._cut(now)
        elif failed:
            for job in failed:
                job.state, job.rounds = "pending", job.rounds + 1
                job.mishaps = job.refusals = 0
                job.earlier_failures = job.failures
                job.worked = 0.0
            self._serve(now)

    def _go_on(self, lane: ModelLane, now: float) -> bool:
        """Start a job of a lane if one can start; on a closed lane end those that could."""
        return self._give_up(lane, now) if lane.closed else self._start_first(lane, now)

    def _give_up(self, lane: ModelLane, now: float) -> bool:
        """End the jobs of a closed lane whose turn it is, unstarted."""
        given_up = [job for job in self._jobs_of(lane) if self._is_ready(job)]
        for job in given_up:
            if job.state == "pending":  # none of those before has blocked it
                self._settle_unstarted(job, now)
                self._block(job, now)
        return bool(given_up)

    def _close(self, lane: ModelLane, now: float) -> None:
        """Close a lane: the calls that wait there, or rest, fail."""
        for job in self.jobs:
            if job.call.lane == lane.spec.name and job.state in ("resting", "queued"):
                self._finish(job, "Failed", now)

    def _start_first(self, lane: ModelLane, now: float) -> bool:
        """Start the call whose turn it is, if it can start."""
        mine = self._jobs_of(lane)
        again = [job for job in mine if job.state == "queued"]
        first = [job for job in again if job.refusals < _OFTEN]
        last = [job for job in again if job.refusals >= _OFTEN]
        fresh = self._first_fresh(mine)
        if fresh and self.scenario.scripts[fresh[0].index].known == "yes":
            fresh[0].on_lane = False
            self.moved_at = now
            return True
        live = sum(job.live and job.state != "resting" for job in mine)
        if live >= self.scenario.max_live_jobs:
            fresh = []
        last.sort(key=lambda job: job.arrived)
        line = first or last or fresh
        if not line or not lane.has_slot:
            return False
        opens_at = lane.opens_at()
        if opens_at > now:
            if lane.looked_at != opens_at:
                lane.looked_at = opens_at
                self._at(opens_at, lane.spec.name, lambda _: None)
            return False
        if line is last and fresh:
            # Which of them came first depends on when a worker of the run had time to queue.
            self.tied_at.add(now)
            line = (last, fresh)[self._pick(2)]
        self._start(line[0], lane, now)
        return True

    def _jobs_of(self, lane: ModelLane) -> list[ModelJob]:
        """Return the jobs of a lane that are not over."""
        name = lane.spec.name
        return [
            job
            for job in self.jobs
            if job.state != "over" and job.on_lane and job.call.lane == name
        ]

    def _first_fresh(self, jobs: list[ModelJob]) -> list[ModelJob]:
        """Return the first job that may be started, alone; nothing if there is none."""
        return list(itertools.islice(filter(self._may_start, jobs), 1))

    def _start_on_no_lane(self, now: float) -> bool:
        """Start the first job that waits for no lane, unless too many of them are live."""
        mine = [job for job in self.jobs if not job.on_lane]
        fresh = self._first_fresh(mine)
        if not fresh:
            return False
        if sum(job.live for job in mine) >= self.scenario.max_live_jobs:
            if (
                self.moved_at == now
            ):  # which of them comes first depends on when their lanes are inspected
                self.tied_at.add(now)
            return False
        self._pass_time(fresh[0], now)
        return True

    def _may_start(self, job: ModelJob) -> bool:
        """Return whether a job that was not started may be, apart from its lane."""
        return self._is_ready(job) and (not self.alone or job.index == self.alone[0])

    def _is_ready(self, job: ModelJob) -> bool:
        """Return whether it waits only for its lane, and for serial jobs if it is not one."""
        if job.state != "pending" or self.stopped:
            return False
        if job.index in self.alone:
            if job.index != self.alone[0] or any(other.live for other in self.jobs):
                return False
        elif any(other.state != "over" for other in self._before(job)):
            return False
        return all(edge.on in self.outcomes for edge in self.scenario.edges.get(job.index, ()))

    def _before(self, job: ModelJob) -> list[ModelJob]:
        """Return jobs of the same key that must be over first."""
        scripts = self.scenario.scripts
        key = scripts[job.index].key
        if key is None:
            return []
        return [other for other in self.jobs[: job.index] if scripts[other.index].key == key]

    # Events

    def _pass_time(self, job: ModelJob, now: float) -> None:
        """Start a job on no lane, which does nothing but pause."""
        job.state = "paused"
        kind: Kind = "TimedOut" if job.timeout <= job.call.duration else "Done"
        until = now + min(job.call.duration, job.timeout)
        self._at(until, _NO_LANE, lambda at: self._finish(job, kind, at))

    def _start(self, job: ModelJob, lane: ModelLane, now: float) -> None:
        attempt, left = job.attempt, job.timeout - job.worked
        place = len(lane.starts)
        if job.failures == job.earlier_failures:
            job.seen, job.served_before = (lane.served, lane.refused), 0
        lane.start(now, job.call.tokens)
        job.state, job.started_at, job.mark = "in flight", now, lane.ends

        def end(at: float) -> None:
            self._record(job, at)
            lane.end()
            job.number += 1
            job.worked += at - now
            if attempt.duration >= left:
                lane.cancelled_in_flight(at)
                lane.leave_generation(job.mark)
                self._finish(job, "TimedOut", at)
            else:
                lane.used[place] = _used(job.call, attempt)
                self._learn(job, lane, attempt, at)
            if lane.closed:
                self._close(lane, at)

        self._at(now + min(attempt.duration, left), lane.spec.name, end)

    def _learn(self, job: ModelJob, lane: ModelLane, attempt: AttemptScript, now: float) -> None:
        """Handle the regular end of a request."""
        if attempt.fault is None and not job.call.fails:
            if attempt.hint is not None:
                lane.hear(now, attempt.hint)
            again = job.failures > job.earlier_failures
            lane.succeeded(now - job.started_at, job.mark, again=again)
            self._finish(job, "Done", now)
            return
        if attempt.fault is not Fault.RATE_LIMITED:
            lane.leave_generation(job.mark)
        if attempt.fault is None:
            self._finish(job, "Failed", now)
            return
        if attempt.hint is not None:
            lane.follow(attempt.hint)
        job.failures += 1
        own = attempt.fault is Fault.RATE_LIMITED and _is_own(job, lane, now)
        wait = self._learn_failure(job, lane, attempt, now)
        if not lane.closed and not own and self._is_made_again(job, lane.spec, attempt.fault):
            job.state = "resting"
            if not wait:
                self._join(job)
            else:
                self._at(now + wait, lane.spec.name, lambda _: self._join(job))
        else:
            curable = attempt.fault in _CURABLE and not own
            curable = curable and not self._is_exhausted(job, lane.spec)
            self._finish(job, "Failed", now, curable=curable)

    def _learn_failure(
        self, job: ModelJob, lane: ModelLane, attempt: AttemptScript, now: float
    ) -> float:
        """Learn from a failure; return the seconds that the job rests, if it is retried."""
        spread = self.scenario.spread
        match attempt.fault:
            case Fault.RATE_LIMITED:
                job.refusals += 1
                return lane.congested(now, attempt, job.mark, job.refusals, spread)
            case Fault.TRANSIENT:
                job.mishaps += 1
                return lane.failed(now, attempt, job.mishaps - 1, spread)
            case Fault.FATAL:
                lane.refused_for_good(now)
            case Fault.QUOTA_EXHAUSTED:
                lane.exhausted(now)
            case _:
                pass
        return 0.0

    def _is_made_again(self, job: ModelJob, spec: LaneSpec, fault: Fault) -> bool:
        if fault not in _CURABLE:
            return False
        if self._is_exhausted(job, spec):
            return False
        # A job of a salvage round has one attempt for transient failures.
        return fault is Fault.RATE_LIMITED or job.mishaps <= (0 if job.rounds else spec.retries)

    def _is_exhausted(self, job: ModelJob, spec: LaneSpec) -> bool:
        """Return whether `max_retries` allows no further request, in all rounds together."""
        return spec.max_retries is not None and job.failures > spec.max_retries

    def _join(self, job: ModelJob) -> None:
        if job.state == "resting":  # its lane was not closed meanwhile
            job.state, job.arrived = "queued", next(self.arrivals)

    def _stop(self, _: float) -> None:
        self.stopped = True

    def _record(self, job: ModelJob, ended_at: float) -> None:
        """Record the end of a job's request in flight."""
        lane = job.call.lane
        self.calls.append(PredictedCall(job.started_at, job.index, job.number, lane, ended_at))

    def _finish(self, job: ModelJob, kind: Kind, now: float, *, curable: bool = False) -> None:
        """End a job, unless it is set aside for a salvage round."""
        if curable and job.rounds < self.scenario.salvage_rounds:
            job.state = "failed"
            job.failed_at = now
            return
        self._settle(job, kind, now)
        self._block(job, now)

    def _settle(self, job: ModelJob, kind: Kind, now: float) -> None:
        job.state = "over"
        self.outcomes[job.index] = PredictedOutcome(job.index, kind, now)
        if job.index in self.alone:
            self.alone.remove(job.index)

    def _block(self, job: ModelJob, now: float) -> None:
        """End the jobs that depend on the success of one that had none, and their dependants."""
        if self.outcomes[job.index].kind == "Done":
            return
        for other in self.jobs:
            needed = any(
                e.on == job.index and e.when == "success"
                for e in self.scenario.edges.get(other.index, ())
            )
            if needed and other.state == "pending":
                self._settle(other, "Blocked", now)
                self._block(other, now)

    def _cut(self, now: float) -> None:
        """End the run now, whatever is running."""
        live = [job for job in self.jobs if job.live]
        for job in live:
            if job.state == "in flight":
                self._record(job, now)
            self._settle(job, "Interrupted", now)
        for job in live:
            self._block(job, now)
        for job in self.jobs:
            if job.state in ("failed", "pending"):
                self._settle_unstarted(job, now)

    def _settle_unstarted(self, job: ModelJob, now: float) -> None:
        """Settle a job that will not be run, or not be run again."""
        if job.rounds or job.state == "failed":
            self._settle(job, "Failed", job.failed_at)
        else:
            self._settle(job, "NotRun", now)


def _only_call(scenario: RunScenario, index: int) -> CallScript:
    """Return the one call of a job, or the one pause of a job that needs no lane."""
    script = scenario.scripts[index]
    call = script.actions[0] if len(script.actions) == 1 else None
    if script.lane is None or script.known == "yes":
        if not isinstance(call, Pause):
            msg = f"the scenario is not plain: job {index} needs no lane and is not a single pause"
            raise UsageError(msg)
        return CallScript(script.lane or _NO_LANE, call.duration)
    if not isinstance(call, CallScript) or call.lane != script.lane or call.patience != math.inf:
        msg = f"the scenario is not plain: job {index} is not one patient call on its lane"
        raise UsageError(msg)
    return call


def _is_own(job: ModelJob, lane: ModelLane, now: float) -> bool:
    """Return whether one more refusal is hardly chance, given how often the lane refuses other calls.

    Refusals with nothing served between them are not independent, until they have lasted for long.
    """
    served = lane.served - job.seen[0]
    refused = lane.refused - job.seen[1] - job.refusals
    if not served:
        return False
    if served != job.served_before:
        job.served_before, job.unserved_since = served, now
    elif now - job.unserved_since < lane.spec.patience / _LASTING:
        return False
    return ((refused + 1) / (served + refused + 2)) ** (job.refusals + 1) < _CHANCE


def _used(call: CallScript, attempt: AttemptScript) -> int:
    """Return the tokens of a request that ended regularly; a refused one has used none."""
    if attempt.fault is None and call.fails:
        return call.tokens  # the usage is unknown
    if attempt.tokens is not None:
        return attempt.tokens
    return call.tokens if attempt.fault in (None, Fault.TRANSIENT) else 0


def _require(condition: bool, otherwise: str) -> None:  # noqa: FBT001
    if not condition:
        msg = f"the scenario is not plain: {otherwise}"
        raise UsageError(msg)
