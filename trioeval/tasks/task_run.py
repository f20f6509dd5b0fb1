"""Runs the tasks of a suite: side by side where they may, on the same lanes, budget, deadline and stop.

Every task is one plan, and every plan is run, also if nothing of it may start any more: that of a task which
is blocked is stopped before it begins, and that of a task whose turn never came begins in a scope that is
cancelled already. So the kernel alone sees to it that every row comes exactly once, in order (laws TOTAL,
ORDER, DEADLINE, DRAIN).
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import attrs
import trio

from trioeval.errors import PlanError
from trioeval.kernel import Budget, Calls, Job, Lanes, Observer, Outcome, Plan, run_plan
from trioeval.tasks.endings import blocked_by_task
from trioeval.tasks.hooks import Hooks
from trioeval.tasks.rows import Row, Status
from trioeval.tasks.task_order import Startable, TaskOrder

_AFTER_ALL = 5.0  # seconds that the end of a run may be told of behind its deadline

Emit = Callable[[Row], Awaitable[None]]
"""What gets the rows, one after another."""


class Body(Protocol):
    """What a task does: a plan, what its jobs do, and the rows that come of them."""

    def plan(self) -> Plan[Any]:
        """The jobs."""
        ...

    async def perform(self, job: Job[Any], calls: Calls[Any], /) -> object:
        """The body of a job."""
        ...

    def rows(self, outcome: Outcome[Any], /) -> Sequence[Row]:
        """The rows that an outcome makes known. Each outcome is given once, in index order."""
        ...


@attrs.frozen(eq=False)
class OpenTask:
    """A task whose providers are open."""

    body: Body
    salvage_rounds: int = 0
    hooks: Hooks | None = None
    """What is told of its end."""


@attrs.define(eq=False)
class TaskRun:
    """What all tasks of one run share."""

    emit: Emit
    """Takes rows of several tasks at once, if there are several."""
    lanes: Lanes
    deadline: float
    """Instant on the Trio clock."""
    stop: trio.Event
    observe: Observer | None
    budget: Budget | None
    counts: dict[Status, int] = attrs.field(init=False, factory=lambda: dict.fromkeys(Status, 0))
    """Rows of all tasks that were emitted."""

    async def perform(self, task: OpenTask, blocked_by: str | None = None) -> bool:
        """Run one task and emit all of its rows. A checkpoint.

        Args:
            task: The task.
            blocked_by: Why nothing of it is called: the id of the task that it lacks.

        Returns:
            Whether every row of it has a verdict.

        Raises:
            Exception: Whatever `emit` raised.
        """
        complete = True

        async def pass_on(outcome: Outcome[Any]) -> None:
            nonlocal complete
            for found in task.body.rows(outcome):
                row = found if blocked_by is None else blocked_by_task(found, blocked_by)
                await self.emit(row)
                self.counts[row.status] += 1
                complete = complete and row.status is not Status.ERROR
                if task.hooks is not None:
                    task.hooks.keep(row)

        await run_plan(
            task.body.plan(),
            task.body.perform,
            lanes=self.lanes,
            emit=pass_on,
            deadline=self.deadline,
            stop=self.stop if blocked_by is None else _stopped(),
            observe=self.observe,
            salvage_rounds=task.salvage_rounds,
            budget=self.budget,
        )
        if task.hooks is not None and blocked_by is None:
            grace_ends = trio.current_time() + _AFTER_ALL
            with trio.CancelScope(deadline=max(self.deadline, grace_ends)) as scope:
                await task.hooks.after_all()
            if scope.cancelled_caught:
                task.hooks.warn("afterAll was cut off: the run's deadline (maxEvalTimeMs) passed")
        return complete

    @property
    def is_cut(self) -> bool:
        """Whether nothing new starts any more, whatever depends on what."""
        return (
            self.stop.is_set()
            or trio.current_time() >= self.deadline
            or trio.current_effective_deadline() == -math.inf
        )


def _stopped() -> trio.Event:
    event = trio.Event()
    event.set()
    return event


def one_at_a_time(emit: Emit) -> Emit:
    """The same for rows that come from several tasks at once."""
    turn = trio.Lock()

    async def emit_in_turn(row: Row) -> None:
        async with turn:
            await emit(row)

    return emit_in_turn


async def run_tasks(tasks: Sequence[OpenTask], order: TaskOrder, run: TaskRun) -> None:
    """Run tasks, each as soon as those that it depends on are over. A checkpoint.

    Args:
        tasks: In the order of the suite.
        order: Which of them wait for which.
        run: What they share.

    Raises:
        PlanError: A lane is missing; nothing was called.
        Exception: Whatever `emit` raised first.
    """
    unknown = sorted({lane for task in tasks for lane in task.body.plan().lanes} - set(run.lanes))
    if unknown:
        msg = f"the tasks start jobs on {unknown}; the lanes are {sorted(run.lanes)}"
        raise PlanError(msg)
    crew = _Crew(tasks, order, run)
    async with trio.open_nursery() as nursery:
        crew.start(order.begin(), nursery)
    if crew.failure is not None:
        raise crew.failure


@attrs.define(eq=False)
class _Crew:
    """The tasks under way."""

    tasks: Sequence[OpenTask]
    order: TaskOrder
    run: TaskRun
    failure: Exception | None = None
    """What the run as a whole failed with."""

    def start(self, startable: Sequence[Startable], nursery: trio.Nursery) -> None:
        for one in startable:
            nursery.start_soon(self._perform, one, nursery, name=f"task {one.place}")

    async def _perform(self, one: Startable, nursery: trio.Nursery) -> None:
        complete = False
        # What was not run because the run ends says so, and not that something else is missing.
        blocked_by = None if self.run.is_cut else one.blocked_by
        try:
            complete = await self.run.perform(self.tasks[one.place], blocked_by)
        except Exception as error:  # noqa: BLE001 - the first one ends the run, and is raised at its end
            self.failure = self.failure or error
            nursery.cancel_scope.cancel("a task failed")
        finally:
            # Also under cancellation: the rows of tasks whose turn has not come are emitted as well.
            if self.failure is None:
                self.start(self.order.over(one.place, complete=complete), nursery)
