"""The state of a dataset while it is built; it is also the readiness of its plan.

Every change happens synchronously, within the step of the job that causes it. The jobs that a change makes
ready, and those that it ends, are collected until the kernel asks for them in that same step.

A job that has made something has recorded that before it ended. Only for a job that has not, its outcome
determines what happens to its rows: they are dropped, or not run.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import trio

from trioeval.columns.account import (
    DatasetCounts,
    ProducerCosts,
    failed_producer,
    pop_seen_by_processors,
    stuck,
)
from trioeval.columns.buffer import Buffer, FailureWindow, FairQueue, TransientFailureWarning
from trioeval.columns.events import (
    DatasetEvent,
    DatasetObserver,
    DatasetShutDown,
    GroupAbandoned,
    GroupOpened,
    GroupWritten,
    ManyTransientFailures,
    RowDropped,
)
from trioeval.columns.files import GroupFile
from trioeval.columns.graph import FINISH, PREPARE, MakeJob
from trioeval.columns.groups import OpenGroup, OpenGroups
from trioeval.columns.journal import DatasetJournal, MadeRecord, RestoredGroup
from trioeval.columns.lanes import CODE, LOCAL, OWN_LANES
from trioeval.columns.makers.base import (
    CellError,
    CellOrder,
    GroupOrder,
    JobCosts,
    JobOrder,
    SkippedRows,
)
from trioeval.columns.result import DroppedRow
from trioeval.columns.spec import DatasetSpec
from trioeval.kernel import Interrupted, Job, NotRun, Outcome, Readiness, ReadinessUpdate, TimedOut
from trioeval.sequences import LazySequence

# The number of open groups is limited by a budget of values in memory. Pure.
#
# Groups are opened in order, each as a whole, as long as their values fit: all values that an open group will
# have count from its opening. A group that is larger than the budget is opened alone. A column may run ahead
# over all open groups, whatever the other columns do: only the budget limits it.
#
# A group that makes no progress must not let the rest of the dataset run ahead without limit: the kernel
# emits outcomes in order, so the outcomes of all later groups stay in memory. So no group is opened that is
# further ahead of the oldest open one than a few budgets.


AHEAD = 4
"""The maximum distance between the oldest open group and a newly opened one, in budgets of values."""


_ROWS_AT_ONCE = 1000
"""Rows that are opened without a checkpoint: more than the lanes can work on at once."""


class DatasetProgress(OpenGroups, Readiness):
    """The state of one dataset, and the readiness of its plan.

    Args:
        spec: The dataset.
        written: Groups that are already written.
        journal: Where it is recorded; None of a preview.
        observe: Called with events.
        end: Called when no more groups will be opened.
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
        self.account = DatasetCounts([ProducerCosts() for _ in spec.described.graph.producers])
        self.is_cut = False
        """True if no more groups are opened because the run is ending."""
        self.last: Outcome[Any] | None = None
        """The outcome that the kernel reports next."""
        self._observe = observe
        self._end = end
        self._columns = sum(map(len, spec.graph.columns))
        """The number of values in a row."""
        self._open_rows = 0
        """The total number of rows of all open groups."""
        self._waiting = iter(self.numbering.groups)
        self._next = next(self._waiting, None)
        """The next group to open; None if all have been opened."""
        self._lines: defaultdict[str, FairQueue] = defaultdict(FairQueue)
        """The fair queue of each lane."""
        self._window: FailureWindow | None = None
        if shutdown.enabled:
            self._window = FailureWindow(shutdown.calls, shutdown.error_rate)
        self._transient_warning = TransientFailureWarning()
        self._lost: str | None = None
        """The reason why the first job was lost."""
        self._has_more = False
        """True if more groups might be opened now."""
        self._failing: str | None = None
        """The lane because of which the next step ends the dataset early."""
        self._stood = 0
        """The number of stopped ordered columns whose waiting groups have been given up."""

    def begin(self) -> Iterable[int]:
        """Return the jobs of the first groups that may start. Blocked jobs follow after the first outcome."""
        self._shut_down_if_requested()
        self._open_more()
        ready, self._now_ready = self._now_ready, []
        return ready

    def rank(self, index: int) -> tuple[float, ...]:
        """Return the rank of a job: older groups come first, and columns of a group share a lane by weight.

        Local jobs are ranked by group only; in a group, jobs of the whole group come before its cells.
        """
        order = self.orders[index]
        job = order.job
        if order.is_gone:  # in the step that reported it, perhaps with its whole group
            return (job.group,)
        if order.lane == LOCAL:
            return (job.group, job.row is not None)
        weight = 1.0 if job.producer < 0 else self.spec.makings[job.producer].weight
        order.rank = self._lines[order.lane].rank(job.producer, job.group, weight)
        return order.rank

    def on_set_aside(self, index: int) -> ReadinessUpdate:
        """Let a job run again when nothing else of its group is running."""
        order = self.orders[index]
        self._shut_down_if_requested()
        self._go_on(self.set_aside(index))
        if order.lane != LOCAL:
            self.call_ended(order.lane, failed=False, transient=True)
        return self.freed(index)

    def on_outcome(self, index: int, *, done: bool) -> ReadinessUpdate:
        """Record the outcome of a job."""
        order = self.orders.get(index)
        if order is not None:
            group = self.groups.get(order.job.group)
            if group is not None:
                group.aside.discard(index)
                if not done and not order.is_gone:
                    self._not_made(group, order)
                self._go_on(group)
            del self.orders[index]
        self._shut_down_if_requested()
        return self.freed(index)

    def freed(self, by: int) -> ReadinessUpdate:
        """Return the changes since the last call; open more groups if there is room."""
        if self._has_more:
            self._open_more()
        self._give_up_in_vain()
        return super().freed(by)

    def start(self, order: JobOrder) -> trio.CancelScope:
        """Start a round of a job; return the cancel scope of its body."""
        if order.rank is not None:
            self._lines[order.lane].started(order.rank)
        return super().start(order)

    def order(self, job: MakeJob) -> JobOrder:
        """Return the order of a job that may start now: recorded, skipped, or to be made."""
        if job.producer < 0:
            stages = self.spec.stages
            processors = stages.before_batch if job.producer == PREPARE else stages.after_batch
            return JobOrder(job, CODE if processors else LOCAL)
        known = self._known(job)
        is_made = isinstance(known, MadeRecord) or (
            known is not None and len(known.rows) == len(self.rows_of(job))
        )
        lane = LOCAL if is_made else self.spec.makings[job.producer].maker.lane
        return GroupOrder(job, lane, known) if job.row is None else CellOrder(job, lane, known)

    def leave_out(self, group: OpenGroup, producer: int, rows: Iterable[int]) -> None:
        """Skip the cells of remaining rows, together with their side effects."""
        value = self.spec.makings[producer].skip.value
        for row in rows:
            if not group.is_gone(row):
                self.buffer.set(row, dict.fromkeys(self.graph.columns[producer], value))
                group.skipped.setdefault(row, set()).add(producer)

    def record(
        self,
        order: JobOrder,
        values: Mapping[int, Mapping[str, Any]],
        skipped: Iterable[int] = (),
    ) -> None:
        """Record the result of a job, unless it is cheap to compute again."""
        job = order.job
        making = self.spec.makings[job.producer]
        if self.journal is None or not making.is_recorded:
            return
        self.journal.on_made(
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
        """Drop rows: their calls are cancelled, and none of their jobs start any more.

        Args:
            group: Their group.
            dropped: The rows; those that were already dropped are ignored.
            producer: The producer that failed, if one did.
        """
        fresh = [one for one in dropped if not group.is_gone(one.row)]
        for one in fresh:
            group.dropped[one.cause] += 1
            self.account.drop(one, producer)
            if self.journal is not None:
                self.journal.on_dropped(one)
            self.notify(RowDropped, group.number, one)
        rows = [one.row for one in fresh]
        self.buffer.drop(rows)
        if rows:
            self.drop_rows(group, rows)

    def drop_again(self, group: OpenGroup) -> None:
        """Drop the rows that an earlier execution dropped after processors had seen the group."""
        fresh = [one for one in group.dropped_later if not group.is_gone(one.row)]
        self._restore(group, fresh)
        self.drop_rows(group, [one.row for one in fresh])

    def write(self, group: OpenGroup, file: GroupFile) -> None:
        """Record that a group is written."""
        if self.journal is not None:
            self.journal.on_written(file)
        self.account.add_written(file)
        self.notify(GroupWritten, file)
        self.complete(MakeJob(FINISH, group.number))
        self._forget(group)

    def spend(self, producer: int, tally: JobCosts) -> None:
        """Count the costs of one round of a job."""
        self.account.spent[producer].add(tally)
        if self.spec.part is not None and (costs := tally.json()):
            self.spec.part.on_costs(producer, costs)

    def call_ended(self, lane: str, *, failed: bool, transient: bool) -> None:
        """Record that a job that makes calls or runs the suite's own code has ended.

        Args:
            lane: Its lane.
            failed: True if it failed permanently.
            transient: True if it failed transiently.
        """
        if self.spec.part is not None:  # the rate of failures is that of the whole dataset
            self.spec.part.on_call_end(lane, failed, transient)
            return
        if self._transient_warning.add(transient=transient, now=trio.current_time()):
            self.notify(ManyTransientFailures)
        if transient or self._window is None or self.account.early_shutdown:
            return
        if self._window.add(failed=failed):
            self.shut_down(lane)

    def notify(self, event: Callable[..., DatasetEvent], *facts: object) -> None:
        """Notify the observer of an event that happens now."""
        if self._observe is not None:
            self._observe(event(trio.current_time(), *facts))

    def producer_name(self, job: MakeJob) -> str:
        """The name of the producer of a job."""
        return self.graph.producers[job.producer].name

    def rows_of(self, job: MakeJob) -> Sequence[int]:
        """Return the rows that a job makes."""
        return self.groups[job.group].rows_left() if job.row is None else (job.row,)

    @property
    def held_up(self) -> str | None:
        """The reason why an ordered column has stopped, if one has: an earlier group is incomplete."""
        return self._lost if self.standing else None

    def abandon(self, group: OpenGroup, reason: str) -> None:
        """Count the remaining rows of a group that does not finish in this execution.

        Args:
            group: The group.
            reason: The reason for rows without their own.
        """
        reasons = {row: group.reasons.get(row, reason) for row in group.rows_left()}
        self.account.not_run.update(reasons.values())
        self.notify(GroupAbandoned, group.number, reason, reasons)

    async def recall(self, files: Iterable[GroupFile]) -> None:
        """Count the costs and the dropped rows of groups that are written. A checkpoint for each group."""
        if self.journal is None or not self.journal.resumed:
            return
        for file in files:
            await trio.lowlevel.checkpoint()
            restored = self.journal.restored(file.group, self.grouping.rows_of(file.group))
            for row in restored.dropped:
                self.account.remember(row, failed_producer(self.spec.described.graph, row))
            self._recall(restored)

    def _recall(self, restored: RestoredGroup) -> dict[tuple[int, int], MadeRecord]:
        """Count the records of unchanged columns, and return them by producer and unit."""
        spec = self.spec.described
        places = {one.name: place for place, one in enumerate(spec.graph.producers)}
        found = {}
        for record in restored.made:
            place = places.get(record.producer)
            if place is not None and record.digest == spec.makings[place].digest:
                found[place, record.unit] = record
        for (place, _), record in found.items():
            self.account.spent[place].recalled += len(record.values)
            self.account.spent[place].add(JobCosts.read(record.tally))
        return found

    def _not_made(self, group: OpenGroup, order: JobOrder) -> None:
        """Handle a job that ended without a result although its rows still need one."""
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
                self._fail(group, order, dropped, transient=True)
            case _ if trouble is not None and trouble.reason is not None:
                self._lose(group, job, trouble.reason)
            case _ if trouble is not None:
                name = self.producer_name(job)
                dropped = [trouble.dropped(row, name) for row in self._rows_asked_for(order)]
                self._fail(group, order, dropped, transient=trouble.is_transient)
            case _ if (
                order.scope is None
            ):  # set aside, and its lane was closed before its next round
                self._lose(group, job, "lane")
            case _:
                pass  # a bug of ours, which ends the run

    def _rows_asked_for(self, order: JobOrder) -> Sequence[int]:
        """Return the rows that a job was started to make, without those that it skips."""
        rows = self.rows_of(order.job)
        if order.job.row is None and isinstance(order.known, SkippedRows):
            return [row for row in rows if row not in order.known.skipped]
        return rows

    def _fail(
        self, group: OpenGroup, order: JobOrder, dropped: Sequence[DroppedRow], *, transient: bool
    ) -> None:
        """Drop the rows of a job that failed; rows of a group that the job skips are complete."""
        job = order.job
        self.drop(group, dropped, job.producer)
        if job.row is None and isinstance(order.known, SkippedRows) and group.left:
            self.leave_out(group, job.producer, order.known.skipped)
            self.complete(job)
        if order.lane != LOCAL and job.producer >= 0:
            self.call_ended(order.lane, failed=not transient, transient=transient)

    def _lose(self, group: OpenGroup, job: MakeJob, reason: str) -> None:
        """Record that a job is not run in this execution."""
        if job.producer == FINISH:  # the group is written after the plan
            return
        for row in self.rows_of(job):
            group.reasons.setdefault(row, reason)
        group.lost = group.lost or reason
        self._lost = self._lost or reason
        self.mark_lost(job)

    def _go_on(self, group: OpenGroup) -> None:
        """Check after a job of a group whether another one is running or ready.

        Raises:
            RuntimeError: There is none, although no job is lost: a bug of ours.
        """
        if self.groups.get(group.number) is not group:
            return
        if group.aside and group.active == len(group.aside):
            self.name_aside(group)
        elif self.is_stuck(group):
            reason = group.lost or self.held_up
            if reason is None:
                raise RuntimeError(stuck(self.graph, group.number, group.needed()))
            self.abandon(group, reason)
            self._forget(group)

    def _open_more(self) -> None:
        """Open groups within the budget: some at once, and more with each job that ends."""
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
        """Return True if the values of a group fit into the budget; alone, every group fits."""
        if not self.groups:
            return True
        settings, rows = self.spec.settings, self.grouping.rows_of(number)
        oldest = next(iter(self.groups.values())).rows
        ahead = rows.start - oldest.start
        return (
            (self._open_rows + len(rows)) * self._columns <= settings.max_open_cells
            and self.buffer.bytes < settings.max_open_bytes
            and ahead * self._columns <= AHEAD * settings.max_open_cells
        )

    def _open(self, number: int) -> OpenGroup:
        group = self.admit(number)
        self._open_rows += len(group.rows)
        restored = RestoredGroup()
        if self.journal is not None and self.journal.resumed:
            restored = self.journal.restored(number, group.rows)
        records = self._recall(restored)
        if self.spec.origin is None:
            group.records = records
        else:  # for the process that makes the group
            group.restored = restored
        self.buffer.open(group.rows)
        dropped = {one.row: one for one in restored.dropped if one.row in group.rows}
        if self.spec.stages.before_batch:
            group.dropped_later = pop_seen_by_processors(self.graph, dropped)
        self._restore(group, dropped.values())
        self.notify(GroupOpened, number, len(records))
        self.release(group, dropped)
        return group

    def _restore(self, group: OpenGroup, dropped: Iterable[DroppedRow]) -> None:
        for one in dropped:
            group.dropped[one.cause] += 1
            self.account.drop(one, failed_producer(self.spec.described.graph, one))
            self.buffer.drop([one.row])

    def _known(self, job: MakeJob) -> MadeRecord | SkippedRows | None:
        """Return the recorded result of a job, or the rows that it skips."""
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
        return SkippedRows(frozenset(skipped), faults) if skipped or faults else None

    def _recorded(self, group: OpenGroup, job: MakeJob) -> MadeRecord | None:
        unit = job.group if job.row is None else job.row
        record = group.records.get((job.producer, unit))
        if record is None:
            return None
        if all(row in record.values or row in record.skipped for row in self.rows_of(job)):
            return record
        # It makes other rows now, and results that were computed from its old values are useless.
        stale = {job.producer, *self.graph.below(job.producer)}
        for key in [key for key in group.records if key[0] in stale]:
            old = group.records.pop(key)
            if self.journal is not None:  # they are useless for later executions as well
                self.journal.on_made(attrs.evolve(old, digest=""))
        return None

    def _give_up_in_vain(self) -> None:
        """Give up the groups that wait for an ordered column that has stopped."""
        if self.standing == self._stood:
            return
        for group in tuple(
            self.groups.values()
        ):  # in their order: one may be stuck because of another
            self._go_on(group)
        self._stood = self.standing

    def _forget(self, group: OpenGroup) -> None:
        self.close(group)
        self._open_rows -= len(group.rows)
        self.buffer.close(group.rows)
        for line in self._lines.values():
            line.close(group.number)
        self._open_more()

    def request_shut_down(self, lane: str) -> None:
        """Call `shut_down` in the next step: the kernel learns of ended jobs only in steps of jobs."""
        self._failing = lane

    def _shut_down_if_requested(self) -> None:
        if self._failing is not None:
            self.shut_down(self._failing)

    def shut_down(self, lane: str) -> None:
        """Drop the rows that are not finished, except those that only lack what other lanes make.

        Args:
            lane: The lane whose calls fail. Jobs that make no calls still run, and so does code of the suite
                unless it is what fails.
        """
        if self.account.early_shutdown:
            return
        finishes: Collection[str] = {LOCAL} if lane in OWN_LANES else OWN_LANES
        self.account.early_shutdown = True
        self.notify(DatasetShutDown)
        groups = tuple(self.groups.values())
        for group in groups:
            lacking = {row: self._lacks(group, row, finishes) for row in group.rows_left()}
            dropped = [
                DroppedRow(row=row, cause="early_shutdown", column=name)
                for row, name in lacking.items()
                if name is not None
            ]
            self.drop(group, dropped)
        for group in groups:  # no other job will check whether they are stuck
            self._go_on(group)
        self._open_more()

    def _lacks(self, group: OpenGroup, row: int, finishes: Collection[str]) -> str | None:
        """Return the first column that a row lacks, is made on another lane, and has not been started.

        A started job runs to its end, and so does one that was set aside for another round: its failure was
        transient.
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


class DatasetJobs(LazySequence[Job[JobOrder]]):
    """The jobs of a dataset, made on access."""

    def __init__(self, progress: DatasetProgress) -> None:
        self._progress = progress

    def __len__(self) -> int:
        return len(self._progress.numbering)

    def entry(self, index: int) -> Job[JobOrder]:
        """Return one job."""
        order = self._progress.orders.get(index)
        if order is None:
            order = JobOrder(self._progress.numbering.job(index))
        if order.lane in OWN_LANES:
            return Job(index, order.lane, order)
        return Job(index, order.lane, order, self._progress.spec.timeout)
