"""The jobs of a dataset as the indices of a plan, by arithmetic.

Only groups that are not written yet have indices, so a run that is resumed has a plan of what is left. Within
a group: scratch producers, the stage before all others (where there is one), the cells row by row, full
producers, the last stage.

Groups that have jobs make stretches of neighbours that are equally large, but for the last one of each:
within a stretch, a division finds the group of an index.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain

import attrs

from trioeval.datasets.graph import ColumnGraph
from trioeval.datasets.grouping import Grouping
from trioeval.datasets.jobs import FINISH, PREPARE, MakeJob

_BEFORE, _CELLS = 0, 1


@attrs.frozen
class _Stretch:
    groups: range
    base: int
    """The index of its first job."""
    jobs: int
    """Of each of its groups; the last one may have fewer."""


class Numbering:
    """From index to job and back; each in O(log s), of s stretches.

    Args:
        graph: Who makes what.
        grouping: Which rows make which group.
        written: Groups that have no jobs any more. What is kept of them is in proportion to the runs of
            neighbours among them, not to their number.
        prepares: Whether each group has a stage `PREPARE`, as of `Tracker`.

    Raises:
        IndexError: A written group is none of the grouping.
    """

    def __init__(
        self,
        graph: ColumnGraph,
        grouping: Grouping,
        written: Iterable[int] = (),
        *,
        prepares: bool = False,
    ) -> None:
        by_scope: dict[str, list[int]] = {"scratch": [], "cell": [], "full": []}
        for place, producer in enumerate(graph.producers):
            by_scope[producer.scope].append(place)
        self._before = (*by_scope["scratch"], *([PREPARE] if prepares else []))
        self._cells = tuple(by_scope["cell"])
        self._after = (*by_scope["full"], FINISH)
        self._at = {
            producer: (part, place)
            for part, several in enumerate((self._before, self._cells, self._after))
            for place, producer in enumerate(several)
        }
        self._grouping = grouping
        self._stretches: list[_Stretch] = []
        self._size = 0
        for groups in _stretches(grouping, written):
            jobs = self._jobs(grouping.rows_of(groups[0]))
            self._stretches.append(_Stretch(groups, self._size, jobs))
            self._size += jobs * (len(groups) - 1) + self._jobs(grouping.rows_of(groups[-1]))

    def __len__(self) -> int:
        """How many jobs there are."""
        return self._size

    @property
    def groups(self) -> Iterable[int]:
        """The groups that have jobs, in order; made as it is walked."""
        return chain.from_iterable(stretch.groups for stretch in self._stretches)

    def job(self, index: int) -> MakeJob:
        """The job of an index.

        Raises:
            IndexError: There is no such index.
        """
        if not 0 <= index < self._size:
            raise IndexError(f"there is no job {index}; there are {self._size}")
        at = bisect_right(self._stretches, index, key=lambda stretch: stretch.base) - 1
        stretch = self._stretches[at]
        behind, place = divmod(index - stretch.base, stretch.jobs)
        group = stretch.groups[behind]
        if place < len(self._before):
            return MakeJob(self._before[place], group)
        place -= len(self._before)
        rows = self._grouping.rows_of(group)
        if place < len(rows) * len(self._cells):
            behind, place = divmod(place, len(self._cells))
            return MakeJob(self._cells[place], group, rows[behind])
        return MakeJob(self._after[place - len(rows) * len(self._cells)], group)

    def index(self, job: MakeJob) -> int:
        """The index of a job.

        Raises:
            IndexError: There is no such job.
        """
        part, place = self._at.get(job.producer, (None, 0))
        rows = self._grouping.rows_of(job.group)
        at = bisect_right(self._stretches, job.group, key=lambda stretch: stretch.groups.start) - 1
        is_there = part is not None and at >= 0 and job.group in self._stretches[at].groups
        if not is_there or (job.row not in rows if part == _CELLS else job.row is not None):
            raise IndexError(f"there is no {job}")
        stretch = self._stretches[at]
        base = stretch.base + (job.group - stretch.groups.start) * stretch.jobs
        if part == _BEFORE:
            return base + place
        base += len(self._before)
        if job.row is None:
            return base + len(rows) * len(self._cells) + place
        return base + rows.index(job.row) * len(self._cells) + place

    def _jobs(self, rows: range) -> int:
        """How many a group of some rows has."""
        return len(self._before) + len(rows) * len(self._cells) + len(self._after)


def _stretches(grouping: Grouping, written: Iterable[int]) -> Iterator[range]:
    """Groups that are not written, as long ranges of one part each; none of them empty."""
    gone = sorted(set(written))
    for group in gone[:1] + gone[-1:]:
        grouping.rows_of(group)  # there is such a group
    at = 0
    for part in grouping.parts:
        begin = part.start
        while at < len(gone) and gone[at] < part.stop:
            if begin < gone[at]:
                yield range(begin, gone[at])
            begin = gone[at] + 1
            at += 1
        if begin < part.stop:
            yield range(begin, part.stop)
