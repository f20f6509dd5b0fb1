import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.providers.http.rate_hints import read_duration, read_hints, read_spent_reset
from trioeval.rates.throttle import Allowance, RateHint

DATE = "Fri, 07 Aug 2026 20:59:30 GMT"
DAY = 86400.0
MONTH = 30 * DAY


def requests(**facts: float) -> RateHint:
    return RateHint(requests=Allowance(**facts))


def tokens(**facts: float) -> RateHint:
    return RateHint(tokens=Allowance(**facts))


@pytest.mark.parametrize(
    ("headers", "hint"),
    [
        (
            {
                "x-ratelimit-limit-requests": "5000",
                "x-ratelimit-remaining-requests": "4999",
                "x-ratelimit-reset-requests": "12ms",
                "x-ratelimit-reset-tokens": "6m0s",
            },
            RateHint(Allowance(5000, 4999, 0.012), Allowance(reset_after=360)),
        ),
        ({"x-ratelimit-remaining-tokens": "0", "retry-after-ms": "3"}, tokens(remaining=0)),
        (
            {"x-ratelimit-reset-requests": "2m59.56s", "x-ratelimit-limit-tokens": "18000"},
            RateHint(Allowance(reset_after=179.56), Allowance(18000)),
        ),
        (
            {
                "date": DATE,
                "anthropic-ratelimit-requests-limit": "50",
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-08-07T21:00:00Z",
            },
            requests(limit=50, remaining=0, reset_after=30),
        ),
        (
            {
                "x-ratelimit-limit-req-minute": "720",
                "x-ratelimit-remaining-req-minute": "717",
                "x-ratelimit-limit-tokens-month": "1000",
                "x-ratelimit-remaining-tokens-month": "900",
                "x-ratelimit-tokens-query-cost": "52",
            },
            RateHint(Allowance(720, 717), Allowance(1000, 900, window=MONTH)),
        ),
        (
            {
                "x-ratelimit-limit": "10",
                "x-ratelimit-remaining": "9",
                "x-ratelimit-reset": "1.2",
                "x-tokenlimit-limit": "100",
                "x-tokenlimit-remaining": "7",
            },
            RateHint(Allowance(10, 9, 1.2), Allowance(100, 7)),
        ),
        (
            {
                "date": DATE,
                "x-ratelimit-remaining-tokens-per-minute": "5",
                "x-ratelimit-limit-requests-day": "1000",
                "x-ratelimit-reset-requests-day": "1786136400",
            },
            RateHint(Allowance(1000, reset_after=30, window=DAY), Allowance(remaining=5)),
        ),
        ({"x-ratelimit-reset-requests-day": "33011.5"}, requests(reset_after=33011.5, window=DAY)),
        (
            {"date": DATE, "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1786136400000"},
            requests(remaining=0, reset_after=30),
        ),
        (
            {"ratelimit": '"default";r=50;t=30', "ratelimit-policy": '"default";q=100;w=10'},
            requests(limit=100, remaining=50, reset_after=30, window=10),
        ),
        (
            {
                "ratelimit": '"hour"; r=50; t=1800, "burst"; r=1; t=2',
                "ratelimit-policy": '"burst";q=5;w=10,"hour";q=100;w=3600',
            },
            requests(limit=5, remaining=1, reset_after=2, window=10),
        ),
        ({"ratelimit": "default;r=5;t=30"}, requests(remaining=5, reset_after=30)),
        ({"ratelimit": 'a"b"c;r=5, "d";r=6'}, requests(remaining=6)),
        (
            {"ratelimit": '"a";r=5', "ratelimit-policy": '"a";q=9;qu="content-bytes"'},
            RateHint(),
        ),
        (
            {"ratelimit-limit": "100, 100;w=60", "ratelimit-remaining": "50, 1"},
            requests(limit=100, remaining=50),
        ),
        ({"ratelimit-reset": "30"}, requests(reset_after=30)),
        ({}, RateHint()),
    ],
)
def test_each_spelling_of_a_limit_is_understood(headers: Mapping[str, str], hint: RateHint) -> None:
    """Services have different names for the same limits, remaining amounts, resets and windows."""
    assert read_hints(headers) == hint


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("0", 0),
        (" 1.5 ", 1.5),
        ("999999999", 999_999_999),
        ("1786136400", 30),
        ("1786136400.5", 30.5),
        ("1786136400000", 30),
        ("1786136000", 0),
        ("2026-08-07T21:00:00Z", 30),
        ("2026-08-07t22:00:00.500+01:00", 30.5),
        ("Fri, 07 Aug 2026 21:00:00 GMT", 30),
        ("2026-08-07T20:00:00Z", 0),
        ("2029-08-07T21:00:00Z", None),
        ("Tue, 07 Aug 2029 21:00:00 GMT", None),
        ("1886136400", None),
        ("99999999999999999999", None),
        ("2026-08-07T21:00:00", None),
        ("2026-13-45T21:00:00Z", None),
        ("2026-08-07", None),
        ("2026", 2026),
        ("2s soon", None),
        ("-1", None),
        ("-5s", None),
        ("inf", None),
        ("nan", None),
        ("1e3", None),
        ("", None),
    ],
)
def test_a_reset_becomes_seconds_from_the_reply(reset: str, seconds: float | None) -> None:
    """Durations, instants and dates give the same; no text is read by its leading digits alone."""
    read = read_hints({"date": DATE, "x-ratelimit-reset": reset}).requests
    assert read == (None if seconds is None else Allowance(reset_after=seconds))


@pytest.mark.parametrize("date", ["", "yesterday", "2026-08-07T20:59:30Z"])
@pytest.mark.parametrize(
    "reset",
    ["1786136400", "1786136400000", "2026-08-07T21:00:00Z", "Fri, 07 Aug 2026 21:00:00 GMT"],
)
def test_an_instant_is_ignored_without_the_date_of_the_reply(date: str, reset: str) -> None:
    """The clock of this machine is not used for the server's."""
    assert read_hints({"date": date, "x-ratelimit-reset": reset}) == RateHint()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h2m3.5s", 3723.5),
        ("6m0s", 360),
        ("2H", 7200),
        ("500ms", 0.5),
        ("2m500ms", 120.5),
        ("38s", 38),
        ("0s", 0),
        ("3s2m", None),
        ("1.2.3s", None),
        (".5s", None),
        ("5", None),
        ("5 s", None),
        ("5d", None),
        ("s", None),
        ("-5s", None),
        ("999999999h", None),
        ("", None),
    ],
)
def test_a_duration_has_units_in_their_order(text: str, seconds: float | None) -> None:
    """At least one unit, the larger ones first."""
    assert read_duration(text) == seconds


@pytest.mark.parametrize("garbage", ["-1", "inf", "nan", "", "1.5", "1e3", "many", "9" * 5000])
def test_invalid_counts_are_ignored(garbage: str) -> None:
    """A limit and its remaining amount are whole numbers, or are ignored."""
    for fact in ("limit", "remaining"):
        assert read_hints({f"x-ratelimit-{fact}-requests": garbage}) == RateHint()
    assert read_hints({"x-ratelimit-limit-requests": "0"}) == RateHint()


@pytest.mark.parametrize(
    "name",
    [
        "x-ratelimit-limit-images",
        "x-ratelimit-limit-requests-per",
        "x-ratelimit-limit-requests-year",
        "x-ratelimit-limit-requestsminute",
        "my-x-ratelimit-limit-requests",
        "x-limit",
    ],
)
def test_an_invalid_header_name_is_ignored(name: str) -> None:
    """A limit of an unknown dimension does not count as one of requests."""
    assert read_hints({name: "5"}) == RateHint()


def test_the_scarcest_of_several_limits_is_kept() -> None:
    """It stops the lane first; of two exhausted limits the one with the later reset is kept."""
    headers = {
        "anthropic-ratelimit-tokens-limit": "1000",
        "anthropic-ratelimit-tokens-remaining": "900",
        "anthropic-ratelimit-input-tokens-limit": "800",
        "anthropic-ratelimit-input-tokens-remaining": "400",
        "anthropic-ratelimit-output-tokens-limit": "200",
        "anthropic-ratelimit-output-tokens-remaining": "20",
        "x-ratelimit-limit-tokens-day": "5",
    }
    assert read_hints(headers) == tokens(limit=200, remaining=20)
    spent = {
        "x-ratelimit-remaining-input-tokens": "0",
        "x-ratelimit-reset-input-tokens": "2s",
        "x-ratelimit-remaining-tokens-day": "0",
        "x-ratelimit-reset-tokens-day": "1h0m",
        "x-ratelimit-remaining-output-tokens": "0",
    }
    assert read_hints({**headers, **spent}) == tokens(
        limit=5, remaining=0, reset_after=3600, window=DAY
    )


def test_a_window_without_a_name_comes_from_the_table() -> None:
    """Groq counts requests per day and tokens per minute, and documents neither in its headers."""
    headers = {"x-ratelimit-limit-requests": "14400", "x-ratelimit-limit-tokens": "18000"}
    assert read_hints(headers) == RateHint(Allowance(14400), Allowance(18000))
    expected = RateHint(Allowance(14400, window=DAY), Allowance(18000))
    assert read_hints(headers, host="api.groq.com") == expected
    named = {"x-ratelimit-limit-requests-minute": "30"}
    assert read_hints(named, host="api.groq.com") == requests(limit=30)


def test_the_reset_of_an_exhausted_limit_is_found() -> None:
    """Of several exhausted limits the longest wait counts, never that of another limit."""
    spent = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1s"}
    left = {"x-ratelimit-remaining-tokens": "7", "x-ratelimit-reset-tokens": "6m0s"}
    assert read_spent_reset({**spent, **left}) == 1
    assert read_spent_reset(left) is None
    assert read_spent_reset({"x-ratelimit-remaining": "0", **left}) is None
    day = {"x-ratelimit-remaining-tokens-day": "0", "x-ratelimit-reset-tokens-day": "2s"}
    assert read_spent_reset({**spent, **day}) == 2


FACTS = st.sampled_from(["limit", "remaining", "reset"])
NAMES = st.one_of(
    FACTS.map(lambda fact: f"x-ratelimit-{fact}-requests"),
    FACTS.map(lambda fact: f"anthropic-ratelimit-tokens-{fact}"),
    st.sampled_from(["date", "ratelimit", "ratelimit-policy", "x-tokenlimit-reset"]),
    st.text(),
)
VALUES = st.one_of(
    st.text(),
    st.text("0123456789.hms-+:TZ;,=rtqw\"' ", max_size=30),
    st.floats().map(str),
    st.integers().map(str),
    st.datetimes().map(lambda at: f"{at.isoformat()}Z"),
    st.just(DATE),
)


@pytest.mark.slow
@given(st.dictionaries(NAMES, VALUES, max_size=8))
def test_any_headers_can_be_read(headers: dict[str, str]) -> None:
    """Every number of a hint is in its range or absent, whatever a server sends."""
    hint = read_hints(headers)
    for one in (hint.requests, hint.tokens):
        if one is not None:
            assert 0 < one.window < math.inf
            assert one.limit is None or 0 < one.limit < math.inf
            assert one.remaining is None or 0 <= one.remaining < math.inf
            assert one.reset_after is None or 0 <= one.reset_after < math.inf
