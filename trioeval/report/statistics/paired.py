"""Whether two runs of the same tests differ beyond chance.

Tests differ from each other far more than two answers to one of them do. So not two means are compared, but
the mean of the differences between answers to the same test, whose standard error is mostly much smaller.

Sources:
    E. Miller, *Adding error bars to evals*, arXiv:2411.00640 (2024), section 4, for paired differences, and
    section 2.2 for clusters of them; Q. McNemar, *Note on the sampling error of the difference between
    correlated proportions or percentages*, Psychometrika 12 (1947); A. L. Edwards, *Note on the "correction
    for continuity"*, Psychometrika 13 (1948); Z. Yang, X. Sun and J. W. Hardin, *A note on the tests for
    clustered matched-pair binary data*, Biometrical Journal 52 (2010); R. A. Fisher, *The design of
    experiments* (1935), section 21, for tests that turn signs around; S. Holm, *A simple sequentially
    rejective multiple test procedure*, Scandinavian Journal of Statistics 6 (1979).
"""

import math
from collections.abc import Hashable, Iterable, Sequence

import attrs

from trioeval.report.statistics.distributions import normal_tail, student_tail
from trioeval.report.statistics.estimates import CONFIDENCE, Estimate, mean

_EXACT = 1000
"""Pairs with different verdicts up to which all ways in which chance could turn them are counted."""


@attrs.frozen
class Difference:
    """What was found of pairs."""

    estimate: Estimate
    """The mean of after - before."""
    p_value: float | None
    """How often chance alone makes a difference at least as large, 0 to 1; None where nobody can know."""


def paired_difference(
    before: Sequence[float | None],
    after: Sequence[float | None],
    clusters: Iterable[Hashable] | None = None,
    confidence: float = CONFIDENCE,
) -> Difference | None:
    """The mean difference of values of the same tests.

    Args:
        before: One value a test; a pair of which one is missing, None, or no finite number is left out.
        after: The same tests, in the same order.
        clusters: What each belongs to; None makes each its own.
        confidence: More than 0, less than 1.

    Returns:
        None where there is no pair.

    Raises:
        ValueError: There are not as many of both.

    Example:
        >>> found = paired_difference([0.2, 0.5, 0.4, 0.7], [0.4, 0.6, 0.6, 0.8])
        >>> round(found.estimate.mean, 2), round(found.p_value, 3)
        (0.15, 0.014)
    """
    pairs = zip(before, after, strict=True)
    found = mean(
        (None if old is None or new is None else new - old for old, new in pairs),
        clusters,
        confidence,
    )
    return None if found is None else Difference(found, chance_of(found))


def chance_of(found: Estimate) -> float | None:
    """How often a mean is at least so far from 0 by chance alone, in both directions.

    By Student's t with G - 1 degrees of freedom for G clusters. Where all clusters have the same difference,
    which is not 0, there is no standard error; but of the 2^G ways to turn signs around only two are that
    extreme.

    Returns:
        None of one cluster.
    """
    if found.clusters == 1:
        return None
    if found.standard_error is not None:
        return 2 * student_tail(abs(found.mean) / found.standard_error, found.clusters - 1)
    return 2.0 ** (1 - found.clusters) if found.mean else 1.0


def mcnemar(better: int, worse: int) -> float:
    """McNemar's test of pairs with different verdicts: how often chance parts them at least as unequally.

    Up to 1000 of them exactly: twice the probability that of n = b + c tosses of a coin at most min(b, c) are
    heads. Of more by (|b - c| - 1)² / (b + c), which has the distribution of chi-squared with one degree of
    freedom.

    Args:
        better: Pairs of which only the later one passed, ≥ 0, independent of each other.
        worse: Pairs of which only the earlier one did.

    Example:
        >>> mcnemar(1, 9), mcnemar(0, 0)
        (0.021484375, 1.0)
    """
    n, fewer = better + worse, min(better, worse)
    if better == worse:
        return 1.0
    if n > _EXACT:
        return _chi_squared_tail((abs(better - worse) - 1) ** 2 / n)
    ways, total = 1, 0
    for heads in range(fewer + 1):
        total += ways
        ways = ways * (n - heads) // (heads + 1)
    return min(1.0, 2 * total / (1 << n))


def clustered_mcnemar(differences: Iterable[int]) -> float | None:
    """McNemar's test where pairs belong together: chance turns all pairs of a cluster around, or none.

    Where the absolute differences add up to at most 1000, exactly: among all ways to turn the signs of
    clusters, the share of those that give a sum at least as far from 0. Of more by (Σ d_c)² / Σ d_c², which
    has the distribution of chi-squared with one degree of freedom. Of clusters of one pair that is `mcnemar`.

    Args:
        differences: For each cluster, how many more of its pairs became better than worse.

    Returns:
        None of one cluster.

    Example:
        >>> clustered_mcnemar([1] * 9 + [-1]) == mcnemar(9, 1), clustered_mcnemar([-3, -2, -2, 0])
        (True, 0.25)
    """
    clusters = list(differences)
    if len(clusters) == 1:
        return None
    found = [difference for difference in clusters if difference]
    sizes = [abs(difference) for difference in found]
    if all(size == 1 for size in sizes):
        return mcnemar(found.count(1), found.count(-1))
    total, most = abs(sum(found)), sum(sizes)
    if most > _EXACT:
        return _chi_squared_tail(total * total / sum(size * size for size in sizes))
    # By sums of those that stay positive; the sum of all signed ones is twice that less `most`.
    chances = [1.0] + [0.0] * most
    reached = 0
    for size in sizes:
        reached += size
        for sum_ in range(reached, -1, -1):
            stays = chances[sum_ - size] if sum_ >= size else 0.0
            chances[sum_] = (chances[sum_] + stays) / 2
    extreme = (chance for sum_, chance in enumerate(chances) if abs(2 * sum_ - most) >= total)
    return min(1.0, math.fsum(extreme))


def holm(p_values: Sequence[float | None]) -> Sequence[float | None]:
    """What p-values are worth when so many questions were asked, by Holm's method.

    The chance to find a difference anywhere where there is none stays that of one question.

    Args:
        p_values: None of a question that has no answer, which then counts as none.

    Returns:
        The adjusted ones, in the same order.

    Example:
        >>> holm([0.01, 0.04, None, 0.03, 0.005])
        [0.03, 0.06, None, 0.06, 0.02]
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    found: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, place) in enumerate(order):
        least = found[place] = min(1.0, max(least, p * (len(order) - rank)))
    return found


def _chi_squared_tail(statistic: float) -> float:
    """With one degree of freedom."""
    return 2 * normal_tail(math.sqrt(statistic))
