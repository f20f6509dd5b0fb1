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

from array import array
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator

import attrs

from trioeval.columns.graph import (
    FINISH,
    NOTHING,
    PREPARE,
    Change,
    ColumnGraph,
    Grouping,
    MakeJob,
    in_order,
)

__all__ = ["FINISH", "PREPARE", "Change", "MakeJob", "Tracker"]

# What is made and what is to be made of one open group. Pure.
#
# Each producer is a node, and so are the two stages. A node that makes the group as a whole has one state; a
# node of cells has one for each row. Nothing is ever looked through to find what may be made next:
#
# - a node counts the nodes that must be complete for the whole group before it (`_missing`). Of a node of
#   cells these are those that make whole groups; its cells count for themselves the cells of their row that
#   they still need (`_needs`);
# - a node of cells counts the rows that are left and have no cell (`_lacking`): at 0 it is complete, whether
#   the last one was made or dropped.
#
# So a cell that is made costs one step for each node that needs it, and a row that is dropped one for each
# node of cells.


_WAITING, _READY, _BEGUN, _DONE, _LOST, _GONE = range(6)
_NAMES = ("waits", "is ready", "is begun", "is complete", "is lost", "was dropped")


@attrs.frozen(eq=False)
class Shape:
    """What is the same for all groups.

    Nodes are places of the graph, and behind them the stages, so that -1 and -2 find these in sequences.
    """

    nodes: int
    prepares: bool
    needs: dict[int, int]
    """How many cells of its row a cell needs, by node of cells."""
    missing: tuple[int, ...]
    """How many nodes must be complete for the whole group before a node."""
    same_row: tuple[tuple[int, ...], ...]
    """Whose cells need one of a node in their row."""
    whole_group: tuple[tuple[int, ...], ...]
    """Who needs a node to be complete for the whole group."""

    @classmethod
    def of(cls, graph: ColumnGraph, *, prepares: bool) -> "Shape":
        """The shape of the groups of a graph."""
        size = len(graph.producers)
        scopes = [producer.scope for producer in graph.producers]
        needs = {place: 0 for place in range(size) if scopes[place] == "cell"}
        missing = [0] * (size + 2)
        same_row: list[list[int]] = [[] for _ in range(size + 2)]
        whole_group: list[list[int]] = [[] for _ in range(size + 2)]
        for place in range(size):
            for need in graph.upstream[place]:
                if place in needs and need in needs:
                    needs[place] += 1
                    same_row[need].append(place)
                else:
                    whole_group[need].append(place)
            if prepares and scopes[place] == "scratch":
                whole_group[place].append(PREPARE)
            elif prepares:
                whole_group[PREPARE].append(place)
            whole_group[place].append(FINISH)
        if prepares:
            whole_group[PREPARE].append(FINISH)
        for several in whole_group:
            for node in several:
                missing[node] += 1
        return cls(
            size + 2,
            prepares,
            needs,
            tuple(missing),
            tuple(map(tuple, same_row)),
            tuple(map(tuple, whole_group)),
        )


@attrs.define(eq=False)
class Told:
    """A change while it comes about."""

    ready: list[MakeJob] = attrs.field(factory=list)
    removed: list[MakeJob] = attrs.field(factory=list)
    never: list[MakeJob] = attrs.field(factory=list)

    def change(self) -> Change:
        """All of it, in order."""
        if not (self.ready or self.removed or self.never):
            return NOTHING
        return Change(in_order(self.ready), in_order(self.removed), in_order(self.never))


class OpenGroup:
    """The counters of one group.

    Args:
        shape: Of all groups.
        number: Which one it is.
        rows: Its rows.
        waiting: Ordered producers whose turn has not come in this group.
    """

    def __init__(self, shape: Shape, number: int, rows: range, waiting: Iterable[int]) -> None:
        size = len(rows)
        self.rows = rows
        self.left = size
        """Rows that are not dropped."""
        self.active = 0
        """Jobs that are ready or begun."""
        self._number = number
        self._shape = shape
        self._gone = bytearray(size)
        self._states = bytearray(shape.nodes)
        if not shape.prepares:
            self._states[PREPARE] = _DONE
        self._missing = list(shape.missing)
        for node in waiting:
            self._missing[node] += 1
        self._cells = {node: bytearray(size) for node in shape.needs}
        self._needs = {node: array("I", [count]) * size for node, count in shape.needs.items()}
        self._lacking = dict.fromkeys(shape.needs, size)

    def open(self, dropped: Iterable[int], told: Told) -> None:
        """Say what may be made from the start."""
        self.drop(dropped, told)
        if self.left:
            for node in range(-2, self._shape.nodes - 2):
                if not self._missing[node]:
                    self._release(node, told.ready)

    def begin(self, job: MakeJob) -> None:
        """A job that is ready is begun, or begun again."""
        states, place = self._find(job)
        if states[place] not in (_READY, _BEGUN):
            raise self._misuse(job, "begun", states[place])
        states[place] = _BEGUN

    def complete(self, job: MakeJob, ready: list[MakeJob]) -> None:
        """A job that was begun is done; what may be made now is added to `ready`."""
        states, place = self._find(job)
        if states[place] != _BEGUN:
            raise self._misuse(job, "completed", states[place])
        states[place] = _DONE
        self.active -= 1
        node, row = job.producer, job.row
        if row is None:
            self._complete(node, ready)
            return
        for other in self._shape.same_row[node]:
            needs = self._needs[other]
            needs[place] -= 1
            if not needs[place] and not self._missing[other]:
                cells = self._cells[other]
                if cells[place] == _WAITING:
                    cells[place] = _READY
                    self.active += 1
                    ready.append(MakeJob(other, self._number, row))
        self._lacking[node] -= 1
        if not self._lacking[node]:
            self._complete(node, ready)

    def lose(self, job: MakeJob) -> None:
        """A job is not made in this run."""
        states, place = self._find(job)
        state = states[place]
        if state not in (_WAITING, _READY, _BEGUN):
            raise self._misuse(job, "lost", state)
        states[place] = _LOST
        self.active -= state != _WAITING

    def drop(self, rows: Iterable[int], told: Told) -> None:
        """Rows are gone; those that are already change nothing."""
        complete = []
        for row in rows:
            place = row - self.rows.start
            if self._gone[place]:
                continue
            self._gone[place] = True
            self.left -= 1
            for node, cells in self._cells.items():
                if cells[place] == _DONE:
                    continue
                self._give_up(cells, place, MakeJob(node, self._number, row), told)
                self._lacking[node] -= 1
                if not self._lacking[node]:
                    complete.append(node)
        if self.left:
            for node in complete:
                self._complete(node, told.ready)
        else:
            self._empty(told)

    def turn(self, node: int, ready: list[MakeJob]) -> None:
        """The turn of an ordered producer has come."""
        self._missing[node] -= 1
        if not self._missing[node]:
            self._release(node, ready)

    @property
    def finished(self) -> bool:
        """Whether its last stage is complete."""
        return self._states[FINISH] == _DONE

    def close(self, told: Told) -> None:
        """Nothing of it is made any more."""
        if self.finished:
            return
        for job in self._jobs():
            states, place = self._find(job)
            if states[place] in (_WAITING, _READY):
                self._give_up(states, place, job, told)

    def is_over(self, node: int) -> bool:
        """Whether a node that makes whole groups has done so, or has no row left to do so for."""
        return self._states[node] in (_DONE, _GONE)

    def is_lost(self, node: int) -> bool:
        """Whether a node that makes whole groups does not do so in this run."""
        return self._states[node] == _LOST

    def needs_one(self, node: int) -> bool:
        """Whether a node that makes whole groups waits for one thing alone."""
        return self._states[node] == _WAITING and self._missing[node] == 1

    def is_gone(self, row: int) -> bool:
        """Whether a row is dropped."""
        return bool(self._gone[row - self.rows.start])

    def rows_left(self) -> Iterator[int]:
        """Rows that are not dropped."""
        return (row for row, gone in zip(self.rows, self._gone, strict=True) if not gone)

    def has_cell(self, node: int, row: int) -> bool:
        """Whether a producer has made what it makes of a row."""
        cells = self._cells.get(node)
        if cells is None:
            return self._states[node] == _DONE
        return cells[row - self.rows.start] == _DONE

    def unmade(self) -> Iterator[MakeJob]:
        """Jobs that are not complete, but for those of dropped rows."""
        for job in self._jobs():
            states, place = self._find(job)
            if states[place] not in (_DONE, _GONE):
                yield job

    def _jobs(self) -> Iterator[MakeJob]:
        for node in (PREPARE, *range(self._shape.nodes - 2), FINISH):
            if node in self._cells:
                for row in self.rows:
                    yield MakeJob(node, self._number, row)
            else:
                yield MakeJob(node, self._number)

    def _find(self, job: MakeJob) -> tuple[bytearray, int]:
        """Where the state of a job stands."""
        node, _, row = job
        cells = self._cells.get(node)
        if cells is None:
            if row is None and FINISH <= node < self._shape.nodes - 2:
                return self._states, node
        elif row is not None and row in self.rows:
            return cells, row - self.rows.start
        raise RuntimeError(f"there is no {job}; please report this")

    def _release(self, node: int, ready: list[MakeJob]) -> None:
        """A node needs nothing any more of the whole group."""
        if node not in self._cells:
            if self._states[node] == _WAITING:
                self._states[node] = _READY
                self.active += 1
                ready.append(MakeJob(node, self._number))
            return
        cells, needs = self._cells[node], self._needs[node]
        for place, row in enumerate(self.rows):
            if cells[place] == _WAITING and not needs[place]:
                cells[place] = _READY
                self.active += 1
                ready.append(MakeJob(node, self._number, row))

    def _complete(self, node: int, ready: list[MakeJob]) -> None:
        """A node is complete for the whole group."""
        for other in self._shape.whole_group[node]:
            self._missing[other] -= 1
            if not self._missing[other]:
                self._release(other, ready)

    def _empty(self, told: Told) -> None:
        """No row is left: the group is finished, whatever it lacks."""
        for node in range(-1, self._shape.nodes - 2):
            if node not in self._cells:
                self._give_up(self._states, node, MakeJob(node, self._number), told)
        self._release(FINISH, told.ready)

    def _give_up(self, states: bytearray, place: int, job: MakeJob, told: Told) -> None:
        state = states[place]
        states[place] = _GONE
        self.active -= state in (_READY, _BEGUN)
        if state == _READY:
            told.removed.append(job)
        elif state == _WAITING:
            told.never.append(job)

    def _misuse(self, job: MakeJob, what: str, state: int) -> RuntimeError:
        return RuntimeError(f"{job} cannot be {what}: it {_NAMES[state]}; please report this")


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
