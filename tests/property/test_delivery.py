"""PACE where nobody tells the rate: it is what was served between two refusals, and a little more."""

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.rates import Delivery, Pace

pytestmark = pytest.mark.slow

spans = st.integers(1, 400).map(lambda n: n / 4)


def measured(served: int, seconds: float, wait: float = 1000.0) -> Delivery:
    """After so many good calls between two waves of refusals."""
    delivery = Delivery()
    delivery.refused(8.0, wait, full=True)
    for _ in range(served):
        delivery.served()
    delivery.refused(8.0 + seconds, wait, full=True)
    return delivery


def period_of(delivery: Delivery) -> float:
    """Seconds between two starts; there must be a pace."""
    assert delivery.pace is not None
    return delivery.pace.period


@given(st.integers(4, 200), spans)
def test_the_rate_is_what_was_served_and_a_tenth_more(served: int, seconds: float) -> None:
    """N calls in T seconds give n/T, times 1.1, with two at once."""
    pace = measured(served, seconds).pace
    assert pace is not None
    assert pace.burst == 2
    assert math.isclose(1 / pace.period, 1.1 * served / seconds)
    assert pace.earliest(0.0) == 0.0


@given(st.integers(4, 200), spans, spans)
def test_a_lane_that_had_nothing_to_do_is_not_slowed_down_for_it(
    served: int, seconds: float, wait: float
) -> None:
    """No start waits longer than the server asked for."""
    assert period_of(measured(served, seconds, wait)) <= wait


@given(st.integers(0, 3), spans)
def test_too_few_calls_measure_nothing(served: int, seconds: float) -> None:
    """Three or fewer say more of their latency than of a rate; an instant says nothing at all."""
    assert measured(served, seconds).pace is None
    assert measured(served + 4, 0.0).pace is None


@given(st.lists(st.tuples(st.integers(0, 9), spans), min_size=1, max_size=20))
def test_low_rates_are_measured_over_several_waves(waves: list[tuple[int, float]]) -> None:
    """What is served adds up, and so does the time, until four calls make a measurement."""
    delivery, now, period = Delivery(), 8.0, None
    delivery.refused(now, 1000.0, full=True)
    served, since = 0, now
    for more, seconds in waves:
        for _ in range(more):
            delivery.served()
        served, now = served + more, now + seconds
        measures = served >= 4
        delivery.refused(now, 1000.0, full=True)
        if measures:
            period = (now - since) / served / 1.1
            served, since = 0, now
            assert period_of(delivery) == period
        assert (delivery.pace is None) == (period is None)


@given(served=st.integers(0, 50), seconds=spans, begun=st.booleans())
def test_a_lone_refusal_measures_nothing(served: int, seconds: float, *, begun: bool) -> None:
    """It neither begins nor ends a measurement: the next full one is as if it had not been."""
    delivery = Delivery()
    if begun:
        delivery.refused(8.0, 1000.0, full=True)
    for _ in range(served):
        delivery.served()
    delivery.refused(8.0 + seconds / 2, 1000.0, full=False)
    assert (delivery.pace, delivery.measuring) == (None, begun)
    delivery.refused(8.0 + seconds, 1000.0, full=True)
    assert delivery.pace == (measured(served, seconds).pace if begun else None)


@given(st.integers(4, 200), spans, st.integers(0, 12))
def test_a_lone_refusal_slows_the_rate_down_by_a_tenth_and_puts_off_its_growth(
    served: int, seconds: float, later: int
) -> None:
    """Starts that were made stay counted; the rate then grows as late as after a measurement."""
    delivery = measured(served, seconds)
    assert delivery.pace is not None
    for _ in range(later):
        delivery.served()
    before = delivery.pace
    delivery.take(2000.0)
    delivery.refused(2000.0, 1000.0, full=False)
    assert delivery.pace == attrs.evolve(before.take(2000.0), period=before.period * 1.1)
    period = period_of(delivery)
    for _ in range(max(8, int(1 / period)) - 1):
        delivery.served()
        assert period_of(delivery) == period
    delivery.served()
    assert math.isclose(period_of(delivery), before.period)


@given(st.integers(4, 50), spans, spans, st.integers(1, 60))
def test_lone_refusals_never_slow_the_rate_down_beyond_the_wait(
    served: int, seconds: float, wait: float, times: int
) -> None:
    """After it the server serves at least one: a start need not wait longer."""
    delivery = measured(served, seconds, wait)
    periods = [period_of(delivery)]
    for _ in range(times):
        delivery.refused(2000.0, wait, full=False)
        periods.append(period_of(delivery))
    assert periods == sorted(periods)
    assert periods[-1] <= wait
    delivery.refused(2000.0, wait / 2, full=False)
    assert period_of(delivery) >= periods[-1]


@given(st.integers(4, 50), spans, st.integers(0, 3))
def test_a_measure_stays_until_there_is_a_better_one(
    served: int, seconds: float, later: int
) -> None:
    """A second wave after too few calls leaves the pace; the first wave of all begins to measure."""
    delivery = Delivery()
    assert not delivery.measuring
    delivery.served()
    assert (delivery.pace, delivery.measuring) == (None, False)
    delivery = measured(served, seconds)
    before = delivery.pace
    for _ in range(later):
        delivery.served()
    delivery.refused(1000.0, 1.0, full=True)
    assert delivery.pace == before
    assert delivery.measuring


@given(st.integers(4, 200), spans)
def test_the_rate_grows_by_a_tenth_about_once_a_second_while_calls_are_served(
    served: int, seconds: float
) -> None:
    """After eight calls, or as many as a second holds, whichever is more; never before."""
    delivery = measured(served, seconds)
    period = period_of(delivery)
    wait = max(8, int(1 / period))
    for _ in range(wait - 1):
        delivery.served()
        assert period_of(delivery) == period
    delivery.served()
    assert math.isclose(period_of(delivery), period / 1.1)


@given(st.integers(4, 200), spans)
def test_a_rate_that_nobody_refuses_is_forgotten(served: int, seconds: float) -> None:
    """It grows until it is no pace any more, and nothing is measured then."""
    delivery = measured(served, seconds)
    rates = []
    for _ in range(1_000_000):  # not for ever
        if delivery.pace is None:
            break
        rates.append(delivery.pace.period)
        delivery.served()
    assert delivery.pace is None
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0.001
    assert not delivery.measuring
    delivery.take(5.0)
    delivery.served()
    assert delivery.pace is None


@given(st.integers(4, 50), spans, st.integers(1, 20))
def test_starts_keep_the_measured_rate(served: int, seconds: float, starts: int) -> None:
    """A start moves the pace on as any other pace."""
    delivery = measured(served, seconds)
    assert delivery.pace is not None
    expected = Pace(delivery.pace.period, 2)
    now = 2000.0
    for _ in range(starts):
        now = delivery.pace.earliest(now)
        assert now == expected.earliest(now)
        delivery.take(now)
        expected = expected.take(now)
    assert delivery.pace.earliest(now) == expected.earliest(now)
