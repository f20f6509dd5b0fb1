"""PACE for tokens, on the arithmetic alone: as if every call's tokens had been known at its start.

Periods are powers of two and instants are whole quarters, so every comparison is exact.
"""

import math

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.rates.pace import Reservation, TokenPace

pytestmark = pytest.mark.slow


@attrs.frozen
class Reserve:
    """A call starts `after` seconds after the previous step."""

    after: float
    tokens: int


@attrs.frozen
class Settle:
    """The open call at `place` (modulo their number) is over."""

    place: int
    actual: int


Step = Reserve | Settle

quarters = st.integers(0, 80).map(lambda n: n / 4)
amounts = st.integers(0, 40)
steps = st.lists(
    st.builds(Reserve, quarters, amounts) | st.builds(Settle, st.integers(0, 9), amounts),
    max_size=40,
)
rates = st.sampled_from((30.0, 60.0, 240.0, 960.0))


@attrs.define
class Call:
    """A call in the brute-force model: its time and its tokens only."""

    at: float
    tokens: int
    reservation: Reservation | None


def paid_off_at(calls: list[Call], period: float) -> float:
    """Return the state by its definition, over all calls ever made."""
    return max(
        (
            call.at + period * sum(later.tokens for later in calls[first:])
            for first, call in enumerate(calls)
        ),
        default=-math.inf,
    )


@given(rates, steps)
@example(60.0, [Reserve(0.0, 10), Reserve(20.0, 1), Settle(0, 0)])  # idle time gives no credit
@example(60.0, [Reserve(0.0, 1), Reserve(20.0, 5), Settle(0, 9)])  # an old excess paid off later
@example(60.0, [Reserve(0.0, 10), Reserve(4.0, 10), Settle(1, 0), Settle(0, 0)])
def test_the_state_is_that_of_a_reservation_of_the_actual_tokens(
    tpm: float, script: list[Step]
) -> None:
    """This holds for settlements in any order."""
    pace, now = TokenPace.per_minute(tpm), 0.0
    calls: list[Call] = []
    for step in script:
        open_calls = [call for call in calls if call.reservation is not None]
        match step:
            case Reserve(after, tokens):
                now += after
                calls.append(Call(now, tokens, pace.reserve(now, tokens)))
            case Settle(place, actual) if open_calls:
                call = open_calls[place % len(open_calls)]
                assert call.reservation is not None
                pace.settle(call.reservation, actual)
                call.tokens, call.reservation = actual, None
            case _:
                pass
        assert pace.next_token_at == paid_off_at(calls, pace.period)


@given(rates, st.integers(0, 30), st.lists(st.tuples(quarters, amounts, amounts), max_size=25))
def test_the_pace_of_tokens_holds_in_every_window(
    tpm: float, burst: int, script: list[tuple[float, int, int]]
) -> None:
    """PACE: between any two starts at most burst + time/period tokens are used."""
    pace, now = TokenPace.per_minute(tpm, burst=burst), 0.0
    starts: list[tuple[float, int]] = []
    open_calls: list[tuple[Reservation, int]] = []
    for pause, reserved, used in script:
        now = pace.earliest(now + pause)
        actual = min(used, reserved)
        starts.append((now, actual))
        open_calls.append((pace.reserve(now, reserved), actual))
        if used % 3 == 0:  # some calls are over at once, in any order; some never
            pace.settle(*open_calls.pop(used % len(open_calls)))
    for last, (end, _) in enumerate(starts):
        for first, (begin, _) in enumerate(starts[:last]):
            taken = sum(actual for _, actual in starts[first:last])
            assert taken <= (end - begin) / pace.period + burst


@given(rates, st.integers(0, 30), st.lists(st.tuples(quarters, amounts), min_size=1, max_size=25))
def test_tokens_delay_no_longer_than_needed(
    tpm: float, burst: int, script: list[tuple[float, int]]
) -> None:
    """EAGER: a start is at its arrival, or exactly where some window is full."""
    pace, now = TokenPace.per_minute(tpm, burst=burst), 0.0
    calls: list[Call] = []
    for pause, tokens in script:
        arrival = now + pause
        now = pace.earliest(arrival)
        bound = paid_off_at(calls, pace.period) - burst * pace.period
        assert now == max(arrival, bound)
        calls.append(Call(now, tokens, pace.reserve(now, tokens)))


@given(rates, steps, st.floats(-1e6, 1e6))
def test_reading_the_pace_of_tokens_changes_nothing(
    tpm: float, script: list[Step], now: float
) -> None:
    """`earliest` has no effect and never lies before now."""
    pace, at = TokenPace.per_minute(tpm), 0.0
    for step in script:
        if isinstance(step, Reserve):
            at += step.after
            pace.reserve(at, step.tokens)
    before = pace.next_token_at
    assert pace.earliest(now) == max(now, before)
    assert pace.next_token_at == before


def test_a_call_larger_than_a_minute_starts_alone_and_is_paid_off() -> None:
    """A call larger than a minute's tokens waits for earlier debt, and later calls wait for its own."""
    pace = TokenPace.per_minute(60)
    assert not pace.fits(61)
    assert pace.fits(60)
    pace.reserve(0.0, 5)
    assert pace.earliest(0.0) == 5.0
    pace.reserve(5.0, 600)
    assert pace.earliest(6.0) == 605.0


def test_a_minute_of_tokens_fits_at_any_rate() -> None:
    """A call of a minute's declared tokens fits, whatever its period rounds to."""
    assert all(TokenPace.per_minute(tpm).fits(tpm) for tpm in range(1, 10_000))


def test_unused_tokens_are_returned_without_credit_for_idle_time() -> None:
    """A late refund does not make a burst."""
    pace = TokenPace.per_minute(60)
    early = pace.reserve(0.0, 10)
    pace.reserve(100.0, 3)
    pace.settle(early, 0)
    assert pace.next_token_at == 103.0


def test_a_reservation_is_settled_once() -> None:
    """A second settlement, or one of another lane's reservation, raises an internal error."""
    pace = TokenPace.per_minute(60)
    reservation = pace.reserve(0.0, 10)
    with pytest.raises(RuntimeError, match=r"^a reservation of tokens was settled twice; "):
        TokenPace.per_minute(60).settle(reservation, 1)
    pace.settle(reservation, 1)
    with pytest.raises(RuntimeError, match=r"^a reservation of tokens was settled twice; "):
        pace.settle(reservation, 1)
    assert pace.next_token_at == 1.0
