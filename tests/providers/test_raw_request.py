"""Requests in wire format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.providers.generic.entry import RawRequest, read_raw_request

WHOLE = "POST /a HTTP/1.1\nHost: a.example\nX-B: c\n\nbody\n"


@pytest.mark.parametrize("text", [WHOLE, WHOLE.replace("\n", "\r\n"), f"\n\n{WHOLE}"])
def test_a_request_is_split_into_its_parts(text: str) -> None:
    """Any line ends are accepted."""
    expected = RawRequest("POST", "https://a.example/a", {"x-b": "c"}, "body")
    assert read_raw_request(text, "https") == expected


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("GET /a\nhost: b:8080", RawRequest("GET", "http://b:8080/a", {}, "")),
        (
            "GET https://b/a?x={{ y }} HTTP/1.1",
            RawRequest("GET", "https://b/a?x={{ y }}", {}, "", is_whole=True),
        ),
        ("GET {{path}} HTTP/2\nHost: {{h}}", RawRequest("GET", "http://{{h}}/{{path}}", {}, "")),
        (
            "PUT /a HTTP/1.1\nHost: b\nContent-Length: 9\nConnection: close\n\na\n\nb",
            RawRequest("PUT", "http://b/a", {}, "a\n\nb"),
        ),
    ],
)
def test_headers_of_the_connection_are_left_out(text: str, request_: RawRequest) -> None:
    """Templates are unchanged."""
    assert read_raw_request(text, "http") == request_


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", 'must begin with a method and a path, such as "POST /chat HTTP/1.1"'),
        ("post /a HTTP/1.1", 'must begin with a method and a path, such as "POST /chat HTTP/1.1"'),
        ("POST", 'must begin with a method and a path, such as "POST /chat HTTP/1.1"'),
        ("GET /a", 'has no Host header; write "Host: example.com"'),
        ("GET /a\nHost: b\nsecret", 'has an invalid header in line 3; write "Name: value"'),
        ("GET /a\nHost: b\nA: 1\na: 2", "has the header a twice"),
    ],
)
def test_an_invalid_request_is_reported(text: str, fault: str) -> None:
    """The message does not show the line, which may contain a key."""
    assert read_raw_request(text, "http") == fault


@pytest.mark.slow
@given(st.text() | st.text("GET /:\r\n"))
def test_every_text_is_a_request_or_has_a_problem(text: str) -> None:
    """No text raises another exception, and no part contains a further line."""
    read = read_raw_request(text, "http")
    if isinstance(read, RawRequest):
        assert "\n" not in read.url
        assert not any("\n" in part for pair in read.headers.items() for part in pair)
