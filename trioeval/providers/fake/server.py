"""The fake provider on a socket: HTTP/1.1 by h11 on a Trio server, without decisions about replies.

One task serves one connection. While a reply is delayed the task watches its socket, so a client that
disconnects is noticed at once and none of its requests stay in flight.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Literal, TypeAlias

import attrs
import h11
import trio

from trioeval.providers.fake.limits import Headers
from trioeval.providers.fake.replies import Ending, FakeModel, FakeReply, error_body, to_json
from trioeval.providers.fake.requests import RequestKind, find_route, read_operation, read_request
from trioeval.providers.fake.settings import FakeSettings
from trioeval.serving.listening import Address

# The log of finished completions. Pure.
#
# Tests of paid replies need to know which ones were sent. The server knows; a client that was killed does
# not.


@attrs.frozen(kw_only=True)
class ServedCompletion:
    """A request for a completion, and the end of its reply."""

    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")
    """The body of the request."""
    status: int
    """The decided status; the ending shows whether it was sent."""
    ending: Ending
    seconds: float
    """Seconds from the arrival of the request to its end."""
    busy_seconds: float
    """Seconds until the end of the reply was about to be sent; 0 if the request was refused."""
    sent_bytes: int
    """Bytes of the reply, including its head, that the operating system accepted before the end."""

    def to_line(self, utc_at: float) -> str:
        """Return the record as a line of JSON, including its line end.

        Args:
            utc_at: The time of the end, in seconds since 1970.
        """
        ask = read_request("chat", self.body)
        request = {} if isinstance(ask, str) else {"model": ask.model, "prompt": ask.prompt}
        record = {
            "utc_at": utc_at,
            "seconds": self.seconds,
            "busy_seconds": self.busy_seconds,
            "digest": hashlib.sha256(self.body).hexdigest(),
            "status": self.status,
            "ending": self.ending,
            "bytes": self.sent_bytes,
            **request,
        }
        return json.dumps(record, separators=(",", ":")) + "\n"


CHUNK_BYTES = 64 * 1024

LINGER = 1.0
"""Maximum seconds for a client to finish sending unread data, so that it receives the reply."""


Deliver: TypeAlias = Callable[[FakeReply, Callable[[], None]], Awaitable[None]]
"""Sends a decided reply, and calls the function when its end is about to be sent."""


@attrs.frozen
class FakeAddress(Address):
    """The address of a fake provider."""

    @property
    def base_url(self) -> str:
        """The value for `apiBaseUrl`."""
        return f"{self.url}/v1"


async def serve_fake(
    settings: FakeSettings,
    on_served: Callable[[ServedCompletion], None] | None = None,
    *,
    task_status: trio.TaskStatus[FakeAddress] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve a fake provider until cancelled.

    It answers `POST /v1/chat/completions` (also without `/v1`), `POST /v1/images/generations`,
    `POST /v1/audio/speech`, `POST /v1/videos` and Google's `:predictLongRunning` with their polls and
    downloads, `GET /v1/realtime` (a WebSocket), `GET /stats`, `GET /health` and `POST /reset`.

    Args:
        settings: Its configuration.
        on_served: Called with each finished completion, in order. An exception of it ends the server.
        task_status: Gets the address as soon as connections are accepted.

    Raises:
        OSError: The address cannot be bound.

    Example:
        ```python
        async with trio.open_nursery() as nursery:
            address = await nursery.start(serve_fake, FakeSettings(latency_s=0.05))
            print(address.base_url)
        ```
    """
    rng = Random(settings.seed)  # noqa: S311 - repeatable faults, nothing to keep secret
    model = FakeModel.of(settings, rng, trio.current_time())
    listeners = await trio.open_tcp_listeners(settings.port, host=settings.host)
    host, port = listeners[0].socket.getsockname()[:2]
    task_status.started(FakeAddress(host, port))
    await trio.serve_listeners(partial(_serve_connection, model, on_served), listeners)


async def _serve_connection(
    model: FakeModel,
    on_served: Callable[[ServedCompletion], None] | None,
    stream: trio.SocketStream,
) -> None:
    connection = _FakeConnection(stream, model, on_served)
    try:
        while await connection.serve_request():
            pass
    except trio.BrokenResourceError:
        pass  # the client disconnected


@attrs.define(eq=False, repr=False)
class _FakeConnection:
    _stream: trio.SocketStream
    _model: FakeModel
    _on_served: Callable[[ServedCompletion], None] | None
    _sent_bytes: int = attrs.field(init=False, default=0)
    _http: h11.Connection = attrs.field(init=False, factory=lambda: h11.Connection(h11.SERVER))

    async def serve_request(self) -> bool:
        """Serve the next request.

        Returns:
            Whether another request may follow on the connection.

        Raises:
            trio.BrokenResourceError: The client disconnected.
        """
        try:
            request = await self._receive()
            if not isinstance(request, h11.Request):
                return False
            body = await self._receive_body(request)
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint, f"Invalid HTTP: {error}.")
            return False
        if body is None:
            limit = self._model.settings.max_body_bytes
            await self._refuse(413, f"The body is larger than {limit} bytes.")
            return False
        if not await self._dispatch(request, body) or self._http.our_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def _dispatch(self, request: h11.Request, body: bytes) -> bool:
        """Reply to a request; return False if the connection was cut on purpose."""
        path = request.target.decode("ascii", "replace").partition("?")[0]
        found = find_route(path)
        if found is None:
            await self._report_missing(path, is_head=request.method == b"HEAD")
            return True
        route, name = found
        if request.method != route.method.encode():
            error = error_body(f"{path} supports only {route.method}.", "invalid_request_error")
            allowed = (("allow", route.method),)
            await self._reply(405, error, allowed, is_head=request.method == b"HEAD")
            return True
        match route.what:
            case "stats":
                await self._reply(200, to_json(self._model.statistics.to_json()))
            case "reset":
                self._model.reset(trio.current_time())
                await self._reply(200, b"{}")
            case "health":
                await self._reply(200, b'{"status":"ok"}')
            case "realtime":
                return await self._talk(request)
            case "job" | "fetch" | "content":
                await self._show_video(path, route.what, name, body)
            case kind:
                return await self._complete(body, kind, name, self._deliver)
        return True

    async def _show_video(
        self, path: str, what: Literal["job", "fetch", "content"], name: str, body: bytes
    ) -> None:
        """Reply to a poll or a download, which cost nothing and count against no limit."""
        videos = self._model.videos
        if what == "content":
            if (content := videos.content(name)) is not None:
                await self._reply(200, content, content_type="video/mp4")
                return
            found = None
        elif what == "fetch":
            found = videos.look(read_operation(body), with_bytes=True)
        else:
            found = videos.look(name)
        if found is None:
            await self._report_missing(path)
        else:
            await self._reply(200, to_json(found))

    async def _report_missing(self, path: str, *, is_head: bool = False) -> None:
        error = error_body(f"Path {path} not found.", "invalid_request_error")
        await self._reply(404, error, is_head=is_head)

    async def _talk(self, request: h11.Request) -> bool:
        """Serve a session of the Realtime API, or refuse a request that is not a handshake."""
        from wsproto.utilities import generate_accept_token

        from trioeval.providers.fake.realtime import FakeSocket

        headers = dict(request.headers)
        key = headers.get(b"sec-websocket-key")
        if key is None or headers.get(b"upgrade", b"").lower() != b"websocket":
            error = error_body("The Realtime API is a WebSocket.", "invalid_request_error")
            await self._reply(426, error, (("upgrade", "websocket"),))
            return True
        switch = [("upgrade", "websocket"), ("connection", "Upgrade")]
        accept = ("sec-websocket-accept", generate_accept_token(key).decode())
        await self._send(h11.InformationalResponse(status_code=101, headers=[*switch, accept]))
        target, (early, _) = request.target.decode("ascii", "replace"), self._http.trailing_data
        socket = FakeSocket.of(self._stream, self._send_bytes, target, early)

        async def respond(body: bytes) -> bool:
            return await self._complete(body, "chat", "", socket.deliver)

        await socket.serve(respond)
        return False

    async def _complete(self, body: bytes, kind: RequestKind, model: str, deliver: Deliver) -> bool:
        """Serve a request, and count it; return False if the connection was cut on purpose."""
        arrived_at = trio.current_time()
        answer = self._model.begin(arrived_at, body, kind, model)
        ending: Ending = "abandoned"
        replied_at: float | None = None

        def reply() -> None:
            # Before it is sent: its receiver may send the next request before this task continues.
            nonlocal replied_at
            replied_at = trio.current_time()
            self._model.reply(answer)

        sent_before = self._sent_bytes
        try:
            await deliver(answer, reply)
            ending = "cut" if answer.is_cut else "sent"
        finally:
            now = trio.current_time()
            self._model.end(now, answer, ending, replied=replied_at is not None)
            if self._on_served is not None:
                self._on_served(
                    ServedCompletion(
                        body=body,
                        status=answer.status,
                        ending=ending,
                        seconds=now - arrived_at,
                        busy_seconds=(replied_at or now) - arrived_at if answer.is_let_in else 0.0,
                        sent_bytes=self._sent_bytes - sent_before,
                    )
                )
        return not answer.is_cut

    async def _deliver(self, answer: FakeReply, reply: Callable[[], None]) -> None:
        """Send a reply over HTTP after its delay; `reply` is called when its end is about to be sent."""
        if answer.events:
            await self._stream_events(answer, reply)
            return
        if answer.delay:
            await self._wait(answer.delay)
        reply()
        if answer.is_cut:
            head = self._head(answer.status, answer.body, answer.headers, answer.content_type)
            await self._send(head)
            await self._send(h11.Data(data=answer.body[: len(answer.body) // 2]))
        else:
            await self._reply(
                answer.status, answer.body, answer.headers, content_type=answer.content_type
            )

    async def _stream_events(self, answer: FakeReply, reply: Callable[[], None]) -> None:
        """Send the first event after half of the delay, the others evenly over the other half."""
        await self._wait(answer.delay / 2)
        kind = ("content-type", "text/event-stream")
        await self._send(h11.Response(status_code=answer.status, headers=[kind, *answer.headers]))
        events = answer.events[: len(answer.events) // 2] if answer.is_cut else answer.events
        started_at, gap = trio.current_time(), answer.delay / 2 / len(answer.events)
        for number, event in enumerate(events):
            await self._wait(started_at + number * gap - trio.current_time())
            if number == len(events) - 1:
                reply()
            await self._send(h11.Data(data=event))
        if not answer.is_cut:
            await self._send(h11.EndOfMessage())

    async def _wait(self, delay: float) -> None:
        """Sleep, and raise if the client disconnects meanwhile."""
        with trio.move_on_after(max(0.0, delay)):
            while True:
                self._http.receive_data(await self._receive_bytes())

    async def _receive(self) -> object:
        """Return the next event of the connection."""
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._stream.receive_some(CHUNK_BYTES))

    async def _receive_bytes(self) -> bytes:
        data = await self._stream.receive_some(CHUNK_BYTES)
        if not data:
            raise trio.BrokenResourceError("the client disconnected")
        return bytes(data)

    async def _receive_body(self, request: h11.Request) -> bytes | None:
        """Return the whole body, or None if it is too large."""
        limit = self._model.settings.max_body_bytes
        if int(dict(request.headers).get(b"content-length", b"0")) > limit:
            return None
        body = bytearray()
        while isinstance(event := await self._receive(), h11.Data):
            body += event.data
            if len(body) > limit:
                return None
        return bytes(body)

    async def _refuse(self, status: int, message: str) -> None:
        """Reply to an invalid request, and let the client receive the reply."""
        body = error_body(message, "invalid_request_error")
        await self._reply(status, body, (("connection", "close"),))
        await self._stream.send_eof()
        # Closing with unread bytes would reset the connection and lose the reply.
        with trio.move_on_after(LINGER):
            while await self._stream.receive_some(CHUNK_BYTES):
                pass

    async def _reply(
        self,
        status: int,
        body: bytes,
        headers: Headers = (),
        *,
        content_type: str = "application/json",
        is_head: bool = False,
    ) -> None:
        head = self._head(status, body, headers, content_type)
        content = () if is_head else (h11.Data(data=body),)
        await self._send(head, *content, h11.EndOfMessage())

    def _head(self, status: int, body: bytes, headers: Headers, content_type: str) -> h11.Response:
        general = (("content-type", content_type), ("content-length", str(len(body))))
        return h11.Response(status_code=status, headers=[*general, *headers])

    async def _send(self, *events: h11.Event) -> None:
        """Send all events in one piece: each system call costs as much as the rest of a reply."""
        await self._send_bytes(b"".join(self._http.send(event) or b"" for event in events))

    async def _send_bytes(self, data: bytes) -> None:
        await self._stream.send_all(data)
        self._sent_bytes += len(data)
