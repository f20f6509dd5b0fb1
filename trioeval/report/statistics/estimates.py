"""Means with standard errors and intervals, of independent numbers and of numbers in clusters.

What is uncertain of a mean is not how often a question was asked, but which questions were: rows that have
something in common, such as repeats of a test or questions about one text, tell less than as many rows that
have not. Rows are therefore summed by cluster, and clusters are what varies. With one row in each cluster
that is the standard error of the central limit theorem, exactly.

Where nothing can be said there is no interval: of one cluster, and where all are equal, as nobody knows
whether the next one would be. An interval of no width would claim that.

Sources:
    K.-Y. Liang and S. L. Zeger, *Longitudinal data analysis using generalized linear models*, Biometrika 73
    (1986); A. C. Cameron and D. L. Miller, *A practitioner's guide to cluster-robust inference*, Journal of
    Human Resources 50 (2015), section II.B, for G / (G - 1) and t with G - 1 degrees of freedom;
    E. Miller, *Adding error bars to evals*, arXiv:2411.00640 (2024), sections 2.1 and 2.2;
    W. G. Cochran, *Sampling techniques* (1977), chapter 6, for means of weighted rows.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import attrs

from trioeval.report.formats.json import record_json
from trioeval.report.statistics.distributions import normal_quantile, student_quantile
from trioeval.text import KEY

# What repeats of a test tell: whether one of k tries passes, and whether all of them do.
#
# Both are estimated for each test from n ≥ k tries of which c passed, without bias, and are then averaged
# over tests.
#
# Sources:
#     M. Chen et al., *Evaluating large language models trained on code*, arXiv:2107.03374 (2021), section
# 2.1,
#     for pass@k; S. Yao et al., *τ-bench*, arXiv:2406.12045 (2024), section 3, for pass^k.


_ALL = 5  # values of k that are shown one by one


def at_least_one(n: int, passed: int, k: int) -> float:
    """Pass@k: the chance that at least one of k tries passes, 1 - C(n - c, k) / C(n, k).

    Args:
        n: Tries, ≥ `k`.
        passed: How many of them passed, 0 to `n`.
        k: At least 1.

    Raises:
        ValueError: One of them is out of its range.

    Example:
        >>> at_least_one(5, 1, 1), at_least_one(5, 1, 3), at_least_one(5, 3, 3)
        (0.2, 0.6, 1.0)
    """
    _check(n, passed, k)
    ways = math.comb(n, k)
    return (ways - math.comb(n - passed, k)) / ways


def every_one(n: int, passed: int, k: int) -> float:
    """Pass^k: the chance that all of k tries pass, C(c, k) / C(n, k).

    Args:
        n: Tries, ≥ `k`.
        passed: How many of them passed, 0 to `n`.
        k: At least 1.

    Raises:
        ValueError: One of them is out of its range.

    Example:
        >>> every_one(5, 4, 2), every_one(5, 1, 2)
        (0.6, 0.0)
    """
    _check(n, passed, k)
    return math.comb(passed, k) / math.comb(n, k)


def shown_ks(repeats: int) -> Iterator[int]:
    """For which k they are told of tests with so many repeats: 1 to 5, then 10, 20, 50, 100 …, and all.

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
"""Gives for each cluster the sum of its values times their weights, and that of the weights, which is more
than 0. Asked several times."""

CONFIDENCE = 0.95
LARGEST = 1e300
"""What is further from 0 is not counted: sums of it are no numbers."""
_SAME = 1e-12  # of a value: what is nearer to another one differs from it by rounding alone
_LEAST_SQUARE = 1e-280  # below which squares lose digits


@attrs.frozen
class Estimate:
    """A mean, and how sure it is."""

    mean: float
    standard_error: float | None
    """None where nothing tells how far it may be off."""
    low: float | None
    """Of the interval; None with `high` where there is none."""
    high: float | None
    n: int
    """Rows that it is of, ≥ 1."""
    clusters: int
    """Groups of rows that are independent of each other, 1 to `n`."""
    confidence: float
    """Of the interval, 0 to 1: how often intervals made so hold what they estimate."""
    within: tuple[float, float] | None = attrs.field(
        default=None, repr=False, eq=False, metadata={KEY: None}
    )
    """What the numbers that it is of are all within, if that is a scale; see `shown`."""

    @property
    def shown(self) -> tuple[float, float] | None:
        """The interval as far as the mean can be there; None where there is none.

        Of few and uneven scores it may reach beyond what is possible.

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
        """Ready for `json.dumps`."""
        return record_json(self)


def mean(
    values: Iterable[float | None],
    clusters: Iterable[Hashable] | None = None,
    confidence: float = CONFIDENCE,
) -> Estimate | None:
    """The mean of some values, with its standard error and interval.

    Without clusters the standard error is √(Σ(x - x̄)² / (n - 1) / n). With G of them it is
    √(G / (G - 1) · Σ_c (Σ_{i in c} (x_i - x̄))²) / n. The interval is that of Student's t with G - 1 degrees
    of freedom, and n - 1 without clusters.

    Args:
        values: What is missing, None, and what is no finite number up to `LARGEST` is left out.
        clusters: What each value belongs to; None makes each its own.
        confidence: More than 0, less than 1.

    Returns:
        None where there are no values.

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
    """Of each cluster the sum of its values and how many there are, and how many there are in all.

    Args:
        values: As for `mean`.
        clusters: What each value belongs to; None makes each its own.
    """
    found: dict[Hashable, list[float]] = {}
    names = itertools.count() if clusters is None else clusters
    for value, name in zip(values, names, strict=clusters is not None):
        if value is not None and -LARGEST <= value <= LARGEST:
            found.setdefault(name, []).append(value)
    sums = [(math.fsum(own), float(len(own))) for own in found.values()]
    return sums, sum(map(len, found.values()))


def ratio(sums: ClusterSums, n: int, confidence: float = CONFIDENCE) -> Estimate | None:
    """The mean of values in clusters, of which only sums are known.

    It is R = Σ T_c / Σ W_c with the sums T of values times weights, and W of weights, of each of G clusters;
    its standard error is √(G / (G - 1) · Σ (T_c - R W_c)²) / Σ W_c. Where all weights are 1 that is `mean`.

    Args:
        sums: Of each cluster.
        n: Rows in all of them.
        confidence: More than 0, less than 1.
    """
    weight = math.fsum(weight for _, weight in sums())
    if not weight:
        return None
    found = math.fsum(total for total, _ in sums()) / weight
    count, size, widest = 0, 0.0, 0.0

    def squares() -> Iterable[float]:
        nonlocal count, size, widest
        for total, own in sums():
            rest = total - found * own
            count += 1
            size = max(size, abs(total))
            widest = max(widest, abs(rest))
            yield rest * rest

    squared = math.fsum(squares())
    if count < 2 or widest <= _SAME * size:  # noqa: PLR2004 - one cluster varies with nothing
        return Estimate(found, None, None, None, n, count, confidence)
    spread = math.sqrt(squared)
    if not _LEAST_SQUARE < squared < math.inf:  # too far from 1 to be squared
        rests = ((total - found * own) / widest for total, own in sums())
        spread = widest * math.sqrt(math.fsum(rest * rest for rest in rests))
    error = math.sqrt(count / (count - 1)) * spread / weight
    half = student_quantile((1 + confidence) / 2, count - 1) * error
    if not math.isfinite(found + half) or not math.isfinite(found - half):
        return Estimate(found, error, None, None, n, count, confidence)
    return Estimate(found, error, found - half, found + half, n, count, confidence)


# Shares of rows, such as pass rates, with intervals that hold near 0 and 1 too.
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
    """The share of rows that passed, with the interval of Wilson's score.

    With p = passed / n and the normal quantile z its ends are
    (p + z² / 2n ± z √(p (1 - p) / n + z² / 4n²)) / (1 + z² / n). The standard error is √(p (1 - p) / n).

    Args:
        passed: 0 to `n`.
        n: Rows that are independent of each other.
        confidence: More than 0, less than 1.

    Returns:
        None where there are no rows.

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
    """The share of rows that passed where some rows belong together.

    The standard error is that of `ratio`. The interval is Wilson's with the quantile of Student's t, for so
    many rows as would tell as much if they were independent: p (1 - p) divided by the squared standard error,
    and never more than there are. Where all passed, or none, rows of a cluster may be copies of each other:
    then each cluster counts as one.

    Args:
        sums: Of each cluster, how many passed, and its rows.
        n: All rows.
        confidence: More than 0, less than 1.
    """
    found = ratio(sums, n, confidence)
    if found is None or found.clusters == n:
        return None if found is None else proportion(round(found.mean * n), n, confidence)
    if found.clusters == 1:
        return found
    share, error = found.mean, found.standard_error
    varied = share * (1 - share)
    if varied and error is None:  # as many of each cluster: nothing is known of how clusters vary
        return found
    effective = float(found.clusters) if error is None else effective_rows(varied, error, n)
    quantile = student_quantile((1 + confidence) / 2, found.clusters - 1)
    low, high = _wilson(share, effective, quantile)
    return Estimate(share, error, low, high, n, found.clusters, confidence)


def effective_rows(varied: float, error: float, n: int) -> float:
    """So many independent rows would tell as much as `n` rows in clusters; never more than there are.

    Args:
        varied: The variance of one row, > 0.
        error: The standard error, with regard to clusters, > 0.
        n: All rows.
    """
    return min(float(n), varied / error**2)


def _wilson(share: float, n: float, z: float) -> tuple[float, float]:
    square = z * z / n
    middle = (share + square / 2) / (1 + square)
    half = z * math.sqrt(share * (1 - share) / n + square / (4 * n)) / (1 + square)
    low = 0.0 if share <= 0 else max(0.0, middle - half)
    return low, 1.0 if share >= 1 else min(1.0, middle + half)
