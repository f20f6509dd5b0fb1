"""A dataset while it is built: the readiness of its plan, and everything that changes.

All of it happens synchronously, within the step of the job that causes it. The jobs that a change makes
ready, and those that it puts an end to, are kept until the kernel asks for them in that same step.

A job that has made something has noted that before it ended. Only of one that has not, its outcome says what
happens to its rows: they are dropped, or not run.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import trio

from trioeval.columns.account import Account, Spent, behind_processors, failed_producer, stuck
from trioeval.columns.buffer import Buffer, FailureWindow, FairLine, MishapWarning
from trioeval.columns.events import (
    DatasetEvent,
    DatasetObserver,
    GroupGivenUp,
    GroupOpened,
    GroupWritten,
    ManyMishaps,
    RowDropped,
    ShutDown,
)
from trioeval.columns.files import GroupFile
from trioeval.columns.graph import FINISH, PREPARE, MakeJob
from trioeval.columns.groups import OpenGroup, OpenGroups
from trioeval.columns.journal import DatasetJournal, MadeRecord, Restored
from trioeval.columns.makers.base import (
    CODE,
    LOCAL,
    OWN_LANES,
    CellError,
    CellOrder,
    GroupOrder,
    Order,
    Skips,
    Tally,
)
from trioeval.columns.result import DroppedRow
from trioeval.columns.spec import DatasetSpec
from trioeval.kernel import Freed, Interrupted, Job, NotRun, Outcome, Readiness, TimedOut
from trioeval.sequences import LazySequence

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


_ROWS_AT_ONCE = 1000
"""Rows that are opened without a checkpoint: more than lanes have jobs under way."""


class Progress(OpenGroups, Readiness):
    """The state of one dataset, and the readiness of its plan.

    Args:
        spec: The dataset.
        written: Groups that are written already.
        journal: Where it is recorded; None of a preview.
        observe: Notified of events.
        end: Called when no group will be opened any more.
    """

    def __init__(
        self,
        spec: DatasetSpec,
        written: Iterable[int],
        journal: DatasetJournal | None,
        observe: DatasetObserver | None,
        end: Callable[[], None],
    ) -> None:
        super().__init__(
            spec.graph, spec.grouping, written, prepares=bool(spec.stages.before_batch)
        )
        shutdown = spec.settings.shutdown
        self.spec = spec
        self.journal = journal
        self.buffer = Buffer()
        self.account = Account([Spent() for _ in spec.graph.producers])
        self.is_cut = False
        """Whether no group is opened any more, because the run is at its end."""
        self.last: Outcome[Any] | None = None
        """The outcome that the kernel reports next."""
        self._observe = observe
        self._end = end
        self._columns = sum(map(len, spec.graph.columns))
        """The number of values of a row."""
        self._open_rows = 0
        """The number of rows of all open groups."""
        self._waiting = iter(self.numbering.groups)
        self._next = next(self._waiting, None)
        """The next group to open; None if all were opened."""
        self._lines: defaultdict[str, FairLine] = defaultdict(FairLine)
        """The order of the jobs of each lane."""
        self._window: FailureWindow | None = None
        if shutdown.enabled:
            self._window = FailureWindow(shutdown.calls, shutdown.error_rate)
        self._mishaps = MishapWarning()
        self._lost: str | None = None
        """Why the first job was lost."""
        self._has_more = False
        """Whether more groups might be opened now."""
        self._stood = 0
        """Ordered columns that make nothing more, as far as groups that wait for them are given up."""

    def begin(self) -> Iterable[int]:
        """The jobs of the first groups that may start. Those that never will follow the first outcome."""
        self._open_more()
        ready, self._now_ready = self._now_ready, []
        return ready

    def rank(self, index: int) -> tuple[float, ...]:
        """The rank of a job: older groups come first, and columns of a group share a lane by weight.

        Jobs that take no time have their group alone, and come before its cells if they are of all of it.
        """
        order = self.orders[index]
        job = order.job
        if order.is_gone:  # in the step that named it, perhaps with its whole group
            return (job.group,)
        if order.lane == LOCAL:
            return (job.group, job.row is not None)
        weight = 1.0 if job.producer < 0 else self.spec.makings[job.producer].weight
        order.rank = self._lines[order.lane].rank(job.producer, job.group, weight)
        return order.rank

    def aside(self, index: int) -> Freed:
        """A job runs again when nothing else of its group goes on."""
        order = self.orders[index]
        self._go_on(self.set_aside(index))
        if order.lane != LOCAL:
            self.call_ended(order.lane, failed=False, mishap=True)
        return self.freed(index)

    def over(self, index: int, *, done: bool) -> Freed:
        """A job has its outcome."""
        order = self.orders.get(index)
        if order is not None:
            group = self.groups.get(order.job.group)
            if group is not None:
                group.aside.discard(index)
                if not done and not order.is_gone:
                    self._not_made(group, order)
                self._go_on(group)
            del self.orders[index]
        return self.freed(index)

    def freed(self, by: int) -> Freed:
        """The changes since the last call; more groups are opened if there is room."""
        if self._has_more:
            self._open_more()
        self._give_up_in_vain()
        return super().freed(by)

    def start(self, order: Order) -> trio.CancelScope:
        """Begin a round of a job; returns the scope of its body."""
        if order.rank is not None:
            self._lines[order.lane].started(order.rank)
        return super().start(order)

    def order(self, job: MakeJob) -> Order:
        """The order of a job that may start now: recorded, left out, or to be made."""
        if job.producer < 0:
            stages = self.spec.stages
            processors = stages.before_batch if job.producer == PREPARE else stages.after_batch
            return Order(job, CODE if processors else LOCAL)
        known = self._known(job)
        is_made = isinstance(known, MadeRecord) or (
            known is not None and len(known.rows) == len(self.rows_of(job))
        )
        lane = LOCAL if is_made else self.spec.makings[job.producer].maker.lane
        return GroupOrder(job, lane, known) if job.row is None else CellOrder(job, lane, known)

    def leave_out(self, group: OpenGroup, producer: int, rows: Iterable[int]) -> None:
        """Cells of rows that are still there are left out, and with them their side effects."""
        value = self.spec.makings[producer].skip.value
        for row in rows:
            if not group.is_gone(row):
                self.buffer.set(row, dict.fromkeys(self.graph.columns[producer], value))
                group.skipped.setdefault(row, set()).add(producer)

    def record(
        self,
        order: Order,
        values: Mapping[int, Mapping[str, Any]],
        skipped: Iterable[int] = (),
    ) -> None:
        """Record the result of a job, if that is worth it."""
        job = order.job
        making = self.spec.makings[job.producer]
        if self.journal is None or not making.is_recorded:
            return
        self.journal.made(
            MadeRecord(
                producer=self.producer_name(job),
                unit=job.group if job.row is None else job.row,
                digest=making.digest,
                values=values,
                skipped=tuple(sorted(skipped)),
                tally=order.used.json(),
            )
        )

    def drop(
        self, group: OpenGroup, dropped: Iterable[DroppedRow], producer: int | None = None
    ) -> None:
        """Rows are gone: calls of theirs are cancelled, and nothing more is made of them.

        Args:
            group: Their group.
            dropped: Those that are gone already change nothing.
            producer: The producer that failed, if one did.
        """
        fresh = [one for one in dropped if not group.is_gone(one.row)]
        for one in fresh:
            group.dropped[one.cause] += 1
            self.account.drop(one, producer)
            if self.journal is not None:
                self.journal.dropped(one)
            self.notify(RowDropped, group.number, one)
        rows = [one.row for one in fresh]
        self.buffer.drop(rows)
        if rows:
            self.drop_rows(group, rows)

    def drop_again(self, group: OpenGroup) -> None:
        """Processors have seen a group: drop the rows that were dropped behind them in another execution."""
        fresh = [one for one in group.dropped_later if not group.is_gone(one.row)]
        self._restore(group, fresh)
        self.drop_rows(group, [one.row for one in fresh])

    def write(self, group: OpenGroup, file: GroupFile) -> None:
        """A group is written."""
        if self.journal is not None:
            self.journal.written(file)
        self.account.add_written(file)
        self.notify(GroupWritten, file)
        self.complete(MakeJob(FINISH, group.number))
        self._forget(group)

    def call_ended(self, lane: str, *, failed: bool, mishap: bool) -> None:
        """A job that makes calls, or runs the suite's own code, has ended, well or not.

        Args:
            lane: Its lane.
            failed: Whether it has, for good.
            mishap: Whether it has, and might have gone well.
        """
        if self._mishaps.add(mishap=mishap, now=trio.current_time()):
            self.notify(ManyMishaps)
        if mishap or self._window is None or self.account.early_shutdown:
            return
        if self._window.add(failed=failed):
            self._shut_down({LOCAL} if lane in OWN_LANES else OWN_LANES)

    def notify(self, event: Callable[..., DatasetEvent], *facts: object) -> None:
        """Notify the observer of an event that happens now."""
        if self._observe is not None:
            self._observe(event(trio.current_time(), *facts))

    def producer_name(self, job: MakeJob) -> str:
        """The name of the producer of a job."""
        return self.graph.producers[job.producer].name

    def rows_of(self, job: MakeJob) -> Sequence[int]:
        """The rows that a job makes something of."""
        return self.groups[job.group].rows_left() if job.row is None else (job.row,)

    @property
    def held_up(self) -> str | None:
        """Why an ordered column will make nothing more, if that is so: an earlier group lacks something."""
        return self._lost if self.standing else None

    async def recall(self, files: Iterable[GroupFile]) -> None:
        """Count the costs and the dropped rows of groups that are written. A checkpoint for each group."""
        if self.journal is None or not self.journal.resumed:
            return
        for file in files:
            await trio.lowlevel.checkpoint()
            restored = self.journal.restored(file.group, self.grouping.rows_of(file.group))
            for row in restored.dropped:
                self.account.remember(row, failed_producer(self.graph, row))
            self._recall(restored)

    def _recall(self, restored: Restored) -> dict[tuple[int, int], MadeRecord]:
        """Count the records of columns that are as they were; returns them by producer and unit."""
        places = {one.name: place for place, one in enumerate(self.graph.producers)}
        found = {}
        for record in restored.made:
            place = places.get(record.producer)
            if place is not None and record.digest == self.spec.makings[place].digest:
                found[place, record.unit] = record
        for (place, _), record in found.items():
            self.account.spent[place].recalled += len(record.values)
            self.account.spent[place].add(Tally.read(record.tally))
        return found

    def _not_made(self, group: OpenGroup, order: Order) -> None:
        """A job has come to nothing, although something of it was wanted."""
        job, trouble, last = order.job, order.trouble, self.last
        match last:
            case Interrupted() | NotRun():
                self.is_cut = self.is_cut or isinstance(last, Interrupted)
                self._lose(group, job, last.cut.value)
            case TimedOut():
                dropped = [
                    DroppedRow(
                        row=row,
                        cause="failed",
                        column=self.producer_name(job),
                        error=f"timed out after {last.timeout:g} s of working time (timeoutMs)",
                        kind="attempt_timeout",
                        attempts=last.calls,
                    )
                    for row in self._rows_asked_for(order)
                ]
                self._fail(group, order, dropped, mishap=True)
            case _ if trouble is not None and trouble.reason is not None:
                self._lose(group, job, trouble.reason)
            case _ if trouble is not None:
                name = self.producer_name(job)
                dropped = [trouble.dropped(row, name) for row in self._rows_asked_for(order)]
                self._fail(group, order, dropped, mishap=trouble.is_mishap)
            case _ if order.scope is None:  # set aside, and its lane was closed before its round
                self._lose(group, job, "lane")
            case _:
                pass  # a fault of ours, which ends the run

    def _rows_asked_for(self, order: Order) -> Sequence[int]:
        """The rows that a job was to make something of, without those that it leaves out."""
        rows = self.rows_of(order.job)
        if order.job.row is None and isinstance(order.known, Skips):
            return [row for row in rows if row not in order.known.skipped]
        return rows

    def _fail(
        self, group: OpenGroup, order: Order, dropped: Sequence[DroppedRow], *, mishap: bool
    ) -> None:
        """Drop the rows of a job that failed; of a group, those that it leaves out have what they need."""
        job = order.job
        self.drop(group, dropped, job.producer)
        if job.row is None and isinstance(order.known, Skips) and group.left:
            self.leave_out(group, job.producer, order.known.skipped)
            self.complete(job)
        if order.lane != LOCAL and job.producer >= 0:
            self.call_ended(order.lane, failed=not mishap, mishap=mishap)

    def _lose(self, group: OpenGroup, job: MakeJob, reason: str) -> None:
        """A job is not made in this run."""
        if job.producer == FINISH:  # that is made up for behind the plan
            return
        for row in self.rows_of(job):
            group.reasons.setdefault(row, reason)
        group.lost = group.lost or reason
        self._lost = self._lost or reason
        self.mark_lost(job)

    def _go_on(self, group: OpenGroup) -> None:
        """A job of a group is over: see whether something of it still goes on.

        Raises:
            RuntimeError: Nothing does, and nothing is lost that it needs: a fault of ours.
        """
        if self.groups.get(group.number) is not group:
            return
        if group.aside and group.active == len(group.aside):
            self.name_aside(group)
        elif self.is_stuck(group):
            reason = group.lost or self.held_up
            if reason is None:
                raise RuntimeError(stuck(self.graph, group.number, group.needed()))
            for row in group.rows_left():
                self.account.not_run[group.reasons.get(row, reason)] += 1
            self.notify(GroupGivenUp, group.number, reason)
            self._forget(group)

    def _open_more(self) -> None:
        """Open groups as far as the budget goes: some at once, and others with each job that is over."""
        self._has_more = False
        if self.account.early_shutdown or self.is_cut or self.standing:
            if not self.groups and self._next is not None:
                self._end()
            return
        rows = 0
        while rows < _ROWS_AT_ONCE:
            if self._next is None or not self._fits(self._next):
                return
            number, self._next = self._next, next(self._waiting, None)
            rows += len(self._open(number).rows)
        self._has_more = True

    def _fits(self, number: int) -> bool:
        """Whether the values of a group fit beside those of the open groups; alone, each one does."""
        if not self.groups:
            return True
        settings, wanted = self.spec.settings, self.grouping.rows_of(number)
        oldest = next(iter(self.groups.values())).rows
        ahead = wanted.start - oldest.start
        return (
            (self._open_rows + len(wanted)) * self._columns <= settings.max_open_cells
            and self.buffer.bytes < settings.max_open_bytes
            and ahead * self._columns <= AHEAD * settings.max_open_cells
        )

    def _open(self, number: int) -> OpenGroup:
        group = self.admit(number)
        self._open_rows += len(group.rows)
        restored = Restored()
        if self.journal is not None and self.journal.resumed:
            restored = self.journal.restored(number, group.rows)
        group.records = self._recall(restored)
        self.buffer.open(group.rows)
        gone = {one.row: one for one in restored.dropped if one.row in group.rows}
        if self.spec.stages.before_batch:
            group.dropped_later = behind_processors(self.graph, gone)
        self._restore(group, gone.values())
        self.notify(GroupOpened, number, len(group.records))
        self.release(group, gone)
        return group

    def _restore(self, group: OpenGroup, gone: Iterable[DroppedRow]) -> None:
        for one in gone:
            group.dropped[one.cause] += 1
            self.account.drop(one, failed_producer(self.graph, one))
            self.buffer.drop([one.row])

    def _known(self, job: MakeJob) -> MadeRecord | Skips | None:
        """The recorded result of a job, or the rows for which it asks nobody."""
        group, making = self.groups[job.group], self.spec.makings[job.producer]
        if group.records and (record := self._recorded(group, job)) is not None:
            return record
        if making.skip_when is None and not group.skipped:
            return None
        upstream, view = self.graph.upstream[job.producer], self.buffer.view
        skipped, faults = set[int](), dict[int, CellError]()
        for row in self.rows_of(job):
            try:
                if making.skips(upstream, group.skipped.get(row), view(row)):
                    skipped.add(row)
            except CellError as error:
                faults[row] = error
        return Skips(frozenset(skipped), faults) if skipped or faults else None

    def _recorded(self, group: OpenGroup, job: MakeJob) -> MadeRecord | None:
        unit = job.group if job.row is None else job.row
        record = group.records.get((job.producer, unit))
        if record is None:
            return None
        if all(row in record.values or row in record.skipped for row in self.rows_of(job)):
            return record
        # It is made of other rows now, and what was made of its values before is of no use.
        stale = {job.producer, *self.graph.below(job.producer)}
        for key in [key for key in group.records if key[0] in stale]:
            old = group.records.pop(key)
            if self.journal is not None:  # nor is it for an execution that comes after this one
                self.journal.made(attrs.evolve(old, digest=""))
        return None

    def _give_up_in_vain(self) -> None:
        """Give up the groups that wait for an ordered column that makes nothing more."""
        if self.standing == self._stood:
            return
        for group in tuple(self.groups.values()):  # in their order: one may be stuck by another
            self._go_on(group)
        self._stood = self.standing

    def _forget(self, group: OpenGroup) -> None:
        self.close(group)
        self._open_rows -= len(group.rows)
        self.buffer.close(group.rows)
        for line in self._lines.values():
            line.close(group.number)
        self._open_more()

    def _shut_down(self, finishes: Collection[str]) -> None:
        """Drop the rows that are not finished, but for those that only lack what `finishes` makes.

        Args:
            finishes: Lanes whose jobs are still made.
        """
        self.account.early_shutdown = True
        self.notify(ShutDown)
        groups = tuple(self.groups.values())
        for group in groups:
            lacking = {row: self._lacks(group, row, finishes) for row in group.rows_left()}
            dropped = [
                DroppedRow(row=row, cause="early_shutdown", column=name)
                for row, name in lacking.items()
                if name is not None
            ]
            self.drop(group, dropped)
        for group in groups:  # of another one nobody else asks whether something of it goes on
            self._go_on(group)
        self._open_more()

    def _lacks(self, group: OpenGroup, row: int, finishes: Collection[str]) -> str | None:
        """The first column that a row lacks, is made on another lane, and is not begun.

        A job that is begun comes to its end, and so does one that was set aside for another round: a
        transient failure is not one for good.
        """
        has = self.buffer.view(row)
        for place, producer in enumerate(self.graph.producers):
            if self.spec.makings[place].maker.lane in finishes or producer.name in has:
                continue
            job = MakeJob(place, group.number, row if producer.scope == "cell" else None)
            if (place, group.number if job.row is None else row) in group.records:
                continue
            order = self.orders.get(self.numbering.index(job))
            if order is None or (order.lane not in finishes and not group.is_begun(job)):
                return producer.name
        return None


class DatasetJobs(LazySequence[Job[Order]]):
    """The jobs of a dataset, made as they are looked at."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def __len__(self) -> int:
        return len(self._progress.numbering)

    def entry(self, index: int) -> Job[Order]:
        """One job."""
        order = self._progress.orders.get(index)
        if order is None:
            order = Order(self._progress.numbering.job(index))
        if order.lane in OWN_LANES:
            return Job(index, order.lane, order)
        return Job(index, order.lane, order, self._progress.spec.timeout)
