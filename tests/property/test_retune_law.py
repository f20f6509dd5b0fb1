"""PACE while rates change: earlier starts still count, and from then on the new rate applies.

Periods are powers of two and instants are whole quarters, so every comparison is exact.
"""

import attrs
import pytest
import trio
import trio.lowlevel
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trioeval.kernel import Calls, Job, Lanes, LaneSpec, Plan, collect
from trioeval.rates import Pace, TokenPace
from trioeval.rates.pace import Reservation
from trioeval.testing import run_virtual

pytestmark = pytest.mark.slow

RATES = (30.0, 60.0, 240.0, 960.0)

rates = st.sampled_from(RATES)
quarters = st.integers(0, 40).map(lambda n: n / 4)
changes = st.lists(st.tuples(quarters, rates), max_size=4).map(sorted)
arrivals = st.lists(quarters, min_size=1, max_size=40).map(sorted)


def allowed(changes: list[tuple[float, float]], first: float, begin: float, end: float) -> float:
    """Return the number of requests that the rates of a period allow."""
    total, rate, since = 0.0, first, begin
    for at, new in changes:
        if begin < at <= end:
            total += (at - since) * rate / 60
            since = at
        if at <= end:
            rate = new
    return total + (end - since) * rate / 60


def starts_of(pace: Pace, changes: list[tuple[float, float]], asked_at: list[float]) -> list[float]:
    """Return the start times of requests that start as early as allowed; a change wakes waiters."""
    starts: list[float] = []
    left = list(changes)
    for at in asked_at:
        now = max([at, *starts[-1:]])
        while True:
            while left and left[0][0] <= now:
                pace = pace.at(*left.pop(0))
            start = pace.earliest(now)
            if left and left[0][0] <= start:
                now = left[0][0]
                continue
            break
        pace = pace.take(start)
        starts.append(start)
    return starts


@given(rates, st.integers(1, 4), st.sampled_from((0.0, 0.25, 2.0)), changes, arrivals)
@example(60.0, 1, 0.0, [(0.5, 960.0)], [0.0, 0.0, 0.0])  # debt is requests, not seconds
@example(960.0, 4, 0.0, [(0.0, 30.0)], [0.0] * 8)  # a smaller rate gives no second burst
def test_the_pace_holds_in_every_window_across_changes_of_the_rate(
    first: float,
    burst: int,
    gap: float,
    changes: list[tuple[float, float]],
    asked_at: list[float],
) -> None:
    """PACE: no window exceeds the burst plus the sum of its rates; the minimum gap always holds."""
    starts = starts_of(Pace.per_minute(first, burst=burst, min_gap=gap), changes, asked_at)
    for one in range(len(starts)):
        for other in range(one, len(starts)):
            worth = allowed(changes, first, starts[one], starts[other])
            assert other - one + 1 <= burst + worth
        assert one == 0 or starts[one] - starts[one - 1] >= gap


@given(rates, st.integers(1, 4), changes, arrivals)
def test_a_changing_pace_delays_no_longer_than_needed(
    first: float, burst: int, changes: list[tuple[float, float]], asked_at: list[float]
) -> None:
    """EAGER: a start is at its arrival, or some window that ends with it is full."""
    starts = starts_of(Pace.per_minute(first, burst=burst), changes, asked_at)
    for place, start in enumerate(starts):
        full = any(
            place - one + 1 == burst + allowed(changes, first, starts[one], start)
            for one in range(place)
        )
        assert start == asked_at[place] or full


eighths = st.integers(0, 60).map(lambda n: n / 8)


@given(
    rates,
    st.integers(1, 4),
    st.sampled_from((0.0, 0.25)),
    st.lists(st.tuples(eighths, rates), max_size=3).map(sorted),
    st.integers(1, 12),
)
@example(1.0, 1, 0.0, [(4.0, 60.0)], 2)  # a call that waits for a minute is woken
def test_a_lane_whose_rate_changes_starts_its_calls_as_early_as_allowed(
    first: float, burst: int, gap: float, changes: list[tuple[float, float]], size: int
) -> None:
    """EAGER: a lane starts calls at the instants of the arithmetic; a change wakes waiters."""
    seen: list[float] = []

    async def main() -> None:
        spec = LaneSpec("a", size, rpm=first, burst=burst, min_gap=gap, adaptive="off")
        lanes = Lanes([spec])

        async def send() -> None:
            seen.append(trio.current_time())
            await trio.lowlevel.checkpoint()

        async def body(job: Job[None], calls: Calls[None]) -> None:
            await calls(job.lane, send)

        async def change() -> None:
            for at, rate in changes:
                await trio.sleep_until(at)
                lanes["a"].retune(rpm=rate)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            await collect(Plan.of(Job(i, "a", None) for i in range(size)), body, lanes=lanes)
            nursery.cancel_scope.cancel()

    run_virtual(main)
    pace = Pace.per_minute(first, burst=burst, min_gap=gap)
    assert seen == starts_of(pace, changes, [0.0] * size)


@given(changes.filter(bool), arrivals)
def test_a_lane_without_a_rate_can_get_one(
    changes: list[tuple[float, float]], asked_at: list[float]
) -> None:
    """PACE: a new rate applies from its instant on, and earlier starts do not count."""
    starts = starts_of(Pace.per_minute(None), changes, asked_at)
    free = [at for at in asked_at if at < changes[0][0]]
    assert starts[: len(free)] == free
    assert starts[len(free) :] == starts_of(
        Pace.per_minute(changes[0][1]),
        changes[1:],
        [max(at, changes[0][0]) for at in asked_at[len(free) :]],
    )


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


@attrs.frozen
class Retune:
    """The rate changes `after` seconds after the previous step."""

    after: float
    tpm: float


Step = Reserve | Settle | Retune

amounts = st.integers(0, 40)
steps = st.lists(
    st.builds(Reserve, quarters, amounts)
    | st.builds(Settle, st.integers(0, 9), amounts)
    | st.builds(Retune, quarters, rates),
    max_size=30,
)


@attrs.define
class Call:
    """A call in the brute-force model."""

    at: float
    tokens: int
    reservation: Reservation | None


def owed(calls: list[Call], changes: list[tuple[float, float]], first: float, now: float) -> float:
    """Return the debt of tokens by its definition: a queue that is emptied at the rates of its time."""
    debt, since = 0.0, calls[0].at if calls else now
    for call in calls:
        debt = max(0.0, debt - allowed(changes, first, since, call.at)) + call.tokens
        since = call.at
    return max(0.0, debt - allowed(changes, first, since, now))


@settings(max_examples=settings().max_examples // 2)
@given(rates, steps)
@example(
    60.0, [Reserve(0.0, 40), Retune(0.0, 960.0)]
)  # a call after an increase of the rate does not wait for the old one
@example(60.0, [Reserve(0.0, 40), Retune(4.0, 960.0), Settle(0, 2)])
@example(
    60.0, [Reserve(0.0, 2), Retune(8.0, 960.0), Settle(0, 40)]
)  # an old excess, after a change
def test_the_debt_of_tokens_is_exact_across_changes(first: float, script: list[Step]) -> None:
    """PACE: reservations, settlements and changes of the rate give the debt of a simple queue of tokens."""
    pace, now = TokenPace.per_minute(first), 0.0
    calls: list[Call] = []
    changes: list[tuple[float, float]] = []
    for step in script:
        open_calls = [call for call in calls if call.reservation is not None]
        match step:
            case Reserve(after, tokens):
                now += after
                calls.append(Call(now, tokens, pace.reserve(now, tokens)))
            case Retune(after, tpm):
                now += after
                pace.retune(now, tpm)
                changes.append((now, tpm))
                assert (pace.tpm, pace.fits(int(tpm)), pace.fits(int(tpm) + 1)) == (
                    tpm,
                    True,
                    False,
                )
            case Settle(place, actual) if open_calls:
                call = open_calls[place % len(open_calls)]
                assert call.reservation is not None
                pace.settle(call.reservation, actual)
                call.tokens, call.reservation = actual, None
            case _:
                pass
        waits = pace.earliest(now) - now
        assert waits == owed(calls, changes, first, now) * pace.period
