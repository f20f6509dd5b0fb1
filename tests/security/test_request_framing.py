"""Requests that two parsers could end at different places, and clients that never end theirs.

One parser is enough to show it: data that an attacker hides in a body must never arrive as a request. The
conversation is that of every server of this program, over a stream in memory, on a virtual clock.
"""

import re

import attrs
import pytest
import trio
import trio.testing

from trioeval.serving.conversation import Bounds, HttpConnection, Message, Receive, Scope, Send

pytestmark = pytest.mark.attack("request framing")

BOUNDS = Bounds(idle=60.0, head=10.0, body=30.0, taking=10.0, head_bytes=4096)
HIDDEN = b"GET /hidden HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nhost: localhost\r\n"


@attrs.define
class Seen:
    """Requests that reached an application, and responses that reached the client."""

    requests: list[tuple[str, str, bytes]] = attrs.field(factory=list)
    answer: bytes = b""
    ended_at: float = 0.0

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message: Message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
        self.requests.append((scope["method"], scope["path"], body))
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    @property
    def statuses(self) -> list[int]:
        return [*map(int, re.findall(rb"HTTP/1\.1 ([0-9]{3}) (?:\r|Refused)", self.answer))]

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _ in self.requests]


def talk(*sent: bytes, apart: float = 0.0, closes: bool = False) -> Seen:
    """Return the result of a client that sends these pieces."""
    seen = Seen()

    async def main() -> None:
        ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:

            async def serve() -> None:
                await HttpConnection(theirs, seen.app, BOUNDS, trio.Event()).run()
                seen.ended_at = trio.current_time()

            async def read() -> None:
                async for chunk in ours:
                    seen.answer += chunk

            nursery.start_soon(serve)
            nursery.start_soon(read)
            try:
                for piece in sent:
                    await ours.send_all(piece)
                    await trio.sleep(apart)
                if closes:
                    await ours.send_eof()
            except trio.BrokenResourceError:
                pass  # the server closed the connection

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return seen


def test_valid_requests_are_answered_and_more_may_follow() -> None:
    """This shows that the requests below are refused for their defects."""
    chunks = b"transfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    sound = POST + b"content-length: 2\r\n\r\nhi" + b"\r\n" + HIDDEN + POST + chunks
    for pieces in ([sound], [sound[at : at + 1] for at in range(len(sound))]):
        seen = talk(*pieces)
        assert seen.statuses == [200, 200, 200]
        assert seen.requests == [
            ("POST", "/a", b"hi"),
            ("GET", "/hidden", b""),
            ("POST", "/a", b"hi"),
        ]


HEADS = {
    "length and chunks": b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": b"transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n0\r\n\r\n",
    "two lengths": b"content-length: 0\r\ncontent-length: 40\r\n\r\n",
    "two equal lengths": b"content-length: 0\r\ncontent-length: 0\r\n\r\n",
    "a list of lengths": b"content-length: 0, 40\r\n\r\n",
    "a list of equal lengths": b"content-length: 0,0\r\n\r\n",
    "a signed length": b"content-length: +0\r\n\r\n",
    "a negative length": b"content-length: -1\r\n\r\n",
    "a length in hex": b"content-length: 0x0\r\n\r\n",
    "a length with a line under it": b"content-length: 1_0\r\n\r\n",
    "a length of other digits": "content-length: \u0660\r\n\r\n".encode(),
    "an empty length": b"content-length:\r\n\r\n",
    "a length without end": b"content-length: " + b"9" * 30 + b"\r\n\r\n",
    "a length over two lines": b"content-length:\r\n 0\r\n\r\n",
    "another coding": b"transfer-encoding: gzip\r\n\r\n",
    "two codings": b"transfer-encoding: gzip, chunked\r\n\r\n",
    "chunked twice": b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked, chunked": b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "identity": b"transfer-encoding: identity\r\n\r\n",
    "xchunked": b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "quoted chunked": b'transfer-encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "chunked behind a tab": b"transfer-encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "a blank before a colon": b"transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
    "a folded header": b"x: a\r\n transfer-encoding: chunked\r\n\r\n",
    "a header that begins with a blank": b" content-length: 40\r\n\r\n",
    "a lone line feed": b"x: a\ncontent-length: 40\r\n\r\n",
    "lone line feeds at the end": b"x: a\n\n",
    "a lone carriage return": b"x: a\rcontent-length: 40\r\n\r\n",
    "two carriage returns": b"x: a\r\r\n\r\n",
    "a zero byte": b"x: a\x00b\r\n\r\n",
    "a zero byte in a name": b"content-length\x00: 40\r\n\r\n",
    "a bell": b"x: \x07\r\n\r\n",
    "no colon": b"content-length 40\r\n\r\n",
    "no name": b": 40\r\n\r\n",
    "a name in brackets": b"[content-length]: 40\r\n\r\n",
    "a second host": b"host: evil.example\r\n\r\n",
    "101 headers": b"".join(b"x%d: y\r\n" % number for number in range(101)) + b"\r\n",
    "a long head": b"x: " + b"y" * 5000 + b"\r\n\r\n",
    "a long head without end": b"x: " + b"y" * 5000,
}


@pytest.mark.parametrize("name", HEADS)
def test_an_ambiguous_head_is_refused(name: str) -> None:
    """The application gets neither it nor anything after it."""
    seen = talk(POST + HEADS[name] + HIDDEN)
    assert seen.requests == []
    assert seen.statuses in ([400], [431])
    assert b"connection: close" in seen.answer


FIRST_LINES = {
    "HTTP/2 with prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "HTTP/2": b"GET / HTTP/2\r\nhost: localhost\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\nhost: localhost\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\nhost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a whole address": b"GET http://evil.example/ HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two blanks": b"GET  / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a small method": b"get / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "a long method": b"G" * 40 + b" / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no method": b"/ HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "an answer": b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "a mail": b"EHLO evil.example\r\n\r\n",
    "Redis": b"*1\r\n$4\r\nPING\r\n\r\n",
    "two line feeds": b"GET / HTTP/1.1\nhost: localhost\n\n",
}


@pytest.mark.parametrize("name", FIRST_LINES)
def test_protocols_other_than_http_1_are_refused(name: str) -> None:
    """None of it is carried out."""
    seen = talk(FIRST_LINES[name] + HIDDEN)
    assert seen.requests == []
    assert seen.statuses in ([400], [505])


@pytest.mark.parametrize(
    "headers",
    [
        b"upgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: AAMAAABk\r\n",
        b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: eA==\r\n",
        b"upgrade: TLS/1.3, h2c\r\nconnection: Upgrade\r\n",
    ],
)
def test_upgrades_are_ignored(headers: bytes) -> None:
    """Some clients offer it with each request: they get HTTP/1.1 responses, and continue in it."""
    seen = talk(b"GET /a HTTP/1.1\r\nhost: localhost\r\n" + headers + b"\r\n" + HIDDEN)
    assert seen.paths == ["/a", "/hidden"]
    assert seen.statuses == [200, 200]
    assert b" 101 " not in seen.answer


CHUNKS = {
    "what follows chunks": b"2\r\nhi\r\n0\r\n\r\n",
    "an end of line feeds": b"2\r\nhi\r\n0\r\n\n",
    "a trailer": b"2\r\nhi\r\n0\r\ncontent-length: 50\r\n\r\n",
    "an extension": b"2;a=b\r\nhi\r\n0\r\n\r\n",
    "a chunk that is longer than it says": b"2\r\nhiGET /hidden\r\n0\r\n\r\n",
    "a size with a sign": b"+2\r\nhi\r\n0\r\n\r\n",
    "a size of 0x2": b"0x2\r\nhi\r\n0\r\n\r\n",
    "a size without end": b"f" * 30 + b"\r\nhi\r\n0\r\n\r\n",
    "a size that is none": b"xyz\r\nhi\r\n0\r\n\r\n",
    "a size behind a blank": b" 2\r\nhi\r\n0\r\n\r\n",
    "a line feed for an end": b"2\nhi\n0\n\n",
}


@pytest.mark.parametrize("name", CHUNKS)
def test_data_after_chunks_is_not_a_request(name: str) -> None:
    """Wherever their end may be, the connection is closed after them."""
    seen = talk(POST + b"transfer-encoding: chunked\r\n\r\n" + CHUNKS[name] + HIDDEN, closes=True)
    assert "/hidden" not in seen.paths
    assert [body for _, _, body in seen.requests] in ([], [b"hi"])


def test_an_unread_body_is_not_a_request() -> None:
    """It may refuse a body without reading it."""
    seen = Seen()

    async def refuse(_scope: Scope, _receive: Receive, send: Send) -> None:
        seen.requests.append(("", _scope["path"], b""))
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": b"no"})

    async def main() -> None:
        ours, theirs = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(HttpConnection(theirs, refuse, BOUNDS, trio.Event()).run)
            await ours.send_all(POST + b"content-length: 100000\r\n\r\n" + HIDDEN)
            async for chunk in ours:
                seen.answer += chunk
            await ours.aclose()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert (seen.paths, seen.statuses) == (["/a"], [413])


SLOW = {
    "nothing at all": (b"", 60.0),
    "half a head": (b"GET / HTTP/1.1\r\nho", 10.0),
    "one byte": (b"G", 10.0),
    "half a body": (POST + b"content-length: 100\r\n\r\nhi", 30.0),
    "no body": (POST + b"content-length: 100\r\n\r\n", 30.0),
    "half a chunk": (POST + b"transfer-encoding: chunked\r\n\r\n64\r\nhi", 30.0),
    "no next request": (HIDDEN, 60.0),
    "half a next request": (HIDDEN + b"GET / HT", 10.0),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_client_that_stalls_is_disconnected(name: str) -> None:
    """The timeout is that of the client's part, not of the application's."""
    sent, within = SLOW[name]
    assert within <= talk(sent).ended_at <= within + 1.5


@pytest.mark.parametrize("apart", [0.5, 5.0, 9.0])
def test_single_bytes_do_not_extend_the_time_limit(apart: float) -> None:
    """A head has a time limit from its first byte to its last, and so has a body."""
    head = talk(*[b"x"] * 100, apart=apart)
    assert (head.requests, head.ended_at <= 12) == ([], True)
    whole = POST + b"content-length: 1000\r\n\r\n"
    body = talk(whole, *[b"x"] * 100, apart=apart)
    assert (body.requests, body.ended_at <= 32) == ([], True)
