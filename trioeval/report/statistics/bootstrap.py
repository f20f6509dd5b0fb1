"""Bootstrap intervals of means, for few or very skewed values.

Clusters are drawn with replacement, as many as there are, with all of their rows.

Sources:
    B. Efron, *Better bootstrap confidence intervals*, Journal of the American Statistical Association 82
    (1987); B. Efron and R. J. Tibshirani, *An introduction to the bootstrap* (1993), chapters 6, 13 and 14;
    A. C. Davison and D. V. Hinkley, *Bootstrap methods and their application* (1997), section 3.8, for
    clusters.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from random import Random
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.report.statistics.distributions import normal_quantile, normal_tail
from trioeval.report.statistics.estimates import CONFIDENCE, Estimate, cluster_sums

RESAMPLES = 2000

Method: TypeAlias = Literal["bca", "percentile"]


@attrs.frozen
class Bootstrap:
    """The method of bootstrap intervals."""

    resamples: int = RESAMPLES
    """The number of resamples, ≥ 1."""
    seed: int = 0
    """The seed of the random numbers; each interval starts from it again."""

    def interval(self, found: Estimate, sums: Iterable[tuple[float, float]]) -> Estimate:
        """Return the same mean and standard error with a bootstrap interval, if one can be computed.

        Args:
            found: The mean.
            sums: The sums that it is computed from, as for `bootstrap_ratio`.
        """
        rng = Random(self.seed)  # noqa: S311 - draws samples
        drawn = bootstrap_ratio(
            sums, found.n, rng, resamples=self.resamples, confidence=found.confidence
        )
        if drawn is None or drawn.low is None:
            return found
        return attrs.evolve(found, low=drawn.low, high=drawn.high)

    def json(self) -> dict[str, Any]:
        """Return JSON data."""
        return attrs.asdict(self)


def bootstrap_mean(
    values: Iterable[float | None],
    rng: Random,
    clusters: Iterable[Hashable] | None = None,
    *,
    method: Method = "bca",
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Estimate | None:
    """Return the mean of values with a bootstrap interval.

    The order of the values does not matter: equal seeds give equal intervals. For differences of two runs
    this is the bootstrap of pairs.

    Args:
        values: The values; None and numbers that are not finite are left out.
        rng: The source of random numbers.
        clusters: The cluster of each value; None makes each value its own.
        method: `percentile` takes quantiles of the resampled means; `bca` corrects them for bias and
            for a standard error that changes with the mean.
        resamples: The number of resamples, ≥ 1; at least 1000 for a stable interval.
        confidence: The confidence level, more than 0 and less than 1.

    Returns:
        None without values. One cluster, or equal values, have no interval.

    Example:
        >>> found = bootstrap_mean([94, 197, 16, 38, 99, 141, 23], Random(1))
        >>> round(found.mean, 2), 20 < found.standard_error < 27, found.low < 60, found.high > 120
        (86.86, True, True, True)
    """
    sums, n = cluster_sums(values, clusters)
    return bootstrap_ratio(sums, n, rng, method=method, resamples=resamples, confidence=confidence)


def bootstrap_ratio(
    sums: Iterable[tuple[float, float]],
    n: int,
    rng: Random,
    *,
    method: Method = "bca",
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
) -> Estimate | None:
    """Return the mean of values in clusters, of which only sums are known, with a bootstrap interval.

    Args:
        sums: For each cluster the sum of values times weights, and the sum of weights, > 0.
        n: The number of rows in all clusters.
        rng: The source of random numbers.
        method: As for `bootstrap_mean`.
        resamples: The number of resamples, ≥ 1.
        confidence: The confidence level, more than 0 and less than 1.
    """
    found = sorted((total / weight, weight, total) for total, weight in sums)
    if not found:
        return None
    clusters = _Clusters([one[2] for one in found], [one[1] for one in found])
    count = len(found)
    if count == 1 or math.isclose(found[0][0], found[-1][0], rel_tol=1e-12):
        return Estimate(clusters.mean, None, None, None, n, count, confidence)
    drawn = sorted(clusters.drawn(rng) for _ in range(resamples))
    error = _deviation(drawn)
    outside = (1 - confidence) / 2
    ends = (outside, 1 - outside)
    if method == "bca":
        ends = _corrected(ends, drawn, clusters)
    low, high = (_quantile(drawn, share) for share in ends)
    return Estimate(clusters.mean, error, low, high, n, count, confidence)


@attrs.frozen(eq=False, repr=False)
class _Clusters:
    """The sums of clusters, sorted, so that the order of rows does not matter."""

    totals: Sequence[float]
    weights: Sequence[float]
    mean: float = attrs.field(init=False)
    _equal: float | None = attrs.field(init=False)
    """The weight of each cluster, if all have the same."""

    @mean.default
    def _mean(self) -> float:
        return math.fsum(self.totals) / math.fsum(self.weights)

    @_equal.default
    def _equal_weight(self) -> float | None:
        first = self.weights[0]
        return first if all(weight == first for weight in self.weights) else None

    def drawn(self, rng: Random) -> float:
        """Return the mean of a resample of the clusters."""
        count = len(self.totals)
        if self._equal is not None:
            return math.fsum(rng.choices(self.totals, k=count)) / (count * self._equal)
        places = rng.choices(range(count), k=count)
        weight = math.fsum(map(self.weights.__getitem__, places))
        return math.fsum(map(self.totals.__getitem__, places)) / weight

    def without_each(self) -> Sequence[float]:
        """Return the means without one cluster, for each cluster."""
        total, whole = math.fsum(self.totals), math.fsum(self.weights)
        each = zip(self.totals, self.weights, strict=True)
        return [(total - own) / (whole - weight) for own, weight in each]


def _corrected(
    ends: tuple[float, float], drawn: Sequence[float], clusters: _Clusters
) -> tuple[float, float]:
    """Return the quantiles to take: Φ(z₀ + (z₀ + z) / (1 - a (z₀ + z)))."""
    middle = clusters.mean
    below = sum(one < middle for one in drawn) + sum(one == middle for one in drawn) / 2
    # All resampled means are on one side: the extreme that so many draws can show.
    share = min(max(below, 1 / 2), len(drawn) - 1 / 2) / len(drawn)
    bias = normal_quantile(share)
    without = clusters.without_each()
    average = math.fsum(without) / len(without)
    widest = max(abs(average - one) for one in without) or 1.0
    steps = [(average - one) / widest for one in without]
    squares = math.fsum(step * step for step in steps)
    cubes = math.fsum(step**3 for step in steps)
    acceleration = cubes / (6 * squares**1.5) if squares else 0.0

    def moved(end: float) -> float:
        z = bias + normal_quantile(end)
        shrunk = 1 - acceleration * z
        if shrunk <= 0:  # beyond the reach of the correction
            return 1.0 if z > 0 else 0.0
        return 1 - normal_tail(bias + z / shrunk)

    return moved(ends[0]), moved(ends[1])


def _quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, with linear interpolation."""
    place = share * (len(values) - 1)
    lower = min(int(place), len(values) - 1)
    upper = min(lower + 1, len(values) - 1)
    return values[lower] + (place - lower) * (values[upper] - values[lower])


def _deviation(values: Sequence[float]) -> float | None:
    """Return the standard deviation of sorted values; None if it is 0."""
    average = math.fsum(values) / len(values)
    widest = max(average - values[0], values[-1] - average)
    if not widest:
        return None
    squares = math.fsum(((one - average) / widest) ** 2 for one in values)
    return widest * math.sqrt(squares / max(1, len(values) - 1))
