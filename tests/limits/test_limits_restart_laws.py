"""The laws of limits and leases over restarts at any step: of a ledger, a file, a server, and Redis.

A killed server leaves only its files, as they were at that moment. Real processes and signals are in
`tests/e2e/test_limits_restarts.py`.
"""

import itertools
import json
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from limits_machine import restarting_machine
from limits_portal import Portal, PortalBackend, open_portal
from patience import PATIENCE
from redis_server import RedisServer, needs_redis, open_server

from trioeval.limits import LeaseRequest
from trioeval.limits.backend import Backend
from trioeval.limits.file import open_file_limits
from trioeval.limits.http_client import open_http_limits
from trioeval.limits.ledger import LimitLedger, Snapshot
from trioeval.limits.redis import open_redis
from trioeval.limits.server import ServeSettings, serve_limits

MANY = settings().max_examples
_names = itertools.count()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the environment."""
    monkeypatch.setenv("NO_PROXY", "*")


class LedgerSubject:
    """A ledger that is restored from a snapshot at each restart."""

    keeps_denials = False

    def __init__(self) -> None:
        self._take(LimitLedger())

    def _take(self, ledger: LimitLedger) -> None:
        self.ledger = ledger
        self.reserve = ledger.reserve
        self.complete = ledger.complete
        self.extend = ledger.extend
        self.define = ledger.define
        self.pause = ledger.pause
        self.states = ledger.states

    def restart(self, _end: str, _lost: LeaseRequest, _cut: float, now: float) -> None:
        written = json.dumps(attrs.asdict(self.ledger.snapshot(now)))
        self._take(LimitLedger.of_snapshot(Snapshot(**json.loads(written))))

    def close(self) -> None:
        """Do nothing: nothing is open."""


TestBookRestarts = restarting_machine(LedgerSubject).TestCase
TestBookRestarts.settings = settings(max_examples=MANY // 2, stateful_step_count=50)


class Forwarding:
    """A subject in front of another one, which may be replaced."""

    backend: PortalBackend

    def __init__(self, portal: Portal) -> None:
        self.portal = portal

    def _take(self, backend: PortalBackend) -> None:
        self.backend = backend
        self.reserve = backend.reserve
        self.complete = backend.complete
        self.extend = backend.extend
        self.define = backend.define
        self.pause = backend.pause
        self.states = backend.states

    def _repeated(self, opened: Callable[[], AbstractAsyncContextManager[Backend]]) -> None:
        self._take(self.portal.open(opened))

    def close(self) -> None:
        self.backend.close()


@asynccontextmanager
async def _served(path: Path, now: Callable[[], float]) -> AsyncGenerator[Backend]:
    """The limits of a file over HTTP."""
    stop = trio.Event()
    async with open_file_limits(path, now=now) as filed, trio.open_nursery() as nursery:
        url = await nursery.start(partial(serve_limits, filed, ServeSettings(port=0), stop=stop))
        async with open_http_limits(url, request_timeout=PATIENCE) as backend:
            yield backend
        stop.set()


class FiledSubject(Forwarding):
    """The limits of a file."""

    keeps_denials = False

    def __init__(
        self, portal: Portal, opened: Callable[..., AbstractAsyncContextManager[Backend]]
    ) -> None:
        super().__init__(portal)
        self.opened = opened
        # In memory if possible: each step waits for the disk.
        shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
        self.folder = tempfile.TemporaryDirectory(prefix="limits-", dir=shared)
        self.path = self._new_place()
        self._take(portal.open(self._opened))

    def _new_place(self) -> Path:
        folder = Path(self.folder.name) / f"{next(_names)}"
        folder.mkdir()
        return folder / "limits.json"

    def _opened(self) -> AbstractAsyncContextManager[Backend]:
        return self.opened(self.path, now=lambda: self.portal.now)

    def _files(self) -> dict[str, bytes]:
        """Return everything on disk."""
        folder = self.path.parent
        return {one.name: one.read_bytes() for one in folder.iterdir() if one.suffix != ".lock"}

    def restart(self, end: str, lost: LeaseRequest, cut: float, now: float) -> None:
        left = self._files()
        if end == "lose":
            self.backend.reserve(lost, now)
            name = f"{self.path.name}.journal"
            before, after = left.get(name, b""), self._files().get(name, b"")
            if before and after.startswith(before):
                left[name] = after[: len(before) + int(cut * (len(after) - len(before)))]
        self.portal.now = now
        self.backend.close()
        if end != "stop":
            self.path = self._new_place()
            for name, data in left.items():
                (self.path.parent / name).write_bytes(data)
        self._repeated(self._opened)

    def close(self) -> None:
        super().close()
        self.folder.cleanup()


@pytest.fixture(scope="module")
def portal() -> Iterator[Portal]:
    with open_portal() as opened:
        yield opened


@pytest.mark.slow
def test_the_laws_hold_over_restarts_with_a_file(portal: Portal) -> None:
    """The server is closed, killed, or killed while it writes."""
    run_state_machine_as_test(
        restarting_machine(lambda: FiledSubject(portal, open_file_limits)),
        settings=settings(max_examples=MANY // 4, stateful_step_count=40),
    )


@pytest.mark.slow
@pytest.mark.network
def test_the_laws_hold_over_restarts_over_http(portal: Portal) -> None:
    """Each life has its own server and client."""
    run_state_machine_as_test(
        restarting_machine(lambda: FiledSubject(portal, _served)),
        settings=settings(max_examples=MANY // 20, stateful_step_count=30),
    )


class RedisSubject(Forwarding):
    """Limits in Redis: a `stop` ends the client; otherwise the server is killed, and its clock set back."""

    keeps_denials = True

    def __init__(self, portal: Portal, server: RedisServer) -> None:
        super().__init__(portal)
        self.server, self.namespace = server, f"example-{next(_names)}"
        self.behind = 0.0
        self._take(portal.open(self._opened))

    def _opened(self) -> AbstractAsyncContextManager[Backend]:
        return open_redis(
            self.server.url,
            namespace=self.namespace,
            now=lambda: self.portal.now - self.behind,
            request_timeout=PATIENCE,
        )

    def restart(self, end: str, _lost: LeaseRequest, _cut: float, now: float) -> None:
        if end != "stop":
            self.states(now)
            self.behind += 3600
        self.backend.close()
        if end != "stop":
            self.server.kill()
            self.server.start()
        self._repeated(self._opened)
        self.states(now)  # the clock was set back between two reads at the same instant


@pytest.mark.slow
@pytest.mark.network
@needs_redis
def test_the_laws_hold_over_restarts_of_redis(portal: Portal) -> None:
    """Clients end, and a killed server reads its append-only file."""
    with open_server("--appendonly", "yes", "--appendfsync", "always") as server:
        run_state_machine_as_test(
            restarting_machine(lambda: RedisSubject(portal, server)),
            settings=settings(max_examples=MANY // 20, stateful_step_count=30),
        )
