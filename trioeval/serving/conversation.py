"""One connection of HTTP/1.1, whose requests are answered by an ASGI application one after another.

A client cannot block the server: the size and duration of what it sends are bounded, and so is the time for
which it may leave responses unread. HTTP/2 is not supported, so that one connection is one request at a time;
a client that requests an upgrade gets the usual response.

Why not hypercorn: it speaks HTTP/2 in clear text to clients that begin with it, which cannot be switched off
and turns one connection into hundreds of requests; it sends under a shield, it bounds the time of neither
head nor body, and does not close idle connections in favour of new ones.
"""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias
from urllib.parse import unquote

import attrs
import h11
import trio

from trioeval.serving.framing import SoundHead, UnsoundRequestError, read_request, take_head

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

_PIECE = 64 * 1024  # bytes
_LINGER = 1.0  # seconds in which a refused client may finish sending, so that it reads the response
_LINGER_BYTES = 8 * 1024 * 1024
_BODILESS = frozenset({204, 304})

_GONE: Message = {"type": "http.disconnect"}

_logger = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Bounds:
    """The limits of each client and of all connections."""

    connections: int = 256
    """Connections at once. For one more, the one that has waited for its client for the longest time is
    closed."""
    idle: float = 600.0
    """Seconds without a request; a client that reuses a connection must not find it closed at that moment."""
    head: float = 10.0
    """Seconds from the first byte of a head to its last."""
    body: float = 30.0
    """The most seconds of a body."""
    taking: float = 10.0
    """Seconds in which a piece of a response must be read."""
    head_bytes: int = 16 * 1024


@attrs.define(eq=False, repr=False)
class HttpConnection:
    """A connection and its state."""

    _stream: trio.abc.Stream
    _app: App
    bounds: Bounds
    stop: trio.Event
    """Once it is set, no further request is handled."""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """Cancelled in favour of another connection."""
    waits_since: float | None = attrs.field(init=False, factory=trio.current_time)
    """The instant from which the client is to act; None while the application works."""
    answers_since: float | None = attrs.field(init=False, default=None)
    """The start of the response that is being sent."""
    is_between: bool = attrs.field(init=False, default=True)
    """True between two requests."""
    buffer: bytearray = attrs.field(init=False, factory=bytearray)
    """Bytes received and not read yet."""

    async def run(self) -> None:
        """Answer requests until either side ends the connection; then the stream is closed."""
        with self.scope:
            try:
                while not self.stop.is_set() and await self._answer_next():
                    pass
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the client disconnected
            finally:
                await trio.aclose_forcefully(self._stream)

    async def _answer_next(self) -> bool:
        """Answer one request; return whether another one may follow."""
        self.waits_since, self.answers_since, self.is_between = trio.current_time(), None, True
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=self.bounds.head_bytes)
        try:
            head = await self._receive_head()
            if head is None:
                return False
            request = read_request(head, connection)
        except UnsoundRequestError as error:
            await self.refuse(error)
            return False
        self.is_between = False
        return await _Exchange(self, connection, request, head).run(self._app)

    async def _receive_head(self) -> SoundHead | None:
        """Return the next head; None if there will be none."""
        with trio.move_on_after(self.bounds.idle) as quiet:
            while not self.buffer:
                if not await self.receive_more():
                    return None
        if quiet.cancelled_caught:
            return None
        seen, self.waits_since = 0, trio.current_time()
        with trio.move_on_after(self.bounds.head):
            while (head := take_head(self.buffer, self.bounds.head_bytes, seen)) is None:
                seen = len(self.buffer)
                if not await self.receive_more():
                    return None
            return head
        raise UnsoundRequestError(408, f"the head took longer than {self.bounds.head:g} s")

    async def refuse(self, error: UnsoundRequestError) -> None:
        """Respond in place of the application, and wait until the response is read."""
        body = f"{error.reason}\n".encode()
        head = (
            f"HTTP/1.1 {error.status} Refused\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"x-content-type-options: nosniff\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        await self.send(head.encode() + body)
        await self.linger()

    async def receive_more(self) -> bool:
        """Wait for more data from the client; return False at its end."""
        received = await self._stream.receive_some(_PIECE)
        self.buffer += received
        return bool(received)

    async def send(self, data: bytes) -> None:
        """Send all of it.

        Raises:
            trio.BrokenResourceError: The client does not read.
        """
        since, self.waits_since = self.waits_since, trio.current_time()
        left = memoryview(data)
        while left:
            with trio.move_on_after(self.bounds.taking) as taking:
                await self._stream.send_all(left[:_PIECE])
            if taking.cancelled_caught:
                await trio.aclose_forcefully(self._stream)  # its reader ends, too
                raise trio.BrokenResourceError("the client does not read")
            left = left[_PIECE:]
        self.waits_since = since

    async def linger(self) -> None:
        """Let the client finish sending an unread body: otherwise it would not see the response."""
        self.waits_since = trio.current_time()
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            await self._stream.send_eof()
        left = _LINGER_BYTES
        with trio.move_on_after(_LINGER):
            while left > 0 and (received := await self._stream.receive_some(_PIECE)):
                left -= len(received)


@attrs.define(eq=False, repr=False)
class _Exchange:
    """One request and its response: the two functions that an ASGI application gets."""

    _talk: HttpConnection
    _connection: h11.Connection
    _request: h11.Request
    _head: SoundHead
    _left: int = attrs.field(init=False)
    """Bytes of the body that are not read, if its length is known."""
    _is_read: bool = attrs.field(init=False, default=False)
    """True if the application has the whole body."""
    _body_until: float = attrs.field(init=False)
    _is_closed: bool = attrs.field(init=False, default=False)
    """True if the client has disconnected, so that no response can be sent."""
    _start: Message | None = attrs.field(init=False, default=None)
    """The start of the response, held back until a part of its body is available."""
    _over: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when the response is sent, as far as possible."""

    def __attrs_post_init__(self) -> None:
        self._left = self._head.length or 0
        self._body_until = trio.current_time() + self._talk.bounds.body
        if self._head.length == 0:
            self._talk.waits_since = None

    async def run(self, app: App) -> bool:
        """Let the application respond; return whether another request may follow."""
        try:
            await app(_scope_of(self._request), self.receive, self.send)
        except Exception:
            _logger.exception("a request could not be answered")
            if self._talk.answers_since is None and not self._is_closed:
                failed = UnsoundRequestError(500, "internal error of the server")
                await self._talk.refuse(failed)
            return False
        if self._is_closed or not self._over.is_set():
            return False
        if self._connection.our_state is not h11.DONE:
            await self._talk.linger()
            return False
        return True

    async def receive(self) -> Message:
        """Return what the client sends: its body, and then only its disconnection. A checkpoint."""
        if not self._is_read and not self._is_closed:
            with trio.move_on_at(self._body_until):
                return await self._receive_body()
            self._is_closed = True  # too slow; a response would not be read either
        while not self._over.is_set() and not self._is_closed:
            if len(self._talk.buffer) > _PIECE:  # requests that arrive too early
                await self._over.wait()
            else:
                self._is_closed = not await self._receive_more()
        await trio.lowlevel.checkpoint()
        return dict(_GONE)

    async def _receive_body(self) -> Message:
        body, more = b"", True
        while not body and more:
            if self._head.length is None:
                body, more = await self._receive_chunk()
            else:
                body, more = await self._receive_counted()
            if self._is_closed:
                return dict(_GONE)
        if not more:
            self._is_read, self._talk.waits_since = True, None
        return {"type": "http.request", "body": body, "more_body": more}

    async def _receive_counted(self) -> tuple[bytes, bool]:
        buffer = self._talk.buffer
        if self._left and not buffer:
            await self._send_continue()
            self._is_closed = not await self._receive_more()
        else:
            await trio.lowlevel.checkpoint()
        body = bytes(buffer[: self._left])
        del buffer[: len(body)]
        self._left -= len(body)
        return body, self._left > 0

    async def _receive_chunk(self) -> tuple[bytes, bool]:
        """Return what h11 makes of chunks; nothing may follow on such a connection."""
        try:
            event = self._connection.next_event()
        except h11.RemoteProtocolError:
            self._is_closed = True
            return b"", True
        if event is h11.NEED_DATA:
            await self._send_continue()
            if not self._talk.buffer:
                self._is_closed = not await self._receive_more()
            self._connection.receive_data(bytes(self._talk.buffer))
            self._talk.buffer.clear()
            return b"", True
        await trio.lowlevel.checkpoint()
        return (bytes(event.data), True) if isinstance(event, h11.Data) else (b"", False)

    async def _send_continue(self) -> None:
        if self._connection.client_is_waiting_for_100_continue and self._start is None:
            await self._write(h11.InformationalResponse(status_code=100, headers=[]))

    async def _receive_more(self) -> bool:
        try:
            return await self._talk.receive_more()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False

    async def send(self, message: Message) -> None:
        """Send a part of the response; nothing if the client has disconnected. A checkpoint."""
        if self._is_closed or self._over.is_set():
            await trio.lowlevel.checkpoint()
            return
        if message["type"] == "http.response.start":
            self._start = message
            await trio.lowlevel.checkpoint()
            return
        events: list[h11.Event] = []
        if self._start is not None and self._talk.answers_since is None:
            self._talk.answers_since, self._talk.waits_since = trio.current_time(), None
            events.append(self._response(self._start))
        body: bytes = message.get("body", b"")
        if body and self._has_body():
            events.append(h11.Data(data=body))
        if not message.get("more_body", False):
            events.append(h11.EndOfMessage())
        await self._write(*events)
        if not message.get("more_body", False):
            self._over.set()

    def _has_body(self) -> bool:
        status = 200 if self._start is None else self._start["status"]
        return self._request.method != b"HEAD" and status not in _BODILESS

    def _response(self, start: Message) -> h11.Response:
        headers = [(bytes(name), bytes(value)) for name, value in start.get("headers", ())]
        # Data that is already here need not be read again.
        here = min(self._left, len(self._talk.buffer))
        del self._talk.buffer[:here]
        self._left -= here
        # After chunks, or an unread body, no other request can begin.
        if self._head.length is None or self._left or self._talk.stop.is_set():
            headers.append((b"connection", b"close"))
        return h11.Response(status_code=start["status"], headers=headers)

    async def _write(self, *events: h11.Event) -> None:
        data = b"".join(filter(None, map(self._connection.send, events)))
        try:
            await self._talk.send(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._is_closed = True


def _scope_of(request: h11.Request) -> Scope:
    path, _, query = request.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": request.http_version.decode(),
        "method": request.method.decode(),
        "scheme": "http",
        "path": unquote(path.decode()),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [(bytes(name), bytes(value)) for name, value in request.headers],
        "client": None,
        "server": None,
    }
