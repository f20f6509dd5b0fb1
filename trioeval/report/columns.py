"""The result of a dataset as JSON data, the same in the store and in all documents, and as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from rich.box import SIMPLE
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from trioeval.grading import output_text
from trioeval.report.counts import money
from trioeval.report.formats.json import indented, read_record, record_json, shallow
from trioeval.report.strip import Strip
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters, inert_lines

if TYPE_CHECKING:
    from trioeval.columns.result import ColumnProfile, DatasetResult, DroppedRow

# A dataset in words: the number of its rows, the lost rows, calls and costs.


_DATASET_TEXT_NAME = 60  # characters of a name
_ERROR = 300  # of an error
_VALUE = 24  # of a value among others
_COMMON = 3  # frequent values that are shown
_FORMATS = {"parquet": "Parquet", "jsonl": "JSON lines"}

_REASONS: Mapping[str, str] = {
    "stop": "stopped",
    "deadline": "the deadline",
    "cancel": "cancelled",
    "lane": "a closed lane",
    "rate_limited": "rate limits",
    "shared_limit": "a shared limit",
    "budget_exceeded": "the budget",
    "early_shutdown": "too many failures",
    "fault": "it failed",
    "blocked": "another task",
}
"""The reasons why rows were not run."""

_CAUSES: Mapping[str, str] = {"expression": "left out by expression"}
"""Causes whose names are unclear behind a column or a number."""


def dataset_lines(result: DatasetResult, near: Path | None = None) -> Iterator[str]:
    """Yield the result of a dataset as lines of text: its rows, its problems, its calls and costs.

    Args:
        result: The result.
        near: The folder to which paths are relative if they are inside.

    Example:
        >>> from trioeval.columns.result import DatasetResult
        >>> result = DatasetResult(
        ...     task="a", requested=9, written=7, dropped={"filtered": 2}, groups=1
        ... )
        >>> list(dataset_lines(result))
        ['7 of 9 rows made; 2 dropped: filtered 2', '0 calls in 0.0 s']
    """
    yield _sentence(result, near)
    if result.early_shutdown:
        groups = counted(len(result.partial_groups), "partial group")
        partial = f"; {groups}" if result.partial_groups else ""
        yield f"too many permanent failures: no further rows were started{partial}"
    if result.error is not None:
        yield f"failed: {escape_control_characters(result.error, _ERROR)}"
    if result.first_error is not None and result.first_error not in (result.error or ""):
        yield f"first failure: {escape_control_characters(result.first_error, _ERROR)}"
    yield used_of(result)


def trouble(result: DatasetResult) -> str | None:
    """Return the problems of a dataset; None if it has none. Rows dropped on purpose do not count.

    Example:
        >>> from trioeval.columns.result import DatasetResult
        >>> trouble(DatasetResult(task="a", requested=9, written=7, dropped={"failed": 2}))
        'dataset a: 2 rows lost'
    """
    found = []
    if result.error is not None:
        found.append(f"failed ({escape_control_characters(result.error, _DATASET_TEXT_NAME)})")
    if result.lost:
        found.append(f"{counted(result.lost, 'row')} lost")
    if result.not_run:
        count = sum(result.not_run.values())
        of = counted(count, "row") if count else "rows"
        found.append(f"{of} not run ({_named(result.not_run)})")
    if result.unfinished is not None:
        found.append(_unfinished(result.unfinished))
    if not found and result.outcome == "failed":
        found.append("no rows")
    return f"dataset {_task(result)}: {', '.join(found)}" if found else None


def was_cut_short(result: DatasetResult) -> bool:
    """Return whether rows of a dataset were not tried because too many calls failed: only a retry makes them.

    Example:
        >>> from trioeval.columns.result import DatasetResult
        >>> was_cut_short(DatasetResult(task="a", requested=2, written=1, dropped={"failed": 1}))
        False
    """
    return bool(result.dropped.get("early_shutdown"))


def used_of(result: DatasetResult | ColumnProfile) -> str:
    """Return the calls, tokens and costs, and for a whole dataset its duration.

    Example:
        >>> from trioeval.columns.result import DatasetResult
        >>> used_of(DatasetResult(task="a", requested=2, written=2, calls=3, cost=0.5))
        '3 calls, $0.5000 in 0.0 s'
    """
    from trioeval.columns.result import DatasetResult

    parts = [counted(result.calls, "call")]
    parts += [counted(result.usage.total, "token")] if result.usage.total else []
    parts += [money(result.cost)] if result.cost else []
    took = f" in {result.duration_s:.1f} s" if isinstance(result, DatasetResult) else ""
    return ", ".join(parts) + took


def dropped_words(result: DatasetResult) -> str:
    """Return the causes for which rows were dropped; failures with their columns, if all of those are known.

    Example:
        >>> from trioeval.columns.result import DatasetResult
        >>> dropped_words(DatasetResult(task="a", requested=2, written=0, dropped={"filtered": 2}))
        'filtered 2'
    """
    found = []
    for cause, count in result.dropped.items():
        columns = {one.name: one.failed for one in result.columns if one.failed}
        if cause == "failed" and sum(columns.values()) == count:
            found += [
                f"{escape_control_characters(name, _DATASET_TEXT_NAME)} failed {of}"
                for name, of in columns.items()
            ]
        else:
            found.append(f"{_words(cause)} {count}")
    return ", ".join(found)


def failure_line(row: DroppedRow) -> str:
    """Return the row number and the cause of a dropped row.

    Example:
        >>> from trioeval.columns.result import DroppedRow
        >>> failure_line(DroppedRow(row=3, cause="failed", column="text", error="down", attempts=6))
        'row 3: text failed after 6 calls: down'
    """
    column = (
        ""
        if row.column is None
        else f"{escape_control_characters(row.column, _DATASET_TEXT_NAME)} "
    )
    calls = f" after {counted(row.attempts, 'call')}" if row.attempts else ""
    why = "" if row.error is None else f": {escape_control_characters(row.error, _ERROR)}"
    return f"row {row.row}: {column}{_words(row.cause)}{calls}{why}"


def values_of(column: ColumnProfile) -> str:
    """Describe the values of a column: the range of numbers, frequent values, or lengths.

    Example:
        >>> from trioeval.columns.result import ColumnProfile
        >>> column = ColumnProfile(
        ...     name="a",
        ...     kind="sampler",
        ...     type="int",
        ...     values=2,
        ...     nulls=0,
        ...     skipped=0,
        ...     distinct=2,
        ...     numbers={"min": 1, "max": 5, "mean": 3, "std": 2},
        ... )
        >>> values_of(column)
        '1 to 5, mean 3, std 2'
    """
    numbers = column.numbers
    if {"min", "max", "mean", "std"} <= numbers.keys():
        least, most, mean, std = (f"{numbers[one]:.4g}" for one in ("min", "max", "mean", "std"))
        return f"{least} to {most}, mean {mean}, std {std}"
    if column.common:
        shown = [
            f"{escape_control_characters(output_text(shallow(value)), _VALUE)} {count}"
            for value, count in column.common[:_COMMON]
        ]
        return ", ".join(shown) + (", …" if column.distinct > len(shown) else "")
    if column.lengths is not None:
        first, last = column.lengths.edges[0], max(column.lengths.edges[-1] - 1, 0)
        unit = "members" if column.type.startswith("list") else "characters"
        return f"{first:.0f} {unit}" if first == last else f"{first:.0f} to {last:.0f} {unit}"
    return ""


def distinct_of(column: ColumnProfile) -> str:
    """Return the number of different values."""
    return f"{'about ' if column.is_estimate else ''}{column.distinct}"


def shown_path(path: Path, near: Path | None = None) -> str:
    """Return a path, relative to a folder if it is inside.

    Example:
        >>> shown_path(Path("/a/b/c"), Path("/a")), shown_path(Path("/x"), Path("/a"))
        ('b/c', '/x')
    """
    inside = near is not None and path != near and path.is_relative_to(near)
    return escape_control_characters(
        path.relative_to(near) if inside and near is not None else path
    )


def _sentence(result: DatasetResult, near: Path | None) -> str:
    where = "made"
    if result.folder is not None:
        files = f"{_FORMATS[result.format]}, " if result.format is not None else ""
        where = f"written to {shown_path(result.folder, near)} ({files}{counted(result.groups, 'group')})"
    parts = [f"{result.written} of {result.requested} rows {where}"]
    if dropped := sum(result.dropped.values()):
        parts.append(f"{dropped} dropped: {dropped_words(result)}")
    if result.not_run:
        parts.append(f"{sum(result.not_run.values())} not run: {_named(result.not_run)}")
    if result.unfinished is not None:
        parts.append(_unfinished(result.unfinished))
    return "; ".join(parts)


def _unfinished(reason: str) -> str:
    """Return the note that processors of the whole dataset did not finish."""
    return f"processors of afterGeneration cut off ({_REASONS.get(reason, _words(reason))})"


def _named(not_run: Mapping[str, int]) -> str:
    """Return the reasons why rows were not run, with counts if there are several."""
    words = {_REASONS.get(reason, _words(reason)): count for reason, count in not_run.items()}
    if len(words) == 1:
        return next(iter(words))
    return ", ".join(f"{word} {count}" for word, count in words.items())


def _task(result: DatasetResult) -> str:
    return escape_control_characters(result.task or "", _DATASET_TEXT_NAME)


def _words(name: str) -> str:
    return _CAUSES.get(name) or escape_control_characters(
        name.replace("_", " "), _DATASET_TEXT_NAME
    )


# Datasets as tables for a terminal: a profile of each column, and rows.


WIDE = 100
"""The width from which on columns are a table; on a narrower terminal each column is a few lines."""

_NAME = 40  # characters of a name
_LONG = 20_000  # characters of a value that is shown alone


class Profile:
    """The profile of each column of a dataset, fitted to the terminal.

    Args:
        columns: The profiles.
    """

    def __init__(self, columns: Sequence[ColumnProfile]) -> None:
        self._columns = columns

    def __rich_console__(
        self, _console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw the table or the lines."""
        if options.max_width >= WIDE:
            yield _table(self._columns)
        else:
            yield Text("\n".join(map(_column_line, self._columns)))


def _table(columns: Sequence[ColumnProfile]) -> Table:
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("column", overflow="fold")
    has_kinds = any(column.kind for column in columns)
    if has_kinds:
        table.add_column("kind", no_wrap=True)
    table.add_column("type", overflow="fold")
    for name in ("nulls", "distinct"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("values", overflow="fold")
    has_calls = [column.calls or column.failed or column.recalled for column in columns]
    counts = ("calls", "failed", "tokens", "cost") if any(has_calls) else ()
    for name in counts:
        table.add_column(name, justify="right", no_wrap=True)
    for column in columns:
        table.add_row(
            Text(escape_control_characters(column.name, _NAME)),
            *([Text(escape_control_characters(column.kind, _NAME))] if has_kinds else ()),
            Text(escape_control_characters(column.type, _NAME)),
            str(column.nulls),
            distinct_of(column),
            Text(values_of(column)),
            *(_used(column) if counts else ()),
        )
    return table


def _used(column: ColumnProfile) -> Iterator[Text]:
    yield Text(str(column.calls))
    yield Text(str(column.failed), style="bold yellow" if column.failed else "dim")
    yield Text(str(column.usage.total or 0))
    yield Text("–" if column.cost is None else money(column.cost))


def _column_line(column: ColumnProfile) -> str:
    """Return a column as a few lines."""
    kind = f"{escape_control_characters(column.kind, _NAME)}, " if column.kind else ""
    facts = [f"{distinct_of(column)} distinct"]
    facts += [counted(column.nulls, "null")] if column.nulls else []
    facts += [values] if (values := values_of(column)) else []
    facts += [used_of(column)] if column.calls else []
    facts += [f"{column.failed} failed"] if column.failed else []
    name, type_name = (
        escape_control_characters(text, _NAME) for text in (column.name, column.type)
    )
    head = f"{name} ({kind}{type_name})"
    return f"{head}\n  {', '.join(facts)}"


def rows_view(rows: Sequence[tuple[int, Mapping[str, Any]]], width: int) -> RenderableType:
    """Return rows with their numbers, one after the other, each value on a line."""
    return Group(*(_row_text(number, row, width) for number, row in rows))


def row_values(row: Mapping[str, Any]) -> RenderableType:
    """Return all values of one row; only very long ones are cut."""
    parts: list[RenderableType] = []
    for name, value in row.items():
        text = value if isinstance(value, str) else indented(shallow(value))
        parts.append(Text(f"\n{escape_control_characters(name, _NAME)}", style="bold"))
        parts.append(Text("  " + inert_lines(text, _LONG).replace("\n", "\n  ")))
    return Group(*parts)


def dropped_view(rows: Sequence[DroppedRow], dropped: int) -> str:
    """Return the first dropped rows, a line each; an empty text if there are none."""
    lines = [f"  {failure_line(row)}" for row in rows]
    hidden = dropped - len(lines)
    if lines and hidden > 0:
        lines.append(f"  … and {hidden} more")
    return "\n".join(lines)


def _row_text(number: int, row: Mapping[str, Any], width: int) -> Text:
    text = Text()
    text.append(f"row {number}\n", style="bold")
    for name, value in row.items():
        text.append(f"  {escape_control_characters(name, _NAME)}: ", style="dim")
        text.append(f"{escape_control_characters(output_text(shallow(value)), width)}\n")
    return text


def dataset_json(result: DatasetResult) -> dict[str, Any]:
    """Return the result of a dataset as JSON data.

    `outcome` and `lost` follow from the rest and are included for readers.

    Example:
        >>> from trioeval.columns.result import DatasetResult
        >>> data = dataset_json(
        ...     DatasetResult(task="a", requested=2, written=1, dropped={"failed": 1})
        ... )
        >>> data["outcome"], data["lost"], data["notRun"]
        ('complete', 1, {})
        >>> read_dataset(data).dropped
        {'failed': 1}
    """
    facts = record_json(result)
    follows = {"task": result.task, "outcome": result.outcome, "lost": result.lost}
    columns = [_column_json(column) for column in result.columns]
    return {**follows, **facts, "columns": columns}


def read_dataset(data: Mapping[str, Any]) -> DatasetResult:
    """Read the data that `dataset_json` returned.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: The data has another form.
    """
    from trioeval.columns.result import DatasetResult

    columns = [
        {**column, "common": [(one["value"], one["count"]) for one in column["common"]]}
        for column in data["columns"]
    ]
    return read_record(DatasetResult, {**data, "columns": columns})


def stripped_dataset(result: DatasetResult, strip: Strip) -> DatasetResult:
    """Remove the values that must not be shown, as for rows."""
    if not (strip.response_output or strip.test_vars):
        return result
    return attrs.evolve(
        result, columns=tuple(attrs.evolve(column, common=()) for column in result.columns)
    )


def _column_json(column: ColumnProfile) -> dict[str, Any]:
    return {
        **record_json(column),
        "numbers": {name: one for name, one in column.numbers.items() if math.isfinite(one)},
        "common": [{"value": value, "count": count} for value, count in column.common],
    }
