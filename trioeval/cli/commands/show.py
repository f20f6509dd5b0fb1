"""`trioeval show`: the rows of a stored run or dataset, or everything about one row."""

import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from trioeval.cli.commands.agent_folders import case_folders
from trioeval.cli.environment import read_environment
from trioeval.cli.run.results import ended_lines
from trioeval.cli.run.storage import RunStorage
from trioeval.cli.stored_results import open_runs
from trioeval.cli.terminal import Exit, draw, show
from trioeval.columns.files import DatasetRows
from trioeval.columns.lanes import OWN_LANES
from trioeval.columns.profile import Profiler
from trioeval.columns.result import ColumnProfile
from trioeval.errors import DatasetError, UsageError
from trioeval.report.columns import (
    Profile,
    dropped_view,
    failure_line,
    row_values,
    rows_view,
    shown_path,
)
from trioeval.report.counts import RowNumbers
from trioeval.report.head import Head
from trioeval.report.question_eval import EndedTask, run_sentence, sentence
from trioeval.report.records import RowRecord
from trioeval.report.row_view import calls_view
from trioeval.report.run_list import run_line
from trioeval.report.stored import DatasetFacts, StoredRunFacts
from trioeval.report.summary import RunUsage, failures_view, hint_lines, not_run_line, usage_lines
from trioeval.report.tables import UNFINISHED, Failures, FirstRows, columns_table, rows_table
from trioeval.report.totals import Totals, success_text
from trioeval.session.agents import agents_folder
from trioeval.store.not_run_rows import NotRunRows
from trioeval.store.reader import StoreReader
from trioeval.store.stored_results import add_never_began, dataset_of, kept_totals
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

# Datasets: first rows, profiles of columns, and dropped rows.


_SHOWN_DATASETS_CELL = 200  # characters of a value in a table
_SHOWN_DATASETS_FAILURES = 10  # dropped rows that are shown
_LOOKED_AT = 10_000  # rows whose values are counted if no profile is stored


def names_folder(run: str) -> bool:
    """Return whether a name is the folder of a dataset and not a run.

    Example:
        >>> names_folder("latest"), names_folder("datasets/problems"), names_folder("eval-2026")
        (False, True, False)
    """
    try:
        return "/" in run or (Path(run) / "dataset.json").is_file()
    except OSError:  # too long for a name
        return False


def show_folder(folder: Path, rows: int, index: int | None) -> int:
    """Show a dataset from its files alone, also while it is built.

    Args:
        folder: The folder of the dataset.
        rows: The number of first rows to show.
        index: The number of the only row to show; None for the whole dataset.

    Raises:
        DatasetError: The folder is not a dataset, or is damaged.
        UsageError: The row does not exist.
    """
    found = DatasetRows(folder)
    if index is not None:
        _show_row(found, index)
        return Exit.OK
    show(_folder_line(found))
    _show_rows(found, rows)
    if found:
        draw(Profile(_profiles(found)), sys.stdout)
    if len(found) > _LOOKED_AT:
        show(f"the columns are those of the first {_LOOKED_AT} rows")
    return Exit.OK


def show_dataset(reader: StoreReader, facts: StoredRunFacts, head: Head, rows: int) -> None:
    """Show the dataset of a task of a run.

    Raises:
        StoreError: Its stored data are damaged.
    """
    stored = reader.datasets(facts).get(head.task)
    result = None if stored is None else dataset_of(reader, facts, stored)
    found, why = _files(head, stored)
    if result is None:
        show(f"task {escape_control_characters(head.task, 60)}: {_unfinished(stored)}")
    else:
        for line in ended_lines(result):
            show(line)
    if found is None:
        show(f"  {why}")
    else:
        _show_rows(found, rows)
    columns: Sequence[ColumnProfile] = () if result is None else result.columns
    if not columns and found:
        columns = _profiles(found)
    if columns:
        draw(Profile(columns), sys.stdout)
    dropped_rows = reader.dropped_rows(facts, head.task, limit=_SHOWN_DATASETS_FAILURES)
    if dropped := dropped_view(dropped_rows, 0 if stored is None else stored.dropped):
        show(f"dropped rows:\n{dropped}")


def show_dataset_row(reader: StoreReader, facts: StoredRunFacts, head: Head, number: int) -> None:
    """Show everything about one row of the dataset of a task.

    Raises:
        UsageError: The row does not exist.
        StoreError: Its stored data are damaged.
        DatasetError: Its file is damaged.
    """
    found, why = _files(head, reader.datasets(facts).get(head.task))
    place = None if found is None else found.place(number)
    calls = reader.calls(facts, head.task, number)
    dropped_rows = [*map(failure_line, reader.dropped_rows(facts, head.task, row=number))]
    if place is None and not dropped_rows and not calls:
        reason = "it is not written yet" if found is not None else why
        raise UsageError(f"{facts.id} has no row {number} of task {head.task}: {reason}")
    show(
        f"task {escape_control_characters(head.task, 60)}, "
        f"{dropped_rows[0] if dropped_rows else f'row {number}'}"
    )
    if found is not None and place is not None:
        draw(row_values(found[place]), sys.stdout)
    if calls:
        draw(calls_view(calls), sys.stdout)


def _files(head: Head, stored: DatasetFacts | None) -> tuple[DatasetRows | None, str]:
    """Return the files of a task's dataset, or None and the reason if they are not those of the run."""
    if head.dataset_folder is None:
        return None, "it has no files"
    folder = Path(head.dataset_folder)
    shown = shown_path(folder, Path.cwd())
    try:
        found = DatasetRows(folder)
    except DatasetError as error:
        return None, str(error)
    if stored is not None and stored.fingerprint and stored.fingerprint != found.header.fingerprint:
        return None, f"{shown} holds another dataset now"
    return found, ""


def _unfinished(stored: DatasetFacts | None) -> str:
    if stored is None:
        return "not started"
    return (
        f"unfinished: {stored.written} of {stored.requested} rows written, {stored.dropped} dropped"
    )


def _folder_line(found: DatasetRows) -> str:
    requested = found.header.grouping.rows
    has_ended = found.result is not None or len(found) + sum(found.dropped.values()) == requested
    line = (
        f"{shown_path(found.path, Path.cwd())}: {'' if has_ended else 'unfinished: '}"
        f"{len(found)} of {requested} rows in {len(found.files)} {found.format} files"
    )
    dropped = ", ".join(f"{cause.replace('_', ' ')} {n}" for cause, n in found.dropped.items())
    return f"{line}; dropped: {escape_control_characters(dropped)}" if dropped else line


def _show_rows(found: DatasetRows, most: int) -> None:
    shown = list(_first(found, most))
    draw(rows_view(shown, _SHOWN_DATASETS_CELL), sys.stdout)
    if hidden := len(found) - len(shown):
        show(f"… and {hidden} more rows; --rows N shows more of them")


def _show_row(found: DatasetRows, number: int) -> None:
    place = found.place(number)
    if place is None:
        raise UsageError(
            f"{found.path}: no row {number}; {len(found)} of {found.header.grouping.rows} rows exist"
        )
    show(f"row {number}")
    draw(row_values(found[place]), sys.stdout)


def _first(found: DatasetRows, most: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    return ((found.number(place), found[place]) for place in range(min(most, len(found))))


def _profiles(found: DatasetRows) -> Sequence[ColumnProfile]:
    """Return profiles of the columns, computed now. Skipped cells are not known."""
    profilers = [Profiler(name, "") for name in found.columns]
    for row in itertools.islice(found, _LOOKED_AT):
        for profiler in profilers:
            profiler.add(row.get(profiler.name))
    return [profiler.profile() for profiler in profilers]


_CELL = 40  # characters of an output in the table
_RANGES = 5  # ranges of rows that were not run
_REASON = 200  # characters of the reason
_FAILURES = 10  # rows that did not pass and are shown with reasons


def show_run(
    db: Path | None, run: str, *, failed: bool, limit: int, rows: int, task: str | None
) -> int:
    """Show the first rows of a run, its totals and its datasets.

    Raises:
        UsageError: The run or task does not exist.
        StoreError: The database cannot be read.
        DatasetError: The folder is not a dataset, or its files are damaged.
    """
    if names_folder(run):
        return show_folder(Path(run), rows, None)
    with open_runs(db, read_environment(os.environ)) as reader:
        facts = reader.run(run)
        show(run_line(facts))
        shown: list[EndedTask] = []
        not_run: list[str] = []
        for head in map(Head.read, reader.heads(facts)):
            if task is not None and head.task != _task(facts, task):
                continue
            if head.dataset_folder is not None:
                show_dataset(reader, facts, head, rows)
            else:
                ended, left = _show_task(reader, facts, head, limit, failed=failed, db=db)
                shown.append(ended)
                not_run += [] if left is None else [left]
        if (line := run_sentence(shown)) is not None:
            show(line)
        totals = [one for _, one in shown]
        took = RunUsage.of(facts.duration_ms / 1000, totals, reader.activity(facts), OWN_LANES)
        for line in usage_lines(took) if task is None else ():
            show(line)
        for line in (*hint_lines(totals), *not_run):
            show(line)
    return Exit.OK


def _show_task(
    reader: StoreReader,
    facts: StoredRunFacts,
    head: Head,
    limit: int,
    *,
    failed: bool,
    db: Path | None,
) -> tuple[EndedTask, str | None]:
    """Show a task, and return how it ended and the line about its rows that were not run."""
    rows, failures = FirstRows(_CELL, limit), Failures(_FAILURES)
    never_began = reader.never_began(facts, head.task)
    expected = facts.sizes[facts.tasks.index(head.task)] or 0
    totals = kept_totals(reader, facts, head)
    if totals is None:
        totals, recorded = _read_all(reader, facts, head, rows, failures, failed=failed)
        add_never_began(totals, never_began)
    else:
        _read_shown(reader, facts, head, rows, failures, failed=failed)
        recorded = RowNumbers()
        if totals.rows - sum(len(one.rows) for one in never_began) < expected:
            for index, *_ in reader.row_facts(facts, head.task):
                recorded.add(index)
        elif expected:
            recorded.add_range(range(expected))
    if head.task is not None:
        show(f"task {escape_control_characters(head.task, 60)}")
    _show_first(head, rows, totals, failed=failed)
    for line in _range_lines(never_began):
        show(line)
    storage = RunStorage(database=reader.path, named=db is not None)
    command = partial(storage.show, facts.id, head.task)
    if (view := failures_view(head.columns, failures, command)) is not None:
        draw(view, sys.stdout)
    draw(columns_table(head.columns, totals), sys.stdout)
    if (summary := sentence(head, totals)) is not None:
        show(summary)
    blocked = [one.rows for one in never_began if one.outcome not in UNFINISHED]
    for unrecorded in recorded.gaps(expected, blocked):
        failures.not_run.add_range(unrecorded)
    resume = None if facts.state == "running" else storage.continuation(facts)
    return (head, totals), not_run_line(failures.not_run, head.task, resume)


def _read_all(
    reader: StoreReader,
    facts: StoredRunFacts,
    head: Head,
    rows: FirstRows,
    failures: Failures,
    *,
    failed: bool,
) -> tuple[Totals, RowNumbers]:
    """Add and count all rows of a task whose totals were not kept; return the totals and the rows."""
    totals, recorded = Totals.of(head.columns, cluster=head.cluster), RowNumbers()
    for index, found in reader.numbered(facts, head.task):
        record = RowRecord.of(found, index=index)
        recorded.add(index)
        totals.add(record)
        failures.add(index, record)
        if not failed or not record.status.is_success:
            rows.add(record)
    return totals, recorded


def _read_shown(
    reader: StoreReader,
    facts: StoredRunFacts,
    head: Head,
    rows: FirstRows,
    failures: Failures,
    *,
    failed: bool,
) -> None:
    """Add the rows of a task; the records of those that are only counted are not read."""

    def record(index: int) -> RowRecord:
        return RowRecord.of(reader.record(facts, head.task, index) or {}, index=index)

    for index, test_idx, _, outcome in reader.row_facts(facts, head.task, failed_only=failed):
        if rows.takes(test_idx, outcome):
            rows.add_taken(record(index))
    for index, _, status, outcome in reader.row_facts(facts, head.task, failed_only=True):
        if failures.takes(index, status, outcome):
            failures.add_counted(index, record(index))


def _show_first(head: Head, rows: FirstRows, totals: Totals, *, failed: bool) -> None:
    if rows.names:
        draw(rows_table(head.columns, rows), sys.stdout)
        if rows.hidden:
            more = counted(rows.hidden, "more row", "more rows")
            show(f"… and {more}; --limit N shows more of them")
    elif failed:
        passed = totals.rows and totals.successes == totals.rows
        show(success_text(totals) if passed else "no rows")


def _range_lines(never_began: Sequence[NotRunRows]) -> Iterator[str]:
    """Yield the ranges of rows that were not run and have no records, with reasons."""
    never_began = [one for one in never_began if one.outcome not in UNFINISHED]
    for one in never_began[:_RANGES]:
        why = escape_control_characters(one.error or one.outcome, _REASON)
        yield f"rows {one.rows.start} to {one.rows.stop - 1}: {why}"
    if len(never_began) > _RANGES:
        more = sum(len(one.rows) for one in never_began[_RANGES:])
        yield f"and {counted(more, 'more row', 'more rows')} that were not run"


def show_row(db: Path | None, run: str, index: int, *, task: str | None) -> int:
    """Show everything about one row.

    Raises:
        UsageError: The run, task or row does not exist.
        StoreError: The database cannot be read.
    """
    from trioeval.report.row_view import row_view

    if names_folder(run):
        return show_folder(Path(run), 0, index)
    with open_runs(db, read_environment(os.environ)) as reader:
        facts = reader.run(run)
        named = _task(facts, task)
        head = next(one for one in map(Head.read, reader.heads(facts)) if one.task == named)
        if head.dataset_folder is not None:
            show_dataset_row(reader, facts, head, index)
            return Exit.OK
        record = reader.record(facts, named, index)
        if record is None:
            for one in reader.never_began(facts, named):
                if index in one.rows:
                    why = escape_control_characters(one.error or one.outcome, _REASON)
                    show(f"row {index} of {facts.id} was not run: {why}")
                    return Exit.OK
            of = "" if named is None else f" of task {named}"
            stored = sum(1 for _ in reader.outcomes(facts, named))
            size = facts.sizes[facts.tasks.index(named)] or "its"
            raise UsageError(
                f"{facts.id} has no row {index}{of}; {stored} of {size} rows are stored, numbered from 0"
                + _running_agent(agents_folder(reader.path, facts.id), head, index)
            )
        calls = reader.calls(facts, named, index)
    draw(row_view(RowRecord.of(record, index=index), calls, Path.cwd()), sys.stdout)
    return Exit.OK


def _running_agent(run: Path, head: Head, index: int) -> str:
    """Return where the agent of a case works that has no row yet."""
    folders = case_folders(run, head, index)
    if not folders:
        return ""
    # With several columns only the suite knows which one a folder belongs to.
    where = ", or ".join(escape_control_characters(folder) for folder in folders)
    return f"; its agent is running: workspace and logs are in {where}"


def _task(facts: StoredRunFacts, name: str | None) -> str | None:
    """Return the named task, or the only one if none is named."""
    if name is None and len(facts.tasks) == 1:
        return facts.tasks[0]
    known = ", ".join(task for task in facts.tasks if task is not None)
    if name is None:
        raise UsageError(f"{facts.id} has several tasks; name one with --task: {known}")
    if name not in facts.tasks:
        hint = f"its tasks are {known}" if known else "it has no named tasks; leave --task out"
        raise UsageError(f"--task {name}: {facts.id} has no such task; {hint}")
    return name
