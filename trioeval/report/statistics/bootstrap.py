"""Intervals of means by drawing again, for few or very skewed values.

Clusters are drawn with replacement, as often as there are, and their rows with them.

Sources:
    B. Efron, *Better bootstrap confidence intervals*, Journal of the American Statistical Association 82
    (1987); B. Efron and R. J. Tibshirani, *An introduction to the bootstrap* (1993), chapters 6, 13 and 14;
    A. C. Davison and D. V. Hinkley, *Bootstrap methods and their application* (1997), section 3.8, for
    clusters.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from random import Random
from typing import Literal

from trioeval.report.statistics.distributions import normal_quantile, normal_tail
from trioeval.report.statistics.estimates import CONFIDENCE, Estimate, cluster_sums

RESAMPLES = 2000


def bootstrap_mean(
    values: Iterable[float | None],
    rng: Random,
    clusters: Iterable[Hashable] | None = None,
    *,
    method: Literal["bca", "percentile"] = "bca",
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Estimate | None:
    """The mean of some values with a bootstrap interval.

    The order of the values does not matter: equal seeds give equal intervals. Of differences between two runs
    it is the bootstrap of pairs.

    Args:
        values: What is missing, None, and what is no finite number is left out.
        rng: What draws.
        clusters: What each value belongs to; None makes each its own.
        method: `percentile` takes quantiles of the means that were drawn; `bca` corrects them for bias and
            for a standard error that changes with the mean.
        resamples: How often is drawn, ≥ 1; 1000 at least for an interval that stays.
        confidence: More than 0, less than 1.

    Returns:
        None where there are no values. Where there is one cluster, or all are equal, there is no interval.

    Example:
        >>> found = bootstrap_mean([94, 197, 16, 38, 99, 141, 23], Random(1))
        >>> round(found.mean, 2), 20 < found.standard_error < 27, found.low < 60, found.high > 120
        (86.86, True, True, True)
    """
    sums, n = cluster_sums(values, clusters)
    if not n:
        return None
    found = sorted((total / weight, weight) for total, weight in sums)
    middle = _ratio(found)
    count = len(found)
    if count == 1 or math.isclose(found[0][0], found[-1][0], rel_tol=1e-12):
        return Estimate(middle, None, None, None, n, count, confidence)
    drawn = sorted(_ratio(rng.choices(found, k=count)) for _ in range(resamples))
    average = math.fsum(drawn) / resamples
    squares = math.fsum((one - average) ** 2 for one in drawn)
    error = math.sqrt(squares / max(1, resamples - 1)) or None
    outside = (1 - confidence) / 2
    ends = (outside, 1 - outside)
    if method == "bca":
        ends = _corrected(ends, drawn, middle, found)
    low, high = (_quantile(drawn, share) for share in ends)
    return Estimate(middle, error, low, high, n, count, confidence)


def _corrected(
    ends: tuple[float, float],
    drawn: Sequence[float],
    middle: float,
    clusters: Sequence[tuple[float, float]],
) -> tuple[float, float]:
    """Which quantiles are to be taken: Φ(z₀ + (z₀ + z) / (1 - a (z₀ + z)))."""
    below = sum(one < middle for one in drawn) + sum(one == middle for one in drawn) / 2
    # All on one side: as far as so many draws can tell.
    share = min(max(below, 1 / 2), len(drawn) - 1 / 2) / len(drawn)
    bias = normal_quantile(share)
    total = math.fsum(value * weight for value, weight in clusters)
    whole = math.fsum(weight for _, weight in clusters)
    without = [(total - value * weight) / (whole - weight) for value, weight in clusters]
    average = math.fsum(without) / len(without)
    cubes = math.fsum((average - one) ** 3 for one in without)
    squares = math.fsum((average - one) ** 2 for one in without)
    acceleration = cubes / (6 * squares**1.5) if squares else 0.0

    def moved(end: float) -> float:
        z = bias + normal_quantile(end)
        return 1 - normal_tail(bias + z / (1 - acceleration * z))

    return moved(ends[0]), moved(ends[1])


def _ratio(clusters: Sequence[tuple[float, float]]) -> float:
    whole = math.fsum(weight for _, weight in clusters)
    return math.fsum(value * weight for value, weight in clusters) / whole


def _quantile(values: Sequence[float], share: float) -> float:
    """Of sorted values; between two of them on the line that joins them."""
    place = share * (len(values) - 1)
    lower = min(int(place), len(values) - 1)
    upper = min(lower + 1, len(values) - 1)
    return values[lower] + (place - lower) * (values[upper] - values[lower])
