"""What happened in a run, as seen from outside the scheduler.

The recorder stands in the bodies, sends and consumers of a run and writes down what it sees there; it
never asks the scheduler. Every record has its instant on the Trio clock and a sequence number, because
one instant may hold many steps.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import attrs
import trio

from trioeval.kernel import Event, Lanes, LaneSpec, Outcome
from trioeval.testing.scenario import Scenario


@attrs.define
class Span:
    """Something that began and ended: a job's body or one call."""

    index: int
    """The job."""
    lane: str
    """The lane of the call; the job's first lane for a body."""
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
    questions: Sequence[Span] = ()
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
    questions: list[Span] = attrs.field(factory=list)
    samples: list[Sample] = attrs.field(factory=list)
    events: list[Event] = attrs.field(factory=list)
    stopped: float = math.inf

    @contextmanager
    def body(self, index: int, lane: str) -> Iterator[None]:
        """Put around everything that a job's body does."""
        now = trio.current_time()
        with self._span(self.bodies, Span(index, lane, now, now, next(self.ticks))):
            yield

    @contextmanager
    def question(self, index: int, lane: str) -> Iterator[None]:
        """Put around the question whether a job needs nothing of its lane."""
        now = trio.current_time()
        with self._span(self.questions, Span(index, lane, now, now, next(self.ticks))):
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
