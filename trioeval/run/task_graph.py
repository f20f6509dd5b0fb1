"""Runs the tasks of a suite: side by side where they may, each as soon as those that it depends on are over.

Some tasks can be opened before anything runs. Others are made of what earlier tasks leave, their rows or a
dataset; they are opened when their turn comes.
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
from trioeval.suite.dependencies import Lacking, chain_text

# Which tasks of a suite may start when. Pure.
#
# A task starts when all that it depends on are over. If one of them has a row without a verdict, it *lacks*
# that: what it would be judged by is not there. What becomes of it then is its policy. Most are over
# themselves at that, and what depends on them lacks them. One whose policy is `run` runs all the same; one
# whose policy is `block` is held until everything else is over, and then given up with its chain.
#
# A task that was cut off because the budget of the run is used up is no such loss: a resume goes on with it.
# So whatever depends on it is left as well, unless something else that it depends on is lost.


@attrs.frozen
class Startable:
    """A task that waits for nothing any more."""

    place: int
    """Its position among the tasks."""
    lacking: Lacking | None = None
    """What it lacks, so that nothing of it is called; None if it may run."""
    chain: str | None = None
    """Why it was held and is given up now, in a sentence; None where it was not."""


@attrs.define(eq=False)
class TaskOrder:
    """What depends on what, and what is over. Good for one run."""

    _tasks: Sequence[PreparedTask]
    _sorter: "TopologicalSorter[str | None]"
    _incomplete: set[str | None] = attrs.field(init=False, factory=set)
    _cut: set[str | None] = attrs.field(init=False, factory=set)
    _active: int = attrs.field(init=False, default=0)
    """Tasks that were started and are not over."""
    _held: list[int] = attrs.field(init=False, factory=list)
    """Places of those that wait until everything else is over."""

    @classmethod
    def of(cls, tasks: Sequence[PreparedTask]) -> "TaskOrder":
        """Nothing has started yet.

        Raises:
            PlanError: Two tasks have one id, one depends on a task that there is not, or they wait for
                each other.
        """
        ids = [task.id for task in tasks]
        if len(set(ids)) < len(ids):
            msg = f"the ids of tasks must be different, got {ids}"
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
            msg = f"tasks wait for each other: {path}"
            raise PlanError(msg) from None
        return cls(tasks, sorter)

    def begin(self) -> Sequence[Startable]:
        """The tasks that depend on none; asked for first, and once."""
        return self._ready()

    def over(self, place: int, end: TaskEnd) -> Sequence[Startable]:
        """A task is over, and these waited for it last.

        Args:
            place: Its position.
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

    def _ready(self) -> list[Startable]:
        ready = set(self._sorter.get_ready())
        found: list[Startable] = []
        for place, task in enumerate(self._tasks):
            if task.id not in ready:
                continue
            by, policy = self._first_lost(task), task.when_failed
            if by is None or policy == "run":
                cut = next(filter(self._cut.__contains__, task.depends_on), None)
                found.append(Startable(place, None if cut is None else Lacking(cut, "cut")))
            elif policy == "block":
                self._held.append(place)
            else:
                found.append(Startable(place, Lacking(by, policy)))
        if not found and not self._active:
            found = [self._given_up(place) for place in sorted(self._held)]
            self._held.clear()
        self._active += len(found)
        return found

    def _first_lost(self, task: PreparedTask) -> str | None:
        return next(filter(self._incomplete.__contains__, task.depends_on), None)

    def _given_up(self, place: int) -> Startable:
        chain = [str(self._tasks[place].id)]
        by_id = {task.id: task for task in self._tasks}
        following = self._first_lost(self._tasks[place])
        while following is not None:
            chain.append(following)
            task = by_id[following]
            # What ran although it lacked something is not complete for a reason of its own.
            following = None if task.when_failed == "run" else self._first_lost(task)
        return Startable(place, Lacking(chain[1], "stuck"), chain_text(chain, "not complete"))


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
        return [lane for lane in self.task.body.plan().lanes if lane is not None]

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
