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

    @property
    def last(self) -> float:
        """The end's sequence number, infinite if it never ended."""
        return math.inf if self.ended is None else self.ended


@attrs.define
class Wait:
    """The time from asking for a call to its start, or to giving up."""

    index: int
    asked_at: float
    ended_at: float = math.inf


@attrs.frozen
class Emission:
    """One outcome as the consumer got it."""

    at: float
    outcome: Outcome[Any]


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

    size: int
    """Jobs of the plan."""
    lanes: Sequence[LaneSpec]
    serial: frozenset[int]
    """Jobs that had to run alone."""
    timeouts: Sequence[float]
    """Seconds of working time, by job."""
    max_live_jobs: int
    """Jobs of a lane that could be started and not over."""
    deadline: float
    stopped_at: float
    """When `stop` was set; infinite if it was not."""
    cancelled_at: float
    """When the caller cancelled; infinite if not."""
    ended_at: float
    """When the run returned."""
    bodies: Sequence[Span]
    calls: Sequence[Span]
    waits: Sequence[Wait]
    emissions: Sequence[Emission]
    samples: Sequence[Sample]
    events: Sequence[Event]
    left_over: Sequence[str]
    """What was still alive after the run returned, in words; empty is right."""


@attrs.define
class Recorder:
    """Writes a trace. One for each run; runs that are compared step by step share `ticks`."""

    ticks: Iterator[int] = attrs.field(factory=lambda: itertools.count(1))
    """Where sequence numbers come from."""
    bodies: list[Span] = attrs.field(factory=list)
    calls: list[Span] = attrs.field(factory=list)
    waits: list[Wait] = attrs.field(factory=list)
    emissions: list[Emission] = attrs.field(factory=list)
    samples: list[Sample] = attrs.field(factory=list)
    events: list[Event] = attrs.field(factory=list)

    @contextmanager
    def body(self, index: int, lane: str) -> Iterator[None]:
        """Put around everything that a job's body does."""
        with self._span(self.bodies, index, lane, trio.current_time()):
            yield

    @contextmanager
    def asking(self, index: int) -> Iterator[Wait]:
        """Put around the request for a call, with its wait; give the result to `call`."""
        wait = Wait(index, trio.current_time())
        self.waits.append(wait)
        try:
            yield wait
        finally:
            wait.ended_at = min(wait.ended_at, trio.current_time())

    @contextmanager
    def call(self, wait: Wait, lane: str) -> Iterator[None]:
        """Put around what is in flight: the body of a `send`."""
        wait.ended_at = trio.current_time()
        with self._span(self.calls, wait.index, lane, wait.asked_at):
            yield

    async def emit(self, outcome: Outcome[Any]) -> None:
        """A consumer that takes everything at once. Not a checkpoint."""
        self.emissions.append(Emission(trio.current_time(), outcome))

    def sample(self, lanes: Lanes) -> None:
        """Hold what the lanes say of themselves against what is in flight; call it when nothing happens."""
        at = trio.current_time()
        for name, lane in lanes.items():
            in_flight = sum(span.lane == name and span.ended is None for span in self.calls)
            self.samples.append(Sample(at, name, lane.in_flight, in_flight))

    @contextmanager
    def _span(self, spans: list[Span], index: int, lane: str, asked_at: float) -> Iterator[None]:
        span = Span(index, lane, asked_at, trio.current_time(), next(self.ticks))
        spans.append(span)
        try:
            yield
            span.ending = "returned"
        except Exception:
            span.ending = "failed"
            raise
        finally:
            span.ended_at, span.ended = trio.current_time(), next(self.ticks)
