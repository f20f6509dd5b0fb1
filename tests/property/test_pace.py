"""PACE, on the arithmetic alone: no window holds too many starts, whatever the requests."""

import math

from hypothesis import given
from hypothesis import strategies as st

from trioeval.rates import Pace

paces = st.builds(
    Pace,
    st.sampled_from((0.0, 0.25, 1.0, 3.5)),
    st.integers(1, 5),
    st.sampled_from((0.0, 0.25, 2.0)),
)
arrivals = st.lists(st.integers(0, 40).map(lambda n: n / 4), min_size=1, max_size=40).map(sorted)


def start_times(pace: Pace, asked_at: list[float]) -> list[float]:
    """Return the start times of requests that arrive at these instants and start as early as allowed."""
    starts: list[float] = []
    for at in asked_at:
        start = pace.earliest(max([at, *starts[-1:]]))
        pace = pace.take(start)
        starts.append(start)
    return starts


@given(paces, arrivals)
def test_the_pace_holds_in_every_window(pace: Pace, asked_at: list[float]) -> None:
    """PACE: n + burst starts span at least n periods, and any two are at least the minimum gap apart."""
    starts = start_times(pace, asked_at)
    for first in range(len(starts)):
        for last in range(first + 1, len(starts)):
            gap = starts[last] - starts[first]
            assert gap >= (last - first + 1 - pace.burst) * pace.period
            assert gap >= pace.min_gap


@given(paces, arrivals)
def test_the_pace_never_delays_without_need(pace: Pace, asked_at: list[float]) -> None:
    """EAGER: a start is at its arrival, or exactly at one of the bounds that PACE sets."""
    starts = start_times(pace, asked_at)
    for place, start in enumerate(starts):
        bounds = [
            asked_at[place],
            *(starts[place - 1 : place] and [starts[place - 1] + pace.min_gap]),
        ]
        bounds += [
            at + (place - first + 1 - pace.burst) * pace.period
            for first, at in enumerate(starts[:place])
        ]
        assert start == max(bounds)


@given(paces, arrivals, st.floats(-1e6, 1e6))
def test_reading_the_pace_changes_nothing(pace: Pace, asked_at: list[float], now: float) -> None:
    """`earliest` has no effect and never lies before now."""
    for at in asked_at:
        pace = pace.take(pace.earliest(at))
    before = pace
    assert pace.earliest(now) >= now
    assert pace == before


def test_first_burst_is_immediate_and_no_larger() -> None:
    """With a burst of 3 at 60 a minute, three start at once and the fourth after a second."""
    assert start_times(Pace.per_minute(60, burst=3), [0.0] * 5) == [0.0, 0.0, 0.0, 1.0, 2.0]


def test_unlimited_pace_is_always_open() -> None:
    """No rate and no gap: every instant is allowed."""
    pace = Pace.per_minute(None)
    assert pace.unlimited
    assert pace.take(5.0).earliest(-math.inf) <= 5.0
    assert not Pace.per_minute(60).unlimited
    assert not Pace.per_minute(None, min_gap=1.0).unlimited
