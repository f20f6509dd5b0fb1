"""Differences of pass rates over the same rows: their intervals and the coverage of these."""

import math

import pytest
import scipy.optimize  # type: ignore[import-untyped]
import scipy.stats  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.report.statistics.estimates import Estimate, mean, proportion
from trioeval.report.statistics.grouped import RowPlace
from trioeval.report.statistics.paired import PairSums, paired_proportion

counts = st.integers(2, 60).flatmap(
    lambda n: st.integers(0, n).flatmap(
        lambda better: st.tuples(st.just(better), st.integers(0, n - better), st.just(n))
    )
)


def found(better: int, worse: int, n: int, confidence: float = 0.95) -> Estimate:
    estimate = paired_proportion(better, worse, n, confidence)
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate


@pytest.mark.parametrize(
    ("case", "confidence", "low", "high"),
    [
        ((60, 20, 1000), 0.95, 0.0231, 0.0584),
        ((28, 25, 618), 0.90, -0.0148, 0.0247),
        ((1, 7, 21), 0.95, -0.517, -0.026),
    ],
)
def test_the_score_interval_equals_published_ones(
    case: tuple[int, int, int], confidence: float, low: float, high: float
) -> None:
    """`scoreci.mp` of PropCIs 0.3 for R; the last is M. Fagerland et al. (2014), on airways (Bentur 2009)."""
    estimate = found(*case, confidence)
    digits = 5e-4 if case[2] == 21 else 5e-5
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=digits)


@settings(max_examples=settings().max_examples // 5)
@given(counts)
def test_the_score_test_is_just_significant_at_the_ends(case: tuple[int, int, int]) -> None:
    """The variance is the likeliest one there, as found by SciPy; swapping the runs mirrors the interval."""
    better, worse, n = case
    estimate, turned = found(better, worse, n), found(worse, better, n)
    assert (estimate.low, estimate.high) == pytest.approx((-turned.high, -turned.low), abs=1e-12)  # type: ignore[operator]
    for end in (estimate.low, estimate.high):
        assert end is not None
        if abs(end) > 0.999:
            continue

        def unlikely(share: float, end: float = end) -> float:
            cells = (
                (better, share + end),
                (worse, share),
                (n - better - worse, 1 - 2 * share - end),
            )
            return -math.fsum(count * math.log(max(p, 1e-300)) for count, p in cells if count)

        bounds = (max(0.0, -end), (1 - end) / 2)
        share = scipy.optimize.minimize_scalar(
            unlikely, bounds=bounds, method="bounded", options={"xatol": 1e-12}
        ).x
        deviation = math.sqrt(n * (2 * share + end - end * end))
        assert abs(better - worse - n * end) / deviation == pytest.approx(1.959964, rel=1e-3)


@pytest.mark.parametrize("n", [1, 2, 12, 500])
def test_without_differing_rows_the_interval_is_as_wide_as_wilson(n: int) -> None:
    """The mean and the standard error are those of the differences."""
    none, alone = found(0, 0, n), proportion(0, n)
    assert alone is not None
    assert none.high == pytest.approx(alone.high)
    assert none.low == pytest.approx(-none.high)  # type: ignore[operator]
    plain = mean([1] * 5 + [-1] * 2 + [0] * n)
    assert plain is not None
    some = found(5, 2, n + 7)
    assert (some.mean, some.standard_error) == (plain.mean, plain.standard_error)
    assert paired_proportion(0, 0, 0) is None


@pytest.mark.parametrize("shares", [(0.05, 0.05), (0.1, 0.02), (0.05, 0.0), (0.3, 0.2)])
def test_rare_differences_have_their_nominal_coverage(shares: tuple[float, float]) -> None:
    """All outcomes of 12 rows are weighted by probability. Student's interval would cover half of some."""
    held, n, (p, q) = 0.0, 12, shares
    for better in range(n + 1):
        for worse in range(n - better + 1):
            estimate = found(better, worse, n)
            if estimate.low <= p - q <= estimate.high:  # type: ignore[operator]
                outcome = [better, worse, n - better - worse]
                held += scipy.stats.multinomial.pmf(outcome, n, [p, q, 1 - p - q])
    assert held >= 0.945


def clustered(differences: list[list[int]]) -> Estimate | None:
    sums = PairSums()
    for test, rows in enumerate(differences):
        for one in rows:
            sums.add(RowPlace(test), passed=one, score=None)
    return sums.passed(None, None).difference


def test_copies_of_a_row_do_not_narrow_a_difference() -> None:
    """Ten tests of three equal rows are ten rows, with the quantile of Student's t."""
    alone, copied = found(1, 4, 10), clustered([[1] * 3] + [[-1] * 3] * 4 + [[0] * 3] * 5)
    assert copied is not None
    assert copied.mean == pytest.approx(alone.mean)
    assert copied.half_width is not None
    assert copied.half_width == pytest.approx(alone.half_width * 1.13, rel=0.08)  # type: ignore[operator]
    assert (copied.n, copied.clusters) == (30, 10)


def test_clusters_without_variation_count_once_each() -> None:
    """None of their rows differs, or all became worse.

    Equal sums in all clusters do not show that others are equal.
    """
    none, all_ = clustered([[0, 0]] * 8), clustered([[-1, -1]] * 8)
    assert none is not None
    assert all_ is not None
    assert (none.mean, none.high) == (0, pytest.approx(-none.low))  # type: ignore[operator]
    assert none.high > found(0, 0, 8).high  # type: ignore[operator]
    assert (all_.low, all_.standard_error) == (-1, None)
    assert all_.high < 0  # type: ignore[operator]
    for rows in ([[1, -1]] * 8, [[0, 0, 0]]):
        estimate = clustered(rows)
        assert estimate is not None
        assert (estimate.low, estimate.high) == (None, None)
