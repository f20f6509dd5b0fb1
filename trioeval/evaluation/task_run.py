"""The rows of a task during a run, on the lanes, budget, deadline and stop that all tasks of the run share.

A row is created and recorded as soon as its job has its outcome, and is emitted in index order, when its
record is durable: an emitted row is never lost, whatever happens.

Every task is one plan, and every plan is run, also if none of its jobs may start: the plan of a blocked task
is stopped before it starts, and that of a task that was never reached starts in a cancelled scope. So the
kernel alone ensures that every row is emitted exactly once, in order (laws TOTAL, ORDER, DEADLINE, DRAIN).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Never, Protocol, TypeAlias

import attrs
import trio

from trioeval.evaluation.elsewhere import RowsElsewhere
from trioeval.evaluation.journal import Journal, RecordObserver, ReusedRows
from trioeval.evaluation.outcomes import TaskEnd, with_lacking_task
from trioeval.evaluation.row import Row, RowsNotRun, TaskRows
from trioeval.evaluation.status import Status, recorded_status
from trioeval.evaluation.waits import NO_WAITS, WaitTimes
from trioeval.kernel import (
    Admitted,
    Budget,
    Calls,
    Event,
    Job,
    Lanes,
    NotRun,
    Observer,
    Outcome,
    Plan,
    StopReason,
    run_plan,
)
from trioeval.kernel.events import guarded
from trioeval.nurseries import open_plain_nursery
from trioeval.suite.dependencies import Unsatisfied

if TYPE_CHECKING:
    from trioeval.evaluation.hooks import Hooks
    from trioeval.evaluation.prepared import PreparedTask
    from trioeval.evaluation.prompt import PromptBuilder
    from trioeval.evaluation.task_part import TaskPart

# Rows are emitted in index order, so one may wait long for those before it. An observer is notified of its
# end earlier: as soon as its own record is durable. Everything recorded before it is durable then, too.


class TaskObserver(Protocol):
    """Observer of the jobs of a task."""

    def on_task_start(self, at: float, /) -> None:
        """Handle the start of the task, at an instant of the Trio clock."""
        ...

    def on_event(self, event: Event, waited: Mapping[str, float], /) -> None:
        """Handle a kernel event of a job.

        Args:
            event: The event.
            waited: For a started job: the time that it waited as the next one of its lane, in seconds by
                reason.
        """
        ...

    def on_row(self, row: Row, at: float, /) -> Row:
        """Return the row to record for a new row."""
        ...

    def on_rows_not_run(self, rows: RowsNotRun, /) -> None:
        """Report many rows that never started, without details of each."""
        ...

    def on_durable_row(self, row: Row, /) -> None:
        """Handle a row whose record is durable."""
        ...

    def on_kept_row(self, record: Mapping[str, Any], /) -> None:
        """Handle a row that has a result and is not run again."""
        ...

    def on_task_end(self, at: float, /) -> None:
        """Handle the end of the task."""
        ...


@attrs.define(eq=False, repr=False)
class DurableRowReports:
    """The recorded rows of one task whose end has not been reported to its watch."""

    _watch: TaskObserver
    _journal: Journal | None
    _unreported: dict[int, Row] = attrs.field(init=False, factory=dict)
    """By index, in the order in which they were recorded."""
    _added: trio.Event = attrs.field(init=False, factory=trio.Event)

    def add(self, row: Row) -> None:
        """Add a recorded row; without a journal, report it."""
        if self._journal is None:
            self._watch.on_durable_row(row)
        else:
            self._unreported[row.index] = row
            self._added.set()

    def report_durable(self, row: Row) -> None:
        """Report a durable row, and all rows that were recorded before it."""
        while row.index in self._unreported:
            self._watch.on_durable_row(self._unreported.pop(next(iter(self._unreported))))

    async def report_continuously(self) -> Never:
        """Report each row as soon as it is durable, until cancelled. Runs concurrently with the emission."""
        while True:
            self._added = trio.Event()
            while self._journal is not None and self._unreported:
                row = next(iter(self._unreported.values()))
                await self._journal.durable(row)
                self.report_durable(row)
            await self._added.wait()


_AFTER_ALL = 5.0  # seconds for `afterAll` after the deadline of a run
_NOT_RUN_AT_ONCE = 500  # rows that never started, between two waits for the disk
_EMITTED_SINGLY = 100  # rows that never started and are emitted singly; later ones in ranges
_STRIDE = 100  # kept rows that are read between two checkpoints

Emit = Callable[[Row], Awaitable[None]]
"""Receives the rows, one after another."""


EmitMany = Callable[[RowsNotRun], Awaitable[None]]
"""Receives rows that never started, many at once, in their position among the others."""

RecordRow: TypeAlias = Callable[[Row], Row]
"""Records a row of a task whose job continues; returns it as it is recorded, which is how it is emitted."""

RowOf: TypeAlias = Callable[[int], int | str | None]
"""Returns the index of a job's row; for a job without a row, or with several, its name or None."""

Observers: TypeAlias = Callable[[str | None, RowOf], Observer]
"""Returns the observer for the jobs of one task, by the id of the task."""


@attrs.frozen
class UnstartedRows:
    """Consecutive rows of jobs that never started."""

    jobs: int
    """Number of jobs: one for each row, and those that compare them."""
    rows: range
    columns: Mapping[int, int]
    """The number of rows in each column, by the column's number."""


class Body(Protocol):
    """The type-specific part of a task: its plan, the bodies of its jobs, and their rows."""

    def plan(self) -> Plan[Any]:
        """Return the jobs."""
        ...

    async def perform(self, job: Job[Any], calls: Calls[Any], /) -> object:
        """Run the body of a job."""
        ...

    def rows(
        self, outcome: Outcome[Any], waits: Mapping[str, float] = NO_WAITS, /
    ) -> Sequence[Row]:
        """Return the rows that an outcome completes.

        Called once for each outcome: for started jobs in the order in which they end, for others at the
        latest when they are emitted.

        Args:
            outcome: The outcome of a job.
            waits: The waits of the job, in seconds by reason.
        """
        ...

    def unstarted(self, jobs: range, /) -> UnstartedRows | None:
        """Return the rows of some jobs, none of which started.

        Args:
            jobs: Consecutive jobs.

        Returns:
            As many as can be determined together; None if the first job must be handled separately.
        """
        ...

    def on_emitted(self, row: Row, /) -> None:
        """Handle the emission of a row; all of its task with a lower index are emitted or kept."""
        ...


@attrs.frozen(eq=False, repr=False)
class KeptTaskRows:
    """Rows of a task with results from an earlier execution."""

    rows: ReusedRows
    indices: Sequence[int]
    """The indices of those that are really kept."""


@attrs.frozen(eq=False, repr=False)
class OpenTask:
    """A task with open providers."""

    body: Body
    salvage_rounds: int = 0
    hooks: Hooks | None = None
    """Called at its end."""
    kept: KeptTaskRows | None = None
    """Its rows of an earlier execution that are not run again."""
    observer: TaskObserver | None = None
    """The observer of its jobs."""
    stop: trio.Event | None = None
    """Set when no new job of it may start; by the observer, or together with that of the run."""
    max_live_jobs: int | None = None
    """Maximum number of started and unfinished jobs of one lane, ≥ 1; see `run_plan`."""
    rows_for_later_tasks: TaskRows | None = None
    """Receives its rows, if other tasks use them."""
    early: bool = False
    """True if rows are always created as soon as their jobs end, because other jobs wait for that."""
    id: str | None = None
    """The task id; None if the suite is a single task."""
    row_of: RowOf = int  # the index of the job
    """Returns the row of each of its jobs."""
    rows_alone: TaskPart | None = None
    """The body of its rows without the jobs that compare them; None without such jobs."""
    memory: PromptBuilder | None = None
    """Contains the data that its rows leave for later ones; None if they leave none."""
    on_start: Callable[[RecordRow], None] | None = None
    """Receives, before its first job starts, the function that records a row before the end of its job: for
    jobs with many rows, of which `Body.rows` still returns all."""
    elsewhere: RowsElsewhere | None = None
    """Decides when rows may be performed in other processes; None lets them at any time."""


AdaptTask: TypeAlias = Callable[["PreparedTask", OpenTask], OpenTask]
"""Changes an open task before it runs, for example the place where its rows run."""


@attrs.define(eq=False, repr=False)
class TaskRun:
    """The state that all tasks of one run share."""

    emit: Emit
    """Accepts rows of several tasks concurrently, if there are several."""
    lanes: Lanes
    deadline: float
    """Instant on the Trio clock."""
    stop: trio.Event
    observe: Observer | None
    budget: Budget | None
    journal: Journal | None = None
    record_observers: Sequence[RecordObserver] = ()
    observers: Observers | None = None
    emit_many: EmitMany | None = None
    """Receives rows that never started; None if `emit` receives each of them."""
    counts: dict[Status, int] = attrs.field(init=False, factory=lambda: dict.fromkeys(Status, 0))
    """Emitted and kept rows of all tasks; a kept record counts instead of the row that did not replace it."""
    interrupted_rows: int = attrs.field(init=False, default=0)
    """Those of them that were cut off, and remain to be run."""

    def observer(self, task: str | None, row_of: RowOf) -> Observer | None:
        """Return the observer of the events of a task; None without one."""
        own = None if self.observers is None else guarded(self.observers(task, row_of))
        every = self.observe
        if own is None or every is None:
            return own or every

        def observe(event: Event) -> None:
            every(event)
            own(event)

        return observe

    async def perform(self, task: OpenTask, lacking: Unsatisfied | None = None) -> TaskEnd:
        """Run one task and emit all of its rows. A checkpoint.

        Args:
            task: The task.
            lacking: The incomplete dependency because of which nothing of it runs.

        Returns:
            Its end; a task is complete if every row has a verdict.

        Raises:
            Exception: Whatever `emit` raised.
        """
        if task.observer is None:
            end = await self._run(task, lacking)
        else:
            task.observer.on_task_start(trio.current_time())
            try:
                end = await self._run(task, lacking)
            finally:
                task.observer.on_task_end(trio.current_time())
        if task.rows_for_later_tasks is not None:
            task.rows_for_later_tasks.is_complete = end == "complete"
        if task.hooks is not None and lacking is None:
            grace_ends = trio.current_time() + _AFTER_ALL
            with trio.CancelScope(deadline=max(self.deadline, grace_ends)) as scope:
                await task.hooks.after_all()
            if scope.cancelled_caught:
                task.hooks.warn("afterAll was cut off: the run's deadline (maxEvalTimeMs) passed")
        return end

    async def _run(self, task: OpenTask, lacking: Unsatisfied | None) -> TaskEnd:
        results = _TaskRowsInProgress(self, task, lacking)
        if task.on_start is not None:
            task.on_start(results.record_early)
        stop = self.stop if lacking is None else _stopped()
        beside: list[Callable[[], Awaitable[None]]] = []
        if task.stop is not None:
            if stop.is_set():
                task.stop.set()
            beside.append(functools.partial(_forward_stop, stop, task.stop))
            stop = task.stop
        if results.row_reports is not None and self.journal is not None:
            beside.append(results.row_reports.report_continuously)
        await self._run_plan_beside(task, results, stop, beside)
        if task.kept is not None and not await self._count_kept(task.kept, task):
            return "incomplete"
        return results.end

    async def _run_plan(
        self, task: OpenTask, results: _TaskRowsInProgress, stop: trio.Event
    ) -> None:
        await run_plan(
            task.body.plan(),
            task.body.perform,
            lanes=self.lanes,
            emit=results.emit_outcome,
            deadline=self.deadline,
            stop=stop,
            observe=results.observe,
            max_live_jobs=task.max_live_jobs,
            salvage_rounds=task.salvage_rounds,
            budget=self.budget,
            settled=results.settle if results.early else None,
            never_ran=results.emit_rest if results.takes_many else None,
        )

    async def _run_plan_beside(
        self,
        task: OpenTask,
        results: _TaskRowsInProgress,
        stop: trio.Event,
        beside: Sequence[Callable[[], Awaitable[None]]],
    ) -> None:
        """Run a plan, with other functions in the background."""
        if not beside:
            await self._run_plan(task, results, stop)
            return
        async with open_plain_nursery() as nursery:
            for one in beside:
                nursery.start_soon(one)
            try:
                await self._run_plan(task, results, stop)
            finally:
                nursery.cancel_scope.cancel("the plan is over")

    async def _count_kept(self, kept: KeptTaskRows, task: OpenTask) -> bool:
        """Count the rows that were not run again; return whether each of them has a verdict."""
        is_whole = True
        for number, index in enumerate(kept.indices):
            if number % _STRIDE == 0:
                # Shielded: kept rows are counted also when the run is cancelled.
                await trio.lowlevel.cancel_shielded_checkpoint()
            record = kept.rows.record(index)
            status = recorded_status(record)
            self.counts[status] += 1
            is_whole = is_whole and status.has_verdict
            if task.hooks is not None:
                task.hooks.remember_record(index, record)
            if task.observer is not None:
                task.observer.on_kept_row(record)
            if task.rows_for_later_tasks is not None:
                task.rows_for_later_tasks.add_record(index, record)
        return is_whole

    @property
    def is_ending(self) -> bool:
        """True if no new job can start any more, independently of dependencies."""
        return (
            self.stop.is_set()
            or trio.current_time() >= self.deadline
            or trio.current_effective_deadline() == -math.inf
        )


@attrs.define(eq=False, repr=False)
class _TaskRowsInProgress:
    """The rows of one running task."""

    run: TaskRun
    task: OpenTask
    lacking: Unsatisfied | None
    end: TaskEnd = "complete"
    """According to the emitted rows, or the records kept instead of them."""
    waits: WaitTimes | None = attrs.field(init=False, default=None)
    """The waits of jobs; None without an observer or a journal."""
    row_reports: DurableRowReports | None = attrs.field(init=False, default=None)
    """Reports durable rows to the watch."""
    early: bool = attrs.field(init=False)
    """True if rows are created as soon as their jobs end, and not when it is their turn."""
    _made: dict[int, Sequence[Row]] = attrs.field(init=False, factory=dict)
    """Recorded rows that are not emitted yet, by their job."""
    _recorded: set[int] = attrs.field(init=False, factory=set)
    """The indices of rows that were recorded before the ends of their jobs."""
    _not_run: int = attrs.field(init=False, default=0)
    """Number of rows of jobs that never started, except those in ranges."""

    def __attrs_post_init__(self) -> None:
        # Observing every event costs as much as a few assertions: test_waits.py.
        run, watch = self.run, self.task.observer
        observer = run.observer(self.task.id, self.task.row_of)
        if run.journal is not None or observer is not None or watch is not None:
            self.waits = WaitTimes(run.lanes, observer)
        if watch is not None:
            self.row_reports = DurableRowReports(watch, run.journal)

    @early.default
    def _is_early(self) -> bool:
        task = self.task
        records = self.run.journal is not None or bool(self.run.record_observers)
        return task.early or records or task.observer is not None

    @property
    def observe(self) -> Observer | None:
        """The observer of the kernel's events."""
        waits, watch = self.waits, self.task.observer
        if waits is None or watch is None:
            return waits

        def observe(event: Event) -> None:
            waits(event)
            watch.on_event(event, waits.ahead if isinstance(event, Admitted) else NO_WAITS)

        return observe

    def record_early(self, row: Row) -> Row:
        """Record a row whose job continues, and return it as it is recorded."""
        self._recorded.add(row.index)
        return self._record(row)

    def settle(self, outcome: Outcome[Any]) -> None:
        """Handle the end of a job."""
        self._made[outcome.index] = self._make(outcome)

    async def emit_outcome(self, outcome: Outcome[Any]) -> None:
        """Emit the rows of an outcome, whose turn has come."""
        run, body, hooks = self.run, self.task.body, self.task.hooks
        made = self._made.pop(outcome.index, None) if self.early else None
        rows = self._make(outcome) if made is None else made  # None: it never ran
        if rows and run.journal is not None and not self._may_be_lost(outcome, len(rows)):
            # The rows of one step are recorded together; others in any order.
            for row in rows[-1:] if self.task.on_start is None else rows:
                await run.journal.durable(row)
        for row in rows:
            if self.row_reports is not None:
                self.row_reports.report_durable(row)
            body.on_emitted(row)
            if self.task.rows_for_later_tasks is not None:
                self.task.rows_for_later_tasks.add(row)
            await run.emit(row)
            before = None if run.journal is None else run.journal.superseding_record(row)
            status = row.status if before is None else recorded_status(before)
            run.counts[status] += 1
            run.interrupted_rows += row.cut is not None
            if not status.has_verdict and self.end != "incomplete":
                self.end = (
                    "cut" if before is None and row.cut is StopReason.BUDGET else "incomplete"
                )
            if hooks is None:
                continue
            if before is None:
                hooks.remember(row)
            else:
                hooks.remember_record(row.index, before)
        if self.task.on_start is not None:
            await trio.lowlevel.checkpoint()  # the kernel's are too rare for jobs with many rows

    @property
    def takes_many(self) -> bool:
        """True if rows that never started may be emitted many at once, without handling each of them."""
        task = self.task
        looked_at = task.hooks is not None or task.rows_for_later_tasks is not None
        return self.run.emit_many is not None and not looked_at

    async def emit_rest(self, jobs: range, outcome: NotRun) -> None:
        """Emit the rows of jobs that never started: some singly, and the others many at once."""
        while jobs:
            own = attrs.evolve(outcome, index=jobs.start)
            before, count = self._not_run // _STRIDE, await self._emit_many(jobs, own)
            if not count:
                await self.emit_outcome(own)
                count = 1
                if self._not_run // _STRIDE != before or self.run.journal is None:
                    await trio.lowlevel.checkpoint()
            jobs = jobs[count:]

    async def _emit_many(self, jobs: range, outcome: NotRun) -> int:
        """Emit as many rows as possible at once; return the number of jobs, 0 to emit the first singly."""
        run, emit, journal = self.run, self.run.emit_many, self.run.journal
        found = None if self._not_run < _EMITTED_SINGLY else self.task.body.unstarted(jobs)
        if found is not None and journal is not None:
            free = journal.first_single_row(self.task.id, found.rows) - found.rows.start
            if free < len(found.rows):
                found = self._unstarted_within(jobs[: found.jobs], free)
        if found is None or emit is None:
            return 0
        first = self._first_of(outcome)
        if first.status is not Status.NOT_RUN:
            return 0
        rows = RowsNotRun(first=first, indices=found.rows, columns=found.columns)
        if journal is not None:
            journal.rows_not_run(rows)
        await emit(rows)
        if self.task.observer is not None:
            self.task.observer.on_rows_not_run(rows)
        run.counts[Status.NOT_RUN] += len(rows)
        if first.cut is not None:
            run.interrupted_rows += len(rows)
        if self.end != "incomplete":
            self.end = "cut" if first.cut is StopReason.BUDGET else "incomplete"
        return found.jobs

    def _unstarted_within(self, jobs: range, most: int) -> UnstartedRows | None:
        """Return the rows of as many of the first jobs as have at most so many rows."""
        while most and jobs:
            found = self.task.body.unstarted(jobs)
            if found is None or len(found.rows) <= most:
                return found
            jobs = jobs[: min(most, found.jobs * most // len(found.rows))]
        return None

    def _first_of(self, outcome: NotRun) -> Row:
        """Return the first row of many; rows of compared steps come with the job that compares them."""
        index = outcome.index
        while not (rows := self._rows(attrs.evolve(outcome, index=index), NO_WAITS)):
            index += 1
        return rows[0]

    def _may_be_lost(self, outcome: Outcome[Any], rows: int) -> bool:
        """Return whether its rows need not be durable, because it never started.

        Waiting for the disk for each of them would take minutes after a stop; but not all may stay in memory.
        """
        if not isinstance(outcome, NotRun):
            return False
        before, self._not_run = self._not_run, self._not_run + rows
        return self._not_run // _NOT_RUN_AT_ONCE == before // _NOT_RUN_AT_ONCE

    def _make(self, outcome: Outcome[Any]) -> Sequence[Row]:
        waited = NO_WAITS
        if self.waits is not None:
            waited = self.waits.take(outcome.index, trio.current_time())
        rows = self._rows(outcome, waited)
        if not self._recorded:
            return [self._record(row) for row in rows]
        early = {row.index for row in rows} & self._recorded
        self._recorded -= early
        return [row if row.index in early else self._record(row) for row in rows]

    def _record(self, row: Row) -> Row:
        if (watch := self.task.observer) is not None:
            row = watch.on_row(row, trio.current_time())
        if self.run.journal is not None:
            self.run.journal.row(row)
        for observer in self.run.record_observers:
            observer.on_row(row)
        if self.row_reports is not None:
            self.row_reports.add(row)
        return row

    def _rows(self, outcome: Outcome[Any], waited: Mapping[str, float]) -> Sequence[Row]:
        rows = self.task.body.rows(outcome, waited)
        if self.lacking is None:
            return rows
        return [with_lacking_task(row, self.lacking) for row in rows]


async def _forward_stop(stop: trio.Event, own: trio.Event) -> None:
    await stop.wait()
    own.set()


def _stopped() -> trio.Event:
    event = trio.Event()
    event.set()
    return event
