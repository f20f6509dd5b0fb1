"""The totals of a task of an ended run as the store keeps them: final numbers instead of the data of rows.

Reports of a stored run read these few kilobytes instead of all of its rows. Percentiles and intervals need
all rows, so they are kept as they were computed when the run ended.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.report.statistics.estimates import Estimate
from trioeval.report.totals import LATENCY_SHARES, ColumnTotals, Totals
from trioeval.report.usage import UsageSum
from trioeval.run import Status

_PLAIN = (
    *("score", "passed_parts", "failed_parts", "latency_ms", "replies", "cut_off"),
    *(
        "from_cache",
        "cached_tokens",
        "cost",
        "grading_cost",
        "attempts",
        "named_scores",
        "named_weights",
    ),
)
"""Fields of a column that are JSON data."""


@attrs.frozen
class KeptIntervals:
    """The intervals of a column as they were computed when its run ended."""

    passed: Estimate | None
    scored: Estimate | None
    document: Mapping[str, Any]
    """The intervals in the format of documents."""

    def pass_interval(self) -> Estimate | None:
        """Return the share of rows that passed."""
        return self.passed

    def score_interval(self) -> Estimate | None:
        """Return the mean score of the graded rows."""
        return self.scored

    def json(self) -> dict[str, Any]:
        """Return the intervals in the format of documents."""
        return dict(self.document)


@attrs.define
class KeptColumnTotals(ColumnTotals):
    """The totals of a column of an ended run, complete: no row can be added."""

    kept_intervals: KeptIntervals = KeptIntervals(None, None, {})
    kept_latencies: Mapping[float, float | None] = attrs.field(factory=dict)
    """Milliseconds by share of calls."""

    @property
    def intervals(self) -> KeptIntervals:
        """The intervals that reports show."""
        return self.kept_intervals

    def latency_at(self, share: float) -> float | None:
        """Return the latency that so large a share of measured calls does not exceed."""
        return self.kept_latencies[share]


def kept_text(totals: Totals) -> str:
    """Return totals as the text that is kept.

    Numbers that are not finite are written as Python's `json` writes them, so that all are restored.

    Example:
        >>> totals = Totals([ColumnTotals(Counter({Status.PASS: 2}), score=2.0)])
        >>> found = read_kept(kept_text(totals))
        >>> found.rows, found.passed, found.columns[0].score
        (2, 2, 2.0)
    """
    found = {
        "columns": [_column_json(column) for column in totals.columns],
        "vars": [*totals.vars],
        "has_descriptions": totals.has_descriptions,
    }
    return json.dumps(found, separators=(",", ":"))


def read_kept(text: str) -> Totals:
    """Return totals from the text that was kept.

    Raises:
        ValueError: The text is damaged.
    """
    try:
        found = json.loads(text)
        return Totals(
            [_column(column) for column in found["columns"]],
            vars=dict.fromkeys(found["vars"]),
            has_descriptions=found["has_descriptions"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not totals of a run: {error!r}") from error


def _column_json(column: ColumnTotals) -> dict[str, Any]:
    intervals = column.intervals
    estimates = intervals.pass_interval(), intervals.score_interval()
    return {
        **{name: getattr(column, name) for name in _PLAIN},
        "statuses": {status.value: count for status, count in column.statuses.items()},
        "outcomes": column.outcomes,
        "usage": column.usage.json(),
        "named_counts": column.named_counts,
        "questions": {"by_outcome": column.questions.by_outcome, "tokens": column.questions.tokens},
        "latencies": [column.latency_at(share) for share in LATENCY_SHARES],
        "estimates": [None if one is None else attrs.asdict(one) for one in estimates],
        "intervals": intervals.json(),
    }


def _column(found: Mapping[str, Any]) -> KeptColumnTotals:
    from trioeval.question_eval.counts import QuestionCounts

    usage = UsageSum()
    usage.add(found["usage"])
    usage.add_judges(found["usage"])
    statuses = {Status(status): count for status, count in found["statuses"].items()}
    questions = found["questions"]
    passed, scored = map(_estimate, found["estimates"])
    return KeptColumnTotals(
        **{name: found[name] for name in _PLAIN},
        statuses=Counter(statuses),
        outcomes=Counter(found["outcomes"]),
        usage=usage,
        named_counts=Counter(found["named_counts"]),
        questions=QuestionCounts(Counter(questions["by_outcome"]), questions["tokens"]),
        kept_latencies=dict(zip(LATENCY_SHARES, found["latencies"], strict=True)),
        kept_intervals=KeptIntervals(passed, scored, found["intervals"]),
    )


def _estimate(found: Mapping[str, Any] | None) -> Estimate | None:
    if found is None:
        return None
    within = found["within"]
    return Estimate(**{**found, "within": None if within is None else tuple(within)})
