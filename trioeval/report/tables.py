"""Results as tables for a terminal: every row of a small run, and one line a column of any run."""

import statistics
from collections.abc import Sequence

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from trioeval.report.inert import inert
from trioeval.suite import Column, Suite
from trioeval.tasks import Row, Status

_STYLES = {Status.PASS: "green", Status.FAIL: "red", Status.ERROR: "bold yellow"}


def rows_table(suite: Suite, columns: Sequence[Column], rows: Sequence[Row], *, cell: int) -> Table:
    """One line a test, one column a provider and prompt: the verdict and what was answered.

    Args:
        suite: The suite.
        columns: Its columns.
        rows: All rows, in index order.
        cell: Characters of an answer that are shown, ≥ 8.
    """
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("#", justify="right", style="dim")
    table.add_column("test", overflow="fold")
    for column in columns:
        table.add_column(Text(_heading(suite, column, cell)), overflow="fold")
    by_test: dict[int, dict[int, Row]] = {}
    for row in rows:
        by_test.setdefault(row.step.test_idx, {})[row.step.prompt_idx] = row
    for test_idx, by_column in by_test.items():
        some = next(iter(by_column.values()))
        cells = [
            _cell(by_column[column.prompt_idx], cell)
            if column.prompt_idx in by_column
            else Text("–")
            for column in columns
        ]
        table.add_row(str(test_idx), Text(_test_name(some, cell)), *cells)
    return table


def columns_table(suite: Suite, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    """One line a provider and prompt: how many passed, and what it took."""
    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column("provider", overflow="fold", min_width=16)
    for name in ("pass", "fail", "error", "pass rate", "score", "p50 ms", "p95 ms", "tokens"):
        table.add_column(name, justify="right", no_wrap=True)
    for column in columns:
        own = [row for row in rows if row.step.prompt_idx == column.prompt_idx]
        counts = [sum(row.status is status for row in own) for status in Status]
        rate = f"{100 * counts[0] / len(own):.1f} %" if own else "–"
        mean = f"{statistics.fmean(row.score for row in own):.3f}" if own else "–"
        latencies = sorted(row.latency_ms for row in own if row.latency_ms is not None)
        tokens = sum(row.reply.usage.total or 0 for row in own if row.reply)
        table.add_row(
            Text(_heading(suite, column, 60)),
            *(
                Text(str(count), style=_STYLES[status] if count else "dim")
                for status, count in zip(Status, counts, strict=True)
            ),
            rate,
            mean,
            _percentile(latencies, 0.50),
            _percentile(latencies, 0.95),
            str(tokens),
        )
    return table


def _percentile(ascending: Sequence[float], share: float) -> str:
    """Nearest rank; a dash where nothing was measured."""
    if not ascending:
        return "–"
    rank = max(0, -int(-share * len(ascending) // 1) - 1)
    return f"{ascending[rank]:.0f}"


def _heading(suite: Suite, column: Column, width: int) -> str:
    entry = suite.providers[column.provider_index]
    name = inert(entry.label or entry.id, width)
    return name if len(suite.prompts) == 1 else f"{name} | {inert(column.prompt.label, width)}"


def _test_name(row: Row, width: int) -> str:
    test = row.step.test
    if test.description:
        return inert(test.description, width)
    return inert(", ".join(f"{name}={value}" for name, value in row.step.vars.items()), width)


def _cell(row: Row, width: int) -> Text:
    shown = row.error if row.status is Status.ERROR else row.output
    verdict = Text(row.status.name, style=_STYLES[row.status])
    return verdict.append(f" {inert(shown, width)}", style="default")
