"""A dataset while it is built: everything that changes, and what each change sets free.

All of it happens synchronously, within the step of the job that causes it. What a change makes ready, and
what it puts an end to, is kept until the kernel asks for it in that same step.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import trio

from trioeval.datasets.buffer import Buffer
from trioeval.datasets.error_window import FailureWindow, MishapWarning
from trioeval.datasets.files import GroupFile
from trioeval.datasets.numbering import Numbering
from trioeval.datasets.result import DroppedRow
from trioeval.datasets.tracker import FINISH, PREPARE, Change, MakeJob, Tracker
from trioeval.kernel import Freed
from trioeval.tasks.columns.dataset_account import Account, both, tally_json
from trioeval.tasks.columns.dataset_admission import Admission
from trioeval.tasks.columns.dataset_endings import behind_processors, failed_producer, stuck
from trioeval.tasks.columns.dataset_events import (
    DatasetObserver,
    GroupGivenUp,
    GroupOpened,
    GroupWritten,
    ManyMishaps,
    RowDropped,
    ShutDown,
)
from trioeval.tasks.columns.dataset_groups import (
    Flight,
    GroupState,
    Known,
    ReadyJob,
    lane_of,
    skips_of,
    stage_lane,
)
from trioeval.tasks.columns.dataset_journal import DatasetJournal, MadeRecord, Restored
from trioeval.tasks.columns.dataset_ranks import Ranks
from trioeval.tasks.columns.dataset_recalled import count_recalled, records_of
from trioeval.tasks.columns.dataset_shutdown import hopeless
from trioeval.tasks.columns.dataset_spec import DatasetSpec
from trioeval.tasks.columns.making import LOCAL, OWN_LANES, Tally

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
