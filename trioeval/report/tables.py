"""Results as tables for a terminal: the first rows of a run, and one line a column of all of it."""

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from trioeval.report.first_rows import Cell, FirstRows
from trioeval.report.head import HeadColumn
from trioeval.report.inert import inert
from trioeval.report.totals import Totals, nearest_rank, percent
from trioeval.tasks import Status

STATUS_STYLES = {Status.PASS: "green", Status.FAIL: "red", Status.ERROR: "bold yellow"}
"""How a verdict looks."""


def rows_table(columns: Sequence[HeadColumn], rows: FirstRows) -> Table:
    """One line a test, one column a provider and prompt: the verdict and what was answered."""
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("#", justify="right", style="dim")
    table.add_column("test", overflow="fold")
    for heading in _headings(columns, rows.width):
        table.add_column(Text(heading), overflow="fold")
    for test_idx, name in rows.names.items():
        found = (rows.cells.get((test_idx, prompt_idx)) for prompt_idx in range(len(columns)))
        table.add_row(str(test_idx), Text(name), *map(_cell, found))
    return table


def columns_table(columns: Sequence[HeadColumn], totals: Totals) -> Table:
    """One line a provider and prompt: how many passed, and what it took."""
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("provider", overflow="fold", min_width=16)
    for name in ("pass", "fail", "error", "pass rate", "score", "p50 ms", "p95 ms", "tokens"):
        table.add_column(name, justify="right", no_wrap=True)
    if worked := any(own.attempts is not None for own in totals.columns):
        table.add_column("attempts", justify="right", no_wrap=True)
    if judged := any(own.usage.judges for own in totals.columns):
        table.add_column("grading tokens", justify="right", no_wrap=True)
    for heading, own in zip(_headings(columns, 60), totals.columns, strict=True):
        counts = [(status, own.statuses[status]) for status in Status]
        table.add_row(
            Text(heading),
            *(Text(str(n), style=STATUS_STYLES[status] if n else "dim") for status, n in counts),
            f"{percent(own.statuses[Status.PASS], own.rows)} %" if own.rows else "–",
            f"{own.score / own.rows:.3f}" if own.rows else "–",
            _measured(nearest_rank(own.latencies, 0.50)),
            _measured(nearest_rank(own.latencies, 0.95)),
            str(own.usage["total"]),
            *([str(own.attempts or 0)] if worked else ()),
            *([str(own.usage.judges["total"] if own.usage.judges else 0)] if judged else ()),
        )
    return table


def _measured(milliseconds: float | None) -> str:
    return "–" if milliseconds is None else f"{milliseconds:.0f}"


def _headings(columns: Sequence[HeadColumn], width: int) -> Iterator[str]:
    prompts = {(column.id, column.label) for column in columns}
    for column in columns:
        name = inert(column.provider, width)
        yield name if len(prompts) == 1 else f"{name} | {inert(column.label, width)}"


def _cell(cell: Cell | None) -> Text:
    if cell is None:
        return Text("–")
    verdict = Text(cell.status.name, style=STATUS_STYLES[cell.status])
    return verdict.append(f" {cell.text}", style="default")
