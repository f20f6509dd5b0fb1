"""What is made and what is to be made of one open group. Pure.

Each producer is a node, and so are the two stages. A node that makes the group as a whole has one state; a
node of cells has one for each row. Nothing is ever looked through to find what may be made next:

- a node counts the nodes that must be complete for the whole group before it (`_missing`). Of a node of cells
  these are those that make whole groups; its cells count for themselves the cells of their row that they
  still need (`_needs`);
- a node of cells counts the rows that are left and have no cell (`_lacking`): at 0 it is complete, whether
  the last one was made or dropped.

So a cell that is made costs one step for each node that needs it, and a row that is dropped one for each node
of cells.
"""

from array import array
from collections.abc import Iterable, Iterator

import attrs

from trioeval.datasets.graph import ColumnGraph
from trioeval.datasets.jobs import FINISH, NOTHING, PREPARE, Change, MakeJob, in_order

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
