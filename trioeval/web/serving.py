"""The server of the live view: hypercorn's Trio worker, which a slow or stubborn browser cannot hold up."""

import logging
import socket
from functools import partial
from typing import Any

import attrs
import trio
from hypercorn.config import Config
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app

STOP_GRACE = 0.5
"""Seconds that answers under way may take after the stop."""

_PATIENCE = 10.0  # seconds in which a browser takes a piece of an answer, or is hung up on
_PIECE = 64 * 1024  # bytes
_MOST = 256  # connections at once; who has no token can open some, too
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared

_logger = logging.getLogger(__name__)


@attrs.frozen
class ImpatientStream:
    """A connection whose other end has to read: hypercorn would wait for it for ever, under a shield."""

    _inner: trio.SocketStream
    _patience: float = _PATIENCE
    """Seconds in which a piece has to be taken."""

    @property
    def socket(self) -> trio.socket.SocketType:
        """What it is on."""
        return self._inner.socket

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send everything, or give up. A checkpoint.

        Raises:
            trio.BrokenResourceError: Nothing was read at the other end for a while.
        """
        left = memoryview(data)
        while left:
            with trio.move_on_after(self._patience) as scope:
                await self._inner.send_all(left[:_PIECE])
            if scope.cancelled_caught:
                self.socket.close()  # whoever reads from it is told, too
                raise trio.BrokenResourceError("nobody reads at the other end")
            left = left[_PIECE:]

    async def receive_some(self, most: int | None = None) -> bytes | bytearray:
        """As that of a stream."""
        return await self._inner.receive_some(most)

    async def send_eof(self) -> None:
        """As that of a stream."""
        await self._inner.send_eof()

    async def aclose(self) -> None:
        """As that of a stream."""
        await self._inner.aclose()


@attrs.frozen
class Address:
    """Where the server is reached."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Without a slash at its end."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def is_everywhere(self) -> bool:
        """Whether it is that of all addresses of this machine, which is none that can be opened."""
        return self.host in _EVERYWHERE

    @property
    def here(self) -> "Address":
        """What this machine itself opens."""
        return Address(_EVERYWHERE.get(self.host, self.host), self.port)

    def elsewhere(self) -> "list[Address]":
        """What other machines open: where they are all, that in numbers if there is one, and the name."""
        if not self.is_everywhere:
            return [self]
        names = [*filter(None, [_own_number(self.host)]), socket.gethostname()]
        return [Address(name, self.port) for name in names]


def _own_number(host: str) -> str | None:
    """The address from which this machine would reach others; None if it reaches none. Sends nothing."""
    is_6 = ":" in host
    with socket.socket(socket.AF_INET6 if is_6 else socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("2001:db8::1" if is_6 else "192.0.2.1", 9))  # of nobody
        except OSError:
            return None
        found: str = asked.getsockname()[0]
    return found


async def open_listeners(host: str, port: int) -> tuple[list[trio.SocketListener], Address]:
    """Listen, and say where.

    Args:
        host: A name or an address.
        port: 0 takes a free one.

    Raises:
        OSError: The address cannot be had.
    """
    listeners = await trio.open_tcp_listeners(port, host=host)
    name = listeners[0].socket.getsockname()
    return listeners, Address(name[0], name[1])


async def serve_app(  # noqa: ASYNC114 - started in a nursery of its own
    app: Any,
    listeners: list[trio.SocketListener],
    stop: trio.Event,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an ASGI application; return soon after the stop.

    Args:
        app: It ends its endless answers by itself once `stop` is set.
        listeners: Closed at the end.
        stop: From then on nobody is let in.
        task_status: Told when connections are accepted.
    """
    config = Config()
    config.errorlog = _logger
    config.include_server_header = False
    context, wrapped = WorkerContext(None), wrap_app(app, 0, "asgi")
    streams: set[trio.SocketStream] = set()

    async def converse(accepted: trio.SocketStream) -> None:
        if len(streams) == _MOST:
            await accepted.aclose()
            return
        streams.add(accepted)
        try:
            # Its types know neither plain sockets nor the ASGI of starlette.
            server: Any = TCPServer
            await server(wrapped, config, context, ConnectionState({}), ImpatientStream(accepted))
        finally:
            streams.discard(accepted)

    async def hang_up() -> None:
        try:
            await trio.sleep_forever()
        finally:
            for stream in streams:  # what is sent under a shield ends with its socket
                stream.socket.close()

    async with trio.open_nursery() as everything:
        everything.start_soon(hang_up)
        async with trio.open_nursery() as inside:
            async with trio.open_nursery() as doors:
                doors.start_soon(
                    partial(trio.serve_listeners, converse, listeners, handler_nursery=inside)
                )
                task_status.started()
                await stop.wait()
                doors.cancel_scope.cancel("stopped")
            everything.cancel_scope.deadline = trio.current_time() + STOP_GRACE
            await context.terminated.set()
        everything.cancel_scope.cancel("all are answered")
