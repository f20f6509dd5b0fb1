"""Which tasks of a suite may start when. Pure.

A task starts when all that it depends on are over. If one of them has a row without a verdict, it *lacks*
that: what it would be judged by is not there. What becomes of it then is its policy. Most are over themselves
at that, and what depends on them lacks them. One whose policy is `run` runs all the same; one whose policy is
`block` is held until everything else is over, and then given up with its chain.

A task that was cut off because the budget of the run is used up is no such loss: a resume goes on with it.
So whatever depends on it is left as well, unless something else that it depends on is lost.
"""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

import attrs

from trioeval.agents.dependencies import Lacking, chain_text
from trioeval.errors import PlanError
from trioeval.tasks.endings import TaskEnd
from trioeval.tasks.prepare import PreparedTask


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
