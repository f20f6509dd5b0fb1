"""An HTTP server on its own sockets, with a bound on connections."""

import socket
from functools import partial

import attrs
import trio

from trioeval.open_files import is_out_of_files
from trioeval.serving.conversation import App, Bounds, HttpConnection

_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared


@attrs.frozen
class Address:
    """The address of a server."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """The URL without a trailing slash."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def is_everywhere(self) -> bool:
        """True if it means all addresses of this machine, and so cannot be opened itself."""
        return self.host in _EVERYWHERE

    @property
    def here(self) -> "Address":
        """The address to open on this machine."""
        return Address(_EVERYWHERE.get(self.host, self.host), self.port)

    def elsewhere(self) -> "list[Address]":
        """The addresses to open on other machines: if it means all, the numeric one and the host name."""
        if not self.is_everywhere:
            return [self]
        names = [*filter(None, [_own_number(self.host)]), socket.gethostname()]
        return [Address(name, self.port) for name in names]


def _own_number(host: str) -> str | None:
    """Return the address from which this machine would reach others; None without one. Sends nothing."""
    is_6 = ":" in host
    with socket.socket(socket.AF_INET6 if is_6 else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(
                ("2001:db8::1" if is_6 else "192.0.2.1", 9)
            )  # addresses for documentation
        except OSError:
            return None
        found: str = probe.getsockname()[0]
    return found


async def open_listeners(host: str, port: int) -> tuple[list[trio.SocketListener], Address]:
    """Listen; return the listeners and the address.

    Args:
        host: A name or an address.
        port: 0 takes a free port.

    Raises:
        OSError: The address is not available.
    """
    listeners = await trio.open_tcp_listeners(port, host=host)
    name = listeners[0].socket.getsockname()
    return listeners, Address(name[0], name[1])


@attrs.frozen
class ConnectionPool:
    """All connections, up to the bound; a new one may close the one that waited longest for its client."""

    _most: int
    _inside: list[HttpConnection] = attrs.field(init=False, factory=list)

    async def serve(self, talk: HttpConnection) -> None:
        """Accept a connection, if there is room or can be made, and serve it to its end.

        Where the process may open fewer descriptors than that, the bound is lower: a client that cannot be
        accepted would otherwise wait for as long as the accepted ones stay.
        """
        is_full = len(self._inside) >= self._most
        if (is_full or is_out_of_files()) and not self._make_room() and is_full:
            talk.scope.cancel("all connections are being served")
        self._inside.append(talk)
        try:
            await talk.run()
        finally:
            if talk in self._inside:
                self._inside.remove(talk)

    def _make_room(self) -> bool:
        """Close the connection that has waited for its client for the longest time; return if there is one.

        Where none waits, an endless response, like that of a page that follows a run, is cut off: a browser
        reconnects by itself. Requests whose response has not started are completed.
        """
        waiting = [one for one in self._inside if one.waits_since is not None]
        telling = [one for one in self._inside if one.answers_since is not None]
        if waiting:
            leaves = min(waiting, key=lambda one: one.waits_since or 0.0)
        elif telling:
            leaves = min(telling, key=lambda one: one.answers_since or 0.0)
        else:
            return False
        self._inside.remove(leaves)
        leaves.scope.cancel("another connection needs the place")
        return True

    def send_home(self) -> None:
        """Close the connections without a request in progress."""
        for talk in self._inside:
            if talk.is_between:
                talk.scope.cancel("the server stops")


async def serve_app(  # noqa: ASYNC114 - started in a nursery of its own
    app: App,
    listeners: list[trio.SocketListener],
    stop: trio.Event,
    *,
    grace: float,
    bounds: Bounds | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an ASGI application; return soon after the stop.

    Args:
        app: The application; it ends its endless responses by itself once `stop` is set.
        listeners: Closed at the end.
        stop: When set, new connections are refused.
        grace: Seconds that responses in progress may take after the stop.
        bounds: The limits of each client, and of all.
        task_status: Notified when connections are accepted.
    """
    bounds = bounds or Bounds()
    crowd = ConnectionPool(bounds.connections)

    async def converse(accepted: trio.SocketStream) -> None:
        await crowd.serve(HttpConnection(accepted, app, bounds, stop))

    async with trio.open_nursery() as inside:
        async with trio.open_nursery() as doors:
            doors.start_soon(
                partial(trio.serve_listeners, converse, listeners, handler_nursery=inside)
            )
            task_status.started()
            await stop.wait()
            doors.cancel_scope.cancel("stopped")
        inside.cancel_scope.deadline = trio.current_time() + grace
        crowd.send_home()
