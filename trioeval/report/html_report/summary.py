"""What a page says of each column of a run, before any row."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import attrs

from trioeval.report.head import HeadColumn
from trioeval.report.results import Results
from trioeval.report.totals import ColumnTotals, Totals, nearest_rank, percent
from trioeval.run import Status

_WORDS = (
    (Status.PASS, "passed"),
    (Status.FAIL, "failed"),
    (Status.ERROR, "without a verdict"),
    (Status.NOT_RUN, "not run"),
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
    """Passed, failed, errors."""
    left: int
    """Rows that never came to an end."""
    rate: str | None
    """Percent; None of no rows."""
    interval: str | None
    bar: Bar | None
    cells: tuple[str, ...]
    """Score, p50, p95, tokens and money."""


def title_of(results: Results) -> str:
    """What a run is called: by its description, or else by the file of its suite, or else by its id."""
    head, suite = results.head, results.info.suite
    return head.config.get("description") or (PurePath(suite).name if suite else head.eval_id)


def minute_text(utc: str) -> str:
    """An instant to the minute; what is none stays as it is.

    Args:
        utc: ISO 8601.

    Example:
        >>> minute_text("2026-11-22T19:50:07.123Z"), minute_text("2026-11-22T20:50:07+01:00")
        ('2026-11-22 19:50 UTC', '2026-11-22 19:50 UTC')
    """
    try:
        found = datetime.fromisoformat(utc)
    except ValueError:
        return utc
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    return f"{found:%Y-%m-%d %H:%M} UTC"


def sentence_of(totals: Totals) -> dict[str, Any]:
    """How many rows ended in which way, for the template."""
    counts = [
        (status.value, count, word)
        for status, word in _WORDS
        if (count := totals.count(status)) or status is not Status.NOT_RUN
    ]
    ended = totals.ended
    return {
        "rows": totals.rows,
        "counts": counts,
        "rate": percent(totals.count(Status.PASS), ended) if ended else None,
    }


def lines_of(results: Results) -> Iterator[Line]:
    """The table of columns of a task.

    Args:
        results: It.
    """
    for column, totals in zip(results.columns, results.totals.columns, strict=True):
        yield _line(column, results.prompt_text(column.label), totals)


def _line(column: HeadColumn, prompt: str, totals: ColumnTotals) -> Line:
    passed, failed = totals.statuses[Status.PASS], totals.statuses[Status.FAIL]
    rows = totals.ended
    rate = percent(passed, rows) if rows else None
    estimate = totals.sums.pass_interval()
    if estimate is None or estimate.low is None or estimate.high is None:
        interval, bar = None, None
    else:
        low, high = max(0.0, estimate.low), min(1.0, estimate.high)
        interval = f"{100 * low:.1f} to {100 * high:.1f}"
        bar = Bar(*(round(_BAR * share, 1) for share in (passed / rows, low, high)))
    return Line(
        provider=column.provider,
        prompt=prompt,
        rows=totals.rows,
        counts=(passed, failed, totals.statuses[Status.ERROR]),
        left=totals.left,
        rate=rate,
        interval=interval,
        bar=bar,
        cells=(*_numbers(totals),),
    )


def _numbers(totals: ColumnTotals) -> Iterator[str]:
    score = totals.sums.score_interval()
    yield "–" if score is None else f"{score.mean:.3f}"
    for share in (0.50, 0.95):
        latency_ms = nearest_rank(totals.latencies, share)
        yield "–" if latency_ms is None else f"{latency_ms:.0f}"
    cached = f" ({totals.from_cache} from cache)" if totals.from_cache else ""
    yield f"{totals.tokens}{cached}"
    yield "–" if totals.cost is None else f"{totals.cost:.4f}"
