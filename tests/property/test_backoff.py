"""Back-off, on the arithmetic alone: bounded, growing, never before the server's own wait."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.errors import PlanError
from trioeval.rates.backoff import Backoff

pytestmark = pytest.mark.slow

seconds = st.floats(0, 1e308) | st.sampled_from((0.0, 5e-324, 0.5, 1.0, 60.0))
backoffs = st.builds(lambda one, other: Backoff(min(one, other), max(one, other)), seconds, seconds)
attempts = st.integers(0, 20) | st.integers(0, 10**30)
spreads = st.floats(0, 1, exclude_max=True)


@given(backoffs, attempts, spreads)
@example(Backoff(5e-324, 1e308), 10**30, 0.5)
@example(Backoff(0.0, 0.0), 10**30, 0.5)
def test_delay_is_finite_and_within_the_cap(backoff: Backoff, attempt: int, spread: float) -> None:
    """After any number of failures the delay is a number from 0 to the cap."""
    assert 0 <= backoff.delay(attempt, spread) <= backoff.cap < math.inf


@given(backoffs, attempts, attempts, spreads)
def test_delay_never_shrinks_with_failures(
    backoff: Backoff, one: int, other: int, spread: float
) -> None:
    """For one random number, more failures never wait less."""
    fewer, more = sorted((one, other))
    assert backoff.delay(fewer, spread) <= backoff.delay(more, spread)


@given(backoffs, st.integers(0, 60), spreads)
def test_delay_is_the_share_of_the_doubled_base(
    backoff: Backoff, attempt: int, spread: float
) -> None:
    """Full jitter: the random share applies to the whole bound, and the bound doubles."""
    assert backoff.delay(attempt, spread) == spread * min(backoff.cap, backoff.base * 2**attempt)


@given(backoffs, attempts, spreads, st.floats(0, 100))
def test_delay_is_bounded_by_the_seconds_of_failures(
    backoff: Backoff, attempt: int, spread: float, failing_for: float
) -> None:
    """Unless these are fewer than the base, from which the first delay is drawn."""
    delay = backoff.delay(attempt, spread, failing_for)
    assert delay <= max(backoff.base, failing_for)
    assert delay == min(backoff.delay(attempt, spread), spread * max(backoff.base, failing_for))


@given(backoffs, st.floats(0, 1e308), spreads)
def test_after_hint_is_never_before_the_hint(backoff: Backoff, hint: float, spread: float) -> None:
    """The server's wait is observed in full, and exceeded by a second or a fifth of it at most."""
    wait = backoff.after_hint(hint, spread)
    assert hint <= wait <= hint + min(1.0, hint / 5) < math.inf


@given(
    st.floats() | st.sampled_from((-1.0, math.nan, math.inf)),
    st.floats() | st.sampled_from((math.nan, math.inf)),
)
def test_backoff_takes_exactly_the_bounds_in_range(base: float, cap: float) -> None:
    """0 ≤ base ≤ cap, both finite; all other bounds are rejected."""
    if 0 <= base <= cap < math.inf:
        Backoff(base, cap)
    else:
        with pytest.raises(PlanError, match=r"^backoff: (base|cap) must be at least "):
            Backoff(base, cap)


def test_rejected_bounds_are_named_with_value_and_range() -> None:
    """The message is about the bound that is invalid."""
    with pytest.raises(PlanError) as base:
        Backoff(base=-1.0)
    assert str(base.value) == "backoff: base must be at least 0 seconds and finite, got -1.0"
    with pytest.raises(PlanError) as cap:
        Backoff(base=2.0, cap=1.0)
    assert str(cap.value) == (
        "backoff: cap must be at least base (2.0) seconds and finite, got 1.0"
    )
