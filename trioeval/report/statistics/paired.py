"""Tests of whether two runs of the same tests differ beyond chance.

Tests differ from each other far more than two answers to one of them do. Therefore not two means are
compared, but the mean of the differences between answers to the same test, whose standard error is usually
much smaller.

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
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.report.statistics.bootstrap import Bootstrap
from trioeval.report.statistics.distributions import (
    normal_quantile,
    normal_tail,
    student_quantile,
    student_tail,
)
from trioeval.report.statistics.estimates import (
    CONFIDENCE,
    ClusterSums,
    Estimate,
    effective_rows,
    mean,
    ratio,
)
from trioeval.report.statistics.grouped import RowPlace, Sums, SumsByTest
from trioeval.report.statistics.power import detectable, needed

# Differences of two pass rates over the same rows, with intervals that hold even if few rows differ, or none.
#
# Student's interval has no width if no row differs, which would claim too much, and is far too narrow if few
# do. The score interval has neither fault: it holds each difference that a test of its score would not
# reject. If none of n rows differs, it reaches as far as Wilson's interval of 0 of n.
#
# Sources:
#     T. Tango, *Equivalence test and confidence interval for the difference in proportions for the
#     paired-sample design*, Statistics in Medicine 17 (1998); R. G. Newcombe, *Improved confidence intervals
#     for the difference between binomial proportions based on paired data*, Statistics in Medicine 17 (1998),
#     which compares it with others; for clusters, those of `trioeval.report.statistics.estimates`.


def paired_proportion(
    better: int, worse: int, n: int, confidence: float = CONFIDENCE
) -> Estimate | None:
    """Return the difference of the share of passed rows: (better - worse) / n.

    The interval holds each difference d with |better - worse - n d| ≤ z √(n (2 q + d (1 - d))), where q is
    the likeliest share of rows that became worse given d, and z the normal quantile. The standard error is
    is that of the mean of n differences.

    Args:
        better: Rows that only the later run passed, ≥ 0.
        worse: Rows that only the earlier run passed, ≥ 0.
        n: All rows that both runs have, independent of each other, ≥ `better` + `worse`.
        confidence: The confidence level, more than 0 and less than 1.

    Returns:
        None without rows.

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
    """Return the same difference if some rows belong together.

    The standard error is that of `ratio`; the interval uses the effective number of independent rows and the
    quantile of Student's t. If clusters do not vary, because no row differs or equally many of each became
    better, their rows may be copies of each other: each cluster then counts as one.

    Args:
        sums: For each cluster the rows that became better minus those that became worse, and all of its rows.
        parted: Rows that became better or worse.
        n: The number of all rows.
        confidence: The confidence level, more than 0 and less than 1.
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
        return without  # each cluster cancels out: the variation of clusters is unknown
    varied = (better + worse) / n - found.mean**2
    effective = float(found.clusters) if error is None else effective_rows(varied, error, n)
    return _with_interval(found, parted, effective, student_quantile(share, found.clusters - 1))


def _with_interval(found: Estimate, parted: tuple[int, int], rows: float, z: float) -> Estimate:
    better, worse = (rows * count / found.n for count in parted)
    high, low = _upper(better, worse, rows, z), -_upper(worse, better, rows, z)
    return attrs.evolve(found, low=low, high=high)


def _upper(better: float, worse: float, n: float, z: float) -> float:
    """Return the greatest difference that agrees with the counts, by bisection."""
    low, high = (better - worse) / n, 1.0
    while low < (middle := (low + high) / 2) < high:
        least = n * middle - better + worse
        agrees = least <= z * math.sqrt(n * _variance(better, worse, n, middle))
        low, high = (middle, high) if agrees else (low, middle)
    return high


def _variance(better: float, worse: float, n: float, difference: float) -> float:
    """Return the variance of one row given the difference: 2 q + d (1 - d), where 2 n q² + B q + C = 0."""
    rest = difference * (1 - difference)
    b, c = (2 * n - better + worse) * difference - better - worse, -worse * rest
    root = math.sqrt(max(0.0, b * b - 8 * n * c))
    q = -2 * c / (b + root) if b > 0 else (root - b) / (4 * n)
    return max(0.0, 2 * q + rest)


_EXACT = 1000
"""The most pairs with different verdicts for which the exact test is computed."""


@attrs.frozen
class Difference:
    """The result of a test of pairs."""

    estimate: Estimate
    """The mean of after - before."""
    p_value: float | None
    """The probability of a difference at least as large by chance alone, 0 to 1; None if it is unknown."""


def paired_difference(
    before: Sequence[float | None],
    after: Sequence[float | None],
    clusters: Iterable[Hashable] | None = None,
    confidence: float = CONFIDENCE,
) -> Difference | None:
    """Return the mean difference of values of the same tests.

    Args:
        before: One value for each test; a pair in which one is None, or not finite, is left out.
        after: The values of the same tests, in the same order.
        clusters: The cluster of each test; None makes each test its own.
        confidence: The confidence level, more than 0 and less than 1.

    Returns:
        None without pairs.

    Raises:
        ValueError: The lengths differ.

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
    """Return the two-sided probability of a mean at least this far from 0 by chance alone.

    By Student's t with G - 1 degrees of freedom for G clusters. If all clusters have the same difference, not
    0, the standard error does not exist; but only two of the 2^G ways to flip signs are that
    extreme.

    Returns:
        None for one cluster.
    """
    if found.clusters == 1:
        return None
    if found.standard_error is not None:
        return 2 * student_tail(abs(found.mean) / found.standard_error, found.clusters - 1)
    return 2.0 ** (1 - found.clusters) if found.mean else 1.0


def mcnemar(better: int, worse: int) -> float:
    """Return the p-value of McNemar's test of pairs with different verdicts.

    Up to 1000 pairs the exact test: twice the probability that of n = b + c coin tosses at most min(b, c)
    are heads. For more pairs (|b - c| - 1)² / (b + c), which has the distribution of chi-squared with one
    degree of freedom.

    Args:
        better: Pairs that only the later run passed, ≥ 0, independent of each other.
        worse: Pairs that only the earlier run passed.

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
    """Return the p-value of McNemar's test for clusters of pairs: chance flips whole clusters.

    If the absolute differences add up to at most 1000, the exact test: the share of the ways to flip signs of
    clusters that give a sum at least as far from 0. Otherwise (Σ d_c)² / Σ d_c², which has the distribution
    of chi-squared with one degree of freedom. For clusters of one pair this is `mcnemar`.

    Args:
        differences: For each cluster the pairs that became better minus those that became worse.

    Returns:
        None for one cluster.

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
    # By sums of the differences that stay positive; the sum of all signed ones is twice that less `most`.
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
    """Adjust p-values for the number of tests by Holm's method.

    The chance to find any difference where there is none stays that of one test.

    Args:
        p_values: The p-values; None for a test without a result, which is not counted.

    Returns:
        The adjusted p-values, in the same order.

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
    """Return the tail probability of chi-squared with one degree of freedom."""
    return 2 * normal_tail(math.sqrt(statistic))


# Pairs of rows of one column in two runs, and the findings about their differences.


Answer: TypeAlias = Literal["better", "worse", "no difference"]
"""The verdict about the later run, beyond chance."""

EFFECTS = (0.01, 0.02, 0.05, 0.1)
"""Differences for which the number of rows needed is computed."""

_MOST = 1e7
"""The smallest difference in standard deviations; a smaller one would need too many rows."""


@attrs.frozen(kw_only=True)
class DifferenceFinding:
    """A number of a column in two runs, and the test of its difference."""

    before: Estimate | None
    """The estimate of the earlier run over all of its rows; None without rows."""
    after: Estimate | None
    difference: Estimate | None
    """The estimate of the difference over the rows that both runs have; None without any."""
    p_value: float | None
    """The probability of so large a difference by chance alone; None if it is unknown."""
    most: float = math.inf
    """The largest possible difference; 1 for pass rates."""
    adjusted: float | None = None
    """The p-value adjusted for the number of tests."""

    @property
    def answer(self) -> Answer | None:
        """True if the number is better or worse beyond chance; None if that is unknown."""
        if self.difference is None or self.adjusted is None:
            return None
        if self.adjusted > 1 - self.difference.confidence:
            return "no difference"
        return "better" if self.difference.mean > 0 else "worse"

    @property
    def detectable(self) -> float | None:
        """The least difference that this number of rows shows in four of five comparisons.

        None if it is unknown, or if not even the largest possible difference is shown so often.
        """
        found = self.difference
        if found is None or found.standard_error is None:
            return None
        least = detectable(found.standard_error, found.clusters - 1, confidence=found.confidence)
        return least if least < self.most else None

    def needed(self, effect: float) -> int | None:
        """Return the number of rows, grouped like these, that show a difference in four of five comparisons.

        Args:
            effect: The difference, > 0.

        Returns:
            None if it is unknown, or too large to be useful.
        """
        found = self.difference
        if found is None or found.standard_error is None:
            return None
        deviation = found.standard_error * math.sqrt(found.n)
        if deviation > _MOST * effect:
            return None
        return needed(effect, deviation, confidence=found.confidence)

    def json(self) -> dict[str, Any]:
        """Return JSON data."""
        estimates = {"before": self.before, "after": self.after, "difference": self.difference}
        return {
            **{name: None if one is None else one.json() for name, one in estimates.items()},
            "pValue": self.p_value,
            "adjustedPValue": self.adjusted,
            "answer": self.answer,
            "detectable": self.detectable,
            "neededRows": None
            if self.difference is None or self.difference.standard_error is None
            else {str(effect): self.needed(effect) for effect in EFFECTS},
        }


@attrs.define
class PairSums(SumsByTest):
    """Sums of differences, after - before, by test and cluster.

    `passes` has 1 for a row that became better and -1 for one that became worse, `scores` and `metrics` those
    of rows with a verdict in both runs.
    """

    better: int = 0
    """Rows that only the later run passes."""
    worse: int = 0
    is_score_pass: bool = True
    """True if the scores of all rows only repeat whether the rows passed."""

    def add(self, place: RowPlace, *, passed: int, score: float | None) -> int:
        """Count a pair.

        Args:
            place: Its test and its cluster.
            passed: 1 if only the later row passed, -1 if only the earlier one, else 0.
            score: The difference of the scores; None unless both rows have a verdict.

        Returns:
            The number of its test, for `add_metric`.
        """
        test = self.tests.number(place)
        self.passes.add(test, passed)
        self.better += passed > 0
        self.worse += passed < 0
        if score is not None:
            self.scores.add(test, score)
        self.is_score_pass = self.is_score_pass and score == passed
        return test

    def passed(
        self, before: Estimate | None, after: Estimate | None, confidence: float = CONFIDENCE
    ) -> DifferenceFinding:
        """Return the test of whether other rows pass: McNemar's test, in clusters if rows belong together."""
        by_cluster = self.tests.by_cluster(self.passes)
        parted = self.better, self.worse
        found = clustered_paired_proportion(by_cluster, parted, self.passes.count, confidence)
        signs = (round(total) for total, _ in by_cluster())
        p_value = None if found is None else clustered_mcnemar(signs)
        return DifferenceFinding(
            before=before, after=after, difference=found, p_value=p_value, most=1.0
        )

    def scored(
        self,
        before: Estimate | None,
        after: Estimate | None,
        confidence: float = CONFIDENCE,
        bootstrap: Bootstrap | None = None,
    ) -> DifferenceFinding:
        """Return the test of whether scores differ, by Student's t, whatever the method of the interval."""
        found = self.tests.mean(self.scores, confidence, bootstrap)
        return _found(found, before, after)

    def measured(
        self,
        before: Mapping[str, Estimate],
        after: Mapping[str, Estimate],
        confidence: float = CONFIDENCE,
        bootstrap: Bootstrap | None = None,
    ) -> Iterator[tuple[str, DifferenceFinding]]:
        """Return the tests of the metrics, by name, sorted."""
        for name in sorted({*before, *after}):
            sums = self.metrics.get(name, _NOTHING)
            found = self.tests.mean(sums, confidence, bootstrap)
            yield name, _found(found, before.get(name), after.get(name))


def _found(
    found: Estimate | None, before: Estimate | None, after: Estimate | None
) -> DifferenceFinding:
    p_value = None if found is None else chance_of(found)
    if found is not None:
        are_shares = all(side is not None and side.within is not None for side in (before, after))
        found = attrs.evolve(found, within=(-1.0, 1.0) if are_shares else None)
    return DifferenceFinding(before=before, after=after, difference=found, p_value=p_value)


_NOTHING = Sums()


def adjusted(
    findings: Sequence[DifferenceFinding], p_values: Sequence[float | None]
) -> Sequence[DifferenceFinding]:
    """Return the same findings with adjusted p-values."""
    return [attrs.evolve(found, adjusted=p) for found, p in zip(findings, p_values, strict=True)]
