"""One run of a session: its start, its rows while and after it runs, its progress, its end, and its files.

A row is durable before it is emitted, so nothing has to wait for those who iterate over rows: the run keeps
the order of its rows, a few bytes each, and the latest records; an iteration that is behind reads the others
from the store. So an iteration may be slow, be abandoned, or start when the run is over, and any number of
them may go on at once.
"""

from __future__ import annotations

import array
import importlib
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import attrs
import trio

from trioeval.errors import OutputError, UsageError
from trioeval.evaluation.reconcile import Retry
from trioeval.kernel import Event, Lanes, StopReason
from trioeval.providers.secrets import hide_in
from trioeval.report.files import LINES, check_outputs, output_suffix, write_lines, write_results
from trioeval.report.kept_totals import kept_text
from trioeval.report.records import RowRecord
from trioeval.report.results import Results, RunInfo, utc
from trioeval.report.run_state import RunSnapshot
from trioeval.report.stored import RunStart
from trioeval.run import PreparedSuite, PreparedTask, Row, RowsNotRun, Status
from trioeval.session.collector import Collector
from trioeval.session.progress import RunStateSource, rows_of_lanes
from trioeval.store.database import lock_run, media_folder
from trioeval.store.run import StoredRun
from trioeval.store.run_start import reconcile_stored, run_start
from trioeval.store.schema import INDEX_BITS
from trioeval.store.store import Store

if TYPE_CHECKING:
    from trioeval.columns.result import DatasetResult
    from trioeval.report.worker_lanes import WorkerLanes

RunEnd: TypeAlias = Literal[
    "finished", "stopped", "deadline", "budget", "lane_closed", "cancelled", "failed"
]
"""The end of a run.

`finished`: every row has run. `stopped`: by `stop`. `deadline`: by the suite's `maxEvalTimeMs`. `budget`: a
budget was exhausted. `lane_closed`: a provider refused calls for good. `cancelled`: by `cancel`, or by the
caller's scope. `failed`: by an exception.
"""

_LATEST = 512  # records that are held for iterations that keep up
_INDEX = (1 << INDEX_BITS) - 1
_CUTS: Mapping[StopReason, RunEnd] = {
    StopReason.DEADLINE: "deadline",
    StopReason.BUDGET: "budget",
    StopReason.STOP: "stopped",
    StopReason.CANCEL: "cancelled",
    StopReason.LANE: "lane_closed",
}
"""The ends of a run by the reason why a row was cut off; the first one that occurs counts."""


@attrs.frozen(kw_only=True)
class RunSummary:
    """The totals of a run; every row is counted in exactly one of the first five."""

    ended: RunEnd
    """The reason of its end."""
    passed: int
    failed: int
    errors: int
    not_graded: int
    """Rows with a reply that nothing graded."""
    not_run: int
    """Rows that were not run or not finished."""
    duration: float
    """Seconds of this execution on the Trio clock."""
    tokens: int
    """Tokens of all rows, without judges."""
    cost: float
    """US dollars of all rows, without judges, as far as prices are known."""
    datasets: tuple[DatasetResult, ...] = ()
    """The results of its datasets, in the order of its tasks."""

    @property
    def rows(self) -> int:
        """The number of all rows."""
        return self.passed + self.failed + self.errors + self.not_graded + self.not_run


@attrs.define(eq=False, repr=False)
class _Log:
    """The order of rows in which an iteration sees them, and the latest of them."""

    places: array.array[int] = attrs.field(factory=lambda: array.array("Q"))
    """The number of the task and the index of each row, in one integer."""
    latest: deque[Row | RowRecord] = attrs.field(factory=lambda: deque(maxlen=_LATEST))
    added: trio.lowlevel.ParkingLot = attrs.field(factory=trio.lowlevel.ParkingLot)
    is_complete: bool = False

    def add(self, task: int, index: int, row: Row | RowRecord) -> None:
        self.places.append(task << INDEX_BITS | index)
        self.latest.append(row)
        self.added.unpark_all()

    def complete(self) -> None:
        self.is_complete = True
        self.added.unpark_all()

    def found(self, position: int) -> Row | RowRecord | None:
        """Return the row at a position if it is one of the latest."""
        behind = len(self.places) - position
        return self.latest[-behind] if behind <= len(self.latest) else None


@attrs.define(eq=False, repr=False)
class RowIterator:
    """An iteration over the rows of a run, which may be abandoned at any time. Created by `Run`.

    Each step is a checkpoint.
    """

    _run: Run
    _log: _Log
    _position: int = 0

    def __aiter__(self) -> Self:
        """Return the iteration itself: it continues where it is."""
        return self

    async def __anext__(self) -> RowRecord:
        """Wait for the next row and return it; after the last one the iteration ends.

        Raises:
            UsageError: The session is closed, and the row is only in its store.
            StoreError: The row cannot be read.
        """
        await trio.lowlevel.checkpoint()
        while True:
            while self._position == len(self._log.places):
                if self._log.is_complete:
                    raise StopAsyncIteration
                await self._log.added.park()
            self._position += 1
            row = await self._run.row_at(self._log, self._position - 1)
            if (
                row is not None
            ):  # a row that could not be stored is gone; the store has reported why
                return row


class Run:
    """A run of a suite in a session. Created by `Session.run`.

    Its methods may be called in the block of `Session.run`, and afterwards in that of the session.
    """

    def __init__(
        self,
        prepared: PreparedSuite,
        store: Store,
        stored: StoredRun,
        start: RunStart,
        lanes: Lanes,
        *,
        database: Path | None,
        warn: Callable[[str], None],
        on_workers: bool = False,
    ) -> None:
        self.id = stored.id
        """The id of the run in the store."""
        self.resumed = stored.resumed
        """True if it continues a run that an earlier execution began."""
        self.summary: RunSummary | None = None
        """The totals, and how the run ended; None until it has ended, at the end of its block."""
        self._suite = prepared.suite
        self._store = store
        self._stored = stored
        self._start = start
        self._database = database
        self._warn = warn
        self.stopping = trio.Event()
        """Set when no more rows start."""
        self._scope = trio.CancelScope()
        self._cut: StopReason | None = None
        self._is_whole = False
        self._began_at = trio.current_time()
        self._emitted, self._settled = _Log(), _Log()
        self._task_numbers = {part.id: number for number, part in enumerate(prepared.parts)}
        self._tasks = list(self._task_numbers)
        self._collector = Collector.of(prepared, start, stored, (), self._info(), cell=0, tests=0)
        self._collector.watch = self._on_emitted
        self._state = RunStateSource.of(
            prepared,
            lanes,
            self._collector,
            self.stopping.is_set,
            self._began_at,
            on_workers=on_workers,
        )
        for part in prepared.parts:
            self._expect(part)

    def __repr__(self) -> str:
        state = "in progress" if self.summary is None else self.summary.ended
        return f"<Run {self.id}: {state}, {len(self._emitted.places)} rows>"

    @property
    def progress(self) -> RunSnapshot:
        """The state of the run and its lanes at this instant; inside of `trio.run`."""
        return self._state.state()

    @property
    def worker_lanes(self) -> WorkerLanes | None:
        """The lanes of its workers; None if its rows run in this process."""
        return self._state.workers

    def stop(self) -> None:
        """Start no more rows; those that have started continue to their end."""
        self.stopping.set()

    def cancel(self) -> None:
        """End the run now: its calls are cancelled, and unfinished rows say so."""
        self._scope.cancel("the run was cancelled")

    def rows(self) -> RowIterator:
        """Iterate over all rows, each as soon as all rows before it in its task are known.

        Rows of earlier executions are included in their places. Of rows that never started because the run
        ended early, all but the first hundred of a task are only counted, in `summary`.
        """
        return RowIterator(self, self._emitted)

    def settled(self) -> RowIterator:
        """Iterate over the rows of this execution in the order in which they end."""
        return RowIterator(self, self._settled)

    async def wait(self) -> None:
        """Wait until the last row has been emitted. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while not self._emitted.is_complete:
            await self._emitted.added.park()

    async def write(self, *paths: str | Path) -> None:
        """Write result files in a thread, each in the format of its suffix. A checkpoint.

        Args:
            *paths: The files, such as `out.json`, `out.html`, `out.parquet` or `out.jsonl`.

        Raises:
            UsageError: The run is not over, or a path cannot be used, such as that of a file of the suite.
            OutputError: A file cannot be written; the others are written.
        """
        await trio.to_thread.run_sync(partial(self._write, [Path(path) for path in paths]))

    def to_records(self) -> list[dict[str, Any]]:
        """Return all rows as JSON data, as `out.jsonl` has them.

        Raises:
            UsageError: The run is not over.
        """
        return [
            dict(part.info.row_json(record)) for part in self._results() for record in part.rows()
        ]

    def to_arrow(self) -> Any:
        """Return all rows as a `pyarrow.Table` with the columns of `out.parquet`.

        Raises:
            UsageError: The run is not over, or pyarrow is not installed.
        """
        from trioeval.report.formats.arrow import arrow_table

        _require("pyarrow", "to_arrow")
        return arrow_table(self._results())

    def to_pandas(self) -> Any:
        """Return all rows as a `pandas.DataFrame` with the columns of `out.parquet`.

        Raises:
            UsageError: The run is not over, or pandas or pyarrow is not installed.
        """
        _require("pandas", "to_pandas")
        return self.to_arrow().to_pandas()

    # The side of the session.

    async def row_at(self, log: _Log, position: int) -> RowRecord | None:
        """Return a row of a log, from the store if it is not one of the latest. A checkpoint if it waits."""
        place = log.places[position]
        task, index = self._tasks[place >> INDEX_BITS], place & _INDEX
        found = log.found(position)
        if isinstance(found, Row):
            found = self._stored.record(found)
            found.index = index
        if found is not None:
            return found
        self._check_open()
        record = self._stored.stored_record(task, index)
        if record is None:
            await self._stored.durable()
            record = self._stored.stored_record(task, index, anew=True)
        return None if record is None else RowRecord.of(record, index=index)

    async def emit(self, row: Row) -> None:
        """Add a row whose turn has come. Not a checkpoint, unless rows of earlier executions precede it."""
        if self._cut is None:
            self._cut = row.cut
        await self._collector.add(row)

    async def emit_many(self, rows: RowsNotRun) -> None:
        """Count rows that never started."""
        if self._cut is None:
            self._cut = rows.first.cut
        await self._collector.add_many(rows)

    def on_row(self, row: Row, /) -> None:
        """Add a row that has ended, perhaps before its turn."""
        self._state.add(row.status, row.lane)
        self._settled.add(self._task_numbers[row.task], row.index, row)

    def observe(self, event: Event) -> None:
        """Count an event of the kernel."""
        self._state.activity.observe(event)
        self._stored.observe(event)

    def on_tests(self, task: PreparedTask) -> None:
        """Set the tests of a task, which are known from now on."""
        self._collector.settled(task)
        self._state.total += task.rows or 0
        self._expect(task)

    def on_dataset(self, result: DatasetResult, _rows: object) -> None:
        """Store the result of a dataset."""
        self._collector.dataset(result)

    async def perform(self, run: Callable[[], Any]) -> None:
        """Run the suite in a scope that `cancel` ends."""
        with self._scope:
            try:
                await self._collector.add_first()
                await run()
                self._is_whole = True
            finally:
                with trio.CancelScope(shield=True):  # the store has no other waits than its thread
                    await self._complete_rows()

    async def _complete_rows(self) -> None:
        """End the iterations over rows, after earlier rows that no other follows."""
        if not self._emitted.is_complete:
            try:
                await self._collector.add_rest()
            finally:
                self._emitted.complete()
                self._settled.complete()

    async def end(self, *, failed: bool) -> None:
        """Record the end of the run. A checkpoint; the caller bounds and shields it."""
        await self._complete_rows()  # unless it has been performed
        ended = self._ended(failed=failed)
        seconds = trio.current_time() - self._began_at
        collector, stored = self._collector, self._stored
        for warning in dict.fromkeys(collector.derive()):
            self._warn(warning)
        for part in collector.parts:
            stored.tests(part.head.task, part.tests())
        keys = [key for several in self._start.keys.values() for key in several]
        stored.activity(hide_in(self._state.activity.json(trio.current_time()), keys))
        stored.finish(
            "finished" if ended == "finished" else "interrupted",
            duration_ms=1000 * seconds,
            derived={
                part.head.task or "": [column.derived for column in part.totals.columns]
                for part in collector.parts
            },
            totals={part.head.task: kept_text(part.totals) for part in collector.parts},
        )
        self.summary = self._summary(ended, seconds)
        await stored.durable()

    def _ended(self, *, failed: bool) -> RunEnd:
        if failed:
            return "failed"
        if self._scope.cancelled_caught or not self._is_whole:
            return "cancelled"
        left = self._collector.totals.left or self._stored.standing_rows
        if self._cut is not None and left:
            return _CUTS.get(self._cut, "stopped")
        if left or self._collector.unopened:
            return "stopped"
        return "finished"

    def _summary(self, ended: RunEnd, seconds: float) -> RunSummary:
        totals = self._collector.totals
        return RunSummary(
            ended=ended,
            passed=totals.count(Status.PASS),
            failed=totals.count(Status.FAIL),
            errors=totals.count(Status.ERROR),
            not_graded=totals.count(Status.NOT_GRADED),
            not_run=totals.count(Status.NOT_RUN),
            duration=seconds,
            tokens=sum(column.tokens for column in totals.columns),
            cost=math.fsum(column.cost or 0 for column in totals.columns),
            datasets=tuple(self._collector.datasets),
        )

    def _expect(self, task: PreparedTask) -> None:
        if task.rows is not None:
            kept = self._stored.reused_rows(task.id)
            self._state.expect(rows_of_lanes(task.prepared, kept))

    def _on_emitted(self, record: RowRecord, is_kept: bool) -> None:  # noqa: FBT001 - as it is called
        if is_kept:
            self._state.add_kept(record.status)
        if record.index is not None:  # the collector numbers all of its records
            self._emitted.add(self._task_numbers[record.task], record.index, record)

    def _write(self, paths: Sequence[Path]) -> None:
        self._check_not_read(paths)
        check_outputs(paths)
        results, errors = self._results(), []
        for path in paths:
            try:
                if output_suffix(path) == LINES:
                    write_lines(path, results)
                else:
                    write_results(path, results)
            except OutputError as error:
                errors.append(error)
        if errors:
            raise errors[0] if len(errors) == 1 else OutputError("\n".join(map(str, errors)))

    def _check_not_read(self, paths: Sequence[Path]) -> None:
        """Raise if a result file would overwrite a file of the suite, or the store."""
        from trioeval.evaluation.suite_files import named_files

        database = self._store.path
        for path in filter(Path.is_file, paths):
            for file in (database, *map(Path, self._start.files), *named_files(self._suite)):
                if file.exists() and path.samefile(file):
                    of = "the store" if file == database else f"the suite's {file}"
                    raise UsageError(f"{path} is the same file as {of}: name another file")

    def _results(self) -> Sequence[Results]:
        if self.summary is None:
            raise UsageError(
                f"run {self.id} is in progress: its results are complete after the block of "
                "`session.run`"
            )
        self._check_open()
        info = attrs.evolve(
            self._info(),
            duration_ms=1000 * self.summary.duration,
            activity=self._stored.activities(),
        )
        return self._collector.results(info)

    def _check_open(self) -> None:
        if self._store.is_closed:
            raise UsageError(
                f"the session of run {self.id} is closed: read its rows in the block of "
                "`open_session`, or later with `read_store`"
            )

    def _info(self) -> RunInfo:
        return RunInfo(
            utc_exported=utc(datetime.now(UTC)),
            duration_ms=0.0,
            database="results" if self._database is None else self._database.stem,
            suite=self._start.suite,
            media=media_folder(self._store.path),
        )


def _require(package: str, method: str) -> None:
    try:
        importlib.import_module(package)
    except ImportError:
        raise UsageError(f"{method} needs {package}: pip install {package}") from None


def check_can_begin(store: Store, run_id: str, *, resume: bool) -> None:
    """Raise if a run cannot begin or continue now.

    Raises:
        UsageError: The run is stored and `resume` is false, or it is in progress elsewhere.
        StoreError: The file cannot be read.
    """
    if not store.has(run_id):
        return
    if not resume:
        raise UsageError(
            f"run {run_id} is already in {store.path}: pass resume=True to continue it, "
            "or another id"
        )
    lock_run(store.path, run_id).release()


async def begin_run(
    store: Store,
    prepared: PreparedSuite,
    run_id: str,
    stack: AsyncExitStack,
    *,
    resume: bool,
    retry: Retry | None,
    warn: Callable[[str], None],
) -> tuple[RunStart, StoredRun]:
    """Record the start of a run, or continue it. A checkpoint.

    Args:
        store: The store.
        prepared: The suite.
        run_id: The id of the run.
        stack: Releases the run at the end.
        resume: Whether a stored run is continued.
        retry: The finished rows to run again; None runs none again.
        warn: Called with the number of replies that only the journal of workers had.

    Raises:
        UsageError: The run is stored and `resume` is false, or it is in progress elsewhere.
        StoreError: It cannot be recorded.
    """
    now = datetime.now(UTC)
    read = partial(run_start, prepared, run=run_id, utc_created=utc(now))
    start = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
    if not store.has(run_id):
        stored = store.begin(start)
        stack.callback(stored.release)
        await stored.durable()
        if store.error is not None:
            raise store.error
        return start, stored
    check_can_begin(store, run_id, resume=resume)
    compare = partial(reconcile_stored, store.path, prepared, start)
    reconciled = await trio.to_thread.run_sync(compare, abandon_on_cancel=True)
    # Without its heads, so that its tasks, suite and versions are replaced.
    stored = await store.resume(
        run_id,
        RunStart(id=run_id, utc_created=start.utc_created),
        retry=retry,
        reconciled=reconciled,
    )
    stack.callback(stored.release)
    stored.begin(prepared)
    if prepared.suite.limits is not None:
        from trioeval.scaleout.run_workers import recover_replies

        await recover_replies(prepared, stored, warn)
    return start, stored
