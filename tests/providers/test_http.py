import gzip
import random
import ssl
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpcore2
import pytest
import trio
from fake_runs import FakeRun, openai_provider, with_fake, with_raw_server
from loopback import Answer, serve

from trioeval.errors import Fault, ProviderError
from trioeval.providers import Request
from trioeval.providers.fake import (
    FakeAddress,
    FakeSettings,
    FillerReplies,
    GarbageReplies,
    ScriptedReplies,
)
from trioeval.providers.http.client import open_http
from trioeval.providers.http.connect_errors import explain
from trioeval.providers.http.failures import classify
from trioeval.providers.http.wire import HttpClient, HttpRequest

pytestmark = pytest.mark.network

KEY = "sk-very-secret"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the machine's proxy variables are."""
    monkeypatch.setenv("NO_PROXY", "*")


async def failure(call: Callable[[], Awaitable[Any]]) -> ProviderError:
    """Return the error of a call, after asserting that it and its causes do not contain the key."""
    with pytest.raises(ProviderError) as caught:
        await call()
    for error in chain(caught.value):
        assert KEY not in f"{error} {error!r} {vars(error)}"
    return caught.value


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def test_a_prompt_is_sent_and_its_reply_returned() -> None:
    """Request, completion and usage pass over a socket."""

    async def body(run: FakeRun) -> None:
        reply = await run.provider(apiKey=KEY)(Request(prompt="Good morning"))
        assert reply.output == "Good morning"
        assert reply.usage.prompt == 3
        assert reply.metadata["http"]["status"] == 200
        assert (await run.stats())["ok"] == 1

    with_fake(FakeSettings(), body)


def test_calls_share_a_connection_and_nothing_else() -> None:
    """A call reuses the connection, and no cookie of a reply affects the next call."""
    reply = b"HTTP/1.1 200 X\r\nset-cookie: a=b\r\ncontent-length: 2\r\n\r\n{}"
    received: list[bytes] = []

    async def keep_answering(stream: trio.SocketStream) -> None:
        received.append(b"")
        while chunk := await stream.receive_some():
            received[-1] += chunk
            if chunk.endswith(b"}"):
                await stream.send_all(reply)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
            nursery.start_soon(trio.serve_listeners, keep_answering, listeners)
            port = listeners[0].socket.getsockname()[1]
            async with open_http() as client:
                for _ in range(3):
                    await client.send(HttpRequest(f"http://127.0.0.1:{port}/", {}, b"{}"))
            nursery.cancel_scope.cancel()

    trio.run(main)
    (sent,) = received
    assert sent.count(b"POST / HTTP/1.1") == 3
    assert b"cookie" not in sent.lower()


def test_a_refused_call_has_its_wait() -> None:
    """A 429 has its wait in milliseconds."""

    async def body(run: FakeRun) -> None:
        provider = run.provider(apiKey=KEY)
        await provider(Request(prompt="a"))
        error = await failure(lambda: provider(Request(prompt="a")))
        assert (error.kind, error.status) == ("rate_limited", 429)
        assert error.retry_after is not None
        assert 30 < error.retry_after <= 60  # the server counts from the first request

    with_fake(FakeSettings(rpm=1), body)


@pytest.mark.parametrize(
    ("date", "wait"), [({}, 20.0), ({"date": "Wed, 21 Oct 2026 07:28:15 GMT"}, 5.0)]
)
def test_a_date_counts_from_the_arrival_of_a_reply_without_one(
    date: dict[str, str], wait: float
) -> None:
    """This machine's clock is used only if the server sends no date."""
    arrival = datetime(2026, 10, 21, 7, 28, 0, 750_000, UTC).timestamp()
    headers = {"retry-after": "Wed, 21 Oct 2026 07:28:20 GMT", **date}

    async def main() -> float | None:
        async with (
            serve(lambda _: Answer(429, b"", headers)) as server,
            open_http(wall_clock=lambda: arrival) as client,
        ):
            reply = await client.send(HttpRequest(server.url, {}, b"{}"))
        return classify(reply).retry_after

    assert trio.run(main) == wait


def test_a_truncated_reply_is_a_lost_connection() -> None:
    """Half a reply is not a reply, and the URL is named."""

    async def body(run: FakeRun) -> None:
        error = await failure(lambda: run.provider(apiKey=KEY)(Request(prompt="a")))
        source = f"POST {run.address.base_url}/chat/completions"
        assert str(error).startswith(
            f"connection: connection lost before the end of the reply from {source}: "
        )
        assert (await run.stats())["disconnects"] == 1

    with_fake(FakeSettings(disconnect_rate=1), body)


@pytest.mark.parametrize("kind", ["invalid_utf8", "not_json"])
def test_an_unreadable_success_is_a_malformed_reply(kind: Any) -> None:
    """It is not retried forever as a lost connection."""

    async def body(run: FakeRun) -> None:
        error = await failure(lambda: run.provider(apiKey=KEY)(Request(prompt="a")))
        source = f"HTTP 200 from POST {run.address.base_url}/chat/completions (model m-1)"
        assert str(error) == f"malformed_reply: {source}: the reply is not JSON; check apiBaseUrl"

    with_fake(FakeSettings(replies=GarbageReplies(kind)), body)


@pytest.mark.slow
def test_a_reply_of_ten_megabytes_is_accepted_if_allowed() -> None:
    """Large replies are read completely, or refused."""

    async def body(run: FakeRun) -> None:
        reply = await run.provider(maxResponseBytes=11_000_000)(Request(prompt="a"))
        assert len(reply.output) == 10_000_000
        error = await failure(lambda: run.provider()(Request(prompt="a")))
        assert str(error).endswith("is larger than 8 MiB (maxResponseBytes: 8388608)")

    with_fake(FakeSettings(replies=FillerReplies(10_000_000)), body)


@pytest.mark.parametrize(
    "sent",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 1025\r\n\r\n" + b"x" * 1025,
        b"HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n" + b"x" * 1025,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2000\r\n" + b"x" * 1025,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000,
    ],
)
def test_a_reply_above_the_bound_is_refused(sent: bytes) -> None:
    """A server cannot fill the memory, however it frames its reply."""

    async def body(address: FakeAddress, client: HttpClient) -> None:
        error = await failure(lambda: client.send(HttpRequest(address.base_url, {}, b"{}")))
        source = f"HTTP 200 from POST {address.base_url}"
        message = "the reply is larger than 0.000976562 MiB (maxResponseBytes: 1024)"
        assert str(error) == f"malformed_reply: {source}: {message}"

    with_raw_server(sent, body)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (
            b"",
            "Server disconnected without sending a response.",
        ),
        (
            b"SSH-2.0-server\r\n\r\n",
            "illegal status line: bytearray(b'SSH-2.0-server')",
        ),
    ],
)
def test_invalid_http_is_reported_with_the_address(sent: bytes, reason: str) -> None:
    """Broken servers give a readable error."""

    async def body(address: FakeAddress, client: HttpClient) -> None:
        error = await failure(
            lambda: client.send(HttpRequest(address.base_url, {"authorization": KEY}, b"{}"))
        )
        assert str(error) == (
            "connection: connection lost before the end of the reply from "
            f"POST {address.base_url}: {reason}"
        )

    with_raw_server(sent, body)


def test_redirects_are_not_followed() -> None:
    """The key is sent only to the configured host."""
    sent = b"HTTP/1.1 307 X\r\nlocation: http://elsewhere.example/\r\ncontent-length: 0\r\n\r\n"

    async def body(address: FakeAddress, client: HttpClient) -> None:
        provider = openai_provider(address.base_url, client, apiKey=KEY)
        error = await failure(lambda: provider(Request(prompt="a")))
        place = f"POST {address.base_url}/chat/completions (model m-1)"
        advice = "check apiBaseUrl, redirects are not followed"
        assert str(error) == f"bad_request: HTTP 307 from {place}: {advice}"

    with_raw_server(sent, body)


def test_a_wrong_url_or_model_is_named() -> None:
    """The message says to check both."""
    page = b"<html>Hello</html>"
    sent = b"HTTP/1.1 404 X\r\ncontent-length: %d\r\n\r\n%s" % (len(page), page)

    async def body(address: FakeAddress, client: HttpClient) -> None:
        provider = openai_provider(address.base_url, client, apiKey=KEY)
        error = await failure(lambda: provider(Request(prompt="a")))
        place = f"POST {address.base_url}/chat/completions (model m-1)"
        hint = "check apiBaseUrl and the model name"
        assert str(error) == f"not_found: HTTP 404 from {place}: {hint}"

    with_raw_server(sent, body)


def test_a_page_in_place_of_json_names_the_url() -> None:
    """A base URL without its path often leads to an HTML page."""
    sent = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n<html"

    async def body(address: FakeAddress, client: HttpClient) -> None:
        provider = openai_provider(address.base_url, client, apiKey=KEY)
        error = await failure(lambda: provider(Request(prompt="a")))
        where = f"HTTP 200 from POST {address.base_url}/chat/completions (model m-1)"
        assert str(error) == f"malformed_reply: {where}: the reply is not JSON; check apiBaseUrl"

    with_raw_server(sent, body)


def test_a_refused_connection_names_the_address() -> None:
    """A refused connection names host, port and URL, and what to check."""

    async def main() -> None:
        with trio.socket.socket() as unused:
            await unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            async with open_http() as client:
                provider = openai_provider(f"http://127.0.0.1:{port}/v1", client, apiKey=KEY)
                error = await failure(lambda: provider(Request(prompt="a")))
        source = f"POST http://127.0.0.1:{port}/v1/chat/completions"
        assert str(error) == (
            f"connection: connection refused by 127.0.0.1:{port} for {source}: "
            "check that the server is running, and the URL"
        )

    trio.run(main)


def test_plain_http_behind_an_https_url_is_reported() -> None:
    """A wrong scheme is recognised by the failed handshake."""

    async def body(run: FakeRun) -> None:
        url = run.address.base_url.replace("http:", "https:")
        error = await failure(
            lambda: openai_provider(url, run.client, apiKey=KEY)(Request(prompt="a"))
        )
        assert error.kind == "connection"
        source = f"POST {url}/chat/completions"
        place = f"127.0.0.1:{run.address.port}"
        advice = "check whether the URL needs http or https"
        assert error.message.startswith(f"TLS with {place} failed for {source}: {advice}; ")

    with_fake(FakeSettings(), body)


@pytest.mark.parametrize("tail", ["\n", "é"])
def test_a_header_that_cannot_be_sent_is_not_shown(tail: str) -> None:
    """The library's own message would quote the header, and with it a key."""

    async def body(run: FakeRun) -> None:
        headers = {"authorization": f"Bearer {KEY}{tail}"}
        error = await failure(
            lambda: run.client.send(HttpRequest(run.address.base_url, headers, b"{}"))
        )
        assert str(error) == (
            f"bad_request: cannot send POST {run.address.base_url}: invalid header; "
            "check the headers and the key for line breaks and characters outside of ASCII"
        )

    with_fake(FakeSettings(), body)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "http://a\nb", "http://[::1", "http:///x"])
def test_an_invalid_url_is_a_bad_request(url: str) -> None:
    """An invalid URL is not reported as a lost connection."""

    async def main() -> None:
        async with open_http() as client:
            error = await failure(lambda: client.send(HttpRequest(url, {}, b"{}")))
        assert str(error).startswith("bad_request: cannot send POST")
        assert str(error).endswith(
            ": the URL is not a valid http or https URL; check the provider's base URL"
        )

    trio.run(main)


SOURCE = "GET https://a/v1"
CHECK_URL = "check the URL and the network"
CHECK_SERVER = "check that the server is running, and the URL"
CHECK_PROXY = "check that the proxy is running, and HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"
CHECK_TRUST = "check the URL, or set SSL_CERT_FILE to the certificates to trust"


def caused(error: Exception, *causes: BaseException) -> Exception:
    for outer, inner in pairwise((error, *causes)):
        outer.__cause__ = inner
    return error


def certificate_error() -> ssl.SSLCertVerificationError:
    """Return an error like that of the TLS library."""
    error = ssl.SSLCertVerificationError("certificate verify failed")
    error.verify_message = "self-signed certificate"
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            caused(
                httpcore2.ConnectError("x"),
                trio.BrokenResourceError(),
                certificate_error(),
            ),
            f"tls: invalid certificate of a:443 for {SOURCE}: {CHECK_TRUST}; self-signed certificate",
        ),
        (
            caused(
                httpcore2.ConnectError("x"),
                OSError(),
                ExceptionGroup("", [OSError(1, "no"), ConnectionRefusedError()]),
            ),
            f"connection: connection refused by a:443 for {SOURCE}: {CHECK_SERVER}",
        ),
        (
            caused(httpcore2.ConnectError("x"), ExceptionGroup("", [OSError(1, "no")])),
            f"connection: no connection to a:443 for {SOURCE}: {CHECK_URL}; x",
        ),
        (
            caused(httpcore2.ConnectError("x"), trio.socket.gaierror(-2, "unknown")),
            f"connection: host of a:443 not found for {SOURCE}: {CHECK_URL}",
        ),
        (
            httpcore2.ConnectTimeout("x"),
            f"connection: no connection to a:443 within 10 seconds for {SOURCE}: {CHECK_URL}",
        ),
        (
            httpcore2.ConnectError("no route"),
            f"connection: no connection to a:443 for {SOURCE}: {CHECK_URL}; no route",
        ),
        (
            httpcore2.ReadError(""),
            f"connection: connection lost before the end of the reply from {SOURCE}: ReadError",
        ),
    ],
)
def test_each_failure_of_the_network_is_reported_by_its_cause(error: Exception, text: str) -> None:
    """The cause decides the message."""
    assert str(explain(error, SOURCE, "a:443")) == text


@pytest.mark.parametrize(
    ("error", "proxy", "text"),
    [
        (
            httpcore2.ProxyError("403"),
            "http://me:secret@p:3128",
            f"connection: the proxy p:3128 refused to connect for {SOURCE}: {CHECK_PROXY}; 403",
        ),
        (
            httpcore2.ConnectTimeout("x"),
            "http://p:3128",
            f"connection: no connection to the proxy p:3128 within 10 seconds for {SOURCE}: {CHECK_PROXY}",
        ),
        (
            caused(httpcore2.ConnectError("x"), certificate_error()),
            "http://p:3128",
            f"tls: invalid certificate of a:443 for {SOURCE}: {CHECK_TRUST}; self-signed certificate",
        ),
        (
            caused(httpcore2.ConnectError("x"), certificate_error()),
            "https://p",
            (
                f"tls: invalid certificate of a:443 or its proxy for {SOURCE}: {CHECK_TRUST}; "
                "self-signed certificate"
            ),
        ),
    ],
)
def test_failures_of_a_proxy_do_not_blame_the_server(
    error: Exception, proxy: str, text: str
) -> None:
    """The message names the proxy, but not its password."""
    assert str(explain(error, SOURCE, "a:443", proxy)) == text


@pytest.mark.parametrize(
    "address",
    [
        f"socks4://me:{KEY}@127.0.0.1:1",
        f"socks5://me:{KEY}@127.0.0.1:1",
        f"http://me:{KEY}@127.0.0.1:port",
        f"ftp://me:{KEY}@127.0.0.1",
    ],
)
def test_a_proxy_that_cannot_be_used_is_reported_without_its_password(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every call would fail in this way, so the lane closes at once."""
    monkeypatch.setenv("http_proxy", address)
    monkeypatch.setenv("NO_PROXY", "")

    async def main() -> None:
        async with open_http() as client:
            error = await failure(lambda: client.send(HttpRequest("http://a.example/", {}, b"")))
        assert error.__context__ is None
        assert error.fault is Fault.FATAL
        assert str(error) == (
            "connection: invalid proxy in the environment for POST http://a.example/: "
            "set HTTP_PROXY, HTTPS_PROXY or ALL_PROXY to http://host:port or https://host:port "
            "(socks5:// needs the package socksio)"
        )

    trio.run(main)


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_refusing_proxy_is_named(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server was never reached. A proxy without a scheme is an HTTP proxy, as in other programs."""

    async def main() -> None:
        with trio.socket.socket() as unused:
            await unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            monkeypatch.setenv("http_proxy", f"{scheme}me:{KEY}@127.0.0.1:{port}")
            monkeypatch.setenv("NO_PROXY", "")
            async with open_http() as client:
                error = await failure(
                    lambda: client.send(HttpRequest("http://a.example/", {}, b""))
                )
        text = f"connection: connection refused by the proxy 127.0.0.1:{port}"
        assert str(error) == f"{text} for POST http://a.example/: {CHECK_PROXY}"

    trio.run(main)


@pytest.mark.slow
def test_calls_cancelled_at_any_instant_leave_client_and_server_usable() -> None:
    """After 1,000 cancelled calls the client serves 20 more, and nothing is in flight any more."""
    rng = random.Random(7)  # noqa: S311 - repeatable instants

    async def body(run: FakeRun) -> None:
        provider = run.provider()
        cancelled = 0

        async def cut_short(limit: float) -> None:
            nonlocal cancelled
            with trio.move_on_after(limit) as scope:
                await provider(Request(prompt="a"))
            cancelled += scope.cancelled_caught

        for _ in range(10):
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(cut_short, rng.uniform(0, 0.06))
        assert cancelled > 500

        replies: list[Any] = []

        async def whole() -> None:
            replies.append((await provider(Request(prompt="b"))).output)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(whole)
        assert replies == ["b"] * 20
        stats = await run.stats()
        assert stats["in_flight"] == 0
        assert stats["requests"] == stats["ok"] + stats["abandoned"]

    with_fake(FakeSettings(latency_s=0.03, jitter=0.5), body)


def test_two_clients_share_nothing() -> None:
    """Closing one client does not affect another."""

    async def body(run: FakeRun) -> None:
        for _ in range(2):
            async with open_http() as client:
                provider = openai_provider(run.address.base_url, client)
                assert (await provider(Request(prompt="a"))).output == "yes"

    with_fake(FakeSettings(replies=ScriptedReplies(("yes",))), body)


def descriptors() -> int:
    """Return the number of open files and sockets of this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
def test_the_number_of_idle_connections_is_bounded() -> None:
    """A template may have another host in every row, and file descriptors are limited."""
    reply = b"HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\n{}"

    async def keep_answering(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            while (received := await stream.receive_some()) and b"\r\n\r\n" in received:
                await stream.send_all(reply)

    async def main() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                listeners = await trio.open_tcp_listeners(0, host="0.0.0.0")  # noqa: S104 - 127.0.0.0/8
                nursery.start_soon(trio.serve_listeners, keep_answering, listeners)
                port = listeners[0].socket.getsockname()[1]
                before = descriptors()
                async with open_http() as client:
                    for number in range(600):
                        url = f"http://127.0.{number // 250}.{number % 250 + 1}:{port}/"
                        await client.send(HttpRequest(url, {}, None, "GET"))
                    # Both ends of each connection are in this process.
                    assert descriptors() - before <= 2 * 260
                nursery.cancel_scope.cancel()

    trio.run(main)


def packed(body: bytes, encoding: str, *, chunked: bool = False) -> bytes:
    """Return a compressed reply that was not requested."""
    head = f"HTTP/1.1 200 X\r\ncontent-encoding: {encoding}\r\n".encode()
    if not chunked:
        return head + f"content-length: {len(body)}\r\n\r\n".encode() + body
    parts = b"".join(b"%x\r\n%s\r\n" % (1, body[i : i + 1]) for i in range(len(body)))
    return head + b"transfer-encoding: chunked\r\n\r\n" + parts + b"0\r\n\r\n"


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("gzip", lambda body: gzip.compress(body[:3]) + gzip.compress(body[3:])),
    ],
)
def test_a_compressed_reply_is_decompressed(
    encoding: str, pack: Callable[[bytes], bytes], *, chunked: bool
) -> None:
    """Some servers ignore `accept-encoding`; streamed parts are decompressed as well."""
    parts: list[bytes] = []

    async def body(address: FakeAddress, client: HttpClient) -> None:
        request = HttpRequest(address.base_url, {}, b"{}")
        reply = await client.send(request, on_part=parts.append)
        assert reply.body == b'{"a": 1}'
        assert b"".join(parts) == b'{"a": 1}'

    with_raw_server(packed(pack(b'{"a": 1}'), encoding, chunked=chunked), body)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (
            packed(gzip.compress(b"x" * 50_000_000, mtime=0), "gzip"),
            "malformed_reply: {}: the reply is larger than 0.000976562 MiB (maxResponseBytes: 1024)",
        ),
        (
            packed(b"not packed", "gzip"),
            (
                "malformed_reply: {}: the reply cannot be decompressed: "
                "Error -3 while decompressing data: incorrect header check"
            ),
        ),
        (
            packed(gzip.compress(b"x" * 50, mtime=0)[:-9], "gzip"),
            "malformed_reply: {}: the compressed reply is incomplete",
        ),
        (
            packed(b"?", "br"),
            (
                "malformed_reply: {}: content-encoding 'br', which was not requested; "
                "configure the server to send replies uncompressed"
            ),
        ),
    ],
)
def test_a_compressed_reply_cannot_fill_the_memory(sent: bytes, message: str) -> None:
    """A small body that decompresses to a huge one, and an invalid one, are malformed."""

    async def body(address: FakeAddress, client: HttpClient) -> None:
        before = tracemalloc.get_traced_memory()[0]
        error = await failure(lambda: client.send(HttpRequest(address.base_url, {}, b"{}")))
        assert str(error) == message.format(f"HTTP 200 from POST {address.base_url}")
        assert tracemalloc.get_traced_memory()[1] - before < 2_000_000

    tracemalloc.start()
    try:
        with_raw_server(sent, body)
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_a_streamed_reply_has_the_time_of_its_first_token() -> None:
    """The fake sends the first token over a socket after half of its latency."""

    async def body(run: FakeRun) -> None:
        plain = await run.provider()(Request(prompt="Good morning to all"))
        provider = run.provider(metrics=["ttft"])
        started_at = trio.current_time()
        streamed = await provider(Request(prompt="Good morning to all"))
        took = trio.current_time() - started_at
        assert (streamed.output, streamed.usage) == (plain.output, plain.usage)
        assert streamed.finish_reason == plain.finish_reason == "stop"
        assert plain.first_token is None
        assert streamed.first_token is not None
        assert 0.1 <= streamed.first_token < took
        assert took >= 0.18

    with_fake(FakeSettings(latency_s=0.2), body)


def test_a_truncated_stream_is_a_lost_connection() -> None:
    """This holds even if every part of it arrived completely."""

    async def body(run: FakeRun) -> None:
        provider = run.provider(metrics=["ttft"])
        error = await failure(lambda: provider(Request(prompt="Good morning to all")))
        assert error.kind == "connection"
        stats = await run.stats()
        assert (stats["disconnects"], stats["in_flight"]) == (1, 0)

    with_fake(FakeSettings(disconnect_rate=1), body)
