"""WebSockets: the handshake of a client, and the messages of an open connection.

The frames are those of wsproto, which does no input and output; the connection is one of the HTTP library,
so that TLS, proxies and limits are the same as for requests. No extension is offered: compression would cost
more than it saves, and its size would have to be limited.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus

import attrs
import httpcore2
import trio
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.utilities import generate_accept_token, generate_nonce

from trioeval.errors import ProviderError, ProviderErrorKind
from trioeval.providers.bounds import too_large
from trioeval.providers.http.failures import clip, excerpt, failure_text, reply_text
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.metering import count_bytes

GOODBYE = 0.5
"""Maximum seconds to wait for the server's part of the closing handshake."""

CHUNK_BYTES = 16 * 1024
"""Maximum bytes of one read: so many frames are handled before other tasks run."""

_PROTOCOLS = "sec-websocket-protocol"

KIND_BY_CODE: Mapping[int, ProviderErrorKind] = {
    1003: "bad_request",
    1007: "bad_request",
    1008: "bad_request",
    1009: "context_window",
    1011: "server",
    1012: "server",
    1013: "overloaded",
    3000: "auth",
    3003: "permission",
    3008: "server",
}
"""The meanings of codes with which a server closes before it has replied (IANA's registry); all others are
lost connections."""


@attrs.frozen
class Handshake:
    """The request that opens a WebSocket, and the check of its reply."""

    _nonce: bytes = attrs.field(factory=generate_nonce, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request."""
        return {
            "upgrade": "websocket",
            "connection": "Upgrade",
            "sec-websocket-version": "13",
            "sec-websocket-key": self._nonce.decode(),
        }

    def check(self, reply: HttpReply, offered: str) -> None:
        """Raise if a reply neither switches to a WebSocket nor is a failure.

        Args:
            reply: The reply to the request.
            offered: The protocols that the request offered, separated by commas.

        Raises:
            ProviderError: `malformed_reply`.
        """
        if reply.status >= HTTPStatus.MULTIPLE_CHOICES:
            return
        if fault := self._fault(reply, offered):
            message = reply_text(reply, fault=fault, advice="check the URL")
            raise ProviderError(
                "malformed_reply", message, status=reply.status, body_excerpt=excerpt(reply.body)
            )

    def _fault(self, reply: HttpReply, offered: str) -> str | None:
        headers = reply.headers
        if reply.status != HTTPStatus.SWITCHING_PROTOCOLS:
            return "the server did not switch to a WebSocket"
        if headers.get("upgrade", "").lower() != "websocket":
            return "the server switched to another protocol than a WebSocket"
        if headers.get("sec-websocket-accept", "").encode() != generate_accept_token(self._nonce):
            return "the server's sec-websocket-accept does not belong to the request"
        if headers.get("sec-websocket-extensions"):
            return "the server uses an extension that was not offered"
        chosen = headers.get(_PROTOCOLS, "")
        if chosen and chosen not in [one.strip() for one in offered.split(",")]:
            return "the server chose a protocol that was not offered"
        return None


@attrs.define(eq=False, repr=False)
class OpenSocket:
    """An open WebSocket; one task at a time may use it. See `WebSocket`."""

    reply: HttpReply
    """The reply to the handshake."""
    _stream: httpcore2.AsyncNetworkStream
    _most: int
    """Maximum bytes of all received messages together."""
    _explain: Callable[[Exception], ProviderError]
    """Returns the error for an exception of the library."""
    _frames: Connection = attrs.field(factory=lambda: Connection(ConnectionType.CLIENT))
    _received: int = 0
    _is_lost: bool = False
    """True if nothing more can be exchanged."""

    async def send(self, text: str) -> None:
        """Send a text message; see `WebSocket.send`."""
        if not text.isascii():  # halves of surrogate pairs have no encoding
            text = text.encode("utf-8", "replace").decode()
        await self._write(TextMessage(data=text))

    async def receive(self) -> str:
        """Return the next message; see `WebSocket.receive`."""
        parts: list[str | bytes | bytearray] = []
        while True:
            for event in self._frames.events():
                match event:
                    case TextMessage() | BytesMessage():
                        parts.append(self._counted(event))
                        if event.message_finished:
                            return _joined(parts)
                    case Ping():
                        await self._write(event.response())
                    case CloseConnection():
                        raise self._closed(event)
                    case _:
                        pass
            await self._read()

    async def aclose(self) -> None:
        """Close the connection, after the closing handshake if the server takes part in it."""
        if self._is_lost or self._has_ended():
            return
        with trio.move_on_after(GOODBYE):
            try:
                await self._stream.write(self._frames.send(CloseConnection(code=1000)))
                while not self._has_ended():
                    data = await self._stream.read(CHUNK_BYTES)
                    if not data:
                        return
                    self._frames.receive_data(data)
                    for _ in self._frames.events():
                        pass  # messages without a receiver
                # What was written last is sent by the next read, which ends with the connection.
                await self._stream.read(1)
            except (httpcore2.NetworkError, httpcore2.ProtocolError):
                pass  # it is closed, one way or the other

    def _has_ended(self) -> bool:
        return self._frames.state is ConnectionState.CLOSED

    def _counted(self, event: TextMessage | BytesMessage) -> str | bytes | bytearray:
        data: str | bytes | bytearray = event.data
        self._received += count_bytes(data) if isinstance(data, str) else len(data)
        if self._received > self._most:
            self._is_lost = True
            source = f"HTTP {self.reply.status} from {self.reply.source}"
            raise ProviderError("malformed_reply", too_large(source, self._most))
        return data

    def _closed(self, event: CloseConnection) -> ProviderError:
        """Return the error for a connection that ended before the reply was complete."""
        source, reason = self.reply.source, clip(event.reason or "")
        if self._frames.state is not ConnectionState.REMOTE_CLOSING:
            self._is_lost = True
            title = "invalid WebSocket frame from"
            return ProviderError("malformed_reply", failure_text(title, source, detail=reason))
        code = int(event.code)
        title = f"closed with code {code} before the end of the reply by"
        kind = KIND_BY_CODE.get(code, "connection")
        return ProviderError(kind, failure_text(title, source, detail=reason))

    async def _write(self, event: Event) -> None:
        try:
            await self._stream.write(self._frames.send(event))
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            self._is_lost = True
            raise self._explain(error) from error

    async def _read(self) -> None:
        try:
            data = await self._stream.read(CHUNK_BYTES)
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            self._is_lost = True
            raise self._explain(error) from error
        if not data:
            self._is_lost = True
            raise self._explain(httpcore2.ReadError("the server closed the connection"))
        self._frames.receive_data(data)


def _joined(parts: list[str | bytes | bytearray]) -> str:
    return "".join(
        part if isinstance(part, str) else part.decode("utf-8", "replace") for part in parts
    )
