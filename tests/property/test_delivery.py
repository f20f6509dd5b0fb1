"""PACE where nobody tells the rate: it is what was served between two refusals, and a little more."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.rates import Delivery, Pace

pytestmark = pytest.mark.slow

spans = st.integers(1, 400).map(lambda n: n / 4)


def measured(served: int, seconds: float, wait: float = 1000.0) -> Delivery:
    """After so many good calls between two waves of refusals."""
    delivery = Delivery()
    delivery.refused(8.0, wait)
    for _ in range(served):
        delivery.served()
    delivery.refused(8.0 + seconds, wait)
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
    delivery.refused(1000.0, 1.0)
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
