"""Runs the rows of a task, on the lanes, budget, deadline and stop that all tasks of a run share.

A row is made and written down as soon as its job has its outcome, and is told of in index order, when it is
safe: whoever has been told of a row finds it again, whatever happens.

Every task is one plan, and every plan is run, also if nothing of it may start any more: that of a task which
is blocked is stopped before it begins, and that of a task whose turn never came begins in a scope that is
cancelled already. So the kernel alone sees to it that every row comes exactly once, in order (laws TOTAL,
ORDER, DEADLINE, DRAIN).
"""

import functools
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Never, Protocol, TypeAlias

import attrs
import trio

from trioeval.evaluation.hooks import Hooks
from trioeval.evaluation.journal import Journal, KeptRows, RecordObserver
from trioeval.evaluation.outcomes import TaskEnd, lacking_task
from trioeval.evaluation.row import Row, RowsLeft, RowsNotRun, Status
from trioeval.evaluation.waits import NO_WAITS, Waits
from trioeval.kernel import (
    Admitted,
    Budget,
    Calls,
    Cut,
    Event,
    Job,
    Lanes,
    NotRun,
    Observer,
    Outcome,
    Plan,
    run_plan,
)
from trioeval.kernel.events import guarded
from trioeval.nurseries import open_plain_nursery
from trioeval.suite.dependencies import Lacking

# Rows are emitted in index order, so one may wait long for those before it. An observer learns earlier that
# it ended: as soon as its own record is safe. With it, all that was recorded before is safe too.


class Watch(Protocol):
    """Who follows what the jobs of a task do."""

    def begin(self, at: float, /) -> None:
        """The task begins, at an instant of the Trio clock."""
        ...

    def observe(self, event: Event, waited: Mapping[str, float], /) -> None:
        """The kernel tells of a job.

        Args:
            event: What it tells.
            waited: Of a job that is started: for how long it was the next one of its lane and had to wait,
                in seconds by reason.
        """
        ...

    def ended(self, row: Row, at: float, /) -> Row:
        """A row is made: what is written down in its place."""
        ...

    def never_began(self, rows: RowsNotRun, /) -> None:
        """Report many rows that never began, without details of each."""
        ...

    def written(self, row: Row, /) -> None:
        """A row is safe where rows are written down."""
        ...

    def kept(self, record: Mapping[str, Any], /) -> None:
        """A row is there already and not run again."""
        ...

    def end(self, at: float, /) -> None:
        """The task is over."""
        ...


@attrs.define(eq=False)
class Telling:
    """The rows of one task of which its watch has not been told that they are over."""

    _watch: Watch
    _journal: Journal | None
    _untold: dict[int, Row] = attrs.field(init=False, factory=dict)
    """By index, in the order in which they were written down."""
    _news: trio.Event = attrs.field(init=False, factory=trio.Event)

    def add(self, row: Row) -> None:
        """A row was written down, where that is done."""
        if self._journal is None:
            self._watch.written(row)
        else:
            self._untold[row.index] = row
            self._news.set()

    def tell(self, row: Row) -> None:
        """A row is safe, and so is all that was written down before it."""
        while row.index in self._untold:
            self._watch.written(self._untold.pop(next(iter(self._untold))))

    async def keep_on(self) -> Never:
        """Tell of each row as soon as it is safe, until this is cancelled. Beside those who emit."""
        while True:
            self._news = trio.Event()
            while self._journal is not None and self._untold:
                row = next(iter(self._untold.values()))
                await self._journal.durable(row)
                self.tell(row)
            await self._news.wait()


_AFTER_ALL = 5.0  # seconds that the end of a run may be told of behind its deadline
_NOT_RUN_AT_ONCE = 500  # rows that never began, between two waits for the disk
_TOLD_ALONE = (
    100  # rows of a task that never began and are rows like any other; behind them are ranges
)
_STRIDE = 100  # kept rows that are read between two looks at the rest of the world
_STATUSES = (Status.PASS, Status.FAIL, Status.ERROR)
"""By the `failureReason` of a record."""

Emit = Callable[[Row], Awaitable[None]]
"""What gets the rows, one after another."""


EmitMany = Callable[[RowsNotRun], Awaitable[None]]
"""What gets rows that never began, many at once, in their place among the others."""

RowOf: TypeAlias = Callable[[int], int | str | None]
"""Gives the index of the row that a job is for; of a job that is for none, or several, its name or None."""

Observers: TypeAlias = Callable[[str | None, RowOf], Observer]
"""Gives who is told of what the jobs of one task do, by the id of the task."""


def _itself(job: int) -> int:
    return job


@attrs.frozen
class Unstarted:
    """Rows that follow each other, of jobs that never began."""

    jobs: int
    """How many jobs: one for each row, and those that compare them."""
    rows: range
    columns: Mapping[int, int]
    """How many of the rows each column has, by its number."""


class Body(Protocol):
    """What a task does: a plan, what its jobs do, and the rows that come of them."""

    def plan(self) -> Plan[Any]:
        """The jobs."""
        ...

    async def perform(self, job: Job[Any], calls: Calls[Any], /) -> object:
        """The body of a job."""
        ...

    def rows(
        self, outcome: Outcome[Any], waits: Mapping[str, float] = NO_WAITS, /
    ) -> Sequence[Row]:
        """The rows that an outcome makes known.

        Each outcome is given once: of jobs that were started in the order in which they end, of others at
        the latest when they are told of.

        Args:
            outcome: Of a job.
            waits: What the job waited for, in seconds by reason.
        """
        ...

    def unstarted(self, jobs: range, /) -> "Unstarted | None":
        """Rows that the first of some jobs would have made, none of which began.

        Args:
            jobs: Those that follow each other.

        Returns:
            As many as are known without a look at each; None if the first job has to be looked at.
        """
        ...

    def emitted(self, row: Row, /) -> None:
        """A row is told of, and all of its task with a lower index have been, or are kept."""
        ...


@attrs.frozen(eq=False)
class Kept:
    """Rows of a task that are there already."""

    rows: KeptRows
    indices: Sequence[int]
    """Of those that are really kept."""


@attrs.frozen(eq=False)
class OpenTask:
    """A task whose providers are open."""

    body: Body
    salvage_rounds: int = 0
    hooks: Hooks | None = None
    """What is told of its end."""
    kept: Kept | None = None
    """Its rows of an earlier execution that are not run again."""
    watch: Watch | None = None
    """What follows its jobs."""
    stop: trio.Event | None = None
    """Set when no new job of it is to start; by whoever watches it, or with that of the run."""
    max_live_jobs: int | None = None
    """Jobs of one lane that may be started and not over, ≥ 1; see `run_plan`."""
    left: RowsLeft | None = None
    """Gets its rows, where others are made of them."""
    early: bool = False
    """Whether rows are made as soon as their jobs are over in any case, because other jobs wait for that."""
    id: str | None = None
    """Of the task; None where the suite has no tasks but is one."""
    row_of: RowOf = _itself
    """Which row each of its jobs is for."""


@attrs.define(eq=False)
class TaskRun:
    """What all tasks of one run share."""

    emit: Emit
    """Takes rows of several tasks at once, if there are several."""
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
    """Takes rows that never began; None where `emit` gets each of them."""
    counts: dict[Status, int] = attrs.field(init=False, factory=lambda: dict.fromkeys(Status, 0))
    """Rows of all tasks that were emitted, or what stands in their places, or kept."""
    unended: int = attrs.field(init=False, default=0)
    """Those of them that were cut off, and are still to be run."""

    def observer(self, task: str | None, row_of: RowOf) -> Observer | None:
        """Who is told of the events of a task; None if nobody."""
        own = None if self.observers is None else guarded(self.observers(task, row_of))
        every = self.observe
        if own is None or every is None:
            return own or every

        def tell(event: Event) -> None:
            every(event)
            own(event)

        return tell

    async def perform(self, task: OpenTask, lacking: Lacking | None = None) -> TaskEnd:
        """Run one task and emit all of its rows. A checkpoint.

        Args:
            task: The task.
            lacking: Why nothing of it is called: the task that it lacks.

        Returns:
            How it ended; complete is a task of which every row has a verdict.

        Raises:
            Exception: Whatever `emit` raised.
        """
        if task.watch is None:
            end = await self._run(task, lacking)
        else:
            task.watch.begin(trio.current_time())
            try:
                end = await self._run(task, lacking)
            finally:
                task.watch.end(trio.current_time())
        if task.left is not None:
            task.left.is_complete = end == "complete"
        if task.hooks is not None and lacking is None:
            grace_ends = trio.current_time() + _AFTER_ALL
            with trio.CancelScope(deadline=max(self.deadline, grace_ends)) as scope:
                await task.hooks.after_all()
            if scope.cancelled_caught:
                task.hooks.warn("afterAll was cut off: the run's deadline (maxEvalTimeMs) passed")
        return end

    async def _run(self, task: OpenTask, lacking: Lacking | None) -> TaskEnd:
        results = _Results(self, task, lacking)
        stop = self.stop if lacking is None else _stopped()
        beside: list[Callable[[], Awaitable[None]]] = []
        if task.stop is not None:
            if stop.is_set():
                task.stop.set()
            beside.append(functools.partial(_pass_on_stop, stop, task.stop))
            stop = task.stop
        if results.telling is not None and self.journal is not None:
            beside.append(results.telling.keep_on)
        await self._run_plan_beside(task, results, stop, beside)
        if task.kept is not None and not await self._count_kept(task.kept, task):
            return "incomplete"
        return results.end

    async def _run_plan(self, task: OpenTask, results: "_Results", stop: trio.Event) -> None:
        await run_plan(
            task.body.plan(),
            task.body.perform,
            lanes=self.lanes,
            emit=results.pass_on,
            deadline=self.deadline,
            stop=stop,
            observe=results.observe,
            max_live_jobs=task.max_live_jobs,
            salvage_rounds=task.salvage_rounds,
            budget=self.budget,
            settled=results.settle if results.early else None,
            never_ran=results.pass_on_rest if results.takes_many else None,
        )

    async def _run_plan_beside(
        self,
        task: OpenTask,
        results: "_Results",
        stop: trio.Event,
        beside: Sequence[Callable[[], Awaitable[None]]],
    ) -> None:
        """Run a plan, and other things for as long as it takes."""
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

    async def _count_kept(self, kept: Kept, task: OpenTask) -> bool:
        """Count the rows that were not run again; whether each of them has a verdict."""
        before = self.counts[Status.PASS] + self.counts[Status.FAIL]
        for number, index in enumerate(kept.indices):
            if number % _STRIDE == 0:
                # Not one that a cancellation could end: rows that are kept are counted in any case.
                await trio.lowlevel.cancel_shielded_checkpoint()
            record = kept.rows.record(index)
            self.counts[_STATUSES[record["failureReason"]]] += 1
            if task.hooks is not None:
                task.hooks.keep_record(index, record)
            if task.watch is not None:
                task.watch.kept(record)
            if task.left is not None:
                task.left.add_record(index, record)
        return self.counts[Status.PASS] + self.counts[Status.FAIL] == before + len(kept.indices)

    @property
    def is_cut(self) -> bool:
        """Whether nothing new starts any more, whatever depends on what."""
        return (
            self.stop.is_set()
            or trio.current_time() >= self.deadline
            or trio.current_effective_deadline() == -math.inf
        )


@attrs.define(eq=False)
class _Results:
    """The rows of one task under way."""

    run: TaskRun
    task: OpenTask
    lacking: Lacking | None
    end: TaskEnd = "complete"
    """By the rows that were emitted, or what stands in their places."""
    waits: Waits | None = attrs.field(init=False, default=None)
    """What jobs wait for; None where nobody would be told."""
    telling: Telling | None = attrs.field(init=False, default=None)
    """Tells the watch of rows that are safe."""
    _made: dict[int, Sequence[Row]] = attrs.field(init=False, factory=dict)
    """Those that are written down and not emitted, by their job."""
    _not_run: int = attrs.field(init=False, default=0)
    """Jobs that never began, but for those in ranges."""

    def __attrs_post_init__(self) -> None:
        # To be told of everything costs as much as a few assertions: test_waits.py.
        run, watch = self.run, self.task.watch
        tell = run.observer(self.task.id, self.task.row_of)
        if run.journal is not None or tell is not None or watch is not None:
            self.waits = Waits(run.lanes, tell)
        if watch is not None:
            self.telling = Telling(watch, run.journal)

    @property
    def early(self) -> bool:
        """Whether rows are made as soon as their jobs are over, and not when it is their turn."""
        task = self.task
        records = self.run.journal is not None or bool(self.run.record_observers)
        return task.early or records or task.watch is not None

    @property
    def observe(self) -> Observer | None:
        """What the kernel tells of its events."""
        waits, watch = self.waits, self.task.watch
        if waits is None or watch is None:
            return waits

        def observe(event: Event) -> None:
            waits(event)
            watch.observe(event, waits.ahead if isinstance(event, Admitted) else NO_WAITS)

        return observe

    def settle(self, outcome: Outcome[Any]) -> None:
        """A job is over."""
        self._made[outcome.index] = self._make(outcome)

    async def pass_on(self, outcome: Outcome[Any]) -> None:
        """It is its turn to be told of."""
        run, body, hooks = self.run, self.task.body, self.task.hooks
        made = self._made.pop(outcome.index, None) if self.early else None
        rows = self._make(outcome) if made is None else made  # None: it never ran
        if rows and run.journal is not None and not self._costs_nothing(outcome):
            await run.journal.durable(rows[-1])
        for row in rows:
            if self.telling is not None:
                self.telling.tell(row)
            body.emitted(row)
            if self.task.left is not None:
                self.task.left.add(row)
            await run.emit(row)
            before = None if run.journal is None else run.journal.standing(row)
            status = row.status if before is None else _STATUSES[before["failureReason"]]
            run.counts[status] += 1
            run.unended += row.cut is not None
            if not status.has_verdict and self.end != "incomplete":
                self.end = "cut" if before is None and row.cut is Cut.BUDGET else "incomplete"
            if hooks is None:
                continue
            if before is None:
                hooks.keep(row)
            else:
                hooks.keep_record(row.index, before)

    @property
    def takes_many(self) -> bool:
        """Whether rows that never began may come many at once, without a look at each of them."""
        task = self.task
        looked_at = task.hooks is not None or task.left is not None
        return self.run.emit_many is not None and not looked_at

    async def pass_on_rest(self, jobs: range, outcome: NotRun) -> None:
        """It is the turn of jobs that never began: some alone, and the others many at once."""
        while jobs:
            own = attrs.evolve(outcome, index=jobs.start)
            count = await self._pass_on_many(jobs, own)
            if not count:
                await self.pass_on(own)
                count = 1
                if self._not_run % _STRIDE == 0:
                    await trio.lowlevel.checkpoint()
            jobs = jobs[count:]

    async def _pass_on_many(self, jobs: range, outcome: NotRun) -> int:
        """Pass on as many as possible at once; how many jobs that are, 0 if the first is to come alone."""
        run, emit, journal = self.run, self.run.emit_many, self.run.journal
        found = None if self._not_run < _TOLD_ALONE else self.task.body.unstarted(jobs)
        if found is not None and journal is not None:
            free = journal.first_alone(self.task.id, found.rows) - found.rows.start
            if free < len(found.rows):
                # At least as many jobs as rows.
                found = self.task.body.unstarted(jobs[:free]) if free else None
        if found is None or emit is None:
            return 0
        first = self._first_of(outcome)
        if first.status is not Status.NOT_RUN:
            return 0
        rows = RowsNotRun(first=first, indices=found.rows, columns=found.columns)
        if journal is not None:
            journal.rows_not_run(rows)
        await emit(rows)
        if self.task.watch is not None:
            self.task.watch.never_began(rows)
        run.counts[Status.NOT_RUN] += len(rows)
        if first.cut is not None:
            run.unended += len(rows)
        if self.end != "incomplete":
            self.end = "cut" if first.cut is Cut.BUDGET else "incomplete"
        return found.jobs

    def _first_of(self, outcome: NotRun) -> Row:
        """The first row of many: of steps that are compared it is known with the job that does that."""
        index = outcome.index
        while not (rows := self._rows(attrs.evolve(outcome, index=index), NO_WAITS)):
            index += 1
        return rows[0]

    def _costs_nothing(self, outcome: Outcome[Any]) -> bool:
        """Whether it is no loss if its row is gone after a crash, as it never began.

        To wait for the disk for each of them takes minutes after a stop; but not all wait in memory.
        """
        if not isinstance(outcome, NotRun):
            return False
        self._not_run += 1
        return self._not_run % _NOT_RUN_AT_ONCE > 0

    def _make(self, outcome: Outcome[Any]) -> Sequence[Row]:
        waited = NO_WAITS
        if self.waits is not None:
            waited = self.waits.take(outcome.index, trio.current_time())
        rows = self._rows(outcome, waited)
        if (watch := self.task.watch) is not None:
            rows = [watch.ended(row, trio.current_time()) for row in rows]
        for row in rows:
            if self.run.journal is not None:
                self.run.journal.row(row)
            for observer in self.run.record_observers:
                observer.on_row(row)
            if self.telling is not None:
                self.telling.add(row)
        return rows

    def _rows(self, outcome: Outcome[Any], waited: Mapping[str, float]) -> Sequence[Row]:
        rows = self.task.body.rows(outcome, waited)
        if self.lacking is None:
            return rows
        return [lacking_task(row, self.lacking) for row in rows]


async def _pass_on_stop(stop: trio.Event, own: trio.Event) -> None:
    await stop.wait()
    own.set()


def _stopped() -> trio.Event:
    event = trio.Event()
    event.set()
    return event
