"""PACE for undeclared rates: a little above what was served between two refusals."""

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.rates import MeasuredRate, Pace

pytestmark = pytest.mark.slow

spans = st.integers(1, 400).map(lambda n: n / 4)


def measured(served: int, seconds: float, wait: float = 1000.0) -> MeasuredRate:
    """Return the state after a number of successes between two waves of refusals."""
    measured_rate = MeasuredRate()
    measured_rate.refused(8.0, wait, full=True)
    for _ in range(served):
        measured_rate.served()
    measured_rate.refused(8.0 + seconds, wait, full=True)
    return measured_rate


def period_of(measured_rate: MeasuredRate) -> float:
    """Return the seconds between two starts; there must be a pace."""
    assert measured_rate.pace is not None
    return measured_rate.pace.period


@given(st.integers(4, 200), spans)
def test_the_rate_is_the_served_rate_and_a_tenth(served: int, seconds: float) -> None:
    """N calls in T seconds give a rate of 1.1 · N/T, with a burst of two."""
    pace = measured(served, seconds).pace
    assert pace is not None
    assert pace.burst == 2
    assert math.isclose(1 / pace.period, 1.1 * served / seconds)
    assert pace.earliest(0.0) == 0.0


@given(st.integers(4, 200), spans, spans)
def test_idle_time_does_not_slow_a_lane_down(served: int, seconds: float, wait: float) -> None:
    """No start waits longer than the server requested, even after idle time."""
    assert period_of(measured(served, seconds, wait)) <= wait


@given(st.integers(0, 3), spans)
def test_too_few_calls_give_no_rate(served: int, seconds: float) -> None:
    """Three or fewer calls, or a single instant, are too little."""
    assert measured(served, seconds).pace is None
    assert measured(served + 4, 0.0).pace is None


@given(st.lists(st.tuples(st.integers(0, 9), spans), min_size=1, max_size=20))
def test_low_rates_are_measured_over_several_waves(waves: list[tuple[int, float]]) -> None:
    """Served calls and time add up until four calls make a measurement."""
    measured_rate, now, period = MeasuredRate(), 8.0, None
    measured_rate.refused(now, 1000.0, full=True)
    served, since = 0, now
    for more, seconds in waves:
        for _ in range(more):
            measured_rate.served()
        served, now = served + more, now + seconds
        measures = served >= 4
        measured_rate.refused(now, 1000.0, full=True)
        if measures:
            period = (now - since) / served / 1.1
            served, since = 0, now
            assert period_of(measured_rate) == period
        assert (measured_rate.pace is None) == (period is None)


@given(served=st.integers(0, 50), seconds=spans, begun=st.booleans())
def test_a_single_refusal_gives_no_rate(served: int, seconds: float, *, begun: bool) -> None:
    """A single refusal neither starts nor ends a measurement."""
    measured_rate = MeasuredRate()
    if begun:
        measured_rate.refused(8.0, 1000.0, full=True)
    for _ in range(served):
        measured_rate.served()
    measured_rate.refused(8.0 + seconds / 2, 1000.0, full=False)
    assert (measured_rate.pace, measured_rate.measuring) == (None, begun)
    measured_rate.refused(8.0 + seconds, 1000.0, full=True)
    assert measured_rate.pace == (measured(served, seconds).pace if begun else None)


@given(st.integers(4, 200), spans, st.integers(0, 12))
def test_a_single_refusal_slows_the_rate_by_a_tenth_and_delays_its_growth(
    served: int, seconds: float, later: int
) -> None:
    """Earlier starts stay counted."""
    measured_rate = measured(served, seconds)
    assert measured_rate.pace is not None
    for _ in range(later):
        measured_rate.served()
    before = measured_rate.pace
    measured_rate.take(2000.0)
    measured_rate.refused(2000.0, 1000.0, full=False)
    assert measured_rate.pace == attrs.evolve(before.take(2000.0), period=before.period * 1.1)
    period = period_of(measured_rate)
    for _ in range(max(8, int(1 / period)) - 1):
        measured_rate.served()
        assert period_of(measured_rate) == period
    measured_rate.served()
    assert math.isclose(period_of(measured_rate), before.period)


@given(st.integers(4, 50), spans, spans, st.integers(1, 60))
def test_single_refusals_never_slow_the_rate_beyond_the_wait(
    served: int, seconds: float, wait: float, times: int
) -> None:
    """Single refusals never slow the rate below one start per wait."""
    measured_rate = measured(served, seconds, wait)
    periods = [period_of(measured_rate)]
    for _ in range(times):
        measured_rate.refused(2000.0, wait, full=False)
        periods.append(period_of(measured_rate))
    assert periods == sorted(periods)
    assert periods[-1] <= wait
    measured_rate.refused(2000.0, wait / 2, full=False)
    assert period_of(measured_rate) >= periods[-1]


@given(st.integers(4, 50), spans, st.integers(0, 3))
def test_a_measurement_stays_until_there_is_a_better_one(
    served: int, seconds: float, later: int
) -> None:
    """A second wave after too few calls leaves the pace unchanged."""
    measured_rate = MeasuredRate()
    assert not measured_rate.measuring
    measured_rate.served()
    assert (measured_rate.pace, measured_rate.measuring) == (None, False)
    measured_rate = measured(served, seconds)
    before = measured_rate.pace
    for _ in range(later):
        measured_rate.served()
    measured_rate.refused(1000.0, 1.0, full=True)
    assert measured_rate.pace == before
    assert measured_rate.measuring


@given(st.integers(4, 200), spans)
def test_the_rate_grows_by_a_tenth_about_once_a_second_while_calls_are_served(
    served: int, seconds: float
) -> None:
    """It grows after eight calls, or after as many as a second holds if that is more."""
    measured_rate = measured(served, seconds)
    period = period_of(measured_rate)
    wait = max(8, int(1 / period))
    for _ in range(wait - 1):
        measured_rate.served()
        assert period_of(measured_rate) == period
    measured_rate.served()
    assert math.isclose(period_of(measured_rate), period / 1.1)


@given(st.integers(4, 200), spans)
def test_a_rate_without_refusals_is_dropped(served: int, seconds: float) -> None:
    """It grows until it is dropped."""
    measured_rate = measured(served, seconds)
    rates = []
    for _ in range(1_000_000):  # bounded
        if measured_rate.pace is None:
            break
        rates.append(measured_rate.pace.period)
        measured_rate.served()
    assert measured_rate.pace is None
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0.001
    assert not measured_rate.measuring
    measured_rate.take(5.0)
    measured_rate.served()
    assert measured_rate.pace is None


@given(st.integers(4, 50), spans, st.integers(1, 20))
def test_starts_keep_the_measured_rate(served: int, seconds: float, starts: int) -> None:
    """A start moves the measured pace like any other pace."""
    measured_rate = measured(served, seconds)
    assert measured_rate.pace is not None
    expected = Pace(measured_rate.pace.period, 2)
    now = 2000.0
    for _ in range(starts):
        now = measured_rate.pace.earliest(now)
        assert now == expected.earliest(now)
        measured_rate.take(now)
        expected = expected.take(now)
    assert measured_rate.pace.earliest(now) == expected.earliest(now)
