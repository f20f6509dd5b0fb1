"""Two runs of the same tests: differences, McNemar's test, multiple comparisons, and sample sizes."""

import itertools
import math
from collections.abc import Callable, Sequence
from random import Random

import pytest
import scipy.stats  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.report.statistics.grouped import RowPlace
from trioeval.report.statistics.paired import (
    Difference,
    PairSums,
    clustered_mcnemar,
    holm,
    mcnemar,
    paired_difference,
)
from trioeval.report.statistics.power import (
    detectable,
    needed,
    needed_for_pairs,
    needed_for_rates,
    needed_unpaired,
)

scores = st.floats(0, 1).map(lambda x: round(x, 2))
pairs = st.lists(st.tuples(scores, scores), min_size=2, max_size=25)


def found(
    before: Sequence[float | None], after: Sequence[float | None], clusters: str | None = None
) -> Difference:
    difference = paired_difference(before, after, clusters)
    assert difference is not None
    return difference


@settings(max_examples=settings().max_examples // 3)
@given(pairs)
def test_paired_differences_equal_scipy(drawn: list[tuple[float, float]]) -> None:
    """Student's paired test is compared; swapping the runs inverts the result."""
    before, after = zip(*drawn, strict=True)
    there, back = found(before, after), found(after, before)
    assert there.estimate.mean == pytest.approx(-back.estimate.mean)
    assert there.p_value == pytest.approx(back.p_value)
    if there.estimate.standard_error is not None:
        wanted = scipy.stats.ttest_rel(after, before)
        ends = wanted.confidence_interval(0.95)
        assert there.p_value == pytest.approx(wanted.pvalue, rel=1e-6)
        interval = (there.estimate.low, there.estimate.high)
        assert interval == pytest.approx((ends.low, ends.high), rel=1e-6, abs=1e-9)


def test_the_sleep_data_have_the_published_result() -> None:
    """Student, Biometrika 6 (1908), on Cushny and Peebles: 1.58 hours more, t = 4.06, p = 0.0028."""
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    sleep = found(first, second)
    assert sleep.estimate.mean == pytest.approx(1.58)
    assert sleep.estimate.standard_error is not None
    assert sleep.estimate.mean / sleep.estimate.standard_error == pytest.approx(4.0621, abs=5e-5)
    assert sleep.p_value == pytest.approx(0.002833, abs=5e-7)


def test_equal_differences_are_tested_by_their_count() -> None:
    """They have no standard error, so their signs are tested: ten equal ones are rare by chance."""
    worse = found([0.5] * 10, [0.25] * 10)
    assert (worse.estimate.standard_error, worse.p_value) == (None, 2**-9)
    assert found([0.5] * 10, [0.5] * 10).p_value == 1
    assert found([0.5] * 10, [0.25] * 10, "a" * 10).p_value is None
    assert found([1.0], [0.0]).p_value is None


def test_pairs_with_a_missing_side_are_ignored() -> None:
    """Missing values and numbers that are not finite are ignored."""
    whole = found([0.1, 0.5, 0.9], [0.2, 0.8, 0.7])
    before: list[float | None] = [0.1, None, 0.5, 0.3, 0.9]
    assert found(before, [0.2, 0.1, 0.8, math.nan, 0.7]) == whole
    assert paired_difference([None], [1.0]) is None
    with pytest.raises(ValueError, match="shorter"):
        paired_difference([1.0, 2.0], [1.0])


@settings(max_examples=settings().max_examples // 2)
@given(st.integers(0, 300), st.integers(0, 300))
def test_mcnemar_is_a_binomial_test(better: int, worse: int) -> None:
    """It equals the binomial test of one half, and is symmetric."""
    wanted = scipy.stats.binomtest(better, better + worse).pvalue if better + worse else 1
    assert mcnemar(better, worse) == pytest.approx(wanted, rel=1e-9) == mcnemar(worse, better)


def test_many_pairs_equal_a_textbook_example() -> None:
    """Reference: A. Agresti, Categorical data analysis (2002), table 10.1: 150 and 86 of 1600 changed.

    The difference is -0.04 with a standard error of 0.0095.
    """
    before = [1.0] * 944 + [0.0] * 656
    after = [1.0] * 794 + [0.0] * 150 + [1.0] * 86 + [0.0] * 570
    difference = found(before, after).estimate
    assert difference.mean == pytest.approx(-0.04)
    assert difference.standard_error == pytest.approx(0.0095, abs=1e-4)


def test_very_many_pairs_use_the_corrected_statistic() -> None:
    """(|b - c| - 1)² / (b + c) is close to the exact test."""
    wanted = scipy.stats.chi2.sf((abs(1100 - 1000) - 1) ** 2 / 2100, 1)
    assert mcnemar(1100, 1000) == pytest.approx(wanted)
    assert mcnemar(1100, 1000) == pytest.approx(scipy.stats.binomtest(1000, 2100).pvalue, rel=0.01)
    assert mcnemar(1000, 1000) == 1


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(st.integers(-3, 3), min_size=2, max_size=9))
def test_clusters_are_permuted_as_a_whole(differences: list[int]) -> None:
    """All sign changes are counted; only the size of the sum matters."""
    ways = itertools.product((-1, 1), repeat=len(differences))
    sums = [sum(map(int.__mul__, differences, signs)) for signs in ways]
    wanted = sum(abs(one) >= abs(sum(differences)) for one in sums) / len(sums)
    assert clustered_mcnemar(differences) == pytest.approx(wanted)
    assert clustered_mcnemar([-one for one in differences]) == pytest.approx(wanted)


def test_one_cluster_has_no_test_and_many_use_a_statistic() -> None:
    """(Σ d)² / Σ d² is close to the exact count."""
    assert clustered_mcnemar([5]) is None
    assert clustered_mcnemar([]) == 1
    differences = [2] * 280 + [-2] * 230
    assert clustered_mcnemar(differences) == pytest.approx(
        scipy.stats.chi2.sf(100 * 100 / (4 * 510), 1)
    )
    assert clustered_mcnemar(differences) == pytest.approx(mcnemar(280, 230), rel=0.15)


def test_holm_equals_scipy_and_its_paper() -> None:
    """Adjusted p-values never decrease and never exceed 1; a missing p-value stays missing."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([None, 0.9, 0.8]) == [None, 1.0, 1.0]
    assert holm([]) == []


@settings(max_examples=settings().max_examples // 3)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_holm_is_independent_of_order_and_never_lowers_a_p_value(
    p_values: list[float], rng: Random
) -> None:
    """A single p-value is unchanged."""
    found_values = holm(p_values)
    places = [*range(len(p_values))]
    rng.shuffle(places)
    assert holm([p_values[place] for place in places]) == [found_values[place] for place in places]
    for p, adjusted in zip(p_values, found_values, strict=True):
        assert adjusted is not None
        assert p <= adjusted <= min(1, p * len(p_values))


@pytest.mark.parametrize("unit", [1e-200, 1e-160, 1.0, 1e155, 1e299])
def test_differences_of_any_size_are_tested(unit: float) -> None:
    """The p-value does not depend on the scale; no number of rows suffices for the largest scale."""
    sums = PairSums()
    for test, score in enumerate([unit, 2 * unit, 4 * unit, unit]):
        sums.add(RowPlace(test), passed=0, score=score)
    data = sums.scored(None, None).json()
    assert data["pValue"] == pytest.approx(scipy.stats.ttest_1samp([1, 2, 4, 1], 0).pvalue)
    assert data["neededRows"]["0.01"] == (None if unit > 1 else 156_978 if unit == 1 else 1)


def test_sample_sizes_equal_those_of_textbooks() -> None:
    """They equal the published ones except for rounding.

    Miller (2024), section 5: variance 1/9 of the differences, effect 0.03: 969 questions. J. Cohen,
    Statistical power analysis (1988), table 2.4.1: 64 of each for d = 0.5 by Student's t, one more than by
    the normal distribution. The third is `power.prop.test(p1 = 0.25, p2 = 0.40, power = 0.8)` of R.
    """
    assert needed(0.03, 1 / 3) == 969
    assert needed_unpaired(0.5, (1, 1)) == 63
    assert needed_for_rates(0.25, 0.40) == needed_for_rates(0.40, 0.25) == 152


@settings(max_examples=settings().max_examples // 3)
@given(st.floats(0.01, 0.3), st.floats(0.1, 2), st.sampled_from([0.8, 0.9]))
def test_needed_and_detectable_are_inverse(effect: float, deviation: float, power: float) -> None:
    """The needed number of tests detects the difference, and one less does not."""
    n = needed(effect, deviation, power=power)
    assert detectable(deviation / math.sqrt(n), power=power) <= effect * (1 + 1e-9)
    if n > 1:
        assert detectable(deviation / math.sqrt(n - 1), power=power) >= effect * (1 - 1e-9)


@pytest.mark.parametrize(("effect", "discordant"), [(0.15, 0.35), (0.2, 0.3), (0.1, 0.4)])
def test_the_power_is_close_to_the_requested_power(effect: float, discordant: float) -> None:
    """It is computed from all outcomes; the exact test finds a few percent fewer differences."""
    n, power = needed_for_pairs(effect, discordant), 0.0
    for parted in range(n + 1):
        if (chance := scipy.stats.binom.pmf(parted, n, discordant)) > 1e-6:
            each = scipy.stats.binom.pmf(range(parted + 1), parted, (1 + effect / discordant) / 2)
            significant = (one for k, one in enumerate(each) if mcnemar(k, parted - k) <= 0.05)
            power += chance * math.fsum(significant)
    assert 0.76 <= power <= 0.8


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: needed(0, 1),
        lambda: needed_for_rates(0.5, 0.5),
        lambda: needed_for_pairs(0, 0.2),
        lambda: needed_for_pairs(0.3, 0.2),
    ],
)
def test_a_zero_difference_has_no_sample_size(wrong: Callable[[], int]) -> None:
    """Invalid values are rejected with a message."""
    with pytest.raises(ValueError, match="must"):
        wrong()


def test_equal_runs_differ_no_more_often_than_the_significance_level() -> None:
    """Of 300 comparisons of equal runs with repeats, at most 5 % differ, for any correlation within tests."""
    rng = Random(11)  # noqa: S311 - draws samples
    differing = 0
    for _ in range(300):
        sums = PairSums()
        for test in range(20):
            easy = rng.random()
            for _ in range(3):
                before, after = rng.random() < easy, rng.random() < easy
                sums.add(RowPlace(test), passed=after - before, score=float(after - before))
        p_value = sums.passed(None, None).p_value
        differing += p_value is not None and p_value <= 0.05
    assert differing <= 22
