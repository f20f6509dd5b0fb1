"""What may be made next: counters for each open group, and never a search. Pure.

A *job* makes all outputs of one producer for one row (`cell`) or for one group (`scratch`, `full`), or is one
of the stages of a group: `PREPARE` after its scratch columns and before all others (only where the dataset
has processors for that), and `FINISH` when every row that is left has every column.

Groups are opened one after another, in ascending order, by whoever keeps the budget, and closed when they are
written or given up. Only open groups cost memory. A group that is passed over was written before.

A cell may be made when the producers of whole groups that it needs are done, and the cells of its row that it
needs. A full producer may when no row that is left lacks a column that it needs; dropping the last row that
does frees it. An ordered one also waits until it has made the groups before, but for those of which no row is
left. If it does not make one of them, because its job is lost or the group is closed, its turn stays there:
what it makes of later groups may depend on that one, which another run makes first. A group without a row is
finished at once: it has nothing to be made but `FINISH`.

Each change returns what it has made ready and what is no longer to be made, in the order of groups, then
`PREPARE`, graph, `FINISH`, then rows. Misuse is an error (a `RuntimeError`) and never ignored.
"""

from collections import defaultdict, deque
from collections.abc import Iterable

from trioeval.datasets.graph import ColumnGraph
from trioeval.datasets.grouping import Grouping
from trioeval.datasets.jobs import FINISH, NOTHING, PREPARE, Change, MakeJob, in_order
from trioeval.datasets.open_group import OpenGroup, Shape, Told

__all__ = ["FINISH", "PREPARE", "Change", "MakeJob", "Tracker"]


class Tracker:
    """What is made and what is to be made of the open groups.

    Args:
        graph: Who makes what.
        grouping: Which rows make which group.
        prepares: Whether each group has a stage `PREPARE`.
    """

    def __init__(self, graph: ColumnGraph, grouping: Grouping, *, prepares: bool = False) -> None:
        self._grouping = grouping
        self._shape = Shape.of(graph, prepares=prepares)
        self._groups: dict[int, OpenGroup] = {}
        self._last = -1
        """The group that was opened last."""
        self._lines: dict[int, deque[int]] = {
            place: deque() for place, producer in enumerate(graph.producers) if producer.ordered
        }
        """By ordered producer: the groups that it is not over with; the turn is the first one's."""
        self._given_up: dict[int, int] = {}
        """By ordered producer: the first group that was closed before it was over with it."""

    @property
    def open(self) -> tuple[int, ...]:
        """Groups that are open, in the order in which they were opened."""
        return tuple(self._groups)

    def admit(self, group: int, dropped: Iterable[int] = ()) -> Change:
        """Open a group, some of whose rows may be dropped already.

        Groups are opened in ascending order, and each once.
        """
        if not self._last < group < len(self._grouping):
            raise RuntimeError(
                f"group {group} cannot be opened: the last one was {self._last} of"
                f" {len(self._grouping)}; please report this"
            )
        rows = self._grouping.rows_of(group)
        gone = list(dropped)
        for row in gone:
            if row not in rows:
                raise RuntimeError(f"row {row} is not of group {group}; please report this")
        waiting = [place for place, line in self._lines.items() if line]
        opened = OpenGroup(self._shape, group, rows, waiting)
        self._last = group
        self._groups[group] = opened
        for line in self._lines.values():
            line.append(group)
        told = Told()
        opened.open(gone, told)
        if not opened.left:
            self._advance_all(told.ready)
        return told.change()

    def begin(self, job: MakeJob) -> None:
        """A job that is ready has been begun. It may be begun again until it is over."""
        self._group(job.group).begin(job)

    def complete(self, job: MakeJob) -> Change:
        """A job that was begun has made what it makes.

        The outcome of a job whose row was dropped meanwhile is not to be told, nor is that of a job of a
        group of which no row is left, but for `FINISH`.
        """
        ready: list[MakeJob] = []
        self._group(job.group).complete(job, ready)
        if job.producer in self._lines:
            self._advance(job.producer, ready)
        return Change(in_order(ready)) if ready else NOTHING

    def drop(self, rows: Iterable[int]) -> Change:
        """Rows are gone, whatever of them is made. Those that are gone already change nothing.

        Jobs of theirs that are begun are the caller's to cancel; so are those of a group of which no row is
        left, but for `FINISH`.
        """
        by_group: defaultdict[int, list[int]] = defaultdict(list)
        for row in rows:
            by_group[self._grouping.group_of(row)].append(row)
        groups = [(self._group(number), gone) for number, gone in by_group.items()]
        told = Told()
        for group, gone in groups:
            group.drop(gone, told)
        if not all(group.left for group, _ in groups):
            self._advance_all(told.ready)
        return told.change()

    def lose(self, job: MakeJob) -> Change:
        """A job is not made in this run, and nothing that needs it, whether it was ready, begun or neither.

        Its group can no longer finish, unless the row (of a job of a whole group: every row) is dropped.
        """
        ready: list[MakeJob] = []
        self._group(job.group).lose(job)
        if job.producer in self._lines:
            self._advance(job.producer, ready)
        return Change(in_order(ready)) if ready else NOTHING

    def active(self, group: int) -> int:
        """How many jobs of an open group are ready or begun."""
        return self._group(group).active

    def is_stuck(self, group: int) -> bool:
        """Whether an open group has not finished, nothing of it is ready or begun, and nothing will be.

        A group that only waits for an ordered producer's turn is not stuck while that may come.
        """
        found = self._group(group)
        return not (
            found.active
            or found.finished
            or any(
                found.needs_one(place) and line[0] != group and not self._stands(place)
                for place, line in self._lines.items()
            )
        )

    @property
    def standing(self) -> int:
        """How many ordered producers will make nothing more: groups that are behind their turn get stuck."""
        return sum(map(self._stands, self._lines))

    def needed(self, group: int) -> tuple[MakeJob, ...]:
        """What of an open group is not made, lost jobs and `FINISH` among it; in order.

        Of a group that is stuck: what keeps it from its end, for messages.
        """
        return tuple(self._group(group).unmade())

    def is_dropped(self, row: int) -> bool:
        """Whether a row of an open group is gone."""
        return self._group(self._grouping.group_of(row)).is_gone(row)

    def left(self, group: int) -> tuple[int, ...]:
        """The rows of an open group that are not dropped; ascending."""
        return tuple(self._group(group).rows_left())

    def unfinished(self, group: int, producers: Iterable[int]) -> tuple[int, ...]:
        """The rows that are left and lack the cell of one of these producers, begun or not; ascending."""
        found, several = self._group(group), tuple(producers)
        return tuple(
            row
            for row in found.rows_left()
            if not all(found.has_cell(producer, row) for producer in several)
        )

    def close(self, group: int) -> Change:
        """Forget a group: it is written, or given up.

        Returns:
            Of a group that has not finished, what is not made and not begun; those begun are the caller's to
            cancel. And what of other groups waited for it.
        """
        told = Told()
        closed = self._group(group)
        for place in self._lines:
            if not closed.is_over(place):
                self._given_up[place] = min(group, self._given_up.get(place, group))
        closed.close(told)
        del self._groups[group]
        self._advance_all(told.ready)
        return told.change()

    def _group(self, group: int) -> OpenGroup:
        try:
            return self._groups[group]
        except KeyError:
            raise RuntimeError(f"group {group} is not open; please report this") from None

    def _advance_all(self, ready: list[MakeJob]) -> None:
        for place in self._lines:
            self._advance(place, ready)

    def _advance(self, place: int, ready: list[MakeJob]) -> None:
        """Give the turn of an ordered producer to the first group that it is not over with."""
        line = self._lines[place]
        before = len(line)
        while line:
            first = self._groups.get(line[0])
            if first is not None and not first.is_over(place):
                if len(line) < before:
                    first.turn(place, ready)
                return
            if line[0] == self._given_up.get(place):
                return
            line.popleft()

    def _stands(self, place: int) -> bool:
        line = self._lines[place]
        if not line:
            return False
        first = self._groups.get(line[0])
        return line[0] == self._given_up.get(place) if first is None else first.is_lost(place)
