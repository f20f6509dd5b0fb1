"""Hundreds of clients that send nothing, or never finish: a real client is served nevertheless."""

import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
import trio.testing
from local_servers import TOKEN, Local, in_trio, limits_server, metrics_server

from trioeval.limits import Granted, LeaseRequest, Requirement
from trioeval.limits.http_client import open_http_limits
from trioeval.open_files import lowest_free
from trioeval.serving.conversation import Bounds, Receive, Scope, Send
from trioeval.serving.listening import open_listeners, serve_app

pytestmark = [pytest.mark.attack("slow and idle clients"), pytest.mark.network]

CROWD = 256
HELD = {
    "nothing": b"",
    "half a head": b"GET / HTTP/1.1\r\nho",
    "half a body": b"POST /v1/reserve HTTP/1.1\r\nhost: localhost\r\n"
    b"content-type: application/json\r\ncontent-length: 100\r\n\r\n{",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "an answered request": b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is connected directly, whatever the environment of the machine is."""
    monkeypatch.setenv("NO_PROXY", "*")


async def crowd(port: int, sent: bytes, count: int) -> list[socket.socket]:
    """Open a number of clients, each of which has sent some data and waits."""
    found = []
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(sent)
        found.append(client)
        await trio.lowlevel.checkpoint()
    return found


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("kind", ["limits", "metrics"])
def test_idle_clients_do_not_block_new_ones(name: str, kind: str) -> None:
    """With one and a half times the maximum of clients, each of five new ones is served at once."""
    bounds = Bounds(connections=CROWD)
    opened: AbstractAsyncContextManager[Local] = (
        limits_server(token=None, bounds=bounds)
        if kind == "limits"
        else metrics_server(bounds=bounds)
    )
    path = "/healthz" if kind == "limits" else "/metrics"

    async def main() -> None:
        async with opened as server:
            clients = await crowd(server.port, HELD[name], CROWD + CROWD // 2)
            with trio.fail_after(50):
                for _ in range(5):
                    assert (await server.ask("GET", path)).status == 200
            for client in clients:
                client.close()

    in_trio(main)


def test_a_client_of_limits_keeps_its_lease_while_idle_clients_connect() -> None:
    """Its own connection may be closed as well: it uses another one."""

    async def main() -> None:
        async with (
            limits_server(bounds=Bounds(connections=8)) as server,
            open_http_limits(server.url, token=TOKEN) as backend,
        ):
            for number in range(3):
                clients = await crowd(server.port, b"", 12)
                ask = LeaseRequest("lease", "job", (Requirement("slots", 1),))
                (decision,) = await backend.reserve([ask])
                assert isinstance(decision, Granted), number
                for client in clients:
                    client.close()

    in_trio(main)


@asynccontextmanager
async def endless_server(bounds: Bounds, work: Callable[[Send], object]) -> AsyncIterator[int]:
    """Run a server whose responses never end; yield its port."""

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
            await trio.sleep(0 if work is endless else 60)

    listeners, address = await open_listeners("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(
            lambda **more: serve_app(app, listeners, trio.Event(), grace=0, bounds=bounds, **more)
        )
        yield address.port
        nursery.cancel_scope.cancel("seen")


def endless(_send: Send) -> None:
    """Send more data all the time."""


def quiet(_send: Send) -> None:
    """Send nothing more."""


@pytest.mark.parametrize("work", [endless, quiet])
def test_endless_responses_end_when_a_new_client_connects(work: Callable[[Send], object]) -> None:
    """The oldest endless response ends, even if the client reads it."""
    sent = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"

    async def main() -> None:
        async with endless_server(Bounds(connections=4), work) as port:
            clients = await crowd(port, sent, 8)
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            await stream.send_all(sent)
            with trio.fail_after(50):
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
            await stream.aclose()
            for client in clients:
                client.close()

    in_trio(main)


def test_a_request_in_progress_is_never_cut_off() -> None:
    """The next connection is closed while all others are being served."""

    async def main() -> None:
        inside, go = trio.Semaphore(0), trio.Event()

        async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
            inside.release()
            await go.wait()
            headers = [(b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body"})

        listeners, address = await open_listeners("127.0.0.1", 0)
        bounds, sent = Bounds(connections=2), b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
        async with trio.open_nursery() as nursery:
            stop = trio.Event()
            await nursery.start(
                lambda **more: serve_app(app, listeners, stop, grace=60, bounds=bounds, **more)
            )
            first = [await trio.open_tcp_stream("127.0.0.1", address.port) for _ in range(2)]
            for stream in first:
                await stream.send_all(sent)
                await inside.acquire()
            async with await trio.open_tcp_stream("127.0.0.1", address.port) as third:
                assert await third.receive_some() == b""
            stop.set()  # it is answered nevertheless
            go.set()
            for stream in first:
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")
                await stream.aclose()

    in_trio(main)


@pytest.mark.skipif(sys.platform == "win32", reason="has no such limit")
def test_idle_clients_do_not_block_new_ones_if_few_files_may_be_open() -> None:
    """The process reaches its file limit long before the maximum of connections."""
    import resource

    async def main() -> None:
        async with limits_server(token=None) as server:
            clients = [socket.socket() for _ in range(120)]
            free, usual = lowest_free(), resource.getrlimit(resource.RLIMIT_NOFILE)
            assert free is not None
            resource.setrlimit(resource.RLIMIT_NOFILE, (free + 80, usual[1]))
            try:
                for client in clients:
                    client.connect(("127.0.0.1", server.port))
                    await trio.testing.wait_all_tasks_blocked(0.001)
                with trio.fail_after(50):
                    for _ in range(5):
                        assert (await server.ask("GET", "/healthz")).status == 200
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, usual)
            for client in clients:
                client.close()

    in_trio(main)
