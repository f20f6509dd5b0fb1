"""One run of one plan: opens everything, closes everything, and emits every outcome in index order.

Two halves run side by side. The jobs run inside a scope that has the run's deadline. The sink runs outside of
it, so that finished jobs are emitted however the others end; and it is shielded, so that the same holds when
the caller is cancelled. An unlimited shield would make the caller's deadline void: once the caller has been
cancelled and the last job is over, the sink has a grace period of seconds.

Laws: TOTAL, ORDER, PROMPT, DEADLINE, DRAIN, LEAK.
"""

import math
from collections.abc import Awaitable, Callable

import attrs
import trio

from trioeval.errors import PlanError
from trioeval.kernel.arguments import (
    check_async_function,
    check_deadline,
    check_plain_function,
    described,
)
from trioeval.kernel.calls import Calls
from trioeval.kernel.events import Observer, guarded
from trioeval.kernel.jobs import Job, P, Plan
from trioeval.kernel.lanes import Lanes, check_lanes
from trioeval.kernel.outcomes import (
    Blocked,
    Done,
    Failed,
    Interrupted,
    NotRun,
    Outcome,
    TimedOut,
    V,
)
from trioeval.kernel.readiness import check_plan
from trioeval.kernel.run_state import PAUSE_AFTER, RunState
from trioeval.kernel.workers import LaneWorkers, SerialJobs, work
from trioeval.rates import Budget


@attrs.frozen
class Summary:
    """The outcomes of a run, in numbers."""

    started_at: float
    """Seconds on the Trio clock."""
    finished_at: float
    done: int
    failed: int
    timed_out: int
    interrupted: int
    blocked: int
    not_run: int

    @property
    def size(self) -> int:
        """Jobs of the plan; each is in exactly one of the six numbers."""
        ran = self.done + self.failed + self.timed_out + self.interrupted
        return ran + self.blocked + self.not_run


async def run_plan(
    plan: Plan[P],
    perform: Callable[[Job[P], Calls[P]], Awaitable[V]],
    *,
    lanes: Lanes,
    emit: Callable[[Outcome[V]], Awaitable[None]],
    settled: Callable[[Outcome[V]], None] | None = None,
    never_ran: Callable[[range, NotRun], Awaitable[None]] | None = None,
    deadline: float = math.inf,
    stop: trio.Event | None = None,
    observe: Observer | None = None,
    max_live_jobs: int | None = None,
    salvage_rounds: int = 0,
    reorder_window: int | None = None,
    budget: Budget | None = None,
    pause_after: float = PAUSE_AFTER,
    flush_grace: float = 5.0,
) -> Summary:
    """Run every job of a plan and emit every outcome once, in index order. A checkpoint.

    Cancelling the surrounding scope ends the jobs at once; finished jobs are still emitted, and every other
    job with them as `Interrupted` or `NotRun`, before this call returns.

    Args:
        plan: The jobs.
        perform: The body of a job. It reaches lanes through `calls(lane, send, *args)` only.
        lanes: The lanes, which other runs may use at the same time.
        emit: Awaited with one outcome after another. Its time does not count against the deadline.
            Jobs do not wait for it, except when thousands of outcomes whose turn has come wait for it in
            memory.
        settled: Called with each outcome as soon as its job has it, before it is emitted, in the order in
            which jobs end. Outcomes of jobs that were never started are only emitted. After an exception it
            is not called again.
        never_ran: Awaited in place of `emit` with jobs that were never started: a range of consecutive
            indices, and the outcome of the first one, which all of them share. None emits each of them.
        deadline: Instant on the Trio clock at which everything that runs is cut off.
        stop: When set, no new job starts and running jobs continue to their end, except those that have made
            no request and need a permit for it: they are `Interrupted`.
        observe: Called with every event as it happens; see `events`.
        max_live_jobs: Bound of the jobs of one lane, or on none, that are started and not over, ≥ 1. Jobs
            that rest in a back-off do not count, but including them there are at most 16 times as many. None
            allows the max concurrency of all lanes together plus 256.
        salvage_rounds: Number of times that a job with transient failures is run once more, when no other
            job can continue, ≥ 0.
        reorder_window: Bound of the outcomes that wait for an earlier one or for `emit`, ≥ 1: a job starts
            only if its index is less than that far ahead. None sets no bound.
        budget: The budget of all calls together; other runs may share it.
        pause_after: Seconds after which a worker between two jobs lets other tasks run, ≥ 0, since a body
            need not have a checkpoint. On a virtual clock every job lasts longer: a simulation whose bodies
            all have a checkpoint needs no pause, and passes infinity.
        flush_grace: Seconds that emitting may still take after the caller was cancelled, ≥ 0.

    Returns:
        The number of jobs for each kind of outcome.

    Raises:
        PlanError: The plan does not fit the lanes or itself; or an argument is of the wrong kind, such as a
            `perform` that is not an async function.
        Exception: Any that `emit` or `settled` raised; it ends the run.

    Example:
        >>> async def double(job, calls):
        ...     return await calls(job.lane, send, job.payload)
        >>> async def send(number):
        ...     await trio.sleep(1)
        ...     return 2 * number
        >>> async def main():
        ...     plan = Plan.of(Job(i, "a", payload=i) for i in range(3))
        ...     outcomes = []
        ...
        ...     async def emit(outcome):
        ...         outcomes.append(outcome.value)
        ...
        ...     await run_plan(plan, double, lanes=Lanes([LaneSpec("a")]), emit=emit)
        ...     return outcomes
        >>> trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
        [0, 2, 4]
    """
    _check_kinds(plan, lanes)
    _check_lanes(plan, lanes)
    check_async_function("perform", perform, takes="job, calls")
    check_async_function("emit", emit, takes="outcome")
    if never_ran is not None:
        check_async_function("never_ran", never_ran, takes="indices, outcome")
    check_plain_function("settled", settled, takes="outcome")
    check_plain_function("observe", observe, takes="event")
    _check_numbers(max_live_jobs, salvage_rounds, reorder_window)
    check_plan(plan, in_window=reorder_window is not None)
    check_deadline(deadline)
    if not pause_after >= 0:
        msg = f"pause_after must be at least 0 seconds, got {pause_after!r}"
        raise PlanError(msg)
    if not 0 <= flush_grace < math.inf:
        msg = f"flush_grace must be at least 0 seconds and finite, got {flush_grace!r}"
        raise PlanError(msg)
    running = RunState(
        lanes,
        deadline,
        trio.Event() if stop is None else stop,
        plan,
        perform,
        salvage_rounds,
        math.inf if reorder_window is None else reorder_window,
        settled,
        observe=guarded(observe),
        budget=budget,
        pause_after=pause_after,
    )
    ledger = running.ledger
    started_at = trio.current_time()
    # Test: test_a_cancelled_caller_still_gets_every_outcome.
    flush = trio.CancelScope(shield=True)

    async def run_jobs() -> None:
        try:
            await _run_jobs(running, max_live_jobs)
            await trio.sleep_forever()  # until every outcome is emitted, or the caller is cancelled
        finally:
            # Not before: bodies may clean up for a while after they were cancelled.
            flush.deadline = trio.current_time() + flush_grace

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_jobs, name="jobs")
        with flush:
            try:
                await ledger.drain(emit, never_ran, running.on_emitted)
            except Exception as error:  # noqa: BLE001 - an error of the consumer ends the run
                running.fail(error)
        nursery.cancel_scope.cancel("every outcome is emitted")
    if running.failure is not None:
        raise running.failure
    kinds = (Done, Failed, TimedOut, Interrupted, Blocked, NotRun)
    counts = (ledger.counts.get(kind, 0) for kind in kinds)
    return Summary(started_at, trio.current_time(), *counts)


async def collect(
    plan: Plan[P],
    perform: Callable[[Job[P], Calls[P]], Awaitable[V]],
    *,
    lanes: Lanes,
    deadline: float = math.inf,
    stop: trio.Event | None = None,
    observe: Observer | None = None,
    max_live_jobs: int | None = None,
    salvage_rounds: int = 0,
    budget: Budget | None = None,
) -> list[Outcome[V]]:
    """Run a plan like `run_plan` and return its outcomes, `outcomes[i].index == i`. A checkpoint.

    To keep finished outcomes when cancelled, call `run_plan` with your own `emit`.

    Raises:
        PlanError: As for `run_plan`.
    """
    outcomes: list[Outcome[V]] = []

    async def emit(outcome: Outcome[V]) -> None:  # noqa: ASYNC124 - lists do not wait
        outcomes.append(outcome)

    await run_plan(
        plan,
        perform,
        lanes=lanes,
        emit=emit,
        deadline=deadline,
        stop=stop,
        observe=observe,
        max_live_jobs=max_live_jobs,
        salvage_rounds=salvage_rounds,
        budget=budget,
    )
    return outcomes


def _check_numbers(
    max_live_jobs: int | None, salvage_rounds: int, reorder_window: int | None
) -> None:
    for name, value, least in (
        ("max_live_jobs", max_live_jobs, 1),
        ("salvage_rounds", salvage_rounds, 0),
        ("reorder_window", reorder_window, 1),
    ):
        if value is not None and (type(value) is not int or value < least):
            msg = f"{name} must be a whole number of at least {least}, got {value!r}"
            raise PlanError(msg)


def _check_kinds(plan: object, lanes: object) -> None:
    """Raise if something else was given, such as the jobs themselves."""
    if not isinstance(plan, Plan):
        msg = f"plan must be a Plan, got {described(plan)}: write Plan.of(jobs)"
        raise PlanError(msg)
    check_lanes(lanes)


def _check_lanes(plan: Plan[P], lanes: Lanes) -> None:
    unknown = sorted(name for name in plan.lanes if name is not None and name not in lanes)
    if unknown:
        msg = f"the plan starts jobs on {unknown}; the lanes are {sorted(lanes)}"
        raise PlanError(msg)


async def _run_jobs(running: RunState[P, V], max_live_jobs: int | None) -> None:
    """Run everything that the deadline cuts: first the serial jobs, then all lanes side by side."""
    try:
        with running.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(running.watch_stop)
                nursery.start_soon(running.timeouts.keep)
                if running.plan.alone:
                    line = SerialJobs(running)
                    running.sources = [line]
                    await work(running, line)
                if not running.plan.serial:
                    await _run_lanes(running, max_live_jobs)
                nursery.cancel_scope.cancel("every job is over")
    finally:
        running.close()


async def _run_lanes(running: RunState[P, V], max_live_jobs: int | None) -> None:
    plan = running.plan
    served = [running.lanes[name] for name in plan.lanes if name is not None]
    workers = [LaneWorkers(running, lane, max_live_jobs) for lane in served]
    if None in plan.lanes or plan.needs_no_lane is not None:
        workers.append(LaneWorkers(running, None, max_live_jobs))
    running.sources = list(workers)
    async with trio.open_nursery() as nursery:
        for lane_workers in workers:
            nursery.start_soon(lane_workers.serve, name=lane_workers.title)
