"""A comparison of two runs for people, and as JSON."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from trioeval.report.compare import Comparison, RowChange
from trioeval.report.compare_columns import KINDS, ColumnChange, Side
from trioeval.report.compare_findings import ColumnFindings, Findings
from trioeval.report.fitting import FittingTable
from trioeval.report.inert import inert
from trioeval.report.statistics import Bootstrap

_STYLES: Mapping[str, str] = {"better": "green", "worse": "red", "changed": "yellow"}
_COLUMN = 60  # characters of a name
_HUGE = 1e9


def changes_table(changes: Iterable[RowChange], width: int) -> FittingTable:
    """One line a row that is not the same.

    Args:
        changes: Those that are shown.
        width: Characters of the name of a test that are shown, ≥ 8.
    """
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("#", justify="right", style="dim")
    for name in ("test", "provider | prompt", "", "before", "after", ""):
        table.add_column(name, overflow="fold")
    for change in changes:
        name = change.column if change.task is None else f"{change.task}: {change.column}"
        table.add_row(
            str(change.test_idx),
            Text(inert(change.name, width)),
            Text(inert(name, _COLUMN)),
            Text(change.kind, style=_STYLES.get(change.kind, "dim")),
            _side(change.before),
            _side(change.after),
            "other answer" if change.is_answered_otherwise else "",
        )
    return FittingTable(table, names=2)


def comparison_json(
    old: str,
    new: str,
    comparison: Comparison,
    changes: Iterable[RowChange],
    findings: Callable[[], Findings],
    *,
    bootstrap: Bootstrap | None = None,
) -> dict[str, Any]:
    """A comparison, for `json_chunks` and its like: its rows, and what is summed up, are iterators.

    Args:
        old: The id of the old run.
        new: That of the new one.
        comparison: Of both.
        changes: What it tells, all of it; read before the sums.
        findings: Tells what is found of the columns; asked when all rows were read.
        bootstrap: How it draws intervals, if it does.
    """
    return {
        "before": old,
        "after": new,
        "bootstrap": None if bootstrap is None else bootstrap.json(),
        "rows": (change.json() for change in changes),
        "columns": (
            {**column.json(), "statistics": found.json()}
            for column, found in _with_findings(comparison, findings)
        ),
    }


def _with_findings(
    comparison: Comparison, findings: Callable[[], Findings]
) -> Iterator[tuple[ColumnChange, ColumnFindings]]:
    yield from zip(comparison.columns, findings().columns, strict=True)


def compared_line(comparison: Comparison) -> str:
    """How many rows there are of each kind.

    Example:
        >>> comparison = Comparison(list)
        >>> list(comparison.changes([])), compared_line(comparison)
        ([], 'no rows to compare')
    """
    kinds = comparison.kinds
    told = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
    return f"{kinds.total()} rows: {told}" if told else "no rows to compare"


def unfinished_lines(columns: Iterable[ColumnChange]) -> Iterator[str]:
    """How many rows of each run never came to an end; nothing where all did."""
    sides = [(column.before.left, column.after.left) for column in columns]
    for which, name in enumerate(("earlier", "later")):
        if left := sum(side[which] for side in sides):
            rows = "1 row" if left == 1 else f"{left:,} rows"
            yield f"{rows} of the {name} run never came to an end; nothing else is said of them"


def name_of_column(column: ColumnChange) -> str:
    """What a column is called, in both runs if they call it otherwise; inert."""
    names = dict.fromkeys(
        inert(side.name, _COLUMN) for side in (column.before, column.after) if side.name is not None
    )
    task = "" if column.task is None else f"{inert(column.task, _COLUMN)}: "
    return task + " → ".join(names)


def number_of(value: float) -> str:
    """A score on few characters, also a huge one.

    Example:
        >>> number_of(0.5), number_of(-1e200)
        ('0.500', '-1e+200')
    """
    return f"{value:.3f}" if abs(value) < _HUGE else f"{value:.4g}"


def _side(side: Side | None) -> str:
    return "–" if side is None else f"{side.status.name} {side.score:.3g}"


def first_of(changes: Iterator[RowChange], most: int) -> tuple[list[RowChange], int]:
    """The first changes, and how many there are beside them."""
    kept: list[RowChange] = []
    rest = 0
    for change in changes:
        if len(kept) < most:
            kept.append(change)
        else:
            rest += 1
    return kept, rest
