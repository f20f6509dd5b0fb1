"""A dataset while it is built: everything that changes, and what each change sets free.

All of it happens synchronously, within the step of the job that causes it. What a change makes ready, and
what it puts an end to, is kept until the kernel asks for it in that same step.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import trio

from trioeval.columns.account import (
    Account,
    behind_processors,
    both,
    failed_producer,
    left_out,
    read_tally,
    stuck,
    tally_json,
)
from trioeval.columns.buffer import Buffer, FailureWindow, FairLine, MishapWarning
from trioeval.columns.events import (
    DatasetObserver,
    GroupGivenUp,
    GroupOpened,
    GroupWritten,
    ManyMishaps,
    RowDropped,
    ShutDown,
)
from trioeval.columns.files import GroupFile
from trioeval.columns.graph import Grouping, Numbering
from trioeval.columns.groups import (
    Flight,
    GroupState,
    Known,
    ReadyJob,
    lane_of,
    skips_of,
    stage_lane,
)
from trioeval.columns.journal import DatasetJournal, MadeRecord, Restored
from trioeval.columns.makers.base import LOCAL, OWN_LANES, Tally
from trioeval.columns.progress import FINISH, PREPARE, Change, MakeJob, Tracker
from trioeval.columns.result import DroppedRow
from trioeval.columns.spec import DatasetSpec
from trioeval.kernel import Freed

# Which groups are open at once: a budget of values held in memory. Pure.
#
# Groups are opened in order, each as a whole, as long as their values fit: what an open group will have
# counts from its beginning. A group that is larger than the budget is opened alone. A column may run ahead
# over all groups that are open, whatever the other columns do: what bounds it is the budget.
#
# One group that stands still must not let the rest of the dataset pass it for ever: the kernel keeps
# outcomes in order, so those of all groups behind it stay in memory. So no group is opened that is further
# ahead of the oldest open one than a few budgets.


AHEAD = 4
"""How many budgets of values may lie between the oldest open group and one that is opened."""


@attrs.define(eq=False)
class Admission:
    """The groups that are to be opened."""

    grouping: Grouping
    columns: int
    """Values of a row."""
    max_cells: int
    max_bytes: int
    _waiting: Iterator[int]
    """Groups that were not opened, in order."""
    _next: int | None = attrs.field(init=False, default=None)
    _open: dict[int, int] = attrs.field(init=False, factory=dict)
    """The values of groups that are open."""
    _cells: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._next = next(self._waiting, None)

    @property
    def waiting(self) -> bool:
        """Whether groups are left that were not opened."""
        return self._next is not None

    def take(self, weight: int) -> int | None:
        """The next group, if it may be opened now; it is then.

        Args:
            weight: Bytes that open groups hold.
        """
        group = self._next
        if group is None:
            return None
        cells = len(self.grouping.rows_of(group)) * self.columns
        if self._open and not self._fits(group, cells, weight):
            return None
        self._next = next(self._waiting, None)
        self._open[group] = cells
        self._cells += cells
        return group

    def close(self, group: int) -> None:
        """A group is over."""
        self._cells -= self._open.pop(group)

    def _fits(self, group: int, cells: int, weight: int) -> bool:
        if self._cells + cells > self.max_cells or weight >= self.max_bytes:
            return False
        oldest = self.grouping.rows_of(next(iter(self._open)))
        ahead = (self.grouping.rows_of(group).start - oldest.start) * self.columns
        return ahead <= AHEAD * self.max_cells


# In which order the jobs of a lane start: older groups first, and the columns of a group by turns.


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


# What earlier executions have made of a dataset, and what they have spent.


def records_of(spec: DatasetSpec, made: Iterable[MadeRecord]) -> dict[tuple[int, int], MadeRecord]:
    """The records that count for a dataset, by producer and unit: those of columns that are as they were."""
    places = {one.name: place for place, one in enumerate(spec.graph.producers)}
    found = {}
    for record in made:
        place = places.get(record.producer)
        if place is not None and record.digest == spec.makings[place].digest:
            found[place, record.unit] = record
    return found


def count_recalled(account: Account, producer: int, record: MadeRecord) -> None:
    """An earlier execution has made something."""
    spent = account.spent[producer]
    spent.recalled += len(record.values)
    spent.add(read_tally(record.tally))


async def recall_earlier(
    spec: DatasetSpec, account: Account, journal: DatasetJournal, files: Iterable[GroupFile]
) -> None:
    """Count what the cells of groups have cost that are written, and tell of rows that are gone.

    A checkpoint for each group.
    """
    if not journal.resumed:
        return
    for file in files:
        await trio.lowlevel.checkpoint()
        restored = journal.restored(file.group, spec.grouping.rows_of(file.group))
        for row in restored.dropped:
            account.remember(row, failed_producer(spec.graph, row))
        for (place, _), record in records_of(spec, restored.made).items():
            count_recalled(account, place, record)


# What an early shutdown puts an end to: rows that would ask somebody again. Pure.


def hopeless(
    spec: DatasetSpec,
    numbering: Numbering,
    group: GroupState,
    ready: Mapping[int, ReadyJob],
    rows: Iterable[tuple[int, Mapping[str, Any]]],
    *,
    finishes: Collection[str] = OWN_LANES,
) -> Sequence[DroppedRow]:
    """The rows of a group that are not finished.

    Such a row lacks something that would be asked for, or made by code that fails, and was not begun. What is
    begun comes to its end, and so does what was set aside for another round: a mishap is no failure for good.

    Args:
        spec: Of the dataset.
        numbering: Of its jobs.
        group: Theirs.
        ready: Jobs that may start or have started.
        rows: Those that are left, with what they have.
        finishes: Lanes whose jobs are still made.
    """

    def lacks(row: int, has: Mapping[str, Any]) -> str | None:
        """The first column that a row lacks, is made on another lane, and is not begun."""
        for place, producer in enumerate(spec.graph.producers):
            if spec.makings[place].maker.lane in finishes or producer.name in has:
                continue
            unit = row if producer.scope == "cell" else None
            if (place, group.number if unit is None else row) in group.records:
                continue
            index = numbering.index(MakeJob(place, group.number, unit))
            job = ready.get(index)
            if job is None or (job.lane not in finishes and index not in group.begun):
                return producer.name
        return None

    told = ((row, lacks(row, has)) for row, has in rows)
    return [left_out(row, "early_shutdown", name) for row, name in told if name is not None]


_ROWS_AT_ONCE = (
    1000  # opened without a look at the rest of the world: more than lanes have jobs under way
)


@attrs.define(eq=False)
class Progress:
    """What is made, open, and to be made."""

    spec: DatasetSpec
    journal: DatasetJournal | None
    numbering: Numbering
    tracker: Tracker
    admission: Admission
    account: Account
    observe: DatasetObserver | None
    end: Callable[[], None]
    """Called when nothing new will ever start, although there are jobs left."""
    buffer: Buffer = attrs.field(factory=Buffer)
    groups: dict[int, GroupState] = attrs.field(factory=dict)
    """Those that are open."""
    ready: dict[int, ReadyJob] = attrs.field(factory=dict)
    """Jobs that were named as ready and are not over."""
    withdrawn: dict[int, ReadyJob] = attrs.field(factory=dict)
    """Those that are not wanted any more, until the kernel has heard of it."""
    ranks: Ranks = attrs.field(factory=Ranks)
    is_cut: bool = False
    """Whether no group is opened any more, because the run is at its end."""
    _lost: str | None = attrs.field(init=False, default=None)
    """Why the first job was lost."""
    _has_more: bool = attrs.field(init=False, default=False)
    """Whether more groups might be opened now."""
    _standing: int = attrs.field(init=False, default=0)
    """Ordered columns that make nothing more, as far as groups that wait for them are given up."""
    _window: FailureWindow | None = attrs.field(init=False)
    _mishaps: MishapWarning = attrs.field(init=False, factory=MishapWarning)
    _now_ready: list[int] = attrs.field(init=False, factory=list)
    _now_blocked: list[int] = attrs.field(init=False, factory=list)
    _cells: Sequence[int] = attrs.field(init=False)
    """Producers of cells."""
    _wholes: list[int] = attrs.field(init=False)
    """What else makes something, for whole groups."""

    def __attrs_post_init__(self) -> None:
        producers = self.spec.graph.producers
        shutdown = self.spec.settings.shutdown
        window = FailureWindow(shutdown.calls, shutdown.error_rate)
        self._window = window if shutdown.enabled else None
        self._cells = [place for place, one in enumerate(producers) if one.scope == "cell"]
        self._wholes = [place for place, one in enumerate(producers) if one.scope != "cell"]
        self._wholes += [PREPARE] if self.spec.stages.before_batch else []

    def first(self) -> Sequence[int]:
        """What may start before any job is over. What never will is told behind the first one that is."""
        ready, self._now_ready = self._now_ready, []
        return ready

    def news(self, by: int) -> Freed:
        """What has changed since this was asked last.

        Args:
            by: The job that has caused it.
        """
        if self._has_more:
            self.open_more()
        self._give_up_in_vain()
        freed = Freed(self._now_ready, [(index, by) for index in self._now_blocked])
        self._now_ready, self._now_blocked = [], []
        return freed

    def open_more(self) -> None:
        """Open groups as far as the budget goes: some at once, and others with each job that is over."""
        self._has_more = False
        if self.account.early_shutdown or self.is_cut or self.tracker.standing:
            if not self.groups and self.admission.waiting:
                self.end()
            return
        rows = 0
        while rows < _ROWS_AT_ONCE:
            number = self.admission.take(self.buffer.bytes)
            if number is None:
                return
            rows += len(self._open(number).rows)
        self._has_more = True

    def begin(self, index: int) -> Flight:
        """A job starts."""
        ready = self.ready[index]
        self.tracker.begin(ready.job)
        flight = Flight()
        self.groups[ready.job.group].begun[index] = flight
        self.ranks.started(index)
        return flight

    def complete(self, job: MakeJob) -> None:
        """Everything that a job makes is there. Nothing if none of its rows is left."""
        if self.groups[job.group].left:
            self._take(self.tracker.complete(job))

    def record(
        self,
        job: MakeJob,
        values: Mapping[int, Mapping[str, Any]],
        tally: Tally,
        skipped: Iterable[int] = (),
    ) -> None:
        """Write down what a job has made, if that is worth it."""
        making = self.spec.makings[job.producer]
        if self.journal is None or not making.is_recorded:
            return
        index = self.numbering.index(job)
        self.journal.made(
            MadeRecord(
                producer=self.producer_name(job),
                unit=job.group if job.row is None else job.row,
                digest=making.digest,
                values=values,
                skipped=tuple(sorted(skipped)),
                tally=tally_json(both(self.groups[job.group].tallies.get(index), tally)),
            )
        )

    def drop(
        self, group: GroupState, dropped: Iterable[DroppedRow], producer: int | None = None
    ) -> None:
        """Rows are gone: calls of theirs are cancelled, and nothing more is made of them.

        Args:
            group: Theirs.
            dropped: Those that are gone already change nothing.
            producer: Who failed, if somebody did.
        """
        fresh = [one for one in dropped if not self.tracker.is_dropped(one.row)]
        if not fresh:
            return
        rows = [one.row for one in fresh]
        for one in fresh:
            group.dropped[one.cause] += 1
            self.account.drop(one, producer)
            if self.journal is not None:
                self.journal.dropped(one)
            if self.observe is not None:
                self.observe(RowDropped(trio.current_time(), group.number, one))
        self.buffer.drop(rows)
        self._take(self.tracker.drop(rows))
        for row in rows if group.begun else ():
            for place in self._cells:
                self._call_back(group, MakeJob(place, group.number, row))
        if not group.left and group.begun:
            for place in self._wholes:
                self._call_back(group, MakeJob(place, group.number))

    def lose(self, group: GroupState, job: MakeJob, reason: str) -> None:
        """A job is not made in this run."""
        rows = self.tracker.left(group.number) if job.row is None else (job.row,)
        for row in rows:
            group.reasons.setdefault(row, reason)
        group.lost = group.lost or reason
        self._lost = self._lost or reason
        self._take(self.tracker.lose(job))

    def set_aside(self, index: int, tally: Tally | None) -> None:
        """A job failed by mishap, and runs again when nothing else of its group goes on."""
        group = self.groups[self.ready[index].job.group]
        group.begun[index] = None
        group.aside.add(index)
        if tally is not None:
            group.tallies[index] = both(group.tallies.get(index), tally)
        self.go_on(group)

    def go_on(self, group: GroupState) -> None:
        """A job of a group is over: see whether something of it still goes on.

        Raises:
            RuntimeError: Nothing does, and nothing is lost that it needs: a fault of ours.
        """
        number = group.number
        if self.groups.get(number) is not group:
            return
        if group.aside and self.tracker.active(number) == len(group.aside):
            self._now_ready += sorted(group.aside)
            group.aside.clear()
        elif self.tracker.is_stuck(number):
            reason = group.lost or self.held_up
            if reason is None:
                raise RuntimeError(stuck(self.spec.graph, number, self.tracker.needed(number)))
            self._give_up(group, reason)

    def written(self, group: GroupState, file: GroupFile) -> None:
        """A group is written."""
        if self.journal is not None:
            self.journal.written(file)
        self.account.add_written(file)
        if self.observe is not None:
            self.observe(GroupWritten(trio.current_time(), file))
        self._take(self.tracker.complete(MakeJob(FINISH, group.number)))
        self._forget(group)

    def call_ended(self, lane: str, *, failed: bool, mishap: bool) -> None:
        """A job that makes calls, or runs the suite's own code, has ended, well or not.

        Args:
            lane: Where.
            failed: Whether it has, for good.
            mishap: Whether it has, and might have gone well.
        """
        now = trio.current_time()
        if self._mishaps.add(mishap=mishap, now=now) and self.observe is not None:
            self.observe(ManyMishaps(now))
        if mishap or self._window is None or self.account.early_shutdown:
            return
        if self._window.add(failed=failed):
            self._shut_down({LOCAL} if lane in OWN_LANES else OWN_LANES)

    def _open(self, number: int) -> GroupState:
        rows = self.spec.grouping.rows_of(number)
        restored = Restored()
        if self.journal is not None and self.journal.resumed:
            restored = self.journal.restored(number, rows)
        group = GroupState(number, rows, records_of(self.spec, restored.made))
        self.groups[number] = group
        self.buffer.open(rows)
        gone = {one.row: one for one in restored.dropped if one.row in rows}
        if self.spec.stages.before_batch:
            group.dropped_later = behind_processors(self.spec.graph, gone)
        self._restore(group, gone.values())
        for (place, _), record in group.records.items():
            count_recalled(self.account, place, record)
        if self.observe is not None:
            self.observe(GroupOpened(trio.current_time(), number, len(group.records)))
        self._take(self.tracker.admit(number, gone))
        return group

    def drop_again(self, group: GroupState) -> None:
        """Processors have seen a group: drop the rows that were dropped behind them in another execution."""
        self._restore(
            group, [one for one in group.dropped_later if not self.tracker.is_dropped(one.row)]
        )
        self._take(self.tracker.drop([one.row for one in group.dropped_later]))

    def _restore(self, group: GroupState, gone: Iterable[DroppedRow]) -> None:
        for one in gone:
            group.dropped[one.cause] += 1
            self.account.drop(one, failed_producer(self.spec.graph, one))
            self.buffer.drop([one.row])

    def _take(self, change: Change) -> None:
        """Keep what has changed for whoever asks."""
        for job in change.ready:
            index = self.numbering.index(job)
            self.ready[index] = self._look_ahead(job)
            self._now_ready.append(index)
        for job in change.removed:
            self._withdraw(self.numbering.index(job))
        if change.never:
            self._now_blocked += map(self.numbering.index, change.never)

    def _withdraw(self, index: int) -> None:
        self.withdrawn[index] = self.ready.pop(index)
        self._now_blocked.append(index)

    def _look_ahead(self, job: MakeJob) -> ReadyJob:
        if job.producer < 0:
            return ReadyJob(job, stage_lane(self.spec.stages, job.producer))
        making, group = self.spec.makings[job.producer], self.groups[job.group]
        upstream = self.spec.graph.upstream[job.producer]
        known: Known = None
        if group.records:
            known = self._recorded(group, job)
        if known is None and (making.skip_when is not None or group.skipped):
            rows = self.rows_of(job)
            known = skips_of(making, upstream, group, rows, self.buffer.view)
            if known is not None:
                return ReadyJob(job, lane_of(making, known, rows), known)
        return ReadyJob(job, LOCAL if known is not None else making.maker.lane, known)

    def producer_name(self, job: MakeJob) -> str:
        """Who makes a job's columns."""
        return self.spec.graph.producers[job.producer].name

    def rows_of(self, job: MakeJob) -> Sequence[int]:
        """The rows that a job makes something of."""
        return self.tracker.left(job.group) if job.row is None else (job.row,)

    def _recorded(self, group: GroupState, job: MakeJob) -> MadeRecord | None:
        unit = job.group if job.row is None else job.row
        record = group.records.get((job.producer, unit))
        if record is None:
            return None
        if all(row in record.values or row in record.skipped for row in self.rows_of(job)):
            return record
        # It is made of other rows now, and what was made of its values before is of no use.
        stale = {job.producer, *self.spec.graph.below(job.producer)}
        for key in [key for key in group.records if key[0] in stale]:
            old = group.records.pop(key)
            if self.journal is not None:  # nor is it for an execution that comes after this one
                self.journal.made(attrs.evolve(old, digest=""))
        return None

    def _call_back(self, group: GroupState, job: MakeJob) -> None:
        """A job is not wanted any more: cancel it, or let it not run again."""
        index = self.numbering.index(job)
        if index not in group.begun:
            return
        flight = group.begun[index]
        if flight is not None:
            flight.drop()
            return
        del group.begun[index]
        group.aside.discard(index)
        self._withdraw(index)

    @property
    def held_up(self) -> str | None:
        """Why an ordered column will make nothing more, if that is so: an earlier group lacks something."""
        return self._lost if self.tracker.standing else None

    def _give_up_in_vain(self) -> None:
        """Give up the groups that wait for an ordered column that makes nothing more."""
        standing = self.tracker.standing
        if standing == self._standing:
            return
        for group in tuple(self.groups.values()):  # in their order: one may be stuck by another
            self.go_on(group)
        self._standing = self.tracker.standing

    def _give_up(self, group: GroupState, reason: str) -> None:
        for row in self.tracker.left(group.number):
            self.account.not_run[group.reasons.get(row, reason)] += 1
        if self.observe is not None:
            self.observe(GroupGivenUp(trio.current_time(), group.number, reason))
        self._forget(group)

    def _forget(self, group: GroupState) -> None:
        del self.groups[group.number]
        self._take(self.tracker.close(group.number))
        self.buffer.close(group.rows)
        self.ranks.close(group.number)
        self.admission.close(group.number)
        self.open_more()

    def _shut_down(self, finishes: Collection[str]) -> None:
        self.account.early_shutdown = True
        if self.observe is not None:
            self.observe(ShutDown(trio.current_time()))
        groups = tuple(self.groups.values())
        for group in groups:
            left = self.tracker.left(group.number)
            rows = [(row, self.buffer.view(row)) for row in left]
            self.drop(
                group,
                hopeless(self.spec, self.numbering, group, self.ready, rows, finishes=finishes),
            )
        for group in groups:  # of another one nobody else asks whether something of it goes on
            self.go_on(group)
        self.open_more()
