"""How a worker runs jobs, one after another, and gives each its outcome.

Failures are data: an `Exception` of the body becomes `Failed`. Cancellation is never caught here. A
`Cancelled` that the job's own scope takes back is a timeout; any other one passes, and the `finally` says
`Interrupted` on its way. Outcomes are recorded synchronously, so nothing can come between a result and
its record.

One cancel scope serves many jobs, because moving a deadline costs a third of entering a scope. A scope
that was cancelled is spent: after a timeout, or a job that ended late, the next one gets another.

Laws: TOTAL, HONEST, LIMIT.
"""

import math
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol

import attrs
import trio

from trioeval.kernel.calls import Calls
from trioeval.kernel.events import Admitted, Finished, Observer, Waiting, Why
from trioeval.kernel.jobs import Job, P
from trioeval.kernel.lane import Lanes
from trioeval.kernel.ledger import Ledger
from trioeval.kernel.outcomes import Cut, Done, Failed, Interrupted, Outcome, TimedOut, V

_PAUSE_AFTER = 0.005
"""Seconds after which a worker lets others run, if no body has done it: none of them has to."""


@attrs.define(eq=False)
class Running(Generic[P, V]):
    """What all workers of one run share."""

    perform: Callable[[Job[P], Calls[P]], Awaitable[V]]
    lanes: Lanes
    ledger: Ledger[V]
    deadline: float
    stop: trio.Event
    observe: Observer | None
    scope: trio.CancelScope
    """What all jobs of the run live in; its deadline is the run's."""
    pause_at: float = -math.inf
    """When a worker between two jobs has to let others run."""
    failure: Exception | None = None
    """What the run as a whole failed with; raised to its caller at the end."""

    def admits(self, now: float) -> bool:
        """Whether new jobs may still start."""
        return now < self.deadline and not self.stop.is_set()

    def start(self, job: Job[P], scope: trio.CancelScope) -> Calls[P]:
        """Begin a job now: from here on it has an outcome other than `NotRun`."""
        now = trio.current_time()
        calls = Calls(
            job, self.lanes.by_name, scope, now=now, deadline=self.deadline, observe=self.observe
        )
        self.lanes.by_name[job.lane].favour(calls)
        return calls

    def finish(self, calls: Calls[P], outcome: Outcome[V]) -> None:
        """Give a job its outcome."""
        calls.close()
        self.ledger.record(outcome)
        if self.observe is not None:
            self.observe(Finished(trio.current_time(), outcome))

    def tell_gate(self, lane: str, index: int | None) -> None:
        """Tell the observer that a job has to wait for the serial gate."""
        if self.observe is not None:
            self.observe(Waiting(trio.current_time(), lane, Why.GATE, None, index))

    def cut(self, now: float, *, started: bool) -> Cut:
        """Why a job was cut off at `now`, or not started until then."""
        if self.failure is not None:
            return Cut.FAULT
        if now >= self.deadline:
            return Cut.DEADLINE
        return Cut.STOP if self.stop.is_set() and not started else Cut.CANCEL

    def close(self) -> None:
        """No job is under way any more and none will start."""
        self.ledger.cut = self.cut(trio.current_time(), started=False)
        self.ledger.close()

    def fail(self, error: Exception) -> None:
        """End the run because of a fault that is not a job's."""
        if self.failure is None:
            self.failure = error
        self.scope.cancel(f"the run failed: {error}")


class Source(Protocol[P]):
    """Where a worker gets its jobs from.

    Between the return of either `admit` and the start of the job there is no checkpoint.
    """

    def admit_nowait(self, now: float) -> Job[P] | None:
        """The next job, if its lane can serve it at `now`."""
        ...

    async def admit(self) -> Job[P] | None:
        """The next job, at an instant at which its lane can serve it; None sends the worker home."""
        ...

    def leave(self) -> None:
        """A job of this source is over."""
        ...


async def work(running: Running[P, V], source: Source[P]) -> None:
    """Run the jobs of a source until it has none for this worker."""
    calls: Calls[P] | None = None  # of the job that has no outcome yet
    try:
        while True:
            with trio.CancelScope() as scope:
                # Past its deadline a scope is spent, whether Trio has noticed yet or not.
                while (now := trio.current_time()) < scope.deadline:
                    job = await _next_job(running, source, scope, now)
                    if job is None:
                        return
                    calls = running.start(job, scope)
                    outcome = await _perform(running, calls)
                    running.finish(calls, outcome)
                    calls = None
                    source.leave()
            if calls is not None:
                running.finish(calls, _timed_out(calls))
                calls = None
                source.leave()
    finally:
        if calls is not None:
            # Only the run's deadline, its failure or the caller's scope gets here with a job under way.
            now = trio.current_time()
            times = (calls.job.index, calls.started_at, now, calls.waited(now), calls.count)
            running.finish(calls, Interrupted(*times, running.cut(now, started=True)))
            source.leave()


async def _next_job(
    running: Running[P, V], source: Source[P], scope: trio.CancelScope, now: float
) -> Job[P] | None:
    """The worker's next job; no checkpoint between its admission and the return."""
    if now >= running.pause_at:
        running.pause_at = now + _PAUSE_AFTER
        await trio.lowlevel.checkpoint()
        now = trio.current_time()
    job = source.admit_nowait(now)
    if job is None:
        scope.deadline = math.inf  # no job, no timeout
        job = await source.admit()
    return job


async def _perform(running: Running[P, V], calls: Calls[P]) -> Outcome[V]:
    job = calls.job
    try:
        if running.observe is not None:
            running.observe(Admitted(calls.started_at, job.index, job.lane))
        value = await running.perform(job, calls)
    except Exception as error:  # noqa: BLE001 - whatever a body raises is its job's outcome
        return _failed(calls, error)
    except BaseExceptionGroup as group:
        # A body with a nursery of its own that was cancelled, and failed while it cleaned up. Nobody waits
        # for that failure any more; the cancellation must go on alone.
        cancelled, rest = group.split(trio.Cancelled)
        if cancelled is not None and isinstance(rest, ExceptionGroup):
            raise cancelled from None
        raise
    now = trio.current_time()
    return Done(job.index, calls.started_at, now, calls.waited(now), calls.count, value)


def _failed(calls: Calls[P], error: Exception) -> Failed:
    now = trio.current_time()
    return Failed(calls.job.index, calls.started_at, now, calls.waited(now), calls.count, error)


def _timed_out(calls: Calls[P]) -> TimedOut:
    now, job = trio.current_time(), calls.job
    return TimedOut(job.index, calls.started_at, now, calls.waited(now), calls.count, job.timeout)
