"""One run of one plan: opens everything, closes everything, and emits every outcome in index order.

Two halves live side by side. The jobs run inside a scope that has the run's deadline. The sink runs
outside of it, so that what was finished is emitted however the jobs ended; and it is shielded, so that the
same holds when the caller is cancelled. A shield without an end would make the caller's deadline no
deadline: once the caller has been cancelled and the last job is over, the sink has its last seconds.

Laws: TOTAL, ORDER, PROMPT, DEADLINE, DRAIN, LEAK.
"""

import math
from collections.abc import Awaitable, Callable, Mapping

import attrs
import trio

from trioeval.errors import PlanError
from trioeval.kernel.backlog import Backlog
from trioeval.kernel.calls import Calls
from trioeval.kernel.events import Observer, guarded
from trioeval.kernel.jobs import Job, P, Plan
from trioeval.kernel.lanes import Lanes
from trioeval.kernel.ledger import Ledger, Sink
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
from trioeval.kernel.readiness import check_edges
from trioeval.kernel.run_state import RunState
from trioeval.kernel.workers import LaneWorkers, SerialJobs, work
from trioeval.rates import Budget


@attrs.frozen
class Summary:
    """How a run ended, in numbers."""

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
        return (
            self.done
            + self.failed
            + self.timed_out
            + self.interrupted
            + self.blocked
            + self.not_run
        )


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
    flush_grace: float = 5.0,
) -> Summary:
    """Run every job of a plan and emit every outcome once, in index order. A checkpoint.

    Cancelling the surrounding scope ends the jobs at once; what was finished is still emitted, and every
    other job with it as `Interrupted` or `NotRun`, before this call gives way.

    Args:
        plan: What to do.
        perform: The body of a job. It reaches lanes through `calls(lane, send, *args)` only.
        lanes: The lanes, which other runs may use at the same time.
        emit: Awaited with one outcome after another. Its time does not count against the deadline, and
            jobs do not wait for it: outcomes that it has not taken yet are kept in memory.
        settled: Told of each outcome as soon as its job has it, before it is emitted, in the order in which
            jobs end. Those of jobs that the run never came to are only emitted. After an exception it is
            not called again.
        never_ran: Awaited in place of `emit` with jobs that the run never came to: the indices of those
            that follow each other, and the outcome of the first one, which is that of all of them. None
            emits each.
        deadline: Instant on the Trio clock at which everything under way is cut.
        stop: When set, no new job starts and those under way run to their end, but for those that have
            made no request and need a permit for it: they are `Interrupted`.
        observe: Told of everything as it happens; see `events`.
        max_live_jobs: Jobs of one lane, or on none, that may be started and not over, ≥ 1; those that rest
            in a back-off do not count, but with them there are at most 16 times as many. None allows the
            widths of all lanes together and 256 more.
        salvage_rounds: How often a job that failed by mishap is run once more, when nothing else can go
            on, ≥ 0.
        reorder_window: How many outcomes may wait for an earlier one or for `emit`, ≥ 1: a job starts
            only if its index is less than that far ahead. None bounds nothing.
        budget: What all calls together may use; other runs may share it.
        flush_grace: Seconds that emitting may still take after the caller was cancelled, ≥ 0.

    Returns:
        How many jobs ended in which way.

    Raises:
        PlanError: The plan does not fit the lanes or itself.
        Exception: Whatever `emit` or `settled` raised; the run is ended for it.

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
    _check(plan, lanes, max_live_jobs, salvage_rounds, reorder_window)
    _check_times(deadline, flush_grace)
    ledger: Ledger[V] = Ledger(len(plan.jobs))
    backlog = Backlog(
        plan, range(len(plan.jobs)) if plan.serial else frozenset(plan.serial_indices)
    )
    running = RunState(
        lanes,
        deadline,
        trio.Event() if stop is None else stop,
        perform,
        ledger,
        backlog,
        salvage_rounds,
        math.inf if reorder_window is None else reorder_window,
        settled,
        observe=guarded(observe),
        budget=budget,
    )
    sink = Sink(ledger, emit, None if reorder_window is None else running.pass_on, never_ran)
    started_at = trio.current_time()
    flush = _Flush(flush_grace)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flush.watch_caller)
        nursery.start_soon(_run_jobs, running, plan, max_live_jobs, flush, name="jobs")
        with flush.scope:
            try:
                await sink.drain()
            except Exception as error:  # noqa: BLE001 - the consumer's fault ends the run
                running.fail(error)
        nursery.cancel_scope.cancel("every outcome is emitted")
    if running.failure is not None:
        raise running.failure
    return _summary(sink.counts, started_at)


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

    A caller that may cancel it and wants what was finished gives `run_plan` an `emit` of its own.

    Raises:
        PlanError: The plan does not fit the lanes or itself.
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


def _check(
    plan: Plan[P],
    lanes: Lanes,
    max_live_jobs: int | None,
    salvage_rounds: int,
    reorder_window: int | None,
) -> None:
    unknown = sorted(name for name in plan.lanes if name is not None and name not in lanes)
    if unknown:
        msg = f"the plan starts jobs on {unknown}; the lanes are {sorted(lanes)}"
        raise PlanError(msg)
    least = {"max_live_jobs": 1, "salvage_rounds": 0, "reorder_window": 1}
    given = {
        "max_live_jobs": max_live_jobs,
        "salvage_rounds": salvage_rounds,
        "reorder_window": reorder_window,
    }
    for name, value in given.items():
        if value is not None and (type(value) is not int or value < least[name]):
            msg = f"{name} must be a whole number of at least {least[name]}, got {value!r}"
            raise PlanError(msg)
    if reorder_window is not None and plan.readiness is not None:
        msg = "a reorder window needs to know the order of jobs; this plan decides it while it runs"
        raise PlanError(msg)
    plan.check_serial_indices()
    check_edges(plan)
    ahead = [(index, edge.on) for index, several in plan.edges.items() for edge in several]
    if reorder_window is not None and any(on > index for index, on in ahead):
        found = next(f"{index} waits for {on}" for index, on in ahead if on > index)
        msg = f"a reorder window needs dependencies on earlier jobs; {found}"
        raise PlanError(msg)


def _check_times(deadline: float, flush_grace: float) -> None:
    if math.isnan(deadline):
        raise PlanError("deadline must be an instant on the Trio clock, got nan")
    if not 0 <= flush_grace < math.inf:
        msg = f"flush_grace must be at least 0 seconds and finite, got {flush_grace!r}"
        raise PlanError(msg)


@attrs.define
class _Flush:
    """The shield around emitting, which ends `grace` seconds after the caller and the jobs have gone."""

    grace: float
    scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    _caller_gone: bool = False
    _jobs_gone: bool = False

    def __attrs_post_init__(self) -> None:
        # Test: test_a_cancelled_caller_still_gets_every_outcome.
        self.scope.shield = True

    async def watch_caller(self) -> None:
        """Unshielded beside the sink: the caller's cancellation ends it."""
        try:
            await trio.sleep_forever()
        finally:
            self._caller_gone = True
            self._bound()

    def jobs_over(self) -> None:
        """Bodies may clean up for a while after they were cancelled; the sink waits for their outcomes."""
        self._jobs_gone = True
        self._bound()

    def _bound(self) -> None:
        if self._caller_gone and self._jobs_gone:
            self.scope.deadline = trio.current_time() + self.grace


async def _run_jobs(
    running: RunState[P, V], plan: Plan[P], max_live_jobs: int | None, flush: _Flush
) -> None:
    """Everything that the deadline cuts: first the serial jobs, then all lanes side by side."""
    alone = range(len(plan.jobs)) if plan.serial else plan.serial_indices
    try:
        with running.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_watch_stop, running)
                nursery.start_soon(running.timeouts.keep)
                if alone:
                    line = SerialJobs(running, plan, iter(alone))
                    running.sources = [line]
                    await work(running, line)
                if not plan.serial:
                    await _run_lanes(running, plan, max_live_jobs)
                nursery.cancel_scope.cancel("every job is over")
    finally:
        running.close()
        flush.jobs_over()


async def _run_lanes(running: RunState[P, V], plan: Plan[P], max_live_jobs: int | None) -> None:
    served = [running.lanes[name] for name in plan.lanes if name is not None]
    crews = [LaneWorkers(running, lane, max_live_jobs) for lane in served]
    if None in plan.lanes or plan.needs_no_lane is not None:
        crews.append(LaneWorkers(running, None, max_live_jobs))
    running.sources = list(crews)
    async with trio.open_nursery() as lanes:
        for crew in crews:
            lanes.start_soon(
                crew.serve, name="no lane" if crew.lane is None else f"lane {crew.name}"
            )


async def _watch_stop(running: RunState[P, V]) -> None:
    await running.stop.wait()
    running.drain()


def _summary(counts: Mapping[type, int], started_at: float) -> Summary:
    kinds = (Done, Failed, TimedOut, Interrupted, Blocked, NotRun)
    return Summary(started_at, trio.current_time(), *(counts.get(kind, 0) for kind in kinds))
