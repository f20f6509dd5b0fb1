"""Shares of rows, such as pass rates, with intervals that hold near 0 and 1 too.

Sources:
    E. B. Wilson, *Probable inference, the law of succession, and statistical inference*, Journal of the
    American Statistical Association 22 (1927); L. D. Brown, T. T. Cai and A. DasGupta, *Interval estimation
    for a binomial proportion*, Statistical Science 16 (2001), which recommends it;
    E. L. Korn and B. I. Graubard, *Confidence intervals for proportions with small expected number of
    positive counts estimated from survey data*, Survey Methodology 24 (1998), and N. Dean and M. Pagano,
    *Evaluating confidence interval methods for binomial proportions in clustered surveys*, Journal of Survey
    Statistics and Methodology 3 (2015), for the effective size of samples in clusters.
"""

import math

from trioeval.report.statistics.distributions import normal_quantile, student_quantile
from trioeval.report.statistics.estimates import CONFIDENCE, ClusterSums, Estimate, ratio


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
