"""`trioeval show` of datasets: first rows, what is in the columns, and what is not there."""

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trioeval.cli.datasets import ended_lines
from trioeval.cli.exits import Exit
from trioeval.cli.stored_results import dataset_of
from trioeval.cli.terminal import draw, show
from trioeval.datasets.files import DatasetRows
from trioeval.datasets.profile import Profiler
from trioeval.datasets.result import ColumnProfile
from trioeval.errors import DatasetError, UsageError
from trioeval.report import Head, inert
from trioeval.report.dataset_tables import Profile, failures_view, row_values, rows_view
from trioeval.report.dataset_text import failure_line, shown_path
from trioeval.report.row_view import calls_view
from trioeval.store import DatasetFacts, Reader, RunFacts

_CELL = 200  # characters of a value among others
_FAILURES = 10  # dropped rows that are told of
_LOOKED_AT = 10_000  # rows whose values are counted where nobody has done so


def names_folder(run: str) -> bool:
    """Whether what was named is the folder of a dataset, and no run.

    Example:
        >>> names_folder("latest"), names_folder("datasets/problems"), names_folder("eval-2026")
        (False, True, False)
    """
    try:
        return "/" in run or (Path(run) / "dataset.json").is_file()
    except OSError:  # too long for a name
        return False


def show_folder(folder: Path, rows: int, index: int | None) -> int:
    """Show a dataset by its files alone, also while it is built.

    Args:
        folder: Its folder.
        rows: First rows that are shown.
        index: The number of the row that is shown alone; None for the whole.

    Raises:
        DatasetError: There is none, or it is damaged.
        UsageError: It has no such row.
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
        show(f"columns are told of the first {_LOOKED_AT} rows")
    return Exit.OK


def show_dataset(reader: Reader, facts: RunFacts, head: Head, rows: int) -> None:
    """Show the dataset of a task of a run.

    Args:
        reader: The store.
        facts: The run.
        head: Of the task.
        rows: First rows that are shown.

    Raises:
        StoreError: What is stored of it is damaged.
    """
    stored = reader.datasets(facts).get(head.task)
    result = None if stored is None else dataset_of(reader, facts, stored)
    found, why = _files(head, stored)
    if result is None:
        show(f"task {inert(head.task, 60)}: {_unfinished(stored)}")
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
    gone = reader.dropped_rows(facts, head.task, limit=_FAILURES)
    if told := failures_view(gone, 0 if stored is None else stored.dropped):
        show(f"rows that are not there:\n{told}")


def show_dataset_row(reader: Reader, facts: RunFacts, head: Head, number: int) -> None:
    """Show all that is known of one row of the dataset of a task.

    Raises:
        UsageError: Nothing is known of such a row.
        StoreError: What is stored of it is damaged.
        DatasetError: Its file is damaged.
    """
    found, why = _files(head, reader.datasets(facts).get(head.task))
    place = None if found is None else found.place(number)
    calls = reader.calls(facts, head.task, number)
    gone = [*map(failure_line, reader.dropped_rows(facts, head.task, row=number))]
    if place is None and not gone and not calls:
        reason = "it is not written" if found is not None else why
        raise UsageError(f"{facts.id} has no row {number} of task {head.task}: {reason}")
    show(f"task {inert(head.task, 60)}, {gone[0] if gone else f'row {number}'}")
    if found is not None and place is not None:
        draw(row_values(found[place]), sys.stdout)
    if calls:
        draw(calls_view(calls), sys.stdout)


def _files(head: Head, stored: DatasetFacts | None) -> tuple[DatasetRows | None, str]:
    """The files of the dataset of a task; None where they are not those of the run any more, and why."""
    if head.dataset_folder is None:
        return None, "there are no files"
    folder = Path(head.dataset_folder)
    shown = shown_path(folder, Path.cwd())
    try:
        found = DatasetRows(folder)
    except DatasetError as error:
        return None, str(error)
    if stored is not None and stored.fingerprint and stored.fingerprint != found.header.fingerprint:
        return None, f"{shown} holds another dataset by now"
    return found, ""


def _unfinished(stored: DatasetFacts | None) -> str:
    if stored is None:
        return "it was not begun"
    return (
        f"unfinished: {stored.written} of {stored.requested} rows written, {stored.dropped} dropped"
    )


def _folder_line(found: DatasetRows) -> str:
    wanted = found.header.grouping.rows
    is_over = found.result is not None or len(found) + sum(found.dropped.values()) == wanted
    line = (
        f"{shown_path(found.path, Path.cwd())}: {'' if is_over else 'unfinished: '}"
        f"{len(found)} of {wanted} rows in {len(found.files)} {found.format} files"
    )
    dropped = ", ".join(f"{cause.replace('_', ' ')} {n}" for cause, n in found.dropped.items())
    return f"{line}; dropped: {inert(dropped)}" if dropped else line


def _show_rows(found: DatasetRows, most: int) -> None:
    shown = list(_first(found, most))
    draw(rows_view(shown, _CELL), sys.stdout)
    if hidden := len(found) - len(shown):
        show(f"… and {hidden} more rows; --rows N shows more of them")


def _show_row(found: DatasetRows, number: int) -> None:
    place = found.place(number)
    if place is None:
        raise UsageError(
            f"{found.path} has no row {number}; {len(found)} of {found.header.grouping.rows} are there"
        )
    show(f"row {number}")
    draw(row_values(found[place]), sys.stdout)


def _first(found: DatasetRows, most: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    return ((found.number(place), found[place]) for place in range(min(most, len(found))))


def _profiles(found: DatasetRows) -> Sequence[ColumnProfile]:
    """What is in the columns, counted now. Which cells were skipped is not known."""
    profilers = [Profiler(name, "") for name in found.columns]
    for row in itertools.islice(found, _LOOKED_AT):
        for profiler in profilers:
            profiler.add(row.get(profiler.name))
    return [profiler.profile() for profiler in profilers]
