"""The servers of this program on real sockets, and clients that violate the protocol."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio

from trioeval.cli.run.observers import MetricsPage, registry_of
from trioeval.limits import SharedLimit
from trioeval.limits.memory import MemoryLimits
from trioeval.limits.server import ServeSettings, serve_limits
from trioeval.serving.conversation import Bounds
from trioeval.serving.listening import open_listeners, serve_app

SLOTS = SharedLimit(key="slots", kind="concurrency", capacity=1, timeout=30)
TOKEN = "correct-horse"  # noqa: S105


@attrs.frozen
class Reply:
    status: int
    """0 if the server closed the connection."""
    head: str
    body: str


@attrs.frozen
class Local:
    """A server on this machine."""

    port: int
    limits: MemoryLimits

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def ask(
        self, method: str, path: str, headers: Mapping[str, str] = {}, body: str = ""
    ) -> Reply:
        """Send one request unchanged; a header without a value is left out."""
        headers_sent = {
            "host": self.host,
            "connection": "close",
            "content-length": str(len(body)) if body else "",
            **headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers_sent.items() if value)
        found = b""
        async with await self.connect() as stream:
            try:
                await stream.send_all(f"{method} {path} HTTP/1.1\r\n{lines}\r\n{body}".encode())
                async for chunk in stream:
                    found += chunk
            except trio.BrokenResourceError:
                pass  # the server did not read all of it
        head, _, rest = found.decode("latin-1").partition("\r\n\r\n")
        return Reply(int(head.split()[1]) if head else 0, head, rest)


@asynccontextmanager
async def limits_server(
    *, token: str | None = TOKEN, host: str = "127.0.0.1", bounds: Bounds | None = None
) -> AsyncIterator[Local]:
    """Run `trioeval limits serve`, with one limit."""
    limits, stop = MemoryLimits([SLOTS]), trio.Event()
    settings = ServeSettings(
        host=host, port=0, token=token, bounds=bounds or ServeSettings().bounds
    )
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(serve_limits, limits, settings, stop=stop))
        yield Local(int(url.rpartition(":")[2]), limits)
        stop.set()


@asynccontextmanager
async def metrics_server(*, bounds: Bounds | None = None) -> AsyncIterator[Local]:
    """Run the page of `--metrics-port`."""
    stop, page = trio.Event(), MetricsPage(registry_of(list))
    listeners, address = await open_listeners("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        serve = partial(serve_app, page, listeners, stop, grace=0.5, bounds=bounds)
        await nursery.start(serve)
        yield Local(address.port, MemoryLimits())
        stop.set()


def in_trio(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(60):
            await main()

    trio.run(bounded)
