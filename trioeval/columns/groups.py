"""The open groups of a dataset and the readiness of their jobs: counters, and never a search. Pure.

A *job* makes all outputs of one producer for one row (`cell`) or for one group (`scratch`, `full`), or is one
of the stages of a group: `PREPARE` after its scratch columns and before all others (only if the dataset has
processors for that), and `FINISH` when every remaining row has every column.

Groups are opened one after another, in ascending order, and closed when they are written or given up. Only
open groups use memory. A group that is skipped was written before.

A cell is ready when the producers of whole groups that it needs are done, and so are the cells of its row
that it needs. A full producer is ready when no remaining row lacks a column that it needs; dropping the last
row that does makes it ready. An ordered producer also waits until it has made all previous groups, except
those without remaining rows. If it does not make one of them, because its job is lost or the group is closed,
it stops there: its results for later groups may depend on that group, which another run makes first. A group
without rows can be finished at once: `FINISH` is its only job.

Each producer is a node, and so are the two stages. A node that makes the group as a whole has one state; a
node of cells has one for each row. No scan ever looks for the next job:

- a node counts the nodes that must be complete for the whole group before it (`missing`). For a node of
  cells these are the ones that make whole groups; each cell counts the cells of its row that it still
  needs (`needs`);
- a node of cells counts the remaining rows without a cell (`lacking`): at 0 it is complete, whether the last
  cell was made or dropped.

So a completed cell costs one step for each node that needs it, and a dropped row one step for each node of
cells. Misuse is an error (a `RuntimeError`) and never ignored.
"""

from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

import attrs
import trio

from trioeval.columns.graph import FINISH, PREPARE, ColumnGraph, JobNumbering, MakeJob, RowGrouping
from trioeval.columns.journal import MadeRecord, RestoredGroup
from trioeval.columns.makers.base import JobOrder
from trioeval.columns.result import Cause, DroppedRow
from trioeval.columns.spec import Rows
from trioeval.kernel import ReadinessUpdate

_WAITING, _READY, _BEGUN, _ASIDE, _DONE, _LOST, _GONE = range(7)
_NAMES = (
    "waits",
    "is ready",
    "has started",
    "is set aside",
    "is complete",
    "is lost",
    "was dropped",
)
_NAMED = (_READY, _BEGUN, _ASIDE)
"""States of jobs that were reported to the kernel as ready, and that have no outcome."""


@attrs.frozen(eq=False)
class _GroupShape:
    """The counters that are the same for all groups.

    Nodes are the indices of the graph, followed by the stages, so that -1 and -2 find these in sequences.
    """

    nodes: int
    prepares: bool
    needs: dict[int, int]
    """By node of cells, the number of cells of its row that a cell needs."""
    missing: tuple[int, ...]
    """The number of nodes that must be complete for the whole group before a node."""
    same_row: tuple[tuple[int, ...], ...]
    """By node, the nodes whose cells need its cell in the same row."""
    whole_group: tuple[tuple[int, ...], ...]
    """By node, the nodes that need it to be complete for the whole group."""

    @classmethod
    def of(cls, graph: ColumnGraph, *, prepares: bool) -> "_GroupShape":
        """Return the shape of the groups of a graph."""
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
        same, whole = tuple(map(tuple, same_row)), tuple(map(tuple, whole_group))
        return cls(size + 2, prepares, needs, tuple(missing), same, whole)


@attrs.frozen
class ProcessedElsewhere:
    """The results of the processors of a complete group, which another process has run."""

    aside: Rows = ()
    """Columns that they removed."""
    dropped: Sequence[DroppedRow] = ()
    """Rows that they removed, or whose processor failed."""


@attrs.define(eq=False, repr=False)
class OpenGroup:
    """One open group: the states of its jobs, and its records and counts."""

    number: int
    rows: range
    left: int
    """The number of rows that are not dropped."""
    gone: bytearray
    """By row, 1 if it is dropped."""
    states: bytearray
    """By node that makes the group as a whole."""
    cells: dict[int, bytearray]
    """By node of cells, the state of each row."""
    missing: list[int]
    needs: dict[int, "array[int]"]
    lacking: dict[int, int]
    active: int = 0
    """The number of jobs that are ready, started or set aside."""
    aside: set[int] = attrs.field(factory=set)
    """Indices of jobs that are set aside until their next round."""
    records: dict[tuple[int, int], MadeRecord] = attrs.field(factory=dict)
    """Results of an earlier execution, by producer and unit."""
    skipped: dict[int, set[int]] = attrs.field(factory=dict)
    """By row, the producers that skipped it."""
    dropped: Counter[Cause] = attrs.field(factory=Counter)
    dropped_later: Sequence[DroppedRow] = ()
    """Rows that an earlier execution dropped, but that processors must still see."""
    reasons: dict[int, str] = attrs.field(factory=dict)
    """By row, the reason why one of its jobs is not run in this execution."""
    lost: str | None = None
    """The reason why the group cannot finish."""
    processed: ProcessedElsewhere | None = None
    """None if its processors run here."""
    restored: RestoredGroup = attrs.field(factory=RestoredGroup)
    """Its records of an earlier execution, if another process makes the group."""

    @classmethod
    def of(
        cls, shape: _GroupShape, number: int, rows: range, waiting: Iterable[int]
    ) -> "OpenGroup":
        """Return a group in which nothing is made.

        Args:
            shape: The shape of all groups.
            number: Its number.
            rows: Its rows.
            waiting: Ordered producers whose turn has not come in this group.
        """
        size = len(rows)
        states, missing = bytearray(shape.nodes), list(shape.missing)
        if not shape.prepares:
            states[PREPARE] = _DONE
        for node in waiting:
            missing[node] += 1
        return cls(
            number,
            rows,
            left=size,
            gone=bytearray(size),
            states=states,
            cells={node: bytearray(size) for node in shape.needs},
            missing=missing,
            needs={node: array("I", [count]) * size for node, count in shape.needs.items()},
            lacking=dict.fromkeys(shape.needs, size),
        )

    def is_gone(self, row: int) -> bool:
        """Return True if a row is dropped."""
        return bool(self.gone[row - self.rows.start])

    def rows_left(self) -> tuple[int, ...]:
        """Return the rows that are not dropped; ascending."""
        return tuple(
            row for row, is_dropped in zip(self.rows, self.gone, strict=True) if not is_dropped
        )

    def needed(self) -> tuple[MakeJob, ...]:
        """Return the jobs that are not complete, including lost ones and `FINISH`, without dropped rows.

        For messages about a group that is stuck: these jobs keep it from finishing.
        """
        return tuple(job for job in self.jobs() if self._state(job) not in (_DONE, _GONE))

    def is_begun(self, job: MakeJob) -> bool:
        """Return True if a job is running, or set aside for another round."""
        return self._state(job) in (_BEGUN, _ASIDE)

    def is_over(self, node: int) -> bool:
        """Return True if a node that makes whole groups is done, or has no row left to make."""
        return self.states[node] in (_DONE, _GONE)

    def is_lost(self, node: int) -> bool:
        """Return True if a node that makes whole groups does not make this one in this execution."""
        return self.states[node] == _LOST

    def needs_one(self, node: int) -> bool:
        """Return True if a node that makes whole groups waits for only one more node."""
        return self.states[node] == _WAITING and self.missing[node] == 1

    def jobs(self) -> Iterator[MakeJob]:
        """Yield all jobs: `PREPARE`, the graph, `FINISH`."""
        for node in (PREPARE, *range(len(self.states) - 2), FINISH):
            if node in self.cells:
                for row in self.rows:
                    yield MakeJob(node, self.number, row)
            else:
                yield MakeJob(node, self.number)

    def find(self, job: MakeJob) -> tuple[bytearray, int]:
        """Return the states that contain the state of a job, and its index in them."""
        node, _, row = job
        cells = self.cells.get(node)
        if cells is None:
            if row is None and FINISH <= node < len(self.states) - 2:
                return self.states, node
        elif row is not None and row in self.rows:
            return cells, row - self.rows.start
        raise RuntimeError(f"{job} does not exist; please report this")

    def _state(self, job: MakeJob) -> int:
        states, place = self.find(job)
        return states[place]


class OpenGroups:
    """The jobs of all open groups, from when they may start until they have an outcome.

    Each change collects the jobs that have become ready, and those that never will, until `freed` is called.

    Args:
        graph: The producers.
        grouping: The rows of each group.
        written: Groups that have no more jobs.
        prepares: True if each group has a stage `PREPARE`.
    """

    def __init__(
        self,
        graph: ColumnGraph,
        grouping: RowGrouping,
        written: Iterable[int] = (),
        *,
        prepares: bool = False,
    ) -> None:
        self.graph = graph
        self.grouping = grouping
        self.numbering = JobNumbering(graph, grouping, written, prepares=prepares)
        self.groups: dict[int, OpenGroup] = {}
        """Open groups in their order."""
        self.orders: dict[int, JobOrder] = {}
        """By index, the jobs that were reported as ready and have no outcome."""
        self._shape = _GroupShape.of(graph, prepares=prepares)
        self._last = -1
        """The group that was opened last."""
        self._turns: dict[int, deque[int]] = {
            place: deque() for place, producer in enumerate(graph.producers) if producer.ordered
        }
        """By ordered producer: the groups that it has not finished; it is the turn of the first one."""
        self._given_up: dict[int, int] = {}
        """By ordered producer: the first group that was closed before the producer had finished it."""
        self._released: list[MakeJob] = []
        """Jobs that have become ready during a change."""
        self._now_ready: list[int] = []
        self._now_blocked: list[int] = []

    def order(self, job: MakeJob) -> JobOrder:
        """Return the order of a job that may start now."""
        return JobOrder(job)

    def freed(self, by: int) -> ReadinessUpdate:
        """Return the changes since the last call.

        Args:
            by: The job that caused them.
        """
        freed = ReadinessUpdate(self._now_ready, [(index, by) for index in self._now_blocked])
        self._now_ready, self._now_blocked = [], []
        return freed

    def admit(self, number: int) -> OpenGroup:
        """Open a group: in ascending order, and each once. `release` then reports its first jobs."""
        if not self._last < number < len(self.grouping):
            raise RuntimeError(
                f"group {number} cannot be opened: the last one was {self._last} of"
                f" {len(self.grouping)}; please report this"
            )
        rows = self.grouping.rows_of(number)
        waiting = [place for place, turns in self._turns.items() if turns]
        group = OpenGroup.of(self._shape, number, rows, waiting)
        self._last = number
        self.groups[number] = group
        for turns in self._turns.values():
            turns.append(number)
        return group

    def release(self, group: OpenGroup, dropped: Iterable[int] = ()) -> None:
        """Report the jobs of an admitted group that may start immediately.

        Args:
            group: The group.
            dropped: Rows that are already dropped.
        """
        self.drop_rows(group, dropped)
        if group.left:
            for node in range(-2, self._shape.nodes - 2):
                if not group.missing[node]:
                    self._ready_node(group, node)
        self._name_released()

    def start(self, order: JobOrder) -> trio.CancelScope:
        """Start a job that was reported as ready, or start it again; return the cancel scope of its body."""
        group = self.group(order.job)
        states, place = group.find(order.job)
        if states[place] not in _NAMED:
            self._misuse(order.job, "started", states[place])
        states[place] = _BEGUN
        return order.begin()

    def set_aside(self, index: int) -> OpenGroup:
        """Let a started job wait for another round."""
        order = self.orders[index]
        order.set_aside()
        group = self.group(order.job)
        states, place = group.find(order.job)
        states[place] = _ASIDE
        group.aside.add(index)
        return group

    def name_aside(self, group: OpenGroup) -> None:
        """Report the jobs of a group that were set aside as ready."""
        self._now_ready += sorted(group.aside)
        group.aside.clear()

    def complete(self, job: MakeJob) -> None:
        """Note that a started job has made its columns.

        Not called for a job whose row was dropped meanwhile, nor, except for `FINISH`, for a job of a group
        without remaining rows.
        """
        group = self.group(job)
        states, place = group.find(job)
        if states[place] != _BEGUN:
            self._misuse(job, "completed", states[place])
        states[place] = _DONE
        group.active -= 1
        node, row = job.producer, job.row
        if row is None:
            self._complete_node(group, node)
        else:
            for other in self._shape.same_row[node]:
                needs = group.needs[other]
                needs[place] -= 1
                if not needs[place] and not group.missing[other]:
                    self._ready_job(
                        group, group.cells[other], place, MakeJob(other, job.group, row)
                    )
            group.lacking[node] -= 1
            if not group.lacking[node]:
                self._complete_node(group, node)
        self._advance(node)
        self._name_released()

    def drop_rows(self, group: OpenGroup, rows: Iterable[int]) -> None:
        """Drop rows with everything that is made for them; rows that were already dropped are ignored.

        The bodies of their jobs are cancelled; if no row of the group remains, so are all bodies except that
        of `FINISH`.
        """
        dropped = list(rows)
        for row in dropped:
            if row not in group.rows:
                raise RuntimeError(f"row {row} is not of group {group.number}; please report this")
        complete = []
        for row in dropped:
            place = row - group.rows.start
            if group.gone[place]:
                continue
            group.gone[place] = True
            group.left -= 1
            for node, cells in group.cells.items():
                if cells[place] != _DONE:
                    self._give_up(group, cells, place, MakeJob(node, group.number, row))
                    group.lacking[node] -= 1
                    if not group.lacking[node]:
                        complete.append(node)
        if group.left:
            for node in complete:
                self._complete_node(group, node)
        else:
            self._empty(group)
        self._name_released()

    def mark_lost(self, job: MakeJob) -> None:
        """Note that a job and all jobs that need it are not run in this execution.

        It may be ready, started or neither. Its group can no longer finish, unless the row (for a job of a
        whole group: every row) is dropped.
        """
        group = self.group(job)
        states, place = group.find(job)
        state = states[place]
        if state != _WAITING and state not in _NAMED:
            self._misuse(job, "lost", state)
        states[place] = _LOST
        group.active -= state != _WAITING
        self._advance(job.producer)
        self._name_released()

    def close(self, group: OpenGroup) -> None:
        """Forget a group: it is written, or given up with all of its jobs."""
        for place in self._turns:
            if not group.is_over(place):
                self._given_up[place] = min(group.number, self._given_up.get(place, group.number))
        if group.states[FINISH] != _DONE:
            for job in group.jobs():
                states, place = group.find(job)
                if states[place] == _WAITING or states[place] in _NAMED:
                    self._give_up(group, states, place, job)
        del self.groups[group.number]
        self._advance_all()
        self._name_released()

    def is_stuck(self, group: OpenGroup) -> bool:
        """Return True if an open group has not finished, has no ready or running job, and will not get one.

        A group that only waits for the turn of an ordered producer is not stuck while that turn may come.
        """
        return not (
            group.active
            or group.states[FINISH] == _DONE
            or any(
                group.needs_one(place) and turns[0] != group.number and not self._stands(place)
                for place, turns in self._turns.items()
            )
        )

    @property
    def standing(self) -> int:
        """The number of stopped ordered producers: groups after their turn get stuck."""
        return sum(map(self._stands, self._turns))

    def group(self, job: MakeJob) -> OpenGroup:
        """Return the group of a job."""
        try:
            return self.groups[job.group]
        except KeyError:
            raise RuntimeError(f"group {job.group} is not open; please report this") from None

    def _name_released(self) -> None:
        """Make the orders of jobs that have become ready during a change, in the order of their indices."""
        released, self._released = self._released, []
        for index, job in sorted((self.numbering.index(job), job) for job in released):
            self.orders[index] = self.order(job)
            self._now_ready.append(index)

    def _advance_all(self) -> None:
        for place in self._turns:
            self._advance(place)

    def _advance(self, place: int) -> None:
        """Give the turn of an ordered producer to the first group that it has not finished."""
        turns = self._turns.get(place)
        before = len(turns or ())
        while turns:
            first = self.groups.get(turns[0])
            if first is not None and not first.is_over(place):
                if len(turns) < before:
                    self._count_down(first, place)
                return
            if turns[0] == self._given_up.get(place):
                return
            turns.popleft()

    def _stands(self, place: int) -> bool:
        turns = self._turns[place]
        if not turns:
            return False
        first = self.groups.get(turns[0])
        return turns[0] == self._given_up.get(place) if first is None else first.is_lost(place)

    def _complete_node(self, group: OpenGroup, node: int) -> None:
        """Note that a node is complete for the whole group."""
        for other in self._shape.whole_group[node]:
            self._count_down(group, other)

    def _count_down(self, group: OpenGroup, node: int) -> None:
        """Note that a node needs one node less."""
        group.missing[node] -= 1
        if not group.missing[node]:
            self._ready_node(group, node)

    def _ready_node(self, group: OpenGroup, node: int) -> None:
        """Note that a node needs no more nodes."""
        if node not in group.cells:
            self._ready_job(group, group.states, node, MakeJob(node, group.number))
            return
        cells, needs = group.cells[node], group.needs[node]
        for place, row in enumerate(group.rows):
            if not needs[place]:
                self._ready_job(group, cells, place, MakeJob(node, group.number, row))

    def _ready_job(self, group: OpenGroup, states: bytearray, place: int, job: MakeJob) -> None:
        if states[place] == _WAITING:
            states[place] = _READY
            group.active += 1
            self._released.append(job)

    def _empty(self, group: OpenGroup) -> None:
        """Let a group without remaining rows finish, whatever it lacks."""
        for node in range(-1, self._shape.nodes - 2):
            if node not in group.cells:
                self._give_up(group, group.states, node, MakeJob(node, group.number))
        self._ready_node(group, FINISH)
        self._advance_all()

    def _give_up(self, group: OpenGroup, states: bytearray, place: int, job: MakeJob) -> None:
        """Prevent a job from starting or restarting, or cancel it: its result is no longer needed."""
        state = states[place]
        states[place] = _GONE
        if state != _WAITING and state not in _NAMED:
            return
        index = self.numbering.index(job)
        if state != _WAITING:
            group.active -= 1
            group.aside.discard(index)
            self.orders[index].give_up()
        if state != _BEGUN:
            self._now_blocked.append(index)

    def _misuse(self, job: MakeJob, action: str, state: int) -> NoReturn:
        raise RuntimeError(f"{job} cannot be {action}: it {_NAMES[state]}; please report this")
