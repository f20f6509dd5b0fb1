"""Replies, tokens and redirects of services, without a network."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import ProviderError
from trioeval.providers.base import Reply
from trioeval.providers.generic.auth import (
    TokenRequest,
    TokenSource,
    fetch_token,
    read_token,
    token_request,
)
from trioeval.providers.generic.http import OriginGuard, next_request
from trioeval.providers.generic.reply import (
    ReplyReading,
    TransformError,
    read_answer,
    read_transform,
)
from trioeval.providers.http.wire import HttpReply, HttpRequest
from trioeval.providers.prices import Price
from trioeval.scripting.javascript import Script
from trioeval.usage import Usage

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["output", "error", "tokenUsage", "cost", "a", "guardrails"]), inner
        )
    ),
    max_leaves=8,
)


TOKENLESS = "auth: no OAuth token: HTTP 200 OK: the reply has no access_token; check tokenUrl"


def arrived(status: int) -> str:
    """Return the beginning of messages about the redirects here."""
    return f"HTTP {status} from POST https://a.example/v1"


def read(reply: HttpReply, transform: str | None = None, price: Price | None = None) -> Reply:
    """Read a reply like the provider, without blocking code."""
    reading, answer = ReplyReading(price=price), read_answer(reply, {})
    reading.check(reply)
    if transform is None:
        value = reading.whole(reply, answer)
    else:
        found = read_transform(transform)
        assert not isinstance(found, str | Script)
        try:
            value = found.apply(answer)
        except TransformError as error:
            raise reading.failure("malformed_reply", str(error), reply, "") from error
    return reading.finish(value, reply, answer)


def reply(data: Any, status: int = 200, **headers: str) -> HttpReply:
    return HttpReply(status, headers, json.dumps(data).encode())


@pytest.mark.slow
@given(
    st.sampled_from([200, 204, 301, 400, 429, 503]),
    st.dictionaries(
        st.sampled_from(["content-type", "retry-after", "location", "x-ratelimit-remaining"]),
        st.text() | st.sampled_from(["application/json", "text/html; charset=nonsense", "7"]),
    ),
    st.binary() | JSON.map(lambda data: json.dumps(data).encode()),
    st.sampled_from([None, "json", "json.a[0]", "text", "$..a", "jmespath:a.b"]),
)
def test_every_reply_is_an_output_or_a_provider_error(
    status: int, headers: Mapping[str, str], body: bytes, transform: str | None
) -> None:
    """No reply raises another exception."""
    try:
        found = read(HttpReply(status, headers, body), transform)
    except ProviderError:
        return
    json.dumps([found.output, found.raw, dict(found.metadata)]).encode()


def test_an_object_with_an_output_may_have_other_fields() -> None:
    """The keys are those of a Python function."""
    found = read(
        reply(
            {
                "output": "o",
                "tokenUsage": {"total": 5, "prompt": 3, "completion": 2},
                "cost": 0.25,
                "finishReason": "stop",
                "isRefusal": True,
                "guardrails": {"flagged": True, "reason": "r"},
                "metadata": {"id": 7},
            }
        )
    )
    assert found.output == "o"
    assert found.usage == Usage(prompt=3, completion=2, total=5)
    assert (found.cost, found.finish_reason, found.is_refusal) == (0.25, "stop", True)
    assert found.guardrails is not None
    assert found.guardrails.reason == "r"
    assert found.metadata == {"http": {"status": 200, "headers": {}}, "id": 7}
    assert found.raw["cost"] == 0.25


@pytest.mark.parametrize(
    ("fields", "cost"), [({"cost": 7}, 7.0), ({}, 3.0), ({"tokenUsage": {"total": 1}}, None)]
)
def test_a_cost_follows_from_the_price_if_the_reply_has_none(
    fields: dict[str, Any], cost: float | None
) -> None:
    """An unknown cost is None."""
    usage = {"prompt": 1_000_000, "completion": 500_000}
    found = read(
        reply({"output": "o", "tokenUsage": usage, **fields}), price=Price(input=2, output=2)
    )
    assert found.cost == cost


@pytest.mark.parametrize(
    ("data", "output"),
    [({"a": 1}, {"a": 1}), ([], []), (0, 0), ("", ""), ({"error": None, "a": 1}, {"error": None, "a": 1})],
)  # fmt: skip
def test_json_is_the_output_by_default(data: Any, output: Any) -> None:
    """An empty value is an output too."""
    assert read(reply(data)).output == output


def test_a_text_is_read_in_its_own_charset() -> None:
    """UTF-8 is used without a charset, or with an unknown one."""
    for kind, body in [
        ("text/plain; charset=latin-1", "é".encode("latin-1")),
        ("text/plain", "é".encode()),
        ("text/plain; charset=none", "é".encode()),
    ]:
        assert read(HttpReply(200, {"content-type": kind}, body)).output == "é"


ASKED = TokenRequest(url="http://a.example/t", client_id="a:b", client_secret="s e")  # noqa: S106 - made up


def test_a_token_is_requested_according_to_the_standard() -> None:
    """Both credentials are encoded before they are joined."""
    request = token_request(ASKED)
    assert request.headers["authorization"] == "Basic YSUzQWI6cyUyMGU="
    assert (request.method, request.body) == ("POST", b"grant_type=client_credentials")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            reply({"error": "invalid_client"}, 400),
            "auth: no OAuth token: HTTP 400 Bad Request: invalid_client",
        ),
        (reply({}, 503), "server: no OAuth token: HTTP 503 Service Unavailable"),
        (reply({}, 429), "rate_limited: no OAuth token: HTTP 429 Too Many Requests"),
        (reply({"token": "x"}), TOKENLESS),
        (
            reply({"access_token": "a\nb"}),
            TOKENLESS,
        ),
        (HttpReply(200, {}, b"<html>"), TOKENLESS),
    ],
)
def test_a_reply_without_a_token_is_a_failure(answer: HttpReply, message: str) -> None:
    """It is transient if the status is, and `auth` otherwise."""
    with pytest.raises(ProviderError) as caught:
        read_token(answer, "s e")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("life", "until"), [(3600, 3540), (100, 90), (None, 10**6), (-1, 10**6), ("5", 10**6)]
)
def test_a_token_is_replaced_before_it_expires(life: Any, until: float) -> None:
    """It is replaced a minute before, or a tenth of its lifetime; without an expiry never."""

    async def main() -> None:
        fetched = 0

        async def send(_request: HttpRequest) -> HttpReply:
            nonlocal fetched
            await trio.lowlevel.checkpoint()
            fetched += 1
            return reply({"access_token": f"t{fetched}", "expires_in": life})

        source = TokenSource(partial(fetch_token, ASKED, send))
        assert (await source.token()).value == "t1"
        await trio.sleep(until - 0.001)
        assert (await source.token()).value == "t1"
        await trio.sleep(0.001)
        assert (await source.token()).value == ("t2" if until < 10**6 else "t1")

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_refused_token_request_is_repeated_by_the_next_call() -> None:
    """Waiting calls share the failure; later calls try again."""

    async def main() -> None:
        answers = iter([reply({}, 503), reply({"access_token": "t"})])
        tokens: list[str] = []

        async def send(_request: HttpRequest) -> HttpReply:
            await trio.sleep(1)
            return next(answers)

        source = TokenSource(partial(fetch_token, ASKED, send))

        async def ask() -> None:
            try:
                tokens.append((await source.token()).value)
            except ProviderError as error:
                tokens.append(error.kind)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
        assert tokens == ["server"] * 3
        await ask()
        assert tokens[3:] == ["t"]

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


HERE = HttpRequest(
    "https://a.example/x/y?k=1", {"X-Own": "s", "cookie": "c", "content-type": "t"}, b"b", "POST"
)


@pytest.mark.parametrize(
    ("status", "location", "url", "names", "method"),
    [
        (307, "/z", "https://a.example/z", {"X-Own", "cookie", "content-type"}, "POST"),
        (308, "z?q", "https://a.example/x/z?q", {"X-Own", "cookie", "content-type"}, "POST"),
        (302, "?q", "https://a.example/x/y?q", {"X-Own", "cookie"}, "GET"),
        (301, "https://A.example:443/#f", "https://A.example:443/", {"X-Own", "cookie"}, "GET"),
        (303, "https://a.example:444/", "https://a.example:444/", set(), "GET"),
        (307, "//b.example/ü", "https://b.example/%C3%BC", {"content-type"}, "POST"),
    ],
)
def test_a_redirect_makes_the_next_request(
    status: int, location: str, url: str, names: set[str], method: str
) -> None:
    """An origin is scheme, host and port; another one requires `followRedirects: any`."""
    answer = HttpReply(status, {"location": location}, b"", "POST https://a.example/v1")
    within, anywhere = (
        OriginGuard(frozenset({"x-own"}), elsewhere=allowed) for allowed in (False, True)
    )
    request = next_request(HERE, answer, anywhere)
    assert (request.url, set(request.headers), request.method) == (url, names, method)
    assert (request.body is None) == (method == "GET")
    if "x-own" in {name.lower() for name in names}:  # the same origin
        assert next_request(HERE, answer, within) == request
        return
    with pytest.raises(ProviderError) as caught:
        next_request(HERE, answer, within)
    assert str(caught.value).startswith(f"bad_request: {arrived(status)}: redirect to https://")
    assert str(caught.value).endswith("or allow it with followRedirects: any")


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("javascript:x", "redirect to a URL that is not a valid http or https URL; check the URL"),
        (
            "https://me:pw@a.example/",
            "redirect to a URL that is not a valid http or https URL; check the URL",
        ),
        ("http://[", "redirect to a URL that is not a valid http or https URL; check the URL"),
        (
            "http://a.example/?secret",
            (
                "redirect from https to http://a.example/, which is not encrypted; "
                "use the https URL of the service"
            ),
        ),
    ],
)
def test_a_redirect_to_a_forbidden_url_is_refused(location: str, message: str) -> None:
    """Other schemes, private addresses and unencrypted URLs are refused."""
    with pytest.raises(ProviderError) as caught:
        next_request(
            HERE,
            HttpReply(307, {"location": location}, b"", "POST https://a.example/v1"),
            OriginGuard(),
        )
    assert str(caught.value) == f"bad_request: {arrived(307)}: {message}"


ELSEWHERE = "https://b.example/"
KEY = "pass phrase/é"
WITH_KEY = json.dumps({"account": KEY}).encode()


def test_headers_that_contain_a_secret_are_not_sent_elsewhere() -> None:
    """A value that contains a secret counts, even with `followRedirects: any`."""
    here = HttpRequest(HERE.url, {"X-Acct": f"<{KEY}>", "X-Team": "blue"}, None, "GET")
    answer = HttpReply(302, {"location": ELSEWHERE}, b"")
    guard = OriginGuard(secrets=frozenset({KEY}), elsewhere=True)
    assert next_request(here, answer, guard).headers == {"X-Team": "blue"}


def test_a_refused_redirect_shows_no_secret_in_the_path_of_its_url() -> None:
    """A template may have put the secret there."""
    answer = HttpReply(302, {"location": ELSEWHERE}, b"", f"GET https://a.example/{KEY}")
    with pytest.raises(ProviderError) as caught:
        next_request(HERE, answer, OriginGuard(secrets=frozenset({KEY})))
    assert str(caught.value).startswith(
        "bad_request: HTTP 302 from GET https://a.example/[hidden]: "
    )


@pytest.mark.parametrize(
    ("body", "status", "location", "message"),
    [
        (
            WITH_KEY,
            307,
            ELSEWHERE,
            (
                "redirect to https://b.example:443, and the body contains a secret; "
                "if that is intended, use that URL in the suite"
            ),
        ),
        (WITH_KEY, 307, "/z", None),
        (WITH_KEY, 303, ELSEWHERE, None),
        (b"account=pass+phrase%2F%C3%A9", 308, ELSEWHERE, "and the body contains a secret"),
        (b"a=short", 308, ELSEWHERE, None),
        (
            b"{}",
            302,
            f"{ELSEWHERE}?k=pass%20phrase/%C3%A9",
            "redirect to https://b.example:443 with a secret in the URL",
        ),
    ],
)
def test_a_secret_in_a_body_or_a_url_is_not_sent_elsewhere(
    body: bytes, status: int, location: str, message: str | None
) -> None:
    """It cannot be left out, so the call fails, even with `followRedirects: any`."""
    here = HttpRequest(HERE.url, {}, body, "POST")
    answer = HttpReply(status, {"location": location}, b"", "POST https://a.example/v1")
    guard = OriginGuard(secrets=frozenset({KEY, "short"}), elsewhere=True)
    if message is None:
        assert next_request(here, answer, guard).method == ("GET" if status == 303 else "POST")
        return
    with pytest.raises(ProviderError) as caught:
        next_request(here, answer, guard)
    assert message in str(caught.value)
    assert KEY not in str(caught.value)
