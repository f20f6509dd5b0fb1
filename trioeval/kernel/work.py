"""How a worker runs jobs, one after another, and gives each its outcome.

Failures are data: an `Exception` of the body becomes `Failed`. Cancellation is never caught here. A
`Cancelled` that the job's own scope takes back is a timeout, or the job was withdrawn (see `withdrawal`);
any other one passes, and the `finally` says `Interrupted` on its way. Outcomes are recorded synchronously,
so nothing can come between a result and its record.

One timer, with one cancel scope, serves many jobs. Once it is spent, by a timeout or a job that ended
late, the next job gets another.

Laws: TOTAL, HONEST, LIMIT, DRAIN.
"""

import math
from typing import Protocol

import trio

from trioeval.kernel.calls import Calls
from trioeval.kernel.jobs import Job, P
from trioeval.kernel.outcomes import Done, Failed, Interrupted, TimedOut, V
from trioeval.kernel.run_state import Running
from trioeval.kernel.timeouts import Timer

_PAUSE_AFTER = 0.005
"""Seconds after which a worker lets others run, if no body has done it: none of them has to."""


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

    def rested(self, change: int) -> None:
        """So many more of its jobs rest in a back-off, or fewer."""
        ...


async def work(running: Running[P, V], source: Source[P]) -> None:
    """Run the jobs of a source until it has none for this worker. A checkpoint if it is cancelled."""
    # Sent before the run was cancelled, and running only after it: it would still begin a job.
    await trio.lowlevel.checkpoint_if_cancelled()
    calls: Calls[P] | None = None  # of the job that has no outcome yet
    try:
        while True:
            with Timer(running.timeouts) as timer:
                now = trio.current_time()
                while now < timer.told:
                    job = source.admit_nowait(now) if now < running.pause_at else None
                    if job is None:
                        job = await _wait_job(running, source, timer)
                        now = trio.current_time()
                    if job is None:
                        return
                    calls = running.start(job, timer, now, rested=source.rested)
                    outcome: Done[V] | Failed
                    try:
                        value = await running.perform(job, calls)
                        now = trio.current_time()
                        times = (calls.started_at, now, calls.waited(now))
                        outcome = Done(job.index, *times, calls.count, value)
                    except Exception as error:  # noqa: BLE001 - whatever a body raises is its job's outcome
                        now = trio.current_time()
                        times = (calls.started_at, now, calls.waited(now))
                        outcome = Failed(job.index, *times, calls.count, error)
                    except BaseExceptionGroup as group:
                        raise cancellation_of(group) from None
                    running.finish(calls, outcome)
                    calls = None
                    source.leave()
            if calls is not None:
                running.finish(
                    calls, _cut_off(running, calls) if calls.withdrawn else _timed_out(calls)
                )
                calls = None
                source.leave()
    finally:
        if calls is not None:
            # Only the run's deadline, its failure or the caller's scope gets here with a job under way.
            running.finish(calls, _cut_off(running, calls))
            source.leave()


async def _wait_job(running: Running[P, V], source: Source[P], timer: Timer) -> Job[P] | None:
    """The worker's next job, if it cannot be had at once; no checkpoint after its admission."""
    now = trio.current_time()
    if now >= running.pause_at:
        running.pause_at = now + _PAUSE_AFTER
        await trio.lowlevel.checkpoint()
        job = source.admit_nowait(trio.current_time())
        if job is not None:
            return job
    timer.set(math.inf)  # no job, no timeout
    return await source.admit()


def cancellation_of(group: BaseExceptionGroup[BaseException]) -> BaseExceptionGroup[BaseException]:
    """A body with a nursery of its own was cancelled, and failed while it cleaned up.

    Nobody waits for that failure any more; the cancellation must go on alone.
    """
    cancelled, rest = group.split(trio.Cancelled)
    return cancelled if cancelled is not None and isinstance(rest, ExceptionGroup) else group


def _cut_off(running: Running[P, V], calls: Calls[P]) -> Interrupted:
    now = trio.current_time()
    cut = running.cut(now, started=not calls.withdrawn)
    return Interrupted(calls.job.index, calls.started_at, now, calls.waited(now), calls.count, cut)


def _timed_out(calls: Calls[P]) -> TimedOut:
    now, job = trio.current_time(), calls.job
    return TimedOut(job.index, calls.started_at, now, calls.waited(now), calls.count, job.timeout)
