"""The connections below the HTTP client, against servers that record what arrives."""

import base64
import gc
from collections.abc import Awaitable, Callable

import httpcore2
import pytest
import trio
import trio.testing

from trioeval.errors import ProviderError
from trioeval.providers.http.client import open_http
from trioeval.providers.http.network import JoiningStream
from trioeval.providers.http.wire import HttpRequest

pytestmark = pytest.mark.network

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"

Handle = Callable[[trio.SocketStream], Awaitable[None]]


async def with_server(handle: Handle, body: Callable[[str], Awaitable[None]]) -> None:
    """Call `body` with the address of a server."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    host, port = listener.socket.getsockname()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        with trio.fail_after(20):
            await body(f"http://{host}:{port}/v1")
        nursery.cancel_scope.cancel()


def test_head_and_body_arrive_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request is one packet, also on a connection that is used again."""
    monkeypatch.setenv("NO_PROXY", "*")
    arrived: list[bytes] = []

    async def handle(stream: trio.SocketStream) -> None:
        async for data in stream:
            arrived.append(bytes(data))
            await stream.send_all(OK)

    async def body(url: str) -> None:
        async with open_http() as client:
            for number in range(3):
                await client.send(HttpRequest(url, {}, b'{"n": %d}' % number))

    trio.run(with_server, handle, body)
    assert [data.partition(b"\r\n\r\n")[2] for data in arrived] == [
        b'{"n": 0}',
        b'{"n": 1}',
        b'{"n": 2}',
    ]


def test_a_connection_that_the_server_has_closed_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Servers close idle connections without a word."""
    monkeypatch.setenv("NO_PROXY", "*")
    connections = 0

    async def body(url: str) -> None:
        async with open_http() as client:
            for _ in range(3):
                closed = trio.Event()
                done.append(closed)
                reply = await client.send(HttpRequest(url, {}, b"{}"))
                assert reply.status == 200
                await closed.wait()

    done: list[trio.Event] = []

    async def handle(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        await stream.receive_some()
        await stream.send_all(OK)
        await stream.aclose()
        done[-1].set()

    trio.run(with_server, handle, body)
    assert connections == 3


@pytest.mark.parametrize("size", [100, 20_000_000])
def test_a_body_that_the_server_does_not_read_is_answered(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server refuses it after a part of its head; the reply is read although sending fails."""
    monkeypatch.setenv("NO_PROXY", "*")

    async def handle(stream: trio.SocketStream) -> None:
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}")
        stream.socket.shutdown(trio.socket.SHUT_RD)
        await stream.wait_send_all_might_not_block()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await done.wait()

    async def body(url: str) -> None:
        async with open_http() as client:
            reply = await client.send(HttpRequest(url, {}, b"x" * size))
            assert (reply.status, reply.body) == (413, b"{}")
        done.set()

    done = trio.Event()
    trio.run(with_server, handle, body)


def test_a_stream_that_cannot_send_still_reads() -> None:
    """The library reads the reply of a server that broke the connection while it was sent to."""

    async def main() -> None:
        ours, theirs = trio.testing.memory_stream_pair()
        stream = JoiningStream(ours)
        await stream.write(b"head")
        await theirs.send_all(b"refused")
        await theirs.receive_stream.aclose()
        assert await stream.read(100) == b"refused"
        with pytest.raises(httpcore2.WriteError):
            await stream.write(b"x" * 2**16)

    trio.run(main)


def test_a_cancelled_request_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late reply to it must not answer the next request."""
    monkeypatch.setenv("NO_PROXY", "*")
    connections = 0
    has_ended = trio.Event()
    first_request = trio.CancelScope()

    async def handle(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        first = connections == 1
        async for _ in stream:
            if first:
                first_request.cancel()
            else:
                await stream.send_all(OK)
        has_ended.set()

    async def body(url: str) -> None:
        async with open_http() as client:
            with first_request:
                await client.send(HttpRequest(url, {}, b"{}"))
            await has_ended.wait()
            assert (await client.send(HttpRequest(url, {}, b"{}"))).status == 200

    trio.run(with_server, handle, body)
    assert connections == 2


def test_a_cancelled_handshake_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """LEAK: the library does not know the connection yet."""
    monkeypatch.setenv("NO_PROXY", "*")
    has_ended = trio.Event()
    request = trio.CancelScope()

    async def handle(stream: trio.SocketStream) -> None:
        async for _ in stream:
            request.cancel()
        has_ended.set()

    async def body(url: str) -> None:
        async with open_http() as client:
            gc.disable()
            try:
                with request:
                    await client.send(HttpRequest(url.replace("http:", "https:"), {}, b"{}"))
                await has_ended.wait()
            finally:
                gc.enable()

    trio.run(with_server, handle, body)


def test_a_chunked_reply_with_a_small_declared_length_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Chunks count, whatever length is declared beside them."""
    monkeypatch.setenv("NO_PROXY", "*")
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n"

    async def handle(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(head + b"800\r\n" + b"x" * 2048 + b"\r\n0\r\n\r\n")

    async def body(url: str) -> None:
        async with open_http(max_reply_bytes=1000) as client:
            with pytest.raises(ProviderError, match="maxResponseBytes: 1000"):
                await client.send(HttpRequest(url, {}, b"{}"))

    trio.run(with_server, handle, body)


def test_a_header_of_the_request_replaces_a_default_in_any_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    arrived: list[bytes] = []

    async def handle(stream: trio.SocketStream) -> None:
        async for data in stream:
            arrived.append(bytes(data))
            await stream.send_all(OK)

    async def body(url: str) -> None:
        async with open_http() as client:
            await client.send(HttpRequest(url, {"Accept": "text/plain", "USER-AGENT": "me"}, b"{}"))

    trio.run(with_server, handle, body)
    lines = arrived[0].lower().splitlines()
    assert [line for line in lines if line.startswith((b"accept:", b"user-agent:"))] == [
        *(b"accept: text/plain", b"user-agent: me")
    ]


def test_a_host_with_an_empty_label_is_a_wrong_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")

    async def main() -> None:
        async with open_http() as client:
            with pytest.raises(ProviderError, match="not a valid http or https URL"):
                await client.send(HttpRequest("http://a..b/v1", {}, b"{}"))

    trio.run(main)


def test_a_proxy_gets_the_whole_url_and_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """User and password are decoded from the proxy's URL."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    arrived: list[bytes] = []

    async def handle(stream: trio.SocketStream) -> None:
        async for data in stream:
            arrived.append(bytes(data))
            await stream.send_all(OK)

    async def body(url: str) -> None:
        address = url.removeprefix("http://").removesuffix("/v1")
        monkeypatch.setenv("http_proxy", f"http://me:p%40ss%C3%A9@{address}")
        async with open_http() as client:
            for _ in range(2):
                await client.send(HttpRequest("http://model.test:8000/v1/chat?a=b", {}, b"{}"))

    trio.run(with_server, handle, body)
    expected = base64.b64encode("me:p@ssé".encode())
    for data in arrived:
        assert data.startswith(b"POST http://model.test:8000/v1/chat?a=b HTTP/1.1\r\n")
        assert b"Proxy-Authorization: Basic " + expected in data
        assert b"\r\nHost: model.test:8000\r\n" in data
    assert len(arrived) == 2
