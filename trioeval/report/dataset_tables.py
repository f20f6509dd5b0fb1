"""Datasets as tables for a terminal: what is in each column, and rows one after the other."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from trioeval.datasets.result import ColumnProfile, DroppedRow
from trioeval.grading import output_text
from trioeval.report.dataset_text import distinct_of, failure_line, used_of, values_of
from trioeval.report.inert import inert, inert_lines
from trioeval.report.json_text import indented, shallow

WIDE = 100
"""Characters from which on columns are told in a table; on a narrower terminal each is a few lines."""

_NAME = 40  # characters of a name
_LONG = 20_000  # of a value that is shown alone


class Profile:
    """What is in each column of a dataset, as wide as the terminal is.

    Args:
        columns: They.
    """

    def __init__(self, columns: Sequence[ColumnProfile]) -> None:
        self._columns = columns

    def __rich_console__(
        self, _console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw it."""
        if options.max_width >= WIDE:
            yield _table(self._columns)
        else:
            yield Text("\n".join(map(_told, self._columns)))


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
    asked = [column.calls or column.failed or column.recalled for column in columns]
    counts = ("calls", "failed", "tokens", "US dollars") if any(asked) else ()
    for name in counts:
        table.add_column(name, justify="right", no_wrap=True)
    for column in columns:
        table.add_row(
            Text(inert(column.name, _NAME)),
            *([Text(inert(column.kind, _NAME))] if has_kinds else ()),
            Text(inert(column.type, _NAME)),
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
    yield Text("–" if column.cost is None else f"{column.cost:.4f}")


def _told(column: ColumnProfile) -> str:
    """A column in a few lines."""
    kind = f"{inert(column.kind, _NAME)}, " if column.kind else ""
    facts = [f"{distinct_of(column)} distinct"]
    facts += [f"{column.nulls} nulls"] if column.nulls else []
    facts += [values] if (values := values_of(column)) else []
    facts += [used_of(column)] if column.calls else []
    facts += [f"{column.failed} failed"] if column.failed else []
    head = f"{inert(column.name, _NAME)} ({kind}{inert(column.type, _NAME)})"
    return f"{head}\n  {', '.join(facts)}"


def rows_view(rows: Sequence[tuple[int, Mapping[str, Any]]], width: int) -> RenderableType:
    """Rows with their numbers, one after the other, each value on a line.

    Args:
        rows: They.
        width: Characters of a value that are shown.
    """
    return Group(*(_row_text(number, row, width) for number, row in rows))


def row_values(row: Mapping[str, Any]) -> RenderableType:
    """All values of one row, whole as far as a terminal can show them."""
    parts: list[RenderableType] = []
    for name, value in row.items():
        text = value if isinstance(value, str) else indented(shallow(value))
        parts.append(Text(f"\n{inert(name, _NAME)}", style="bold"))
        parts.append(Text("  " + inert_lines(text, _LONG).replace("\n", "\n  ")))
    return Group(*parts)


def failures_view(rows: Sequence[DroppedRow], dropped: int) -> str:
    """The first rows that were dropped, a line each; nothing where there are none.

    Args:
        rows: Those that are told.
        dropped: How many there are.
    """
    lines = [f"  {failure_line(row)}" for row in rows]
    hidden = dropped - len(lines)
    if lines and hidden > 0:
        lines.append(f"  … and {hidden} more")
    return "\n".join(lines)


def _row_text(number: int, row: Mapping[str, Any], width: int) -> Text:
    text = Text()
    text.append(f"row {number}\n", style="bold")
    for name, value in row.items():
        text.append(f"  {inert(name, _NAME)}: ", style="dim")
        text.append(f"{inert(output_text(shallow(value)), width)}\n")
    return text
