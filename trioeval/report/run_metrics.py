"""The metrics of a run in progress, as families of samples.

All metrics are computed from events; the run does not depend on them.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias

import attrs

from trioeval.agent.bus.settings import LOCK_WAIT_BOUNDS, BusStats
from trioeval.agent.protocols import (
    AgentEvent,
    AttemptContinued,
    AttemptEnded,
    AttemptStarted,
    AttemptWaiting,
    CaseBlocked,
    CaseEnded,
    CaseQueued,
)
from trioeval.kernel import LaneStatistics
from trioeval.kernel.events import CallEnded, Event

Samples: TypeAlias = Sequence[tuple[tuple[str, ...], float]]
"""The values of labels, and a number, in the order of the labels."""
_Case: TypeAlias = tuple[str | None, str]

_RUN_OUTCOMES = ("completed", "failed", "cancelled")
_CASE_ENDINGS = ("done", "failed", "interrupted", "blocked")


@attrs.frozen
class MetricFamily:
    """The samples of one metric."""

    name: str
    about: str
    """The description, one sentence."""
    kind: Literal["gauge", "counter"]
    labels: tuple[str, ...] = ()
    samples: Samples = ()


@attrs.frozen
class Distribution:
    """A histogram."""

    name: str
    about: str
    bounds: Sequence[float]
    """Upper bounds, ascending; the last is infinite."""
    counts: Sequence[int]
    """The number of values within each bound and above the previous one."""
    total: float
    """The sum of all values."""


@attrs.define
class RunMetrics:
    """The counters of one run. `observe` and `observe_agent` are observers of the run."""

    began_at: float
    """The start of the run, on the Trio clock."""
    lanes: Callable[[], Mapping[str, LaneStatistics]] = dict
    """Returns the statistics of the lanes of the run."""
    buses: BusStats = attrs.field(factory=BusStats)
    """Returns the cost of writing to all message buses of the run."""
    _failed_calls: Counter[str] = attrs.field(init=False, factory=Counter)
    """Counts by lane, as are the following."""
    _other_calls: Counter[str] = attrs.field(init=False, factory=Counter)
    _starts: Counter[str] = attrs.field(init=False, factory=Counter)
    """Counts by agent."""
    _ended: Counter[str] = attrs.field(init=False, factory=Counter)
    _endings: Counter[str] = attrs.field(init=False, factory=Counter)
    _active: set[str] = attrs.field(init=False, factory=set)
    """Ids of attempts."""
    _waiting: set[_Case] = attrs.field(init=False, factory=set)
    _blocked: set[_Case] = attrs.field(init=False, factory=set)
    _queued: set[_Case] = attrs.field(init=False, factory=set)
    _running: set[_Case] = attrs.field(init=False, factory=set)

    def observe(self, event: Event) -> None:
        """Count an event of the kernel."""
        if isinstance(event, CallEnded):
            calls = self._other_calls if event.error is None else self._failed_calls
            calls[event.lane] += 1

    def add_calls(self, lane: str, failed: int, others: int) -> None:
        """Count ended calls of a lane that no event reports, because a worker has made them."""
        self._failed_calls[lane] += failed
        self._other_calls[lane] += others

    def observe_agent(self, event: AgentEvent) -> None:
        """Count an event of an agent."""
        case = event.task, event.case
        match event:
            case CaseBlocked():
                _put(self._blocked, case, is_in=bool(event.by))
            case CaseQueued():
                _put(self._queued, case, is_in=event.position > 0)
                _put(self._running, case, is_in=event.position == 0)
            case AttemptWaiting():
                self._waiting.add(case)
            case AttemptContinued():
                self._waiting.discard(case)
            case AttemptStarted():
                self._waiting.discard(case)
                self._active.add(event.run_id)
                self._starts[event.agent] += 1
            case AttemptEnded():
                self._active.discard(event.run_id)
                bad = "cancelled" if event.cancelled else "failed" if event.failed else None
                self._ended[bad or "completed"] += 1
            case CaseEnded():
                for cases in (self._waiting, self._blocked, self._queued, self._running):
                    cases.discard(case)
                self._endings[event.ending] += 1

    def families(self, now: float) -> Iterator[MetricFamily | Distribution]:
        """Return all metrics, always in the same order."""
        yield _gauge("uptime_seconds", "Seconds since the start of the run.", now - self.began_at)
        yield from self._of_lanes()
        yield from self._of_agents()
        yield from self._of_buses()

    def _of_lanes(self) -> Iterator[MetricFamily]:
        lanes = sorted(self.lanes().items())
        yield _gauge(
            "lane_in_flight",
            "Calls in flight on a lane.",
            {name: lane.in_flight for name, lane in lanes},
            "lane",
        )
        yield _gauge(
            "lane_limit",
            "Calls that may be in flight on a lane now; 0 while it is paused or closed.",
            {name: lane.limit for name, lane in lanes},
            "lane",
        )
        calls = [sample for name, lane in lanes for sample in self._calls(name, lane)]
        about = "Ended calls of a lane, by result."
        yield MetricFamily("trioeval_lane_calls", about, "counter", ("lane", "result"), calls)
        yield _counter(
            "lane_throttled",
            "Calls of a lane that the provider refused because of a rate limit.",
            {name: lane.refused for name, lane in lanes},
            "lane",
        )

    def _calls(self, name: str, lane: LaneStatistics) -> Samples:
        return [
            ((name, "succeeded"), lane.succeeded),
            ((name, "failed"), self._failed_calls[name]),
            ((name, "cancelled"), self._other_calls[name] - lane.succeeded),
        ]

    def _of_agents(self) -> Iterator[MetricFamily]:
        yield _gauge("agent_runs_active", "Running attempts of agents.", len(self._active))
        waiting = len(self._waiting)
        yield _gauge("agent_runs_waiting", "Attempts that wait for a run slot.", waiting)
        starts = dict(sorted(self._starts.items()))
        yield _counter("agent_runs_begun", "Started attempts, by agent.", starts, "agent")
        ended = {outcome: self._ended[outcome] for outcome in _RUN_OUTCOMES}
        yield _counter("agent_runs_ended", "Ended attempts, by outcome.", ended, "outcome")
        endings = {ending: self._endings[ending] for ending in _CASE_ENDINGS}
        about = "Ended cases of agents, by result."
        yield _counter("agent_cases_ended", about, endings, "ending")
        blocked = len(self._blocked)
        yield _gauge("agent_cases_blocked", "Cases that wait for their dependencies.", blocked)
        queued, running = len(self._queued), len(self._running)
        yield _gauge("planner_queued", "Queued cases of this program.", queued)
        yield _gauge("planner_running", "Admitted cases of this program.", running)

    def _of_buses(self) -> Iterator[MetricFamily | Distribution]:
        stats = self.buses
        about = "Messages that this program has written to message buses."
        yield _counter("bus_appends", about, stats.appends)
        yield Distribution(
            "trioeval_bus_lock_wait_seconds",
            "Seconds that writers of message buses have waited for the lock.",
            LOCK_WAIT_BOUNDS,
            [stats.lock_waits[bound] for bound in LOCK_WAIT_BOUNDS],
            stats.lock_wait_s,
        )


def _family(
    kind: Literal["gauge", "counter"],
    name: str,
    about: str,
    found: float | Mapping[str, float],
    label: str = "",
) -> MetricFamily:
    """Return a metric with one number, or with several by a label."""
    by_label = found if isinstance(found, Mapping) else {"": found}
    samples = [((value,) if label else (), number) for value, number in by_label.items()]
    return MetricFamily(f"trioeval_{name}", about, kind, (label,) if label else (), samples)


_gauge, _counter = partial(_family, "gauge"), partial(_family, "counter")


def _put(cases: set[_Case], case: _Case, *, is_in: bool) -> None:
    if is_in:
        cases.add(case)
    else:
        cases.discard(case)
