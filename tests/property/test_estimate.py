"""The learned share of a bound: in range, never below the latest one, and not above it for long."""

import math

from hypothesis import given
from hypothesis import strategies as st

from trioeval.rates import LearntShare

BOUND = st.integers(0, 10**6)
USED = st.tuples(BOUND, st.integers(-5, 2 * 10**6))


@given(st.lists(USED), BOUND)
def test_the_expected_usage_is_between_0_and_the_bound(
    seen: list[tuple[int, int]], bound: int
) -> None:
    """This holds even after impossible reports."""
    share = LearntShare()
    for pair in seen:
        share.learn(*pair)
    assert 0 <= share.share <= 1
    assert 0 <= share.expected(bound) <= bound
    assert isinstance(share.expected(bound), int)


@given(st.lists(USED), st.integers(1, 10**6), st.floats(0, 1))
def test_the_expected_usage_rises_to_the_last_one_at_once(
    seen: list[tuple[int, int]], bound: int, part: float
) -> None:
    """A repeated call therefore reserves enough."""
    share = LearntShare()
    for pair in seen:
        share.learn(*pair)
    used = math.floor(bound * part)
    share.learn(bound, used)
    assert share.expected(bound) >= used


@given(st.floats(0.01, 0.9), st.integers(100, 10**5))
def test_a_steady_share_is_found(part: float, bound: int) -> None:
    """After a hundred equal calls the reservation is little above their usage."""
    share = LearntShare()
    used = math.ceil(bound * part)
    for _ in range(100):
        share.learn(bound, used)
    assert used <= share.expected(bound) <= math.ceil(1.1 * used) + 1 + bound * 1e-4


@given(st.integers(1, 10**5))
def test_one_short_reply_has_little_effect(bound: int) -> None:
    """A single small call lowers the next reservation by a tenth at most."""
    share = LearntShare()
    share.learn(bound, 0)
    assert share.expected(bound) >= 0.9 * bound
