"""Means with standard errors and intervals, of independent numbers and of numbers in clusters.

The uncertainty of a mean comes from the choice of questions, not from how often each was asked: rows that
have something in common, such as repeats of a test or questions about one text, carry less information than
as many independent rows. Rows are therefore summed by cluster, and clusters are the units that vary. With
one row in each cluster this is exactly the standard error of the central limit theorem.

One cluster, or equal values, have no interval: the next value could be any. An interval
of no width would claim that it is known.

Sources:
    K.-Y. Liang and S. L. Zeger, *Longitudinal data analysis using generalized linear models*, Biometrika 73
    (1986); A. C. Cameron and D. L. Miller, *A practitioner's guide to cluster-robust inference*, Journal of
    Human Resources 50 (2015), section II.B, for G / (G - 1) and t with G - 1 degrees of freedom;
    E. Miller, *Adding error bars to evals*, arXiv:2411.00640 (2024), sections 2.1 and 2.2;
    W. G. Cochran, *Sampling techniques* (1977), chapter 6, for means of weighted rows.
"""

import itertools
import math
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from operator import itemgetter, mul
from typing import Any, TypeAlias

import attrs

from trioeval.report.formats.json import record_json
from trioeval.report.statistics.distributions import normal_quantile, student_quantile
from trioeval.text import KEY

# Repeats of a test: whether one of k tries passes, and whether all of them do.
#
# Both are estimated without bias for each test from n ≥ k tries of which c passed, and are then averaged over
# tests.
#
# Sources:
#     M. Chen et al., *Evaluating large language models trained on code*, arXiv:2107.03374 (2021), section
# 2.1,
#     for pass@k; S. Yao et al., *τ-bench*, arXiv:2406.12045 (2024), section 3, for pass^k.


_ALL = 5  # values of k up to which all are shown


def at_least_one(n: int, passed: int, k: int) -> float:
    """Return pass@k: the chance that at least one of k tries passes, 1 - C(n - c, k) / C(n, k).

    Args:
        n: The number of tries, ≥ `k`.
        passed: The number of passed tries, 0 to `n`.
        k: At least 1.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> at_least_one(5, 1, 1), at_least_one(5, 1, 3), at_least_one(5, 3, 3)
        (0.2, 0.6, 1.0)
    """
    _check(n, passed, k)
    ways = math.comb(n, k)
    return (ways - math.comb(n - passed, k)) / ways


def every_one(n: int, passed: int, k: int) -> float:
    """Return pass^k: the chance that all of k tries pass, C(c, k) / C(n, k).

    Args:
        n: The number of tries, ≥ `k`.
        passed: The number of passed tries, 0 to `n`.
        k: At least 1.

    Raises:
        ValueError: An argument is out of its range.

    Example:
        >>> every_one(5, 4, 2), every_one(5, 1, 2)
        (0.6, 0.0)
    """
    _check(n, passed, k)
    return math.comb(passed, k) / math.comb(n, k)


def shown_ks(repeats: int) -> Iterator[int]:
    """Return the k to show for tests with this many repeats: 1 to 5, then 10, 20, 50, 100 …, and all.

    Example:
        >>> [*shown_ks(1)], [*shown_ks(3)], [*shown_ks(64)]
        ([], [1, 2, 3], [1, 2, 3, 4, 5, 10, 20, 50, 64])
    """
    if repeats <= 1:
        return
    yield from range(1, min(_ALL, repeats) + 1)
    power = 10
    while power < repeats:
        yield from (k for k in (power, 2 * power, 5 * power) if k < repeats)
        power *= 10
    if repeats > _ALL:
        yield repeats


def _check(n: int, passed: int, k: int) -> None:
    if not (1 <= k <= n and 0 <= passed <= n):
        msg = f"must be 1 ≤ k ≤ n and 0 ≤ passed ≤ n, got n={n}, passed={passed}, k={k}"
        raise ValueError(msg)


ClusterSums: TypeAlias = Callable[[], Iterable[tuple[float, float]]]
"""Returns for each cluster the sum of values times weights, and the sum of weights, which is more than
0. Called several times."""

CONFIDENCE = 0.95
LARGEST = 1e300
"""The largest absolute value that is counted; sums of larger ones may overflow."""
_SAME = 1e-12  # relative difference of values that differ only by rounding
_LEAST_SQUARE = 1e-280  # squares below it lose digits


@attrs.frozen
class Estimate:
    """A mean and its uncertainty."""

    mean: float
    standard_error: float | None
    """None if it cannot be estimated."""
    low: float | None
    """The lower end of the interval; None, like `high`, without an interval."""
    high: float | None
    n: int
    """The number of rows, ≥ 1."""
    clusters: int
    """The number of independent groups of rows, 1 to `n`."""
    confidence: float
    """The confidence level of the interval, 0 to 1."""
    within: tuple[float, float] | None = attrs.field(
        default=None, repr=False, eq=False, metadata={KEY: None}
    )
    """The range of the values, if they have one; see `shown`."""

    @property
    def shown(self) -> tuple[float, float] | None:
        """The interval within the range of the values; None without an interval.

        The interval of few and skewed scores may exceed the range.

        Example:
            >>> Estimate(0.9, 0.1, -0.4, 2.2, 2, 2, 0.95, within=(0, 1)).shown
            (0, 1)
        """
        if self.low is None or self.high is None:
            return None
        least, most = (-math.inf, math.inf) if self.within is None else self.within
        return max(least, self.low), min(most, self.high)

    @property
    def half_width(self) -> float | None:
        """Half of the width of the interval, for "± x"."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / 2

    def json(self) -> dict[str, Any]:
        """Return JSON data."""
        return record_json(self)


def mean(
    values: Iterable[float | None],
    clusters: Iterable[Hashable] | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate | None:
    """Return the mean of values, with its standard error and interval.

    Without clusters the standard error is √(Σ(x - x̄)² / (n - 1) / n). With G of them it is
    √(G / (G - 1) · Σ_c (Σ_{i in c} (x_i - x̄))²) / n. The interval is that of Student's t with G - 1 degrees
    of freedom, and n - 1 without clusters.

    Args:
        values: The values; None and numbers that are not finite or exceed `LARGEST` are left out.
        clusters: The cluster of each value; None makes each value its own.
        confidence: The confidence level, more than 0 and less than 1.

    Returns:
        None without values.

    Example:
        >>> found = mean([2, 4, 4, 4, 5, 5, 7, 9])
        >>> found.mean, round(found.standard_error, 3), round(found.low, 2), round(found.high, 2)
        (5.0, 0.756, 3.21, 6.79)
        >>> mean([0.5, 0.7, 0.9, 0.9], ["a", "a", "b", "b"]).clusters
        2
    """
    sums, n = cluster_sums(values, clusters)
    return ratio(lambda: sums, n, confidence)


def cluster_sums(
    values: Iterable[float | None], clusters: Iterable[Hashable] | None
) -> tuple[Sequence[tuple[float, float]], int]:
    """Return the sum and the number of values of each cluster, and the number of all values.

    Args:
        values: The values, as for `mean`.
        clusters: The cluster of each value; None makes each value its own.
    """
    found: dict[Hashable, list[float]] = {}
    names = itertools.count() if clusters is None else clusters
    for value, name in zip(values, names, strict=clusters is not None):
        if value is not None and -LARGEST <= value <= LARGEST:
            found.setdefault(name, []).append(value)
    sums = [(math.fsum(own), float(len(own))) for own in found.values()]
    return sums, sum(map(len, found.values()))


def ratio(sums: ClusterSums, n: int, confidence: float = CONFIDENCE) -> Estimate | None:
    """Return the mean of values in clusters, of which only sums are known.

    It is R = Σ T_c / Σ W_c with the sums T of values times weights, and W of weights, of each of G clusters;
    its standard error is √(G / (G - 1) · Σ (T_c - R W_c)²) / Σ W_c. With weights of 1 this equals `mean`.

    Args:
        sums: The sums of each cluster.
        n: The number of rows in all clusters.
        confidence: The confidence level, more than 0 and less than 1.
    """
    weight = math.fsum(map(itemgetter(1), sums()))
    if not weight:
        return None
    found = math.fsum(map(itemgetter(0), sums())) / weight
    rests = array("d", (total - found * own for total, own in sums()))
    count, widest = len(rests), max(map(abs, rests))
    size = max(map(abs, map(itemgetter(0), sums())))
    if count < 2 or widest <= _SAME * size:  # noqa: PLR2004 - one cluster varies with nothing
        return Estimate(found, None, None, None, n, count, confidence)
    squared = math.fsum(map(mul, rests, rests))
    spread = math.sqrt(squared)
    if not _LEAST_SQUARE < squared < math.inf:  # the square is out of range
        spread = widest * math.sqrt(math.fsum((rest / widest) ** 2 for rest in rests))
    error = math.sqrt(count / (count - 1)) * spread / weight
    half = student_quantile((1 + confidence) / 2, count - 1) * error
    if not math.isfinite(found + half) or not math.isfinite(found - half):
        return Estimate(found, error, None, None, n, count, confidence)
    return Estimate(found, error, found - half, found + half, n, count, confidence)


# Shares of rows, such as pass rates, with intervals that also hold near 0 and 1.
#
# Sources:
#     E. B. Wilson, *Probable inference, the law of succession, and statistical inference*, Journal of the
#     American Statistical Association 22 (1927); L. D. Brown, T. T. Cai and A. DasGupta, *Interval
# estimation
#     for a binomial proportion*, Statistical Science 16 (2001), which recommends it;
#     E. L. Korn and B. I. Graubard, *Confidence intervals for proportions with small expected number of
#     positive counts estimated from survey data*, Survey Methodology 24 (1998), and N. Dean and M. Pagano,
#     *Evaluating confidence interval methods for binomial proportions in clustered surveys*, Journal of
# Survey
#     Statistics and Methodology 3 (2015), for the effective size of samples in clusters.


def proportion(passed: int, n: int, confidence: float = CONFIDENCE) -> Estimate | None:
    """Return the share of rows that passed, with the interval of Wilson's score.

    With p = passed / n and the normal quantile z its ends are
    (p + z² / 2n ± z √(p (1 - p) / n + z² / 4n²)) / (1 + z² / n). The standard error is √(p (1 - p) / n).

    Args:
        passed: The number of passed rows, 0 to `n`.
        n: The number of independent rows.
        confidence: The confidence level, more than 0 and less than 1.

    Returns:
        None without rows.

    Example:
        >>> found = proportion(81, 263)
        >>> round(found.mean, 3), round(found.low, 3), round(found.high, 3)
        (0.308, 0.255, 0.366)
        >>> proportion(10, 10).low < 0.73, proportion(10, 10).high
        (True, 1.0)
    """
    if not n:
        return None
    share = passed / n
    error = math.sqrt(share * (1 - share) / n) or None
    low, high = _wilson(share, n, normal_quantile((1 + confidence) / 2))
    return Estimate(share, error, low, high, n, n, confidence)


def clustered_proportion(
    sums: ClusterSums, n: int, confidence: float = CONFIDENCE
) -> Estimate | None:
    """Return the share of rows that passed if some rows belong together.

    The standard error is that of `ratio`. The interval is Wilson's with the quantile of Student's t, for the
    effective number of independent rows: p (1 - p) divided by the squared standard error, and at most the
    number of rows. If all rows passed, or none, rows of a cluster may be copies of each other: each cluster
    then counts as one.

    Args:
        sums: For each cluster the number of passed rows, and of all rows.
        n: The number of all rows.
        confidence: The confidence level, more than 0 and less than 1.
    """
    found = ratio(sums, n, confidence)
    if found is None or found.clusters == n:
        return None if found is None else proportion(round(found.mean * n), n, confidence)
    if found.clusters == 1:
        return found
    share, error = found.mean, found.standard_error
    varied = share * (1 - share)
    if (
        varied and error is None
    ):  # equally many of each cluster: the variation of clusters is unknown
        return found
    effective = float(found.clusters) if error is None else effective_rows(varied, error, n)
    quantile = student_quantile((1 + confidence) / 2, found.clusters - 1)
    low, high = _wilson(share, effective, quantile)
    return Estimate(share, error, low, high, n, found.clusters, confidence)


def effective_rows(varied: float, error: float, n: int) -> float:
    """Return the effective number of independent rows, at most `n`.

    Args:
        varied: The variance of one row, > 0.
        error: The standard error of clusters, > 0.
        n: The number of all rows.
    """
    return min(float(n), varied / error**2)


def _wilson(share: float, n: float, z: float) -> tuple[float, float]:
    square = z * z / n
    middle = (share + square / 2) / (1 + square)
    half = z * math.sqrt(share * (1 - share) / n + square / (4 * n)) / (1 + square)
    low = 0.0 if share <= 0 else max(0.0, middle - half)
    return low, 1.0 if share >= 1 else min(1.0, middle + half)
