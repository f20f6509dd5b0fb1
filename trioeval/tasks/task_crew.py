"""Runs the tasks of a suite: side by side where they may, each as soon as those that it depends on are over.

Some tasks can be opened before anything runs. Others are made of what earlier tasks leave, their rows or a
dataset; they are opened when their turn comes.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

import attrs
import trio

from trioeval.agents.dependencies import Lacking
from trioeval.errors import PlanError
from trioeval.tasks.endings import TaskEnd
from trioeval.tasks.rows import Row, RowsNotRun
from trioeval.tasks.task_order import Startable, TaskOrder
from trioeval.tasks.task_run import Emit, EmitMany, OpenTask, TaskRun


class Runnable(Protocol):
    """A task whose turn may come."""

    @property
    def lanes(self) -> Collection[str]:
        """The lanes on which its jobs start."""
        ...

    def perform(self, run: TaskRun, lacking: Lacking | None, /) -> Awaitable[TaskEnd]:
        """Run it. A checkpoint.

        Args:
            run: What all tasks share.
            lacking: Why nothing of it is called: the task that it lacks.

        Returns:
            How it ended: what depends on it may run if it is complete.

        Raises:
            Exception: What the run as a whole fails with.
        """
        ...


@attrs.frozen(eq=False)
class OpenedTask:
    """A task of rows that is open."""

    task: OpenTask

    @property
    def lanes(self) -> Collection[str]:
        """As of `Runnable`."""
        return self.task.body.plan().lanes

    async def perform(self, run: TaskRun, lacking: Lacking | None) -> TaskEnd:
        """As of `Runnable`."""
        return await run.perform(self.task, lacking)


@attrs.frozen(eq=False)
class LateTask:
    """A task that is opened when those that it is made of are over."""

    lanes: Collection[str]
    perform: Callable[[TaskRun, Lacking | None], Awaitable[TaskEnd]]
    """As of `Runnable`; opens it, and closes it again."""


def one_at_a_time(emit: Emit, emit_many: EmitMany | None) -> tuple[Emit, EmitMany | None]:
    """The same for rows that come from several tasks at once."""
    turn = trio.Lock()

    async def emit_in_turn(row: Row) -> None:
        async with turn:
            await emit(row)

    async def emit_many_in_turn(rows: RowsNotRun) -> None:
        if emit_many is not None:
            async with turn:
                await emit_many(rows)

    return emit_in_turn, None if emit_many is None else emit_many_in_turn


async def run_tasks(
    tasks: Sequence[Runnable], order: TaskOrder, run: TaskRun, warn: Callable[[str], None]
) -> None:
    """Run tasks, each as soon as those that it depends on are over. A checkpoint.

    Args:
        tasks: In the order of the suite.
        order: Which of them wait for which.
        run: What they share.
        warn: Told in a line of each task that is given up because nothing can change any more.

    Raises:
        PlanError: A lane is missing; nothing was called.
        Exception: Whatever `emit` raised first.
    """
    unknown = sorted({lane for task in tasks for lane in task.lanes} - set(run.lanes))
    if unknown:
        msg = f"the tasks start jobs on {unknown}; the lanes are {sorted(run.lanes)}"
        raise PlanError(msg)
    crew = _Crew(tasks, order, run, warn)
    async with trio.open_nursery() as nursery:
        crew.start(order.begin(), nursery)
    if crew.failure is not None:
        raise crew.failure


@attrs.define(eq=False)
class _Crew:
    """The tasks under way."""

    tasks: Sequence[Runnable]
    order: TaskOrder
    run: TaskRun
    warn: Callable[[str], None]
    failure: Exception | None = None
    """What the run as a whole failed with."""

    def start(self, startable: Sequence[Startable], nursery: trio.Nursery) -> None:
        for one in startable:
            nursery.start_soon(self._perform, one, nursery, name=f"task {one.place}")

    async def _perform(self, one: Startable, nursery: trio.Nursery) -> None:
        end: TaskEnd = "incomplete"
        # What was not run because the run ends says so, and not that something else is missing.
        lacking = None if self.run.is_cut else one.lacking
        if lacking is not None and one.chain is not None:
            self.warn(f"a task is blocked for good: {one.chain}")
        try:
            end = await self.tasks[one.place].perform(self.run, lacking)
        except Exception as error:  # noqa: BLE001 - the first one ends the run, and is raised at its end
            self.failure = self.failure or error
            nursery.cancel_scope.cancel("a task failed")
        finally:
            # Also under cancellation: the rows of tasks whose turn has not come are emitted as well.
            if self.failure is None:
                self.start(self.order.over(one.place, end), nursery)
