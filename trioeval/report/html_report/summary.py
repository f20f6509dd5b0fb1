"""What a page says of each column of a run, before any row."""

from collections.abc import Iterator
from typing import Any

import attrs

from trioeval.report.head import HeadColumn
from trioeval.report.results import Results
from trioeval.report.totals import ColumnTotals, Totals, nearest_rank, percent
from trioeval.tasks import Status

_WORDS = (
    (Status.PASS, "passed"),
    (Status.FAIL, "failed"),
    (Status.ERROR, "without a verdict"),
)
_BAR = 120  # units of the picture of a pass rate


@attrs.frozen
class Bar:
    """A pass rate with its interval as a picture, in units of which it is `_BAR` wide."""

    passed: float
    low: float
    high: float


@attrs.frozen(kw_only=True)
class Line:
    """A column of the run in the table of columns."""

    provider: str
    prompt: str
    rows: int
    counts: tuple[int, int, int]
    """Passed, failed, without a verdict."""
    rate: str | None
    """Percent; None of no rows."""
    interval: str | None
    bar: Bar | None
    cells: tuple[str, ...]
    """Score, p50, p95, tokens and money."""


def sentence_of(totals: Totals) -> dict[str, Any]:
    """How many rows ended in which way, for the template."""
    return {
        "rows": totals.rows,
        "counts": [(status.value, totals.count(status), word) for status, word in _WORDS],
        "rate": percent(totals.count(Status.PASS), totals.rows) if totals.rows else None,
    }


def lines_of(results: Results) -> Iterator[Line]:
    """The table of columns of a task.

    Args:
        results: It.
    """
    for column, totals in zip(results.columns, results.totals.columns, strict=True):
        yield _line(column, results.prompt_text(column.label), totals)


def _line(column: HeadColumn, prompt: str, totals: ColumnTotals) -> Line:
    passed, failed, errors = (totals.statuses[status] for status, _ in _WORDS)
    rows = totals.rows
    rate = percent(passed, rows) if rows else None
    estimate = totals.pass_interval()
    if estimate is None or estimate.low is None or estimate.high is None:
        interval, bar = None, None
    else:
        low, high = max(0.0, estimate.low), min(1.0, estimate.high)
        interval = f"{100 * low:.1f} to {100 * high:.1f}"
        bar = Bar(*(round(_BAR * share, 1) for share in (passed / rows, low, high)))
    return Line(
        provider=column.provider,
        prompt=prompt,
        rows=rows,
        counts=(passed, failed, errors),
        rate=rate,
        interval=interval,
        bar=bar,
        cells=(*_numbers(totals),),
    )


def _numbers(totals: ColumnTotals) -> Iterator[str]:
    yield f"{totals.score / totals.rows:.3f}" if totals.rows else "–"
    for share in (0.50, 0.95):
        latency_ms = nearest_rank(totals.latencies, share)
        yield "–" if latency_ms is None else f"{latency_ms:.0f}"
    yield str(totals.usage["total"])
    yield "–" if totals.cost is None else f"{totals.cost:.4f}"
