"""Shared parts of the providers' network tests: a server and a client in one Trio run."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.providers import resolve
from trioeval.providers.fake import FakeAddress, FakeSettings, serve_fake
from trioeval.providers.http.adapter import AdapterSettings, HttpProvider
from trioeval.providers.http.client import open_http
from trioeval.providers.http.wire import HttpClient, HttpReply
from trioeval.templates import Templates


@attrs.frozen
class FakeRun:
    """A running fake provider, and a client."""

    address: FakeAddress
    client: HttpClient

    def provider(self, **config: Any) -> HttpProvider:
        """The OpenAI adapter against the fake."""
        return openai_provider(self.address.base_url, self.client, **config)

    async def stats(self) -> Any:
        """Return the fake's statistics, read over a separate connection."""
        return json.loads((await exchange(self.address, get("/stats"))).body)


def openai_provider(base_url: str, client: HttpClient, **config: Any) -> HttpProvider:
    """The OpenAI adapter against any address."""
    merged = {"apiBaseUrl": base_url, **config}
    spec = resolve(
        "openai:m-1", merged, environ={}, directory=Path(), templates=Templates(), custom={}
    )
    assert isinstance(spec.settings, AdapterSettings)
    return HttpProvider(spec.settings.adapter, client)


def with_fake(settings: FakeSettings, body: Callable[[FakeRun], Awaitable[None]]) -> None:
    """Run a test body against a fake provider, which ends with it."""

    async def main() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                address = await nursery.start(serve_fake, settings)
                async with open_http() as client:
                    await body(FakeRun(address, client))
                nursery.cancel_scope.cancel()

    trio.run(main)


def with_raw_server(
    reply: bytes,
    body: Callable[[FakeAddress, HttpClient], Awaitable[None]],
    *,
    max_reply_bytes: int = 1024,
) -> None:
    """Run a test body with a server that sends these bytes to every request and closes the connection."""

    async def answer(stream: trio.SocketStream) -> None:
        received = b""
        while not received.endswith(b"}"):
            received += await stream.receive_some()
        await stream.send_all(reply)

    async def main() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
                host, port = listeners[0].socket.getsockname()[:2]
                nursery.start_soon(trio.serve_listeners, answer, listeners)
                async with open_http(max_reply_bytes=max_reply_bytes) as client:
                    await body(FakeAddress(host, port), client)
                nursery.cancel_scope.cancel()

    trio.run(main)


def get(path: str) -> bytes:
    """The bytes of a GET request."""
    return f"GET {path} HTTP/1.1\r\nhost: fake\r\nconnection: close\r\n\r\n".encode()


def post(path: str, body: bytes) -> bytes:
    """The bytes of a POST request."""
    head = f"POST {path} HTTP/1.1\r\nhost: fake\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def exchange(address: FakeAddress, request: bytes) -> HttpReply:
    """Send bytes over a new connection and read one reply."""
    stream = await trio.open_tcp_stream(address.host, address.port)
    async with stream:
        await stream.send_all(request)
        return await read_reply(stream)


async def read_reply(stream: trio.SocketStream) -> HttpReply:
    """Read one reply that has a length, and nothing after it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += await _read_some(stream, 1)
    first, *lines = head.decode().strip().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    body, length = b"", int(headers["content-length"])
    while len(body) < length:
        body += await _read_some(stream, length - len(body))
    return HttpReply(int(first.split()[1]), headers, body)


async def _read_some(stream: trio.SocketStream, limit: int) -> bytes:
    chunk = await stream.receive_some(limit)
    assert chunk, "the server hung up"
    return bytes(chunk)
