"""Results of stored runs, as result files and screens need them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trioeval.errors import StoreError
from trioeval.report.columns import read_dataset
from trioeval.report.head import Head
from trioeval.report.kept_totals import read_kept
from trioeval.report.records import RowRecord
from trioeval.report.results import Results, RunInfo, range_json, utc
from trioeval.report.stored import DatasetFacts, StoredRunFacts
from trioeval.report.strip import KEEP_ALL, Strip
from trioeval.report.totals import ColumnTotals, Totals
from trioeval.run import Status
from trioeval.store.database import media_folder
from trioeval.store.not_run_rows import NotRunRows
from trioeval.store.reader import StoreReader

if TYPE_CHECKING:
    from trioeval.columns.result import DatasetResult


def results_of(
    reader: StoreReader,
    facts: StoredRunFacts,
    *,
    strip: Strip = KEEP_ALL,
    escape_formulas: bool = True,
    omit_zero_counters: bool = False,
) -> Sequence[Results]:
    """Return the results of each task of a run, for result files.

    Reads each row once, for the totals, unless they were kept when the run ended.

    Args:
        reader: The store.
        facts: The run.
        strip: The parts that are left out.
        escape_formulas: Whether cells of a spreadsheet that look like formulas are made inert.
        omit_zero_counters: Whether files leave out token counters that are zero.
    """
    info = RunInfo(
        utc_exported=utc(datetime.now(UTC)),
        duration_ms=facts.duration_ms,
        strip=strip,
        escape_formulas=escape_formulas,
        omit_zero_counters=omit_zero_counters,
        activity=reader.activity(facts),
        database=reader.path.stem,
        suite=facts.suite,
        media=media_folder(reader.path),
    )
    datasets = {dataset.task: dataset for dataset in datasets_of(reader, facts)}
    return [
        _results(reader, facts, head, info, datasets.get(head.task))
        for head in map(Head.read, reader.heads(facts))
    ]


def datasets_of(reader: StoreReader, facts: StoredRunFacts) -> Sequence[DatasetResult]:
    """Return the results of the datasets of a run that have ended.

    Raises:
        StoreError: The stored data are damaged.
    """
    found = (dataset_of(reader, facts, one) for one in reader.datasets(facts).values())
    return [dataset for dataset in found if dataset is not None]


def dataset_of(
    reader: StoreReader, facts: StoredRunFacts, stored: DatasetFacts
) -> DatasetResult | None:
    """Return the result of a dataset; None if it has not ended.

    Raises:
        StoreError: The stored data are damaged.
    """
    if stored.result is None:
        return None
    try:
        return read_dataset(stored.result)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"{reader.path}: the result of dataset {stored.task} of {facts.id} cannot be read ({error}); "
            "the store may be damaged"
        ) from error


def _results(
    reader: StoreReader,
    facts: StoredRunFacts,
    head: Head,
    info: RunInfo,
    dataset: DatasetResult | None,
) -> Results:
    def records(prompt_idx: int | None) -> Iterator[Mapping[str, Any]]:
        return reader.records(facts, head.task, prompt_idx)

    def numbered(prompt_idx: int | None) -> Iterator[tuple[int, Mapping[str, Any]]]:
        return reader.numbered(facts, head.task, prompt_idx)

    def tests() -> Iterator[Any]:
        return reader.tests(facts, head.task)

    never_began = reader.never_began(facts, head.task)
    totals = kept_totals(reader, facts, head)
    if totals is None:
        totals = totals_of(records(None), head, facts.derived)
        add_never_began(totals, never_began)
    return Results(
        head=head,
        totals=totals,
        info=info,
        records=records,
        numbered=numbered,
        tests=tests,
        dataset=dataset,
        never_began=[range_json(one.rows, one.outcome, one.error) for one in never_began],
    )


def add_never_began(totals: Totals, several: Iterable[NotRunRows]) -> None:
    """Count rows that were not run and have no records."""
    for one in several:
        totals.add_not_run(one.outcome, one.columns, one.question)


def totals_of(records: Iterator[Mapping[str, Any]], head: Head, derived: Any) -> Totals:
    """Return the totals of a task, with the metrics that were derived when it ended."""
    totals = Totals.of(head.columns, cluster=head.cluster)
    for record in records:
        totals.add(RowRecord.of(record))
    _add_derived(totals, head, derived)
    return totals


def _add_derived(totals: Totals, head: Head, derived: Any) -> None:
    for column, metrics in zip(
        totals.columns, (derived or {}).get(head.task or "", ()), strict=False
    ):
        column.derived.update(metrics)


def kept_totals(reader: StoreReader, facts: StoredRunFacts, head: Head) -> Totals | None:
    """Return the totals that were kept when the run of a task ended; None if they were not.

    Raises:
        StoreError: The stored data are damaged.
    """
    text = reader.totals(facts, head.task)
    if text is None:
        return None
    try:
        totals = read_kept(text)
    except ValueError as error:
        raise StoreError(
            f"{reader.path}: the totals of {facts.id} cannot be read ({error}); the store may be damaged"
        ) from error
    _add_derived(totals, head, facts.derived)
    return totals


def stored_totals(facts: StoredRunFacts) -> Totals:
    """Return the numbers of rows of a run by status, without reading them. Other totals are missing."""
    column = ColumnTotals()
    column.statuses.update(
        {
            Status.PASS: facts.passed,
            Status.FAIL: facts.failed,
            Status.ERROR: facts.errors,
            Status.NOT_GRADED: facts.not_graded,
            Status.NOT_RUN: facts.not_run,
        }
    )
    column.outcomes.update(facts.outcomes)
    return Totals([column])
