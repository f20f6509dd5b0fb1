"""Providers whose connections break in the middle of a reply, by accident or on purpose.

A break is a transient failure: the call is retried as often as its lane allows, half a reply is never used as
a whole one, and no slot is lost. HTTP/2 is never offered; data in its frames is not a reply either.
"""

import json
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
import trio
import trustme

import trioeval
from trioeval.errors import Fault, ProviderError
from trioeval.providers.http.client import open_http
from trioeval.providers.http.wire import HttpRequest, TlsSettings

pytestmark = [pytest.mark.attack("broken connections"), pytest.mark.network]

SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
GOAWAY = b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + b"\x00\x00\x00\x00" + b"\x00\x00\x00\x0b"
RST_STREAM = b"\x00\x00\x04\x03\x00\x00\x00\x00\x01" + b"\x00\x00\x00\x08"
WHOLE = json.dumps({"choices": [{"message": {"role": "assistant", "content": "good"}}]}).encode()
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"

SAID = {
    "nothing": b"",
    "half a first line": b"HTTP/1.1 2",
    "half a head": HEAD,
    "a head and no body": HEAD + b"content-length: 900\r\n\r\n",
    "half a body": HEAD + b"content-length: 900\r\n\r\n" + WHOLE[:30],
    "a body that looks whole": HEAD + b"content-length: 900\r\n\r\n" + WHOLE,
    "half a chunk": HEAD + b"transfer-encoding: chunked\r\n\r\n3e8\r\n" + WHOLE,
    "no last chunk": HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(WHOLE), WHOLE),
    "a chunk of no size": HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n" + WHOLE,
    "half a stream": HEAD + b'transfer-encoding: chunked\r\n\r\n8\r\ndata: {"\r\n',
    "a hint and no reply": b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n",
    "HTTP/2 settings": SETTINGS,
    "HTTP/2 goaway": SETTINGS + GOAWAY,
    "HTTP/2 reset of a stream": SETTINGS + RST_STREAM,
    "an HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS,
    "a head and then goaway": HEAD + b"content-length: 900\r\n\r\n" + GOAWAY,
    "chunks and then goaway": HEAD + b"transfer-encoding: chunked\r\n\r\n" + GOAWAY,
    "a TLS alert": b"\x15\x03\x03\x00\x02\x02\x28",
    "HTTP/2 as a version": b"HTTP/2 200\r\ncontent-length: 2\r\n\r\n{}",
    "no HTTP": b"220 mail.example ESMTP\r\n",
}
Ending = Literal["reset", "end"]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is connected directly, whatever the environment of the machine is."""
    monkeypatch.setenv("NO_PROXY", "*")


@attrs.define(eq=False)
class Breaking:
    """A provider that breaks its first replies, and counts."""

    response: bytes
    ending: Ending
    breaks: float
    requests: int = 0
    in_flight: int = 0
    most_in_flight: int = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        try:
            while await self._answer(stream):
                pass
        except trio.BrokenResourceError:
            pass  # the client closed the connection

    async def _answer(self, stream: trio.SocketStream) -> bool:
        if not await _read_request(stream):
            return False
        self.requests += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.requests > self.breaks:
                await stream.send_all(HEAD + b"content-length: %d\r\n\r\n" % len(WHOLE) + WHOLE)
                return True
            if self.response:
                await stream.send_all(self.response)
            if self.ending == "reset":
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        finally:
            self.in_flight -= 1


async def _read_request(stream: trio.SocketStream) -> bool:
    found = b""
    while b"\r\n\r\n" not in found:
        if not (chunk := await stream.receive_some()):
            return False
        found += chunk
    head, _, body = found.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += await stream.receive_some()
    return True


@asynccontextmanager
async def breaking(server: Breaking) -> AsyncIterator[str]:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, server.serve, [listener])
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel("seen")


def in_trio(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(60):
            await main()

    trio.run(bounded)


async def rows_of(url: str, *, retries: int) -> list[Any]:
    """Return the results of six rows, two at once."""
    document = {
        "providers": [
            {
                "id": "openai:chat:m",
                "config": {"apiBaseUrl": url, "apiKey": "sk-test"},
                "lane": {"maxConcurrency": 2, "retries": retries, "retryDelay": 0},
            }
        ],
        "evaluateOptions": {"salvageRounds": 0},
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": ["a", "b", "c", "d", "e", "f"]}}],
    }
    return await trioeval.collect(trioeval.parse_suite(document))


@pytest.mark.parametrize("ending", ["reset", "end"])
@pytest.mark.parametrize("name", SAID)
def test_a_call_whose_connection_broke_is_made_again(name: str, ending: Ending) -> None:
    """The first four break; every row has its reply, and never more than two were in flight."""

    async def main() -> None:
        server = Breaking(SAID[name], ending, breaks=4)
        async with breaking(server) as url:
            rows = await rows_of(url, retries=4)
        assert [row.output for row in rows] == ["good"] * 6
        assert (server.requests, server.most_in_flight <= 2) == (10, True)

    in_trio(main)


@pytest.mark.parametrize("name", SAID)
def test_a_provider_that_always_breaks_is_called_once_per_attempt(name: str) -> None:
    """Each row fails with a transient failure of the connection, and the lane is free until the end."""

    async def main() -> None:
        server = Breaking(SAID[name], "reset", breaks=float("inf"))
        async with breaking(server) as url:
            rows = await rows_of(url, retries=1)
        assert Counter(row.error.partition(":")[0] for row in rows) == {"connection": 6}
        assert (server.requests, server.most_in_flight <= 2) == (12, True)

    in_trio(main)


def test_http_2_is_not_offered() -> None:
    """A server without another protocol ends the TLS connection, which is a transient failure."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    context.set_alpn_protocols(["h2"])
    chosen: list[str | None] = []

    async def answer(stream: trio.SSLStream[trio.SocketStream]) -> None:
        await stream.do_handshake()
        chosen.append(stream.selected_alpn_protocol())
        await stream.receive_some()
        await stream.send_all(SETTINGS + GOAWAY)
        await trio.aclose_forcefully(stream)

    async def main() -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        with authority.cert_pem.tempfile() as path:
            tls = TlsSettings(ca=Path(path))
            async with trio.open_nursery() as nursery, open_http(tls) as client:
                nursery.start_soon(
                    trio.serve_listeners, answer, [trio.SSLListener(listener, context)]
                )
                with pytest.raises(ProviderError) as caught:
                    await client.send(HttpRequest(f"https://localhost:{port}/v1", {}, b"{}"))
                nursery.cancel_scope.cancel("seen")
        assert (caught.value.kind, caught.value.fault) == ("connection", Fault.TRANSIENT)

    in_trio(main)
    assert chosen == [None]
