import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.providers.http.failures import read_retry_after

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 0.5 "}, 0.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:20 GMT", "date": DATE}, 20.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:20 -0000", "date": DATE}, 20.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT", "date": DATE}, 0.0),
        ({"retry-after": "Wed, 24 Oct 2029 07:28:00 GMT", "date": DATE}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:20 GMT"}, None),
        ({"retry-after": "2026-08-07T21:00:00Z", "date": DATE}, None),
        ({"retry-after": "1785000000"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e3"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_only_unambiguous_headers_are_read(headers: dict[str, str], wait: float | None) -> None:
    """A number is seconds, a date counts from the reply's own date, other values are ignored."""
    assert read_retry_after(headers) == wait


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("Please try again in 1.5s.", 1.5),
        ("Rate limit reached. Try again in 20ms", 0.02),
        ("try again in 6m0s", 360.0),
        ("please try again in 1h2m3.5s, or raise your limit", 3723.5),
        ("retry after 20 seconds", 20.0),
        ("Retry in 2 minutes", 120.0),
        ("try again in 5 steps", None),
        ("try again in 2500000000s", None),
        ("try again later", None),
        ("slow down", None),
    ],
)
def test_a_wait_in_a_text_is_the_last_resort(text: str, wait: float | None) -> None:
    """A wait in a message is used, but never instead of a header."""
    assert read_retry_after({}, text) == (None if wait is None else pytest.approx(wait))
    assert read_retry_after({"retry-after": "3"}, text) == 3.0


def test_a_delay_in_the_body_ranks_between_headers_and_resets() -> None:
    """A field for the wait takes precedence over one that follows from limits."""
    spent = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "2s"}
    assert read_retry_after({"retry-after": "7", **spent}, "try again in 9s", delay=38.0) == 7.0
    assert read_retry_after(spent, "try again in 9s", delay=38.0) == 38.0
    assert read_retry_after(spent, "try again in 9s") == 2.0
    assert read_retry_after({}, "try again in 9s") == 9.0


def test_only_the_reset_of_an_exhausted_limit_is_a_wait() -> None:
    """The reset of a limit that is not exhausted only says when it is full again."""
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "2s",
        "x-ratelimit-remaining-tokens": "9000",
        "x-ratelimit-reset-tokens": "6m0s",
    }
    assert read_retry_after(headers) == 2.0
    assert read_retry_after({**headers, "x-ratelimit-remaining-requests": "1"}) is None
    assert read_retry_after({**headers, "x-ratelimit-remaining-tokens": "0"}) == 360.0


def test_untrusted_texts_are_not_read() -> None:
    """Without a text only headers count."""
    assert read_retry_after({}, None) is None


@pytest.mark.slow
@given(st.text(), st.text(), st.text(), st.text())
@example("", "0\x1f", "", "")  # a space for `str.strip`, none for `float`
def test_any_headers_and_text_can_be_read(
    after: str, milliseconds: str, date: str, text: str
) -> None:
    """A hint is a finite number of at least 0, or None, whatever a server sends."""
    headers = {"retry-after": after, "retry-after-ms": milliseconds, "date": date}
    wait = read_retry_after(headers, f"try again in {text}")
    assert wait is None or 0 <= wait < math.inf
