# Separate from `providers.http.client`: it knows connections, and nothing of requests and replies.
"""The network below the HTTP library: TCP and TLS streams of Trio.

The library writes the head of a request and its body one after the other. Each write is a system call, which
costs as much as everything else that is done for a small request, and a packet. This stream joins them:
written bytes are sent before the next read, or with a long write.
"""

import math
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore2
import trio

_LONG = 2**16
"""Bytes that are sent at once, because joining them would copy them."""


class JoiningStream(httpcore2.AsyncNetworkStream):
    """A stream that sends several writes at once.

    Timeouts of single reads and writes are ignored: the caller's cancel scopes are the only ones.

    Args:
        stream: A TCP stream, or a TLS stream above one.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._unsent = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109 - the library's
        """Send what was written, and return the next bytes that arrive; none at the end. A checkpoint.

        Raises:
            httpcore2.ReadError: The connection is broken.
        """
        try:
            if self._unsent:
                try:
                    await self._send(b"")
                except trio.BrokenResourceError:
                    # A server may refuse a request that it has not read; its reply is read.
                    self._unsent = b""
            return bytes(await self._stream.receive_some(max_bytes))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore2.ReadError(str(error)) from error

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 - the library's
        """Send bytes before the next read. A checkpoint if they are many.

        Raises:
            httpcore2.WriteError: The connection is broken.
        """
        if len(buffer) < _LONG:
            self._unsent += buffer
            return
        try:
            await self._send(buffer)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise httpcore2.WriteError(str(error)) from error

    async def _send(self, more: bytes) -> None:
        unsent, self._unsent = self._unsent, b""
        for part in (unsent, more):
            if part:
                await self._stream.send_all(part)

    async def aclose(self) -> None:
        """Close the connection. A checkpoint."""
        self._unsent = b""
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's
    ) -> httpcore2.AsyncNetworkStream:
        """Return the TLS stream above this one.

        Raises:
            httpcore2.ConnectTimeout: The handshake took too long.
            httpcore2.ConnectError: It failed.
        """
        stream = trio.SSLStream(
            self._stream, ssl_context, server_hostname=server_hostname, https_compatible=True
        )
        is_open = False
        try:
            with trio.fail_after(math.inf if timeout is None else timeout):
                await stream.do_handshake()
            is_open = True
        except trio.TooSlowError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except trio.BrokenResourceError as error:
            raise httpcore2.ConnectError(str(error)) from error
        finally:
            if (
                not is_open
            ):  # the library does not know the connection yet, so it would not close it
                await trio.aclose_forcefully(self._stream)
        return JoiningStream(stream)

    def get_extra_info(self, info: str) -> Any:
        """Return what the library asks for: the TLS object, and whether an idle connection has ended."""
        stream = self._stream
        match info:
            case "ssl_object" if isinstance(stream, trio.SSLStream):
                return stream
            case "is_readable":
                while isinstance(stream, trio.SSLStream):
                    stream = stream.transport_stream
                return isinstance(stream, trio.SocketStream) and stream.socket.is_readable()
            case _:
                return None


class Network(httpcore2.AsyncNetworkBackend):
    """Opens TCP connections."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,  # noqa: ARG002 - none are set
    ) -> httpcore2.AsyncNetworkStream:
        """Return a connection to a server.

        Raises:
            httpcore2.ConnectTimeout: There was none in time.
            httpcore2.ConnectError: It was refused, or the host is not known.
        """
        try:
            with trio.fail_after(math.inf if timeout is None else timeout):
                stream = await trio.open_tcp_stream(host, port, local_address=local_address)
        except trio.TooSlowError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from error
        return JoiningStream(stream)
