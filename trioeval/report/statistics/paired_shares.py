"""Differences of two pass rates over the same rows, with intervals that hold where few rows differ, or none.

Student's interval of such differences has no width where no row differs, which would claim too much, and is
far too narrow where few do. The score interval has neither fault: it holds each difference that a test of its
score would not refuse. Where none of n rows differs it reaches as far as Wilson's interval of 0 of n.

Sources:
    T. Tango, *Equivalence test and confidence interval for the difference in proportions for the
    paired-sample design*, Statistics in Medicine 17 (1998); R. G. Newcombe, *Improved confidence intervals
    for the difference between binomial proportions based on paired data*, Statistics in Medicine 17 (1998),
    which compares it with others; for clusters, those of `trioeval.report.statistics.proportions`.
"""

import math

import attrs

from trioeval.report.statistics.distributions import normal_quantile, student_quantile
from trioeval.report.statistics.estimates import CONFIDENCE, ClusterSums, Estimate, ratio
from trioeval.report.statistics.proportions import effective_rows


def paired_proportion(
    better: int, worse: int, n: int, confidence: float = CONFIDENCE
) -> Estimate | None:
    """By how much more rows pass later than earlier: (better - worse) / n.

    Its interval holds each difference d with |better - worse - n d| ≤ z √(n (2 q + d (1 - d))), where q is
    the likeliest share of rows that became worse if d is right, and z the normal quantile. Its standard error
    is that of the mean of n differences.

    Args:
        better: Rows of which only the later one passed, ≥ 0.
        worse: Rows of which only the earlier one did, ≥ 0.
        n: All rows that both runs have, independent of each other, at least as many.
        confidence: More than 0, less than 1.

    Returns:
        None where there are no rows.

    Example:
        >>> found = paired_proportion(28, 25, 618, 0.9)
        >>> round(found.mean, 4), round(found.low, 4), round(found.high, 4)
        (0.0049, -0.0148, 0.0247)
        >>> round(paired_proportion(0, 0, 100).high, 3)
        0.037
    """
    if not n:
        return None
    sums = [(1.0, 1.0)] * better + [(-1.0, 1.0)] * worse + [(0.0, 1.0)] * (n - better - worse)
    return clustered_paired_proportion(lambda: sums, (better, worse), n, confidence)


def clustered_paired_proportion(
    sums: ClusterSums, parted: tuple[int, int], n: int, confidence: float = CONFIDENCE
) -> Estimate | None:
    """The same where some rows belong together.

    The standard error is that of `ratio`; the interval is made for so many rows as would tell as much if they
    were independent, with the quantile of Student's t. Where clusters do not vary, because no row differs or
    as many of each became better, their rows may be copies of each other: then each cluster counts as one.

    Args:
        sums: Of each cluster, how many more of its rows became better than worse, and its rows.
        parted: Rows that became better, and such that became worse.
        n: All rows.
        confidence: More than 0, less than 1.
    """
    found = ratio(sums, n, confidence)
    if found is None:
        return None
    better, worse = parted
    share = (1 + confidence) / 2
    if found.clusters == n:
        return _with_interval(found, parted, float(n), normal_quantile(share))
    without = attrs.evolve(found, low=None, high=None)
    error = found.standard_error
    if found.clusters == 1 or (error is None and better and worse):
        return without  # each cluster cancels out: nothing is known of how clusters vary
    varied = (better + worse) / n - found.mean**2
    effective = float(found.clusters) if error is None else effective_rows(varied, error, n)
    return _with_interval(found, parted, effective, student_quantile(share, found.clusters - 1))


def _with_interval(found: Estimate, parted: tuple[int, int], rows: float, z: float) -> Estimate:
    better, worse = (rows * count / found.n for count in parted)
    high, low = _upper(better, worse, rows, z), -_upper(worse, better, rows, z)
    return attrs.evolve(found, low=low, high=high)


def _upper(better: float, worse: float, n: float, z: float) -> float:
    """The greatest difference that agrees with what was seen; by halving."""
    low, high = (better - worse) / n, 1.0
    while low < (middle := (low + high) / 2) < high:
        least = n * middle - better + worse
        agrees = least <= z * math.sqrt(n * _variance(better, worse, n, middle))
        low, high = (middle, high) if agrees else (low, middle)
    return high


def _variance(better: float, worse: float, n: float, difference: float) -> float:
    """Of one row, if that is the difference: 2 q + d (1 - d), with q the root of 2 n q² + B q + C."""
    rest = difference * (1 - difference)
    b, c = (2 * n - better + worse) * difference - better - worse, -worse * rest
    root = math.sqrt(max(0.0, b * b - 8 * n * c))
    q = -2 * c / (b + root) if b > 0 else (root - b) / (4 * n)
    return max(0.0, 2 * q + rest)
