"""The trace of a run, as seen from outside the scheduler.

The recorder wraps the bodies, sends and consumers of a run and records what it sees there; it never queries
the scheduler. Every record has its instant on the Trio clock and a sequence number, because one instant may
contain many steps.
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
from trioeval.testing.scenario import RunScenario


@attrs.define
class TraceSpan:
    """An interval: a job's body or one request."""

    index: int
    """The index of the job."""
    lane: str | None
    """The lane of the call; for a body the job's lane, None if it needs none."""
    asked_at: float
    """The instant at which the call was requested, before its start if it had to wait; a body's start."""
    started_at: float
    started: int
    """Sequence number of the start."""
    ended_at: float = math.inf
    ended: int | None = None
    """Sequence number of the end; None if it did not end."""
    ending: Literal["returned", "failed", "cut"] = "cut"
    """`returned`, `failed` with an `Exception`, or `cut` off by cancellation."""
    call: int = -1
    """Of a request: the number of its call; a failed call is retried."""
    attempt: int = 0
    """Of a request: its number within its call, from 0."""
    tokens: int = 0
    """Of a request: the tokens reserved for it."""
    used: int | None = None
    """Of a request: the tokens reported to its lane; None if none were reported."""
    error: Exception | None = None
    """The exception that it raised."""

    def __str__(self) -> str:
        call_name = (
            f"job {self.index}"
            if self.call < 0
            else f"request {self.attempt + 1} of job {self.index}"
        )
        return f"{call_name} on lane {self.lane} ({self.started_at:g} to {self.ended_at:g}, {self.ending})"

    @property
    def last(self) -> float:
        """The end's sequence number, infinite if it did not end."""
        return math.inf if self.ended is None else self.ended


@attrs.define
class RequestedCall:
    """The time from requesting a call to having its result, or to cancelling it."""

    index: int
    lane: str
    call: int
    """Sequence number of the request."""
    asked_at: float
    ended_at: float = math.inf


@attrs.define
class GrantedPermit:
    """A permit, as seen by the limiter that granted it."""

    index: int
    """The index of the job."""
    lane: str
    tokens: int
    """The tokens requested."""
    granted_at: float
    granted: int
    """Sequence number of the grant."""
    ends: list["PermitEnd"] = attrs.field(factory=list)
    """Its settlements and returns; exactly one is correct."""


@attrs.frozen
class PermitEnd:
    """The settlement or return of a permit."""

    at: float
    tick: int
    """Sequence number."""
    used: int | None
    """The tokens that it was settled to; None if it was given back unused."""


@attrs.frozen
class Emission:
    """One outcome as the consumer got it."""

    at: float
    outcome: Outcome[Any]


@attrs.frozen
class Settled:
    """One outcome as it was reported when its job had it."""

    at: float
    outcome: Outcome[Any]
    emitted: int
    """Number of outcomes emitted by then."""


@attrs.frozen
class LaneSample:
    """The statistics of a lane at an instant at which nothing happened, with the recorder's own count."""

    at: float
    lane: str
    held: int
    """Slots taken, by the lane's statistics."""
    in_flight: int
    """Calls in flight, by the recorder."""


@attrs.frozen
class RunTrace:
    """Everything recorded of one run, with its scenario."""

    scenario: RunScenario
    """The scenario of the run."""
    ended_at: float
    """The instant at which the run returned."""
    bodies: Sequence[TraceSpan]
    calls: Sequence[TraceSpan]
    requests: Sequence[RequestedCall]
    emissions: Sequence[Emission]
    samples: Sequence[LaneSample]
    events: Sequence[Event]
    left_over: Sequence[str]
    """Descriptions of what was still alive after the run returned; empty is correct."""
    settled: Sequence[Settled] = ()
    """Empty if no callback was registered."""
    """Results of `needs_no_lane`; empty if it was not called."""
    permits: Sequence[GrantedPermit] = ()
    """In the order of their grants."""
    stopped: float = math.inf
    """Sequence number of the stop; infinite if there was none."""

    @property
    def size(self) -> int:
        """Number of jobs of the plan."""
        return len(self.scenario.scripts)

    @property
    def lanes(self) -> Sequence[LaneSpec]:
        """The lanes as configured."""
        return self.scenario.lanes

    @property
    def serial(self) -> frozenset[int]:
        """Jobs that had to run alone."""
        alone = range(self.size) if self.scenario.serial else self.scenario.serial_indices
        return frozenset(alone)


@attrs.define
class TraceRecorder:
    """Records a trace. One for each run; runs that are compared step by step share `ticks`."""

    ticks: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))
    """The source of sequence numbers."""
    bodies: list[TraceSpan] = attrs.field(factory=list)
    calls: list[TraceSpan] = attrs.field(factory=list)
    requests: list[RequestedCall] = attrs.field(factory=list)
    emissions: list[Emission] = attrs.field(factory=list)
    settled: list[Settled] = attrs.field(factory=list)
    samples: list[LaneSample] = attrs.field(factory=list)
    events: list[Event] = attrs.field(factory=list)
    stopped: float = math.inf

    @contextmanager
    def body(self, index: int, lane: str | None) -> Iterator[None]:
        """Record a body: wrap everything that it does."""
        now = trio.current_time()
        with self._span(self.bodies, TraceSpan(index, lane, now, now, next(self.ticks))):
            yield

    @contextmanager
    def asking(self, index: int, lane: str) -> Iterator[RequestedCall]:
        """Record a whole call, including waits and retries; pass the result to `call`."""
        request = RequestedCall(index, lane, next(self.ticks), trio.current_time())
        self.requests.append(request)
        try:
            yield request
        finally:
            request.ended_at = trio.current_time()

    @contextmanager
    def call(
        self, request: RequestedCall, lane: str, attempt: int = 0, tokens: int = 0
    ) -> Iterator[TraceSpan]:
        """Record a request: wrap the body of a `send`.

        Args:
            request: The call that it belongs to.
            lane: The lane of the request.
            attempt: The number of the request within its call, from 0.
            tokens: The tokens reserved for it.
        """
        span = TraceSpan(
            request.index, lane, request.asked_at, trio.current_time(), next(self.ticks)
        )
        span.call, span.attempt, span.tokens = request.call, attempt, tokens
        with self._span(self.calls, span):
            yield span

    async def emit(self, outcome: Outcome[Any]) -> None:
        """Record an outcome; a consumer that takes everything at once. Not a checkpoint."""
        self.emissions.append(Emission(trio.current_time(), outcome))

    def settle(self, outcome: Outcome[Any]) -> None:
        """Record an outcome as soon as its job has it."""
        self.settled.append(Settled(trio.current_time(), outcome, len(self.emissions)))

    def sample(self, lanes: Lanes) -> None:
        """Compare the lanes' statistics with the calls in flight; call it when nothing happens."""
        at = trio.current_time()
        for name, lane in lanes.items():
            in_flight = sum(span.lane == name and span.ended is None for span in self.calls)
            self.samples.append(LaneSample(at, name, lane.in_flight, in_flight))

    def stop(self) -> None:
        """Record the stop of the run."""
        self.stopped = next(self.ticks)

    @contextmanager
    def _span(self, spans: list[TraceSpan], span: TraceSpan) -> Iterator[None]:
        spans.append(span)
        try:
            yield
            span.ending = "returned"
        except Exception as error:
            span.ending, span.error = "failed", error
            raise
        finally:
            span.ended_at, span.ended = trio.current_time(), next(self.ticks)


# Functions on traces: the vocabulary of the laws.


def require(law: str, holds: bool, otherwise: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Raise `AssertionError` with the law's name unless `holds`."""
    if not holds:
        msg = f"{law} is broken: {otherwise}"
        raise AssertionError(msg)


def on(spans: Iterable[TraceSpan], lane: LaneSpec) -> list[TraceSpan]:
    """Return the spans on a lane."""
    return [span for span in spans if span.lane == lane.name]


def most_at_once(spans: Sequence[TraceSpan]) -> int:
    """Return the largest number of spans that were open together."""
    steps = sorted(step for span in spans for step in ((span.started, 1), (span.last, -1)))
    return max(itertools.accumulate(change for _, change in steps), default=0)


def rate_bound(starts: Sequence[float], period: float, burst: int) -> float:
    """Return the first instant at which every window with the starts so far still keeps the rate."""
    place = len(starts)
    return max(
        (at + (place - first + 1 - burst) * period for first, at in enumerate(starts)), default=0.0
    )


def late_starts(
    calls: Iterable[TraceSpan], lane: LaneSpec, *, resting: bool = False
) -> list[tuple[TraceSpan, float]]:
    """Yield jobs of a lane whose first request started later than possible, with the right instant.

    Pace and slots decide, by what had started before. Only the time before the first refusal of the lane is
    examined.

    Args:
        calls: The requests on the lane.
        lane: Its configuration.
        resting: Whether a job that will be retried keeps its slot in between.
    """
    starts = sorted(calls, key=lambda span: span.started)
    refused = (span for span in starts if is_refusal(span) or requested_wait(span))
    refused_at = min((span.ended_at for span in refused), default=math.inf)
    over = {span.index: span.ended_at for span in starts}
    period = 60 / lane.rpm if lane.rpm is not None else 0.0
    late, started = [], list[TraceSpan]()
    for place, span in enumerate(starts):
        waiting = next((other for other in starts[place:] if not other.attempt), None)
        if waiting is None:
            break
        ends = [one.ended_at for one in started]
        if resting:
            ends = [over[one.index] for one in started if not one.attempt]
        bounds = [0.0, rate_bound([one.started_at for one in started], period, lane.burst)]
        bounds += [started[-1].started_at + lane.min_gap] if started else []
        bounds += (
            [sorted(ends)[len(ends) - lane.max_concurrency]]
            if len(ends) >= lane.max_concurrency
            else []
        )
        right = max(bounds)
        if right >= refused_at:
            break
        # A job that keeps its slot needs none for its retry.
        if span.started_at > right and not (resting and span.attempt):
            late.append((waiting, right))
        started.append(span)
    return late


def requested_wait(span: TraceSpan) -> float:
    """Return the seconds that the provider asked its lane to wait with a transient failure or refusal."""
    error = span.error
    if isinstance(error, CallError) and error.fault in (Fault.RATE_LIMITED, Fault.TRANSIENT):
        return error.retry_after or 0.0
    return 0.0


def is_refusal(span: TraceSpan) -> bool:
    """Return whether the provider refused a request because there were too many."""
    return isinstance(span.error, CallError) and span.error.fault is Fault.RATE_LIMITED


def working_time(trace: RunTrace, body: TraceSpan) -> float:
    """Return the seconds of a body in which it neither waited for a lane nor rested."""
    within = (body.started_at, body.ended_at)
    calls = [span for span in trace.calls if span.index == body.index]
    requests = [one for one in trace.requests if one.index == body.index]
    instants = {at for call in calls for at in (call.started_at, call.ended_at)}
    instants |= {at for one in requests for at in (one.asked_at, one.ended_at)}
    steps = sorted({*within, *(at for at in instants if within[0] <= at <= within[1])})
    idle = 0.0
    for begin, end in itertools.pairwise(steps):
        waiting = any(one.asked_at <= begin < one.ended_at for one in requests)
        busy = any(call.started_at <= begin < call.ended_at for call in calls)
        if waiting and not busy:
            idle += end - begin
    return body.ended_at - body.started_at - idle


def used_tokens(span: TraceSpan) -> int:
    """Return the tokens that a request used as reported to its lane, or those that it reserved."""
    if span.used is not None:
        return span.used
    turned_away = isinstance(span.error, CallError) and span.error.fault is not Fault.TRANSIENT
    return 0 if turned_away else span.tokens
