"""The connections below the HTTP client, against servers that record what arrives."""

import base64
from collections.abc import Awaitable, Callable

import pytest
import trio

from trioeval.providers.http.client import open_http
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


def test_a_long_body_that_the_server_does_not_read_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server refuses it after its head; the reply is read although sending fails."""
    monkeypatch.setenv("NO_PROXY", "*")

    async def handle(stream: trio.SocketStream) -> None:
        await stream.receive_some(1000)
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}")
        stream.socket.shutdown(trio.socket.SHUT_WR)
        left = 30_000_000
        while left > 0 and (data := await stream.receive_some(2**20)):
            left -= len(data)

    async def body(url: str) -> None:
        async with open_http() as client:
            reply = await client.send(HttpRequest(url, {}, b"x" * 20_000_000))
            assert (reply.status, reply.body) == (413, b"{}")

    trio.run(with_server, handle, body)


def test_a_cancelled_request_closes_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late reply to it must not answer the next request."""
    monkeypatch.setenv("NO_PROXY", "*")
    connections = 0
    has_ended = trio.Event()

    async def handle(stream: trio.SocketStream) -> None:
        nonlocal connections
        connections += 1
        first = connections == 1
        async for _ in stream:
            if not first:
                await stream.send_all(OK)
        has_ended.set()

    async def body(url: str) -> None:
        async with open_http() as client:
            with trio.move_on_after(0.05):
                await client.send(HttpRequest(url, {}, b"{}"))
            await has_ended.wait()
            assert (await client.send(HttpRequest(url, {}, b"{}"))).status == 200

    trio.run(with_server, handle, body)
    assert connections == 2


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
