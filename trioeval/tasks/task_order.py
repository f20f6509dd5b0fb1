"""Which tasks of a suite may start when. Pure.

A task starts when all that it depends on are over. It is *blocked* if one of them has a row without a
verdict: what it would be judged by is not there. It is over then itself, and blocks what depends on it.
"""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

import attrs

from trioeval.errors import PlanError
from trioeval.tasks.prepare import PreparedTask


@attrs.frozen
class Startable:
    """A task that waits for nothing any more."""

    place: int
    """Its position among the tasks."""
    blocked_by: str | None = None
    """The first task that it depends on and that is not complete; None if it may run."""


@attrs.define(eq=False)
class TaskOrder:
    """What depends on what, and what is over. Good for one run."""

    _tasks: Sequence[PreparedTask]
    _sorter: "TopologicalSorter[str | None]"
    _incomplete: set[str | None] = attrs.field(init=False, factory=set)

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

    def over(self, place: int, *, complete: bool) -> Sequence[Startable]:
        """A task is over, and these waited for it last.

        Args:
            place: Its position.
            complete: Whether every row of it has a verdict.
        """
        task = self._tasks[place]
        if not complete:
            self._incomplete.add(task.id)
        self._sorter.done(task.id)
        return self._ready()

    def _ready(self) -> list[Startable]:
        ready = set(self._sorter.get_ready())
        return [
            Startable(place, next(filter(self._incomplete.__contains__, task.depends_on), None))
            for place, task in enumerate(self._tasks)
            if task.id in ready
        ]
