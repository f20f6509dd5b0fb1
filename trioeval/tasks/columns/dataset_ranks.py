"""In which order the jobs of a lane start: older groups first, and the columns of a group by turns."""

import attrs

from trioeval.datasets.fair import FairLine
from trioeval.tasks.columns.dataset_groups import ReadyJob
from trioeval.tasks.columns.making import LOCAL


@attrs.define(eq=False)
class Ranks:
    """The ranks of jobs that may start.

    Those that take no time have their group alone, and come before the cells of it if they are of all of it.
    """

    _lines: dict[str, FairLine] = attrs.field(factory=dict)
    _given: dict[int, tuple[FairLine, tuple[float, float]]] = attrs.field(factory=dict)
    """To jobs that have not started."""

    def rank(self, index: int, ready: ReadyJob, weight: float) -> tuple[float, ...]:
        """Where a job stands that may start now."""
        if ready.lane == LOCAL:
            return (ready.job.group, ready.job.row is not None)
        line = self._lines.get(ready.lane)
        if line is None:
            line = self._lines[ready.lane] = FairLine()
        rank = line.rank(ready.job.producer, ready.job.group, weight)
        self._given[index] = line, rank
        return rank

    def started(self, index: int) -> None:
        """A job starts."""
        given = self._given.pop(index, None)
        if given is not None:
            line, rank = given
            line.started(rank)

    def forget(self, index: int) -> None:
        """A job will not start."""
        self._given.pop(index, None)

    def close(self, group: int) -> None:
        """Nothing of a group will start."""
        for line in self._lines.values():
            line.close(group)
