"""What happened in a run, as seen from outside the scheduler.

The recorder stands in the bodies, sends and consumers of a run and writes down what it sees there; it
never asks the scheduler. Every record has its instant on the Trio clock and a sequence number, because
one instant may hold many steps.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import attrs
import trio

from trioeval.errors import CallError, Fault
from trioeval.kernel import Event, Lanes, LaneSpec, Outcome
from trioeval.testing.scenario import Scenario


@attrs.define
class Span:
    """Something that began and ended: a job's body or one call."""

    index: int
    """The job."""
    lane: str | None
    """The lane of the call; the job's lane for a body, None if it needs none."""
    asked_at: float
    """When the call was asked for, which is before it started if it had to wait; a body's start."""
    started_at: float
    started: int
    """Sequence number of the start."""
    ended_at: float = math.inf
    ended: int | None = None
    """Sequence number of the end; None if it never ended."""
    ending: Literal["returned", "failed", "cut"] = "cut"
    """Whether it returned, raised an `Exception`, or was cancelled."""
    call: int = -1
    """Of a request: which call it belongs to; a call is made again when it failed."""
    attempt: int = 0
    """Of a request: which of its call it is, from 0."""
    tokens: int = 0
    """Of a request: what was reserved for it."""
    used: int | None = None
    """Of a request: the tokens that its lane was told of; None if it was told nothing."""
    error: Exception | None = None
    """What it raised."""

    def __str__(self) -> str:
        what = (
            f"job {self.index}"
            if self.call < 0
            else f"request {self.attempt + 1} of job {self.index}"
        )
        return (
            f"{what} on lane {self.lane} ({self.started_at:g} to {self.ended_at:g}, {self.ending})"
        )

    @property
    def last(self) -> float:
        """The end's sequence number, infinite if it never ended."""
        return math.inf if self.ended is None else self.ended


@attrs.define
class Asked:
    """The time from asking for a call to having its result, or to giving up."""

    index: int
    lane: str
    call: int
    """Sequence number of the question."""
    asked_at: float
    ended_at: float = math.inf


@attrs.define
class Lent:
    """A permit, as seen by who granted it."""

    index: int
    """The job."""
    lane: str
    tokens: int
    """What was asked for."""
    granted_at: float
    granted: int
    """Sequence number of the grant."""
    ends: list["PermitEnd"] = attrs.field(factory=list)
    """How it was settled or given back; one is right."""


@attrs.frozen
class PermitEnd:
    """A permit was settled or given back."""

    at: float
    tick: int
    """Sequence number."""
    used: int | None
    """The tokens that it was settled to; None where it was given back unused."""


@attrs.frozen
class Emission:
    """One outcome as the consumer got it."""

    at: float
    outcome: Outcome[Any]


@attrs.frozen
class Settled:
    """One outcome as it was told of when its job had it."""

    at: float
    outcome: Outcome[Any]
    emitted: int
    """Outcomes that had been emitted by then."""


@attrs.frozen
class Sample:
    """What a lane said of itself at an instant at which nothing happened, beside what was true."""

    at: float
    lane: str
    held: int
    """Slots taken, by the lane's statistics."""
    in_flight: int
    """Calls in flight, by the recorder."""


@attrs.frozen
class Trace:
    """Everything recorded of one run, with what was asked of it."""

    scenario: Scenario
    """What was asked of the run."""
    ended_at: float
    """When the run returned."""
    bodies: Sequence[Span]
    calls: Sequence[Span]
    asked: Sequence[Asked]
    emissions: Sequence[Emission]
    samples: Sequence[Sample]
    events: Sequence[Event]
    left_over: Sequence[str]
    """What was still alive after the run returned, in words; empty is right."""
    settled: Sequence[Settled] = ()
    """Empty if nobody was told."""
    """Whether jobs need nothing of their lanes; empty if nobody asked."""
    permits: Sequence[Lent] = ()
    """In the order of their grants."""
    stopped: float = math.inf
    """Sequence number of the stop; infinite if there was none."""

    @property
    def size(self) -> int:
        """Jobs of the plan."""
        return len(self.scenario.scripts)

    @property
    def lanes(self) -> Sequence[LaneSpec]:
        """The lanes, as they were described."""
        return self.scenario.lanes

    @property
    def serial(self) -> frozenset[int]:
        """Jobs that had to run alone."""
        alone = range(self.size) if self.scenario.serial else self.scenario.serial_indices
        return frozenset(alone)


@attrs.define
class Recorder:
    """Writes a trace. One for each run; runs that are compared step by step share `ticks`."""

    ticks: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))
    """Where sequence numbers come from."""
    bodies: list[Span] = attrs.field(factory=list)
    calls: list[Span] = attrs.field(factory=list)
    asked: list[Asked] = attrs.field(factory=list)
    emissions: list[Emission] = attrs.field(factory=list)
    settled: list[Settled] = attrs.field(factory=list)
    samples: list[Sample] = attrs.field(factory=list)
    events: list[Event] = attrs.field(factory=list)
    stopped: float = math.inf

    @contextmanager
    def body(self, index: int, lane: str | None) -> Iterator[None]:
        """Put around everything that a job's body does."""
        now = trio.current_time()
        with self._span(self.bodies, Span(index, lane, now, now, next(self.ticks))):
            yield

    @contextmanager
    def asking(self, index: int, lane: str) -> Iterator[Asked]:
        """Put around the whole of a call, waits and repetitions; give the result to `call`."""
        asked = Asked(index, lane, next(self.ticks), trio.current_time())
        self.asked.append(asked)
        try:
            yield asked
        finally:
            asked.ended_at = trio.current_time()

    @contextmanager
    def call(self, asked: Asked, lane: str, attempt: int = 0, tokens: int = 0) -> Iterator[Span]:
        """Put around what is in flight: the body of a `send`.

        Args:
            asked: The call that it belongs to.
            lane: Where it is in flight.
            attempt: Which request of that call it is, from 0.
            tokens: What was reserved for it.
        """
        span = Span(asked.index, lane, asked.asked_at, trio.current_time(), next(self.ticks))
        span.call, span.attempt, span.tokens = asked.call, attempt, tokens
        with self._span(self.calls, span):
            yield span

    async def emit(self, outcome: Outcome[Any]) -> None:
        """A consumer that takes everything at once. Not a checkpoint."""
        self.emissions.append(Emission(trio.current_time(), outcome))

    def settle(self, outcome: Outcome[Any]) -> None:
        """Told of an outcome as soon as it is there."""
        self.settled.append(Settled(trio.current_time(), outcome, len(self.emissions)))

    def sample(self, lanes: Lanes) -> None:
        """Hold what the lanes say of themselves against what is in flight; call it when nothing happens."""
        at = trio.current_time()
        for name, lane in lanes.items():
            in_flight = sum(span.lane == name and span.ended is None for span in self.calls)
            self.samples.append(Sample(at, name, lane.in_flight, in_flight))

    def stop(self) -> None:
        """The run is told to stop."""
        self.stopped = next(self.ticks)

    @contextmanager
    def _span(self, spans: list[Span], span: Span) -> Iterator[None]:
        spans.append(span)
        try:
            yield
            span.ending = "returned"
        except Exception as error:
            span.ending, span.error = "failed", error
            raise
        finally:
            span.ended_at, span.ended = trio.current_time(), next(self.ticks)


# What a trace is looked at with: the words that the laws are written in.


def require(law: str, holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Raise `AssertionError` with the law's name, unless it holds."""
    if not holds:
        msg = f"{law} is broken: {otherwise}"
        raise AssertionError(msg)


def on(spans: Iterable[Span], lane: LaneSpec) -> list[Span]:
    """Those on a lane."""
    return [span for span in spans if span.lane == lane.name]


def most_at_once(spans: Sequence[Span]) -> int:
    """The most that were open together."""
    steps = sorted(step for span in spans for step in ((span.started, 1), (span.last, -1)))
    return max(itertools.accumulate(change for _, change in steps), default=0)


def rate_bound(starts: Sequence[float], period: float, burst: int) -> float:
    """The first instant at which every window with the starts so far still keeps the rate."""
    place = len(starts)
    return max(
        (at + (place - first + 1 - burst) * period for first, at in enumerate(starts)), default=0.0
    )


def late_starts(
    calls: Iterable[Span], lane: LaneSpec, *, resting: bool = False
) -> list[tuple[Span, float]]:
    """Jobs of a lane whose first request started later than it could have, and when that was.

    Pace and slots decide, by what had started before. Looked at is what happened before the lane was first
    refused.

    Args:
        calls: The requests on the lane.
        lane: What they keep to.
        resting: Whether a job that is called again keeps its slot in between.
    """
    starts = sorted(calls, key=lambda span: span.started)
    refused = (span for span in starts if is_refusal(span) or asked_wait(span))
    refused_at = min((span.ended_at for span in refused), default=math.inf)
    over = {span.index: span.ended_at for span in starts}
    period = 60 / lane.rpm if lane.rpm is not None else 0.0
    late, begun = [], list[Span]()
    for place, span in enumerate(starts):
        waiting = next((other for other in starts[place:] if not other.attempt), None)
        if waiting is None:
            break
        ends = [one.ended_at for one in begun]
        if resting:
            ends = [over[one.index] for one in begun if not one.attempt]
        bounds = [0.0, rate_bound([one.started_at for one in begun], period, lane.burst)]
        bounds += [begun[-1].started_at + lane.min_gap] if begun else []
        bounds += (
            [sorted(ends)[len(ends) - lane.max_concurrency]]
            if len(ends) >= lane.max_concurrency
            else []
        )
        right = max(bounds)
        if right >= refused_at:
            break
        # A job that keeps its slot needs none to be called again.
        if span.started_at > right and not (resting and span.attempt):
            late.append((waiting, right))
        begun.append(span)
    return late


def asked_wait(span: Span) -> float:
    """Seconds that the provider asked its lane to wait with a refusal or another transient failure."""
    error = span.error
    if isinstance(error, CallError) and error.fault in (Fault.RATE_LIMITED, Fault.TRANSIENT):
        return error.retry_after or 0.0
    return 0.0


def is_refusal(span: Span) -> bool:
    """Whether the provider said that there were too many requests."""
    return isinstance(span.error, CallError) and span.error.fault is Fault.RATE_LIMITED


def working_time(trace: Trace, body: Span) -> float:
    """Seconds of a body in which it did anything else than wait for a lane or rest."""
    within = (body.started_at, body.ended_at)
    calls = [span for span in trace.calls if span.index == body.index]
    asked = [one for one in trace.asked if one.index == body.index]
    instants = {at for call in calls for at in (call.started_at, call.ended_at)}
    instants |= {at for one in asked for at in (one.asked_at, one.ended_at)}
    steps = sorted({*within, *(at for at in instants if within[0] <= at <= within[1])})
    idle = 0.0
    for begin, end in itertools.pairwise(steps):
        waiting = any(one.asked_at <= begin < one.ended_at for one in asked)
        busy = any(call.started_at <= begin < call.ended_at for call in calls)
        if waiting and not busy:
            idle += end - begin
    return body.ended_at - body.started_at - idle


def used_tokens(span: Span) -> int:
    """What a request used, as its lane was told; what it reserved, where it was told nothing."""
    if span.used is not None:
        return span.used
    turned_away = isinstance(span.error, CallError) and span.error.fault is not Fault.TRANSIENT
    return 0 if turned_away else span.tokens
