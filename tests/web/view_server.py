"""The live view on a real socket, and a client that ignores the rules of browsers."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import attrs
import trio

from trioeval.cli.app import run_command_line
from trioeval.cli.run.storage import RunStorage
from trioeval.serving.access_rules import OwnNames
from trioeval.serving.conversation import Bounds
from trioeval.serving.listening import Address, open_listeners, serve_app
from trioeval.web.app import LiveView
from trioeval.web.pages import StoreReading
from trioeval.web.security import AccessRules
from trioeval.web.watches import RunWatches

NOW = datetime(2026, 1, 2, tzinfo=UTC)
COOKIE = "view"


def make_store(folder: Path, suite: str) -> Path:
    """Write a database with a run of a suite by the command line."""
    path, database = folder / "suite.yaml", folder / "runs.db"
    path.write_text(suite)
    flags = ["--no-table", "--no-progress", "--no-cache", "--quiet", "--db"]
    assert run_command_line([str(path), *flags, str(database)]) in {0, 100}
    return database


def in_trio(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        with trio.fail_after(60):
            await main()

    trio.run(bounded)


@attrs.frozen
class Reply:
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def session(self) -> dict[str, str]:
        """Return the headers of a browser with this page."""
        token = re.search(r'"X-CSRF-Token": "(\w+)"', self.body)
        cookie = self.headers.get("set-cookie", "").partition(";")[0]
        return {"cookie": cookie} | ({} if token is None else {"x-csrf-token": token[1]})


@attrs.frozen
class Server:
    address: Address
    stop: trio.Event
    watches: RunWatches

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.address.port}"

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.address.port)

    async def ask(
        self,
        path: str,
        headers: Mapping[str, str] = {},
        *,
        method: str = "GET",
        body: str = "",
        more: str = "",
    ) -> Reply:
        """Send a request exactly as given."""
        stream = await self.connect()
        sent = {
            "host": self.host,
            "connection": "close",
            "content-length": str(len(body)),
            **headers,
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items() if value)
        await stream.send_all(f"{method} {path} HTTP/1.1\r\n{lines}{more}\r\n{body}".encode())
        found = b""
        async with stream:
            async for chunk in stream:
                found += chunk
        return reply_of(found)

    async def steer(self, run: str, **form: str) -> Reply:
        """Send a command like the buttons of a page."""
        page = await self.ask("/")
        body = "&".join(f"{name}={value}" for name, value in form.items())
        headers = {**page.session, "origin": f"http://{self.host}"}
        return await self.ask(f"/steer/{run}", headers, method="POST", body=body)


def reply_of(found: bytes) -> Reply:
    head, _, body = found.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name: value for name, _, value in (line.partition(": ") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = b"".join(re.split(rb"(?:^|\r\n)[0-9a-f]+\r\n", body))
    return Reply(int(first.split()[1]), headers, body.decode(errors="replace"))


@asynccontextmanager
async def serving(
    database: Path,
    *,
    token: str | None = None,
    host: str = "127.0.0.1",
    bounds: Bounds | None = None,
) -> AsyncIterator[Server]:
    """Run a server; at the end it is stopped, and must end soon."""
    listeners, address = await open_listeners("127.0.0.1", 0)
    stop, store = trio.Event(), StoreReading(database)
    names = iter(f"session{number}" for number in range(1000))
    door = AccessRules(
        names=OwnNames(host=host, machine=frozenset({"my-machine"})),
        token=token,
        secret=b"secret",
        cookie=COOKIE,
        make_id=partial(next, names),
    )
    async with trio.open_nursery() as followers:
        watches = RunWatches(store, followers)
        view = LiveView(
            store=store,
            watches=watches,
            stop=stop,
            now=lambda: NOW,
            resume=RunStorage(database=database).continuation,
        )
        async with trio.open_nursery() as nursery:
            serve = partial(serve_app, grace=0.5, bounds=bounds)
            await nursery.start(serve, view.app(door), listeners, stop)
            yield Server(address, stop, watches)
            stop.set()
            nursery.cancel_scope.deadline = trio.current_time() + 20  # a stop takes 0.5 s
        assert not nursery.cancel_scope.cancelled_caught
        followers.cancel_scope.cancel("over")
