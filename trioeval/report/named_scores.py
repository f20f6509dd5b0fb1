"""Metrics of a row: what its verdict adds to each of them."""

from collections.abc import Iterator, Mapping
from typing import Any

import attrs


@attrs.frozen
class Share:
    """What one row adds to a metric."""

    name: str
    total: float
    """Its score times its weight."""
    weight: float
    count: int
    """Assertions that have told of it."""


def shares_of(verdict: Mapping[str, Any]) -> Iterator[Share]:
    """What a verdict adds to each metric that it names.

    Args:
        verdict: As `verdict_json` makes it.

    Example:
        >>> verdict = {
        ...     "namedScores": {"m": 0.5},
        ...     "namedScoreWeights": {"m": 2},
        ...     "componentResults": [],
        ... }
        >>> list(shares_of(verdict))
        [Share(name='m', total=1.0, weight=2, count=1)]
    """
    told: dict[str, int] = {}
    for part in verdict["componentResults"]:
        # A set has its metric elsewhere, and that of its members counts.
        metric = part.get("assertion", {}).get("metric")
        if metric is not None:
            told[metric] = told.get(metric, 0) + 1
    weights = verdict.get("namedScoreWeights", {})
    for name, score in verdict["namedScores"].items():
        # A name that comes from elsewhere, such as an extension, is one contribution.
        count = told.get(name, 1)
        weight = weights.get(name)
        if weight is None:
            yield Share(name, score, count, count)
        else:
            yield Share(name, score * weight, weight, count)
