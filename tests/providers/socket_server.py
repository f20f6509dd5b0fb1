"""A WebSocket server for tests, on loopback: each connection is a conversation that the test writes."""

import json
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import attrs
import trio
from wsproto import ConnectionType, WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)


@attrs.frozen
class Refusal:
    """A reply in place of the handshake's."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = attrs.field(factory=dict)


@attrs.define(eq=False)
class Peer:
    """The server's side of one connection."""

    target: str
    headers: Mapping[str, str]
    stream: Any
    _ws: WSConnection
    closed_with: int | None = None
    pongs: int = 0

    async def receive(self) -> str | None:
        """Return the next message; None if the client has closed."""
        text = ""
        while True:
            for event in self._ws.events():
                match event:
                    case TextMessage(data=part, message_finished=is_whole):
                        text += part
                        if is_whole:
                            return text
                    case CloseConnection(code=code):
                        self.closed_with = code
                        if self._ws.state is ConnectionState.REMOTE_CLOSING:
                            await self._send(event.response())
                        return None
                    case Ping():
                        await self._send(event.response())
                    case Pong():
                        self.pongs += 1
                    case _:
                        pass
            data = await self.stream.receive_some()
            if not data:
                return None
            self._ws.receive_data(bytes(data))

    async def receive_json(self) -> Any:
        """Return the next message as JSON; None if the client has closed."""
        message = await self.receive()
        return None if message is None else json.loads(message)

    async def say(self, *messages: Any) -> None:
        """Send messages; what is not a text is sent as JSON."""
        for one in messages:
            text = one if isinstance(one, str | bytes) else json.dumps(one)
            event = BytesMessage(data=text) if isinstance(text, bytes) else TextMessage(data=text)
            await self._send(event)

    async def say_part(self, text: str, *, is_last: bool) -> None:
        """Send a fragment of a message."""
        await self._send(TextMessage(data=text, message_finished=is_last))

    async def ping(self) -> None:
        """Send a ping."""
        await self._send(Ping(payload=b"are you there"))

    async def close(self, code: int, reason: str = "") -> None:
        """Send a close frame."""
        await self._send(CloseConnection(code=code, reason=reason))

    async def _send(self, event: Event) -> None:
        await self.stream.send_all(self._ws.send(event))


Talk: TypeAlias = Callable[[Peer], Awaitable[None]]


@attrs.define(eq=False)
class SocketServer:
    """A running server, and its connections."""

    port: int
    scheme: str = "ws"
    host: str = "127.0.0.1"
    peers: list[Peer] = attrs.field(factory=list)
    refusals: list[Refusal] = attrs.field(factory=list)
    """Replies to the next handshakes, used up one by one."""
    finished: int = 0
    """Connections that the server has seen to their end."""
    news: trio.Event = attrs.field(factory=trio.Event)

    @property
    def url(self) -> str:
        """The URL of a WebSocket."""
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def base_url(self) -> str:
        """The URL of HTTP."""
        return f"http{self.url[2:]}"

    async def wait_finished(self, count: int) -> None:
        """Wait until so many connections have ended."""
        while self.finished < count:
            self.news = trio.Event()
            await self.news.wait()


@asynccontextmanager
async def serve_sockets(
    talk: Talk, tls: ssl.SSLContext | None = None, *refusals: Refusal
) -> AsyncGenerator[SocketServer]:
    """Serve until the block ends."""
    async with trio.open_nursery() as nursery:
        listeners: list[Any] = list(await trio.open_tcp_listeners(0, host="127.0.0.1"))
        server = SocketServer(listeners[0].socket.getsockname()[1], refusals=list(refusals))
        if tls is not None:
            server.scheme, server.host = "wss", "localhost"
            listeners = [trio.SSLListener(one, tls) for one in listeners]
        await nursery.start(trio.serve_listeners, partial(_serve, server, talk), listeners)
        yield server
        nursery.cancel_scope.cancel()


async def _serve(server: SocketServer, talk: Talk, stream: Any) -> None:
    ws = WSConnection(ConnectionType.SERVER)
    try:
        async with stream:
            request = await _receive_request(ws, stream)
            if request is None:
                return
            headers = {name.decode(): value.decode() for name, value in request.extra_headers}
            peer = Peer(request.target, headers, stream, ws)
            server.peers.append(peer)
            if server.refusals:
                await _refuse(ws, stream, server.refusals.pop(0))
                return
            protocol = request.subprotocols[0] if request.subprotocols else None
            await stream.send_all(ws.send(AcceptConnection(subprotocol=protocol)))
            await talk(peer)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client went away
    finally:
        server.finished += 1
        server.news.set()


async def _receive_request(ws: WSConnection, stream: Any) -> Request | None:
    while True:
        data = await stream.receive_some()
        if not data:
            return None
        ws.receive_data(bytes(data))
        for event in ws.events():
            if isinstance(event, Request):
                return event


async def _refuse(ws: WSConnection, stream: Any, refusal: Refusal) -> None:
    head = {**refusal.headers, "content-length": str(len(refusal.body))}
    headers = [(name.encode(), value.encode()) for name, value in head.items()]
    data = ws.send(
        RejectConnection(status_code=refusal.status, headers=headers, has_body=bool(refusal.body))
    )
    if refusal.body:
        data += ws.send(RejectData(data=refusal.body))
    await stream.send_all(data)


async def hear(peer: Peer) -> None:
    """Receive until the client closes."""
    while await peer.receive() is not None:
        pass
