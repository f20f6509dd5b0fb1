"""The collector of the rows of a run: totals, result files written row by row, and the data of documents.

All of them are made from records, as the store of the run has them. Rows of earlier executions of the run
are inserted in their places. No row is held here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trioeval.columns import is_columns
from trioeval.errors import OutputError
from trioeval.evaluation.journal import ReusedRows
from trioeval.evaluation.prepared import PreparedTask
from trioeval.providers.secrets import hide_in
from trioeval.question_eval import question_of
from trioeval.report.files import LINES, LinesFile, output_suffix
from trioeval.report.head import Head, config_tests
from trioeval.report.records import RowRecord
from trioeval.report.results import Results, RunInfo, range_json
from trioeval.report.stored import RunStart
from trioeval.report.tables import UNFINISHED, Failures, FirstRows
from trioeval.report.totals import Totals, derive
from trioeval.run import PreparedSuite, Row, RowsNotRun, Status
from trioeval.store.run import StoredRun
from trioeval.store.schema import INDEX_BITS

if TYPE_CHECKING:
    from trioeval.columns.result import DatasetResult

_ALL_ROWS = 1 << INDEX_BITS
_FAILURES = 10  # groups of rows that did not pass and are shown for each task
_AT_ONCE = 64  # earlier rows that are added without a checkpoint


@attrs.define(eq=False, repr=False, kw_only=True)
class CollectedRows:
    """The rows of one task, as far as they are known."""

    head: Head
    task: PreparedTask
    first_rows: FirstRows | None
    """The first rows for the table; None shows no rows."""
    failures: Failures
    totals: Totals
    keys: Sequence[str] = attrs.field(repr=False)
    """Secrets that are removed from the tests of its suite."""
    kept: ReusedRows
    """The rows of earlier executions."""
    dataset: DatasetResult | None = None
    """The result of its dataset, if it makes one that has ended."""
    never_began: list[Mapping[str, Any]] = attrs.field(factory=list)
    """Ranges of rows that are counted but have no records."""
    taken: int = 0
    """All rows before this index were added."""
    kept_left: int = attrs.field(init=False)
    """Rows of earlier executions that were not added yet."""

    def __attrs_post_init__(self) -> None:
        self.kept_left = len(self.kept)

    def kept_before(self, index: int) -> Iterator[RowRecord]:
        """Yield the earlier rows before an index that were not added yet; they count as added."""
        while self.taken < index:
            if not self.kept_left:
                self.taken = index
                return
            self.taken += 1
            if self.taken - 1 in self.kept:
                self.kept_left -= 1
                yield RowRecord.of(self.kept.record(self.taken - 1), index=self.taken - 1)

    @property
    def makes_dataset(self) -> bool:
        """True if it makes a dataset, and has no rows."""
        return is_columns(self.task.prepared.suite.settings)

    @property
    def is_whole(self) -> bool:
        """True if it is complete, so that other tasks can use its rows."""
        if self.makes_dataset:
            return self.dataset is not None and self.dataset.outcome == "complete"
        return (
            self.task.prepare_with_rows is None
            and not self.totals.count(Status.ERROR)
            and not self.totals.left
        )

    def tests(self) -> Iterator[Any]:
        """Yield its tests for documents; nothing if they never became known."""
        return (
            iter(())
            if self.task.prepare_with_rows
            else config_tests(self.task.prepared.suite, self.keys)
        )

    def derive(self) -> Iterator[str]:
        """Compute the derived metrics, and yield their problems."""
        metrics, context = self.task.prepared.suite.derived_metrics, self.task.prepared.context
        for column in self.totals.columns:
            yield from derive(metrics, column, context)


@attrs.define(eq=False, repr=False)
class Collector:
    """The collector of the rows of a run, which gets the rows of each task in index order."""

    parts: Sequence[CollectedRows]
    """The tasks of the suite, in order."""
    run: StoredRun
    outputs: Sequence[Path]
    info: RunInfo
    """The facts of the run at its start."""
    watch: Callable[[RowRecord, bool], None] = lambda _row, _kept: None
    """Called with each row, as a record with all of its parts, and whether an earlier execution ran it."""
    _lines: list[LinesFile] = attrs.field(init=False)
    _by_task: dict[str | None, CollectedRows] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._lines = [LinesFile(path) for path in self.outputs if output_suffix(path) == LINES]
        self._by_task = {part.head.task: part for part in self.parts}

    @classmethod
    def of(
        cls,
        prepared: PreparedSuite,
        start: RunStart,
        run: StoredRun,
        outputs: Sequence[Path],
        info: RunInfo,
        *,
        cell: int,
        tests: int,
    ) -> Collector:
        """Return a collector for the rows of a suite.

        Args:
            prepared: The suite.
            start: The data about the run at its start.
            run: The stored run.
            outputs: The result files.
            info: The facts of the run at its start.
            cell: The most characters of an output in the table.
            tests: The most tests of each task in the table; 0 shows no rows.
        """
        parts = [
            CollectedRows(
                head=head,
                task=task,
                first_rows=FirstRows(cell, tests) if tests else None,
                failures=Failures(_FAILURES, shows_outputs=not info.strip.response_output),
                totals=Totals.of(head.columns, cluster=head.cluster),
                keys=start.keys[head.task],
                kept=run.reused_rows(head.task),
            )
            for head, task in zip(map(Head.read, start.heads), prepared.parts, strict=True)
        ]
        return cls(parts, run, outputs, info)

    @property
    def datasets(self) -> Sequence[DatasetResult]:
        """The results of the datasets of all tasks; one without a result was not built."""
        found = []
        for part in self.parts:
            settings = part.task.prepared.suite.settings
            if is_columns(settings):
                from trioeval.columns.result import DatasetResult

                rows = settings.rows or 0
                unheard = DatasetResult(
                    task=part.head.task, requested=rows, written=0, not_run={"fault": rows}
                )
                found.append(part.dataset or unheard)
        return found

    @property
    def unopened(self) -> int:
        """Tasks whose tests never became known, although the task that they are made from is complete."""
        waiting = [
            self._by_task.get(rows_of.task)
            for part in self.parts
            if part.task.prepare_with_rows
            and (rows_of := part.task.prepared.suite.rows_of) is not None
        ]
        return sum(source is not None and source.is_whole for source in waiting)

    @property
    def totals(self) -> Totals:
        """The totals of all rows."""
        if len(self.parts) == 1:
            return self.parts[0].totals
        return Totals.joined(part.totals for part in self.parts)

    @property
    def kept_left(self) -> int:
        """Rows of earlier executions in all tasks that were not added yet."""
        return sum(part.kept_left for part in self.parts)

    def settled(self, task: PreparedTask) -> None:
        """Set the tests of a task, which are known from now on."""
        part = self._by_task[task.id]
        part.task = task
        self.run.set_steps(task.id, task.prepared.steps)
        part.kept = self.run.reused_rows(task.id)
        part.kept_left = len(part.kept)

    def dataset(self, result: DatasetResult) -> None:
        """Store the result of the dataset of a task, without secrets."""
        from trioeval.report.columns import dataset_json, read_dataset

        part = self._by_task[result.task]
        part.dataset = read_dataset(hide_in(dataset_json(result), part.keys))

    def open(self) -> None:
        """Open all files that get rows one by one.

        Raises:
            OutputError: A file cannot be opened.
        """
        for lines in self._lines:
            lines.open()

    async def add(self, row: Row) -> OutputError | None:
        """Add a row, after earlier rows before it.

        Return the first error of a file; the row is counted in any case.
        """
        part = self._by_task[row.task]
        await self._take_kept(part, row.index)
        part.taken = row.index + 1
        record = self.run.record(row)
        record.index = row.index
        self._take(part, record, is_kept=False)
        await self._take_next(part)
        return next(self._errors(), None)

    async def add_many(self, rows: RowsNotRun) -> None:
        """Add rows that never started, after earlier rows before them.

        They are counted, and are left out of files and tables.
        """
        part = self._by_task[rows.first.task]
        await self._take_kept(part, rows.indices.start)
        part.taken = rows.indices.stop
        question = question_of(rows.first)
        ended = None if question is None else question.outcome
        part.totals.add_not_run(rows.first.outcome, rows.columns, ended)
        first = rows.first
        if first.outcome in UNFINISHED:
            part.failures.not_run.add_range(rows.indices)
        part.never_began.append(range_json(rows.indices, first.outcome, first.error))
        await self._take_next(part)

    async def add_first(self) -> None:
        """Add the earlier rows that no row of this execution precedes."""
        for part in self.parts:
            await self._take_next(part)

    async def add_rest(self) -> None:
        """Add the earlier rows behind the last one, as no further row will come."""
        for part in self.parts:
            rows = part.task.rows
            await self._take_kept(part, _ALL_ROWS if rows is None else rows)

    async def _take_next(self, part: CollectedRows) -> None:
        """Add the earlier rows that directly follow, if its tests are known: others may run again."""
        if part.kept_left and part.task.prepare_with_rows is None:
            end = part.taken
            while end in part.kept:
                end += 1
            await self._take_kept(part, end)

    async def _take_kept(self, part: CollectedRows, end: int) -> None:
        for count, record in enumerate(part.kept_before(end), 1):
            self._take(part, record, is_kept=True)
            if count % _AT_ONCE == 0:
                # Rows are added even if the run is cancelled: all of them are to be written.
                await trio.lowlevel.cancel_shielded_checkpoint()

    def _take(self, part: CollectedRows, record: RowRecord, *, is_kept: bool) -> None:
        part.totals.add(record)
        self.watch(record, is_kept)
        if part.first_rows is not None:
            part.first_rows.add(record)
        part.failures.add(part.taken - 1, record)
        if self._lines:
            line = self.info.row_line(record)
            for lines in self._lines:
                lines.add(line)

    def derive(self) -> Iterator[str]:
        """Compute the derived metrics after the last row, and yield their problems."""
        for part in self.parts:
            yield from part.derive()

    def _errors(self) -> Iterator[OutputError]:
        """Yield the first error of each file so far."""
        yield from (lines.error for lines in self._lines if lines.error is not None)

    def close(self) -> Sequence[OutputError]:
        """Close all files that got rows one by one, and return the errors of writing them."""
        for lines in self._lines:
            lines.close()
        return [*self._errors()]

    def results(self, info: RunInfo) -> Sequence[Results]:
        """Return the data of documents: the run, or its tasks."""
        return [self._results(part, info) for part in self.parts]

    def _results(self, part: CollectedRows, info: RunInfo) -> Results:
        def records(prompt_idx: int | None) -> Iterator[Mapping[str, Any]]:
            return self.run.records(part.head.task, prompt_idx)

        def numbered(prompt_idx: int | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
            return self.run.numbered(part.head.task, prompt_idx)

        def tests() -> Iterator[Any]:
            return part.tests()

        return Results(
            head=part.head,
            totals=part.totals,
            info=info,
            records=records,
            numbered=numbered,
            tests=tests,
            dataset=part.dataset,
            never_began=part.never_began,
        )
