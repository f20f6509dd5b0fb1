"""Runs the tasks of a suite: concurrently where possible, each as soon as its dependencies have ended.

Some tasks can be opened before the run. Others use the rows or the dataset of an earlier task; they are
opened when that task has ended.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Protocol

import attrs
import trio

from trioeval.errors import PlanError
from trioeval.evaluation.outcomes import TaskEnd
from trioeval.evaluation.prepared import PreparedTask
from trioeval.evaluation.row import Row, RowsNotRun
from trioeval.evaluation.task_run import Emit, EmitMany, OpenTask, TaskRun
from trioeval.suite.dependencies import Unsatisfied, chain_text

# The order of the tasks of a suite. Pure.
#
# A task starts when all of its dependencies have ended. If one of them has a row without a verdict, that
# dependency is incomplete, and the policy of the task decides. With most policies the task ends without being
# run, and its own dependants find it incomplete. A task with the policy `run` runs anyway; one with the
# policy `block` is held until all other tasks have ended, and then given up, with the chain of dependencies.
#
# A task that was cut off because the budget of the run is exhausted counts differently, because a resume
# continues it: its dependants are not run either, unless another dependency is incomplete.


@attrs.frozen
class StartableTask:
    """A task that no longer waits."""

    place: int
    """Its position among the tasks."""
    lacking: Unsatisfied | None = None
    """The incomplete dependency by which it is not run; None if it may run."""
    chain: str | None = None
    """The reason in one sentence if it was held and is given up now."""


@attrs.define(eq=False, repr=False)
class TaskOrder:
    """The dependencies of tasks, and the tasks that have ended. For a single run."""

    _tasks: Sequence[PreparedTask]
    _sorter: "TopologicalSorter[str | None]"
    _incomplete: set[str | None] = attrs.field(init=False, factory=set)
    _cut: set[str | None] = attrs.field(init=False, factory=set)
    _active: int = attrs.field(init=False, default=0)
    """The number of started tasks that have not ended."""
    _waiting_tasks: list[int] = attrs.field(init=False, factory=list)
    """Indices of the tasks that are held until all others have ended."""

    @classmethod
    def of(cls, tasks: Sequence[PreparedTask]) -> "TaskOrder":
        """Return the order before any task has started.

        Raises:
            PlanError: Two tasks have the same id, a dependency does not exist, or tasks depend on each other
                in a cycle.
        """
        ids = [task.id for task in tasks]
        if len(set(ids)) < len(ids):
            msg = f"task ids must be unique, got {ids}"
            raise PlanError(msg)
        graph = {task.id: task.depends_on for task in tasks}
        for task in tasks:
            for unknown in set(task.depends_on) - set(ids):
                msg = f"task {task.id!r} depends on {unknown!r}; the tasks are {ids}"
                raise PlanError(msg)
        sorter: TopologicalSorter[str | None] = TopologicalSorter(graph)
        try:
            sorter.prepare()
        except CycleError as error:
            path = " → ".join(map(str, reversed(error.args[1])))
            msg = f"tasks depend on each other in a cycle: {path}"
            raise PlanError(msg) from None
        return cls(tasks, sorter)

    def begin(self) -> Sequence[StartableTask]:
        """Return the tasks without dependencies; called first, and once."""
        return self._ready()

    def over(self, place: int, end: TaskEnd) -> Sequence[StartableTask]:
        """Return the tasks that can start after a task has ended.

        Args:
            place: The index of the task that has ended.
            end: How it ended.
        """
        task = self._tasks[place]
        if end == "incomplete":
            self._incomplete.add(task.id)
        elif end == "cut":
            self._cut.add(task.id)
        self._active -= 1
        self._sorter.done(task.id)
        return self._ready()

    def _ready(self) -> list[StartableTask]:
        ready = set(self._sorter.get_ready())
        found: list[StartableTask] = []
        for place, task in enumerate(self._tasks):
            if task.id not in ready:
                continue
            by, policy = self._first_lost(task), task.when_failed
            if by is None or policy == "run":
                cut = next(filter(self._cut.__contains__, task.depends_on), None)
                found.append(StartableTask(place, None if cut is None else Unsatisfied(cut, "cut")))
            elif policy == "block":
                self._waiting_tasks.append(place)
            else:
                found.append(StartableTask(place, Unsatisfied(by, policy)))
        if not found and not self._active:
            found = [self._given_up(place) for place in sorted(self._waiting_tasks)]
            self._waiting_tasks.clear()
        self._active += len(found)
        return found

    def _first_lost(self, task: PreparedTask) -> str | None:
        return next(filter(self._incomplete.__contains__, task.depends_on), None)

    def _given_up(self, place: int) -> StartableTask:
        chain = [str(self._tasks[place].id)]
        by_id = {task.id: task for task in self._tasks}
        following = self._first_lost(self._tasks[place])
        while following is not None:
            chain.append(following)
            task = by_id[following]
            # A task that ran in spite of a missing dependency is incomplete for another reason.
            following = None if task.when_failed == "run" else self._first_lost(task)
        return StartableTask(
            place, Unsatisfied(chain[1], "stuck"), chain_text(chain, "not complete")
        )


class Runnable(Protocol):
    """A task that may be run in its turn."""

    @property
    def lanes(self) -> Collection[str]:
        """The lanes on which its jobs start."""
        ...

    def perform(self, run: TaskRun, lacking: Unsatisfied | None, /) -> Awaitable[TaskEnd]:
        """Run the task. A checkpoint.

        Args:
            run: The shared state of all tasks.
            lacking: The incomplete dependency by which no calls are made.

        Returns:
            How it ended: its dependants may run if it is complete.

        Raises:
            Exception: The failure of the whole run.
        """
        ...


@attrs.frozen(eq=False, repr=False)
class OpenedTask:
    """A task with rows that is open."""

    task: OpenTask

    @property
    def lanes(self) -> Collection[str]:
        """The lanes, as in `Runnable`."""
        return [lane for lane in self.task.body.plan().lanes if lane is not None]

    async def perform(self, run: TaskRun, lacking: Unsatisfied | None) -> TaskEnd:
        """Run the task, as in `Runnable`."""
        return await run.perform(self.task, lacking)


@attrs.frozen(eq=False, repr=False)
class LateTask:
    """A task that is opened when the tasks that provide its rows have ended."""

    lanes: Collection[str]
    perform: Callable[[TaskRun, Unsatisfied | None], Awaitable[TaskEnd]]
    """As in `Runnable`; opens the task, and closes it again."""


def one_at_a_time(emit: Emit, emit_many: EmitMany | None) -> tuple[Emit, EmitMany | None]:
    """Return callbacks that are called with one row at a time by concurrent tasks."""
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
    """Run tasks, each as soon as its dependencies have ended. A checkpoint.

    Args:
        tasks: The tasks, in the order of the suite.
        order: Their dependencies.
        run: Their shared state.
        warn: Called with a message for each task that is given up because it can never run.

    Raises:
        PlanError: A lane is missing; nothing was called.
        Exception: Whatever `emit` raised first.
    """
    unknown = sorted({lane for task in tasks for lane in task.lanes} - set(run.lanes))
    if unknown:
        msg = f"the tasks need the lanes {unknown}; the lanes are {sorted(run.lanes)}"
        raise PlanError(msg)
    running = _RunningTasks(tasks, order, run, warn)
    async with trio.open_nursery() as nursery:
        running.start(order.begin(), nursery)
    if running.failure is not None:
        raise running.failure


@attrs.define(eq=False, repr=False)
class _RunningTasks:
    """The tasks that are running."""

    tasks: Sequence[Runnable]
    order: TaskOrder
    run: TaskRun
    warn: Callable[[str], None]
    failure: Exception | None = None
    """The failure of the whole run."""

    def start(self, startable: Sequence[StartableTask], nursery: trio.Nursery) -> None:
        for one in startable:
            nursery.start_soon(self._perform, one, nursery, name=f"task {one.place}")

    async def _perform(self, one: StartableTask, nursery: trio.Nursery) -> None:
        end: TaskEnd = "incomplete"
        # Rows that are not run because the run is ending say that, and not that a dependency is missing.
        lacking = None if self.run.is_ending else one.lacking
        if lacking is not None and one.chain is not None:
            self.warn(f"a task cannot be run: {one.chain}")
        try:
            end = await self.tasks[one.place].perform(self.run, lacking)
        except Exception as error:  # noqa: BLE001 - the first one ends the run, and is raised after it
            self.failure = self.failure or error
            nursery.cancel_scope.cancel("a task failed")
        finally:
            # Also under cancellation: the rows of tasks that have not started are emitted as well.
            if self.failure is None:
                self.start(self.order.over(one.place, end), nursery)
