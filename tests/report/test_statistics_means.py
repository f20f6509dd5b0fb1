"""Means, shares and their intervals, compared with SciPy and published examples."""

import math
from random import Random

import attrs
import numpy as np
import pytest
import scipy.stats  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.report.statistics.bootstrap import Bootstrap, bootstrap_mean
from trioeval.report.statistics.distributions import (
    normal_quantile,
    normal_tail,
    student_quantile,
    student_tail,
)
from trioeval.report.statistics.estimates import (
    Estimate,
    cluster_sums,
    clustered_proportion,
    mean,
    proportion,
)

TREATED = [94, 197, 16, 38, 99, 141, 23]
CONTROL = [52, 104, 146, 10, 51, 30, 40, 27, 46]
"""Survival times: B. Efron and R. J. Tibshirani, An introduction to the bootstrap (1993), table 2.1."""


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - draws samples


values = st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=2, max_size=30)


@pytest.mark.parametrize("freedom", [1, 2, 3.5, 10, 100, 999, 1000, 1001, 20_000, 1e6])
def test_student_quantiles_equal_scipy(freedom: float) -> None:
    """Quantiles and tails are compared, also far from the centre."""
    for share in (1e-9, 0.025, 0.2, 0.5, 0.6, 0.975, 0.9999):
        wanted = scipy.stats.t.ppf(share, freedom)
        assert student_quantile(share, freedom) == pytest.approx(wanted, rel=1e-8, abs=1e-12)
    for t in (-3, 0, 0.1, 1, 5, 30):
        wanted = scipy.stats.t.sf(t, freedom)
        assert student_tail(t, freedom) == pytest.approx(wanted, rel=1e-8, abs=1e-300)


@given(st.floats(1e-12, 1 - 1e-12))
def test_the_normal_distribution_equals_scipy(share: float) -> None:
    """Quantiles and the corresponding tails are compared."""
    quantile = normal_quantile(share)
    assert quantile == pytest.approx(scipy.stats.norm.ppf(share), rel=1e-9, abs=1e-12)
    assert normal_tail(-quantile) == pytest.approx(share, rel=1e-7)


def test_standard_errors_equal_a_textbook() -> None:
    """Efron and Tibshirani, table 2.1: 86.86 with 25.24, and 56.22 with 14.14."""
    for sample, middle, error in ((TREATED, 86.86, 25.24), (CONTROL, 56.22, 14.14)):
        found = mean(sample)
        assert found is not None
        assert found.mean == pytest.approx(middle, abs=0.005)
        assert found.standard_error == pytest.approx(error, abs=0.02)


@settings(max_examples=settings().max_examples // 3)
@given(values, st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_a_mean_of_independent_values_equals_scipy(sample: list[float], confidence: float) -> None:
    """The standard error of the mean and Student's interval are compared."""
    found = mean(sample, confidence=confidence)
    assert found is not None
    assert (found.n, found.clusters) == (len(sample), len(sample))
    if len(set(sample)) == 1:
        assert (found.standard_error, found.low, found.high) == (None, None, None)
        return
    error = scipy.stats.sem(sample)
    ends = scipy.stats.t.interval(confidence, len(sample) - 1, np.mean(sample), error)
    assert found.standard_error == pytest.approx(error)
    assert (found.low, found.high) == pytest.approx(ends, rel=1e-9, abs=1e-9)


def test_clustered_errors_equal_those_of_an_intercept_with_robust_errors() -> None:
    """Reference: statsmodels 0.15, `OLS(y, ones).fit(cov_type="cluster")`, with its correction."""
    sample = [1.0, 2, 3, 4, 6, 8, 8, 9, 10]
    found = mean(sample, "aaabbcccc")
    assert found is not None
    assert found.standard_error == pytest.approx(CLUSTERED, rel=1e-9)
    assert (found.n, found.clusters) == (9, 3)


CLUSTERED = 2.2562213941508196


@settings(max_examples=settings().max_examples // 3)
@given(values, st.randoms(use_true_random=False))
def test_clusters_of_one_value_have_no_effect(sample: list[float], rng: Random) -> None:
    """Neither the order nor any name matters."""
    names = [*range(len(sample))]
    assert mean(sample, names) == mean(sample)
    groups = [rng.randrange(4) for _ in sample]
    pairs = [*zip(sample, groups, strict=True)]
    rng.shuffle(pairs)
    shuffled = mean([value for value, _ in pairs], [f"g{group}" for _, group in pairs])
    assert_same(shuffled, mean(sample, groups))


@settings(max_examples=settings().max_examples // 3)
@given(values, st.sampled_from([-2.0, 0.5, 8.0]), st.integers(-5, 5), st.integers(2, 4))
def test_units_and_copies_change_nothing_else(
    sample: list[float], factor: float, shift: int, copies: int
) -> None:
    """Scaling and shifting apply to mean and interval; copies in one cluster add no information."""
    found = mean(sample)
    moved = mean([factor * value + shift for value in sample])
    assert found is not None
    assert moved is not None
    assert moved.mean == pytest.approx(factor * found.mean + shift, abs=1e-9)
    if found.standard_error is not None and found.standard_error > 1e-6:
        assert moved.standard_error == pytest.approx(abs(factor) * found.standard_error, rel=1e-6)
    copied = mean(
        [value for value in sample for _ in range(copies)],
        [group for group in range(len(sample)) for _ in range(copies)],
    )
    assert copied is not None
    assert copied.n == copies * len(sample)
    assert copied.standard_error == pytest.approx(found.standard_error)


@pytest.mark.parametrize(
    ("sample", "clusters"),
    [([3.0], None), ([0.1] * 7, None), ([1.0, 2.0], "aa"), ([1.0, 3.0, 3.0, 1.0], "aabb")],
)
def test_without_variation_there_is_no_interval(sample: list[float], clusters: str | None) -> None:
    """One value, equal values and one cluster do not allow an estimate of the error."""
    found = mean(sample, clusters)
    assert found is not None
    assert (found.standard_error, found.low, found.high, found.half_width) == (None,) * 4
    assert bootstrap_mean(sample, seeded(1), clusters) == found


def test_values_that_are_not_numbers_are_left_out() -> None:
    """Missing values, infinities and NaN are ignored; an empty list has no mean."""
    assert mean([1, None, math.nan, 3, math.inf], "abcde") == mean([1, 3])
    assert mean([]) is mean([None, math.nan]) is bootstrap_mean([], seeded(1)) is None
    assert proportion(0, 0) is None
    with pytest.raises(ValueError, match="shorter"):
        mean([1.0, 2.0], "a")


@pytest.mark.parametrize(
    ("passed", "n", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_intervals_equal_the_published_ones(
    passed: int, n: int, low: float, high: float
) -> None:
    """R. G. Newcombe, Statistics in Medicine 17 (1998) 857, table I, method 3."""
    found = proportion(passed, n)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)


@settings(max_examples=settings().max_examples // 3)
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_intervals_equal_scipy(counts: tuple[int, int]) -> None:
    """Clusters of one row do not change them."""
    passed, n = counts
    found = proportion(passed, n)
    assert found is not None
    wanted = scipy.stats.binomtest(passed, n).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=1e-12)
    rows = [1.0] * passed + [0.0] * (n - passed)
    sums, _ = cluster_sums(rows, None)
    assert clustered_proportion(lambda: sums, n) == found


def clustered(rows: list[int], groups: str) -> Estimate | None:
    sums, n = cluster_sums(rows, groups)
    return clustered_proportion(lambda: sums, n)


def test_copies_of_a_row_do_not_narrow_a_share() -> None:
    """Ten clusters of two equal rows are ten rows, with the quantile of Student's t."""
    found, alone = clustered([0, 0] * 4 + [1, 1] * 6, "aabbccddeeffgghhiijj"), proportion(6, 10)
    assert found is not None
    assert alone is not None
    assert found.mean == 0.6
    assert found.half_width is not None
    assert alone.half_width is not None
    assert found.half_width > alone.half_width
    assert (found.n, found.clusters) == (20, 10)


def test_clusters_that_all_pass_count_once_each() -> None:
    """Their rows may be copies; a pass rate of one half in each cluster does not narrow the interval."""
    whole, half = clustered([1] * 10, "aabbccddee"), clustered([0, 1] * 5, "aabbccddee")
    assert whole is not None
    assert (whole.high, whole.standard_error) == (1.0, None)
    assert whole.low is not None
    assert whole.low < proportion(5, 5).low  # type: ignore[union-attr, operator]
    assert half is not None
    assert (half.mean, half.low) == (0.5, None)


@settings(max_examples=settings().max_examples // 4)
@given(values, st.integers(0, 9), st.sampled_from(["bca", "percentile"]))
def test_a_bootstrap_is_independent_of_the_order(
    sample: list[float], seed: int, method: str
) -> None:
    """Equal seeds give equal intervals, which contain the estimate."""
    how = {"method": method, "resamples": 100}
    found = bootstrap_mean(sample, seeded(seed), **how)  # type: ignore[arg-type]
    turned = bootstrap_mean(sample[::-1], seeded(seed), **how)  # type: ignore[arg-type]
    assert found == turned
    assert found is not None
    if found.low is not None and found.high is not None:
        assert min(sample) - 1e-9 <= found.low <= found.high <= max(sample) + 1e-9


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_a_bootstrap_equals_scipy(method: str) -> None:
    """The difference is due to sampling; its standard error is 23.36, Efron and Tibshirani, table 2.2."""
    ours = bootstrap_mean(TREATED, seeded(1), method=method, resamples=4000)  # type: ignore[arg-type]
    theirs = scipy.stats.bootstrap(
        (TREATED,), np.mean, n_resamples=9999, method=method, rng=np.random.default_rng(1)
    )
    assert ours is not None
    assert ours.standard_error == pytest.approx(23.36, rel=0.05)
    wanted = (theirs.confidence_interval.low, theirs.confidence_interval.high)
    assert (ours.low, ours.high) == pytest.approx(wanted, abs=4)


def test_a_bootstrap_resamples_whole_clusters() -> None:
    """Clusters keep their weights.

    Ten clusters of five copies are ten values, also if one of them is doubled.
    """
    rng = seeded(4)
    sample = [rng.gauss(0, 1) for _ in range(10)]
    copied = [value for value in sample for _ in range(5)]
    groups = [group for group in range(10) for _ in range(5)]
    alone, found = bootstrap_mean(sample, seeded(1)), bootstrap_mean(copied, seeded(1), groups)
    assert alone is not None
    assert found is not None
    assert (found.n, found.clusters) == (50, 10)
    assert (found.low, found.high) == pytest.approx((alone.low, alone.high))
    uneven = bootstrap_mean(copied[1:], seeded(1), groups[1:], resamples=4000)
    linear = mean(copied[1:], groups[1:])
    assert uneven is not None
    assert linear is not None
    assert uneven.standard_error == pytest.approx(linear.standard_error, rel=0.1)


def test_a_bootstrap_is_limited_to_the_ends_of_its_samples() -> None:
    """One value of 31 is an outlier, and the confidence is so high that the correction has no quantile."""
    found = bootstrap_mean([0] * 30 + [1000], seeded(1), resamples=500, confidence=1 - 1e-12)
    assert found is not None
    assert found.high is not None
    assert found.low == 0
    assert found.high > found.mean


def test_a_resampled_interval_keeps_the_other_figures() -> None:
    """The mean, its standard error and its counts are unchanged; without resampling, so is the interval."""
    sums = [(value, 1.0) for value in map(float, TREATED)]
    own, equal = mean(TREATED), mean([1.0] * 5)
    assert own is not None
    assert equal is not None
    drawn, again = (Bootstrap(500).interval(own, sums) for _ in range(2))
    assert drawn == again != own
    assert attrs.evolve(drawn, low=own.low, high=own.high) == own
    assert Bootstrap(500, seed=1).interval(own, sums) != drawn
    assert Bootstrap(500).interval(equal, [(1.0, 1.0)] * 5) == equal


@pytest.mark.parametrize("unit", [1e-300, 1e-170, 1.0, 1e160, 1e299])
def test_extreme_numbers_do_not_overflow(unit: float) -> None:
    """Their squares exceed all floats; values beyond 1e300 are left out."""
    found, plain = mean([unit, 3 * unit, 8 * unit]), mean([1, 3, 8])
    assert found is not None
    assert plain is not None
    for name in ("mean", "standard_error", "low", "high"):
        assert getattr(found, name) / unit == pytest.approx(getattr(plain, name), rel=1e-9)
    assert mean([1, 1e301, 3, -(10**400), 8]) == plain


def test_an_interval_without_finite_ends_is_none() -> None:
    """The confidence is so near to 1 that its ends are not finite."""
    found = mean([1e200, 3e200], confidence=1 - 2**-53)
    assert found is not None
    assert found.standard_error == pytest.approx(1e200)
    assert (found.low, found.high) == (None, None)


def test_intervals_have_their_nominal_coverage() -> None:
    """300 samples of 12 clusters of 4 are drawn; an interval that ignores clusters would cover far fewer."""
    rng = seeded(7)
    held = unaware = 0
    groups = [group for group in range(12) for _ in range(4)]
    for _ in range(300):
        shared = [rng.gauss(0, 1) for _ in range(12)]
        sample = [shared[group] + rng.gauss(0, 0.5) for group in groups]
        aware, plain = mean(sample, groups), mean(sample)
        held += holds(aware, 0)
        unaware += holds(plain, 0)
    assert 275 <= held <= 295
    assert unaware < 240


def test_shares_near_one_have_their_nominal_coverage() -> None:
    """500 samples of 40 rows are drawn, of which each passes with 97 %."""
    rng = seeded(3)
    found = (proportion(sum(rng.random() < 0.97 for _ in range(40)), 40) for _ in range(500))
    assert sum(holds(one, 0.97) for one in found) >= 465


def holds(found: Estimate | None, value: float) -> bool:
    assert found is not None
    return found.low is not None and found.high is not None and found.low <= value <= found.high


def assert_same(one: Estimate | None, other: Estimate | None) -> None:
    """Compare except for rounding."""
    assert one is not None
    assert other is not None
    assert (one.n, one.clusters) == (other.n, other.clusters)
    assert one.mean == pytest.approx(other.mean, abs=1e-12)
    if one.standard_error is None or other.standard_error is None:
        assert one.standard_error is other.standard_error
    else:
        assert one.standard_error == pytest.approx(other.standard_error, rel=1e-6, abs=1e-12)
