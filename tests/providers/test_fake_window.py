import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.providers.fake.limits import (
    Limits,
    RollingWindow,
    TokenBucket,
    format_duration,
    retry_headers,
)
from trioeval.providers.fake.settings import FakeSettings

ASKS = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 12)), max_size=30)


def run(limit: int, length: int, asks: list[tuple[int, int]]) -> list[tuple[int, int, float]]:
    """Return time, amount and wait of each request, after pauses of whole seconds."""
    window, now, seen = RollingWindow(limit, length), 0, []
    for pause, amount in asks:
        now += pause
        wait = window.wait(now, amount)
        if wait == 0:
            window.take(now, amount)
        seen.append((now, amount, wait))
    return seen


@pytest.mark.slow
@given(st.integers(1, 10), st.integers(1, 10), ASKS)
def test_no_window_holds_more_than_the_limit(
    limit: int, length: int, asks: list[tuple[int, int]]
) -> None:
    """No window of this length contains more than the limit."""
    taken = [(at, amount) for at, amount, wait in run(limit, length, asks) if wait == 0]
    for start, _ in taken:
        assert sum(amount for at, amount in taken if start <= at < start + length) <= limit


@pytest.mark.slow
@given(st.integers(1, 10), st.integers(1, 10), ASKS)
def test_an_amount_that_fits_is_not_refused(
    limit: int, length: int, asks: list[tuple[int, int]]
) -> None:
    """An amount is refused only if the window that ends now has no room for it."""
    seen = run(limit, length, asks)
    for index, (now, amount, wait) in enumerate(seen):
        used = sum(part for at, part, w in seen[:index] if w == 0 and now - length < at)
        assert (wait == 0) == (used + amount <= limit)


@pytest.mark.slow
@given(st.integers(1, 10), st.integers(1, 10), ASKS, st.integers(1, 10))
def test_a_wait_is_exactly_long_enough(
    limit: int, length: int, asks: list[tuple[int, int]], amount: int
) -> None:
    """After the wait the amount fits, and not before."""
    window, now = RollingWindow(limit, length), 0
    for pause, part in asks:
        now += pause
        if window.wait(now, part) == 0:
            window.take(now, part)
    wait = window.wait(now, amount)
    if amount > limit:
        assert wait > 0
    elif wait > 0:
        assert window.wait(now + wait - 0.5, amount) > 0
        assert window.wait(now + wait, amount) == 0


@pytest.mark.slow
@given(st.integers(1, 8), st.integers(1, 16), st.lists(st.integers(0, 8), max_size=40))
def test_a_bucket_admits_exactly_its_burst_and_its_rate(
    burst: int, limit: int, pauses: list[int]
) -> None:
    """In any span T at most burst + T × rate is taken; no amount that fits is refused."""
    bucket, now, taken = TokenBucket(limit, 8.0, burst), 0.0, [0.0]
    for pause in pauses:
        now += pause / 4
        wait = bucket.wait(now, 1)
        if wait == 0:
            bucket.take(now, 1)
            taken.append(now)
        else:
            assert bucket.remaining(now) == 0
            assert bucket.wait(now + wait / 2, 1) > 0
            assert bucket.wait(now + wait, 1) == 0
            now += wait
    instants = taken[1:]
    for first, start in enumerate(instants):
        for last in range(first, len(instants)):
            span = instants[last] - start
            assert last - first + 1 <= burst + span * limit / 8 + 1e-6


def test_a_bucket_fills_evenly_up_to_its_burst() -> None:
    """Units are refilled at the rate, up to the burst."""
    bucket = TokenBucket(limit=60, length=60.0, burst=4)
    for _ in range(4):
        bucket.take(10.0, 1)
    assert (bucket.remaining(10.0), bucket.wait(10.0, 1), bucket.until_empty(10.0)) == (0, 1, 4)
    assert (bucket.remaining(11.5), bucket.wait(11.5, 2), bucket.until_empty(11.5)) == (1, 0.5, 2.5)
    assert (bucket.remaining(99.0), bucket.wait(99.0, 4), bucket.until_empty(99.0)) == (4, 0, 0)


def test_headers_contain_limit_remaining_amount_and_reset() -> None:
    """Each limit has three headers; a refused request takes nothing."""
    limits = Limits.of(FakeSettings(rpm=2, tpm=10, window_s=60))
    assert limits.take(0.0, 4) is None
    excess = limits.take(1.5, 7)
    assert excess is not None
    assert (excess.dimension, excess.limit, excess.wait) == ("tokens", 10, 58.5)
    assert limits.headers(1.5) == (
        ("x-ratelimit-limit-requests", "2"),
        ("x-ratelimit-remaining-requests", "1"),
        ("x-ratelimit-reset-requests", "58.5s"),
        ("x-ratelimit-limit-tokens", "10"),
        ("x-ratelimit-remaining-tokens", "6"),
        ("x-ratelimit-reset-tokens", "58.5s"),
    )
    assert Limits.of(FakeSettings()).headers(0.0) == ()


def test_a_bucket_of_requests_reports_its_rate_and_remaining_amount() -> None:
    """The limit is per minute; the remaining amount never exceeds the burst."""
    limits = Limits.of(FakeSettings(rpm=120, burst=2))
    assert [limits.take(0.0, 1), limits.take(0.0, 1)] == [None, None]
    excess = limits.take(0.25, 1)
    assert excess is not None
    assert (excess.dimension, excess.limit, excess.wait) == ("requests", 120, 0.25)
    assert limits.headers(0.5) == (
        ("x-ratelimit-limit-requests", "120"),
        ("x-ratelimit-remaining-requests", "1"),
        ("x-ratelimit-reset-requests", "500ms"),
    )


def test_waits_are_rounded_up_in_headers() -> None:
    """Waiting as long as a header says always suffices."""
    assert retry_headers(1.2345) == (("retry-after", "2"), ("retry-after-ms", "1235"))
    durations = [0, 0.0115, 1.5, 59.999, 60, 360, 3661.25]
    assert [format_duration(seconds) for seconds in durations] == [
        "0ms",
        "12ms",
        "1.5s",
        "59.999s",
        "1m0s",
        "6m0s",
        "61m1.25s",
    ]
