"""The producers of columns and their dependencies.

A *producer* makes one column or several, and side-effect columns. It is named after its first column.
Producers depend on each other through columns; a producer's own columns are not dependencies. A side-effect
column with the name of a real column is ignored: the real one wins.
"""

import difflib
import heapq
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

import attrs

from trioeval.errors import DatasetError
from trioeval.text import counted

# Rows in groups: fixed forever by their numbers.
#
# Group sizes follow from the original target and never change: 5 rows in groups of 2 are 2, 2, 1. A dataset
# that is extended keeps them; the new rows make additional groups after them.


@attrs.frozen
class RowGrouping:
    """The assignment of rows to groups. Cheap for any number of rows.

    Raises:
        DatasetError: The size is less than 1, or the targets are not ascending numbers of at least 1.

    Example:
        >>> grouping = RowGrouping(2, (5,))
        >>> [list(grouping.rows_of(group)) for group in range(len(grouping))]
        [[0, 1], [2, 3], [4]]
        >>> [list(grouping.extended(7).rows_of(group)) for group in range(4)][-2:]
        [[4], [5, 6]]
    """

    size: int
    """Rows of a group, ≥ 1; the last group before each target may have fewer."""
    targets: tuple[int, ...]
    """The requested number of rows, first and after each extension; ascending, never empty, each ≥ 1."""

    def __attrs_post_init__(self) -> None:
        if self.size < 1:
            raise DatasetError(f"groups have at least 1 row, not {self.size}")
        if not self.targets or any(low >= high for low, high in pairwise((0, *self.targets))):
            raise DatasetError(
                f"the targets of a dataset are ascending numbers of at least 1, not {self.targets}"
            )

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.targets[-1]

    @cached_property
    def _ends(self) -> tuple[int, ...]:
        """The number of groups up to each target."""
        ends, groups, start = [], 0, 0
        for target in self.targets:
            groups -= (start - target) // self.size  # the quotient, rounded up
            ends.append(groups)
            start = target
        return tuple(ends)

    @property
    def parts(self) -> tuple[range, ...]:
        """The groups of each target: all of a part have `size` rows, except the last one."""
        return tuple(range(low, high) for low, high in pairwise((0, *self._ends)))

    def __len__(self) -> int:
        """Return the number of groups."""
        return self._ends[-1]

    def rows_of(self, group: int) -> range:
        """Return the rows of a group.

        Raises:
            IndexError: The group does not exist.
        """
        if not 0 <= group < len(self):
            raise IndexError(f"group {group} does not exist; there are {len(self)}")
        part = bisect_right(self._ends, group)
        behind = group - (self._ends[part - 1] if part else 0)
        start = (self.targets[part - 1] if part else 0) + behind * self.size
        return range(start, min(start + self.size, self.targets[part]))

    def group_of(self, row: int) -> int:
        """Return the group of a row.

        Raises:
            IndexError: The row does not exist.
        """
        if not 0 <= row < self.rows:
            raise IndexError(f"row {row} does not exist; there are {self.rows}")
        part = bisect_right(self.targets, row)
        if not part:
            return row // self.size
        return self._ends[part - 1] + (row - self.targets[part - 1]) // self.size

    def groups(self) -> Iterator[range]:
        """Return the rows of all groups, in order."""
        return map(self.rows_of, range(len(self)))

    def extended(self, target: int) -> "RowGrouping":
        """Return the grouping with more rows; itself if `target` is its number of rows.

        Raises:
            DatasetError: The target is below the number of rows.
        """
        if target == self.rows:
            return self
        if target < self.rows:
            raise DatasetError(
                f"a dataset of {counted(self.rows, 'row')} cannot be reduced to {target}"
            )
        return RowGrouping(self.size, (*self.targets, target))


# The jobs of a dataset.


PREPARE = -1
FINISH = -2


class MakeJob(NamedTuple):
    """One job of a dataset."""

    producer: int
    """The producer's index in the graph, or `PREPARE`, or `FINISH`."""
    group: int
    row: int | None = None
    """The row of a cell; None for a whole group."""


Scope: TypeAlias = Literal["scratch", "cell", "full"]
"""`scratch` makes a whole group of rows from nothing; `cell` one row at a time; `full` a whole group from the
columns that exist."""


@attrs.frozen(kw_only=True)
class Producer:
    """A maker of columns and its dependencies."""

    name: str
    outputs: tuple[str, ...]
    """Its columns, `name` first."""
    extras: tuple[str, ...] = ()
    """Its side-effect columns; one with the name of a real column is ignored."""
    requires: tuple[str, ...] = ()
    scope: Scope = "cell"
    ordered: bool = False
    """True if it makes group N before group N+1; not for cells."""


@attrs.frozen
class GraphMistake:
    """A reason why producers do not form a valid graph."""

    producer: int
    """The index of the producer with the mistake."""
    message: str
    hint: str | None = None


@attrs.frozen(eq=False)
class ColumnGraph:
    """Producers in an order in which each comes after those that it needs; made by `ColumnGraph.of`."""

    producers: tuple[Producer, ...]
    """In that order; ties as they were declared. All other fields use the indices of this sequence."""
    columns: tuple[tuple[str, ...], ...]
    """For each producer its columns: its outputs, then its side-effect columns that are not ignored."""
    upstream: tuple[tuple[int, ...], ...]
    """For each producer those that it needs directly; ascending."""
    downstream: tuple[tuple[int, ...], ...]
    """For each producer those that need it directly; ascending."""
    maker: Mapping[str, int]
    """The producer of each column, including side-effect columns."""

    @classmethod
    def of(cls, producers: Sequence[Producer]) -> "ColumnGraph":
        """Return the graph.

        Raises:
            DatasetError: It has a mistake, see `mistakes`.
        """
        if found := cls.mistakes(producers):
            messages = (
                f"column {producers[one.producer].name!r}: {one.message}"
                + (f"; {one.hint}" if one.hint else "")
                for one in found
            )
            raise DatasetError("\n".join(messages))
        columns = _columns(producers)
        needs = _needs(producers, _makers(columns))
        order = _in_order(needs)
        place = {declared: place for place, declared in enumerate(order)}
        upstream = [tuple(sorted(place[need] for need in needs[one])) for one in order]
        downstream: list[list[int]] = [[] for _ in order]
        for dependant, several in enumerate(upstream):
            for need in several:
                downstream[need].append(dependant)
        sorted_columns = tuple(columns[one] for one in order)
        return cls(
            tuple(producers[one] for one in order),
            sorted_columns,
            tuple(upstream),
            tuple(map(tuple, downstream)),
            MappingProxyType(_makers(sorted_columns)),
        )

    @staticmethod
    def mistakes(producers: Sequence[Producer]) -> list[GraphMistake]:
        """Return everything that is wrong, by producer.

        These are columns with two producers, unknown columns, cycles with their path (one for each strongly
        connected part), scratch producers with requirements, and ordered cells.
        """
        maker = _makers(_columns(producers))
        found = [*_made_twice(producers), *_out_of_scope(producers, maker)]
        for place, producer in enumerate(producers):
            for name in dict.fromkeys(producer.requires):
                if name not in maker:
                    others = sorted(other for other in maker if maker[other] != place)
                    near = difflib.get_close_matches(name, others, n=1)
                    hint = f'did you mean "{near[0]}"?' if near else None
                    message = f'it needs column "{name}", which does not exist'
                    found.append(GraphMistake(place, message, hint))
        found += _cycles(producers, _needs(producers, maker))
        return sorted(found, key=lambda mistake: mistake.producer)

    def below(self, producer: int) -> frozenset[int]:
        """Return the producers that need a producer, directly or through others."""
        found: set[int] = set()
        waiting = [producer]
        while waiting:
            more = set(self.downstream[waiting.pop()]) - found
            found |= more
            waiting += more
        return frozenset(found)

    def jobs(self, rows: int, groups: int) -> int:
        """Return the number of jobs: one per row for cell producers, one per group for the others."""
        cells = sum(producer.scope == "cell" for producer in self.producers)
        return rows * cells + groups * (len(self.producers) - cells)


def _columns(producers: Sequence[Producer]) -> list[tuple[str, ...]]:
    """Return the columns of each producer, without side-effect columns that real columns hide."""
    real = {name for producer in producers for name in producer.outputs}
    return [
        (*producer.outputs, *(name for name in producer.extras if name not in real))
        for producer in producers
    ]


def _makers(columns: Iterable[Sequence[str]]) -> dict[str, int]:
    return {name: place for place, several in enumerate(columns) for name in several}


def _needs(producers: Sequence[Producer], maker: Mapping[str, int]) -> list[set[int]]:
    """Return for each producer the indices of those that it needs, never itself."""
    return [
        {maker[name] for name in producer.requires if name in maker} - {place}
        for place, producer in enumerate(producers)
    ]


def _made_twice(producers: Sequence[Producer]) -> Iterable[GraphMistake]:
    first: dict[str, int] = {}
    for place, several in enumerate(_columns(producers)):
        for name in several:
            other = first.setdefault(name, place)
            if other != place:
                message = f'column "{name}" is also made by "{producers[other].name}"'
                yield GraphMistake(place, message)
        for name in sorted({name for name in several if several.count(name) > 1}):
            yield GraphMistake(place, f'column "{name}" is listed twice')


def _out_of_scope(
    producers: Sequence[Producer], maker: Mapping[str, int]
) -> Iterable[GraphMistake]:
    for place, producer in enumerate(producers):
        foreign = [name for name in producer.requires if maker.get(name) != place]
        if producer.scope == "scratch" and foreign:
            message = f'a producer of scope "scratch" cannot need column "{foreign[0]}"'
            yield GraphMistake(place, message, 'use scope "full"')
        if producer.scope == "cell" and producer.ordered:
            yield GraphMistake(place, "cells are made in any order", "leave out `ordered`")


def _cycles(producers: Sequence[Producer], needs: Sequence[set[int]]) -> Iterable[GraphMistake]:
    """Yield one cycle of each strongly connected part: a found cycle is removed before the next search."""
    left = {place: sorted(several) for place, several in enumerate(needs)}
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle: list[int] = error.args[1][:0:-1]  # each node needs the next one
        else:
            return
        begin = circle.index(min(circle))
        path = [*circle[begin:], *circle[:begin], circle[begin]]
        names = " → ".join(producers[place].name for place in path)
        yield GraphMistake(path[0], f"columns depend on each other in a circle: {names}")
        gone = set(circle)
        left = {
            place: [need for need in several if need not in gone]
            for place, several in left.items()
            if place not in gone
        }


def _in_order(needs: Sequence[set[int]]) -> list[int]:
    """Return a topological order (Kahn's algorithm); ties in the order of declaration."""
    missing = [len(several) for several in needs]
    dependants: list[list[int]] = [[] for _ in needs]
    for place, several in enumerate(needs):
        for need in several:
            dependants[need].append(place)
    may_come = [place for place, count in enumerate(missing) if not count]
    order = []
    while may_come:
        place = heapq.heappop(may_come)
        order.append(place)
        for dependant in dependants[place]:
            missing[dependant] -= 1
            if not missing[dependant]:
                heapq.heappush(may_come, dependant)
    return order


# The jobs of a dataset as the indices of a plan, by arithmetic.
#
# Only groups that are not written yet have indices, so a resumed run has a plan of the rest. Within a group:
# scratch producers, the stage before all others (if there is one), the cells row by row, full producers, the
# last stage.
#
# The groups with jobs form stretches of consecutive groups of equal size, except the last one of each: within
# a stretch, a division finds the group of an index.


_BEFORE, _CELLS = 0, 1


@attrs.frozen
class _GroupRange:
    groups: range
    base: int
    """The index of its first job."""
    jobs: int
    """The jobs of each of its groups; the last group may have fewer."""


class JobNumbering:
    """Conversion between index and job; each in O(log s) for s stretches.

    Args:
        graph: The producers.
        grouping: The rows of each group.
        written: Groups that have no more jobs. Memory is proportional to the number of runs of consecutive
            groups among them, not to their number.
        prepares: True if each group has a stage `PREPARE`, as in `OpenGroups`.

    Raises:
        IndexError: A written group does not exist.
    """

    def __init__(
        self,
        graph: ColumnGraph,
        grouping: RowGrouping,
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
        self._stretches: list[_GroupRange] = []
        self._size = 0
        for groups in _stretches(grouping, written):
            jobs = self._jobs(grouping.rows_of(groups[0]))
            self._stretches.append(_GroupRange(groups, self._size, jobs))
            self._size += jobs * (len(groups) - 1) + self._jobs(grouping.rows_of(groups[-1]))

    def __len__(self) -> int:
        """Return the number of jobs."""
        return self._size

    @property
    def groups(self) -> Iterable[int]:
        """The groups that have jobs, in order; lazily."""
        return chain.from_iterable(stretch.groups for stretch in self._stretches)

    def job(self, index: int) -> MakeJob:
        """Return the job with an index.

        Raises:
            IndexError: The index does not exist.
        """
        if not 0 <= index < self._size:
            raise IndexError(f"job {index} does not exist; there are {self._size}")
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
        """Return the index of a job.

        Raises:
            IndexError: The job does not exist.
        """
        part, place = self._at.get(job.producer, (None, 0))
        rows = self._grouping.rows_of(job.group)
        at = bisect_right(self._stretches, job.group, key=lambda stretch: stretch.groups.start) - 1
        is_there = part is not None and at >= 0 and job.group in self._stretches[at].groups
        if not is_there or (job.row not in rows if part == _CELLS else job.row is not None):
            raise IndexError(f"{job} does not exist")
        stretch = self._stretches[at]
        base = stretch.base + (job.group - stretch.groups.start) * stretch.jobs
        if part == _BEFORE:
            return base + place
        base += len(self._before)
        if job.row is None:
            return base + len(rows) * len(self._cells) + place
        return base + rows.index(job.row) * len(self._cells) + place

    def _jobs(self, rows: range) -> int:
        """Return the number of jobs of a group with some rows."""
        return len(self._before) + len(rows) * len(self._cells) + len(self._after)


def _stretches(grouping: RowGrouping, written: Iterable[int]) -> Iterator[range]:
    """Yield the groups that are not written, as long non-empty ranges within one part."""
    groups = sorted(set(written))
    for group in groups[:1] + groups[-1:]:
        grouping.rows_of(group)  # raises if it does not exist
    at = 0
    for part in grouping.parts:
        begin = part.start
        while at < len(groups) and groups[at] < part.stop:
            if begin < groups[at]:
                yield range(begin, groups[at])
            begin = groups[at] + 1
            at += 1
        if begin < part.stop:
            yield range(begin, part.stop)
