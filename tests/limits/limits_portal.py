"""Backends for tests that do not run on Trio: a state machine calls them, one operation after another."""

import queue
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

import attrs
import trio
from patience import PATIENCE

from trioeval.limits import Denied, Granted, LeaseRequest, LimitState, Settlement, SharedLimit
from trioeval.limits.backend import Backend

T = TypeVar("T")


@attrs.define(eq=False)
class Portal:
    """A Trio run in a separate thread, in which backends are open; tests give the instants."""

    token: trio.lowlevel.TrioToken
    nursery: trio.Nursery
    now: float = 0.0

    def open(self, opened: Callable[[], AbstractAsyncContextManager[Backend]]) -> "PortalBackend":
        """Open a backend, whose clock is to be `now`."""
        backend = PortalBackend(self)

        async def begin() -> None:
            self.nursery.start_soon(backend.hold, opened)
            await backend.opened.wait()

        trio.from_thread.run(begin, trio_token=self.token)
        return backend

    def call(self, operation: Callable[[], Awaitable[T]], now: float) -> T:
        """Carry out an operation at an instant."""
        self.now = now
        return trio.from_thread.run(operation, trio_token=self.token)


@attrs.define(eq=False)
class PortalBackend:
    """A backend that is called at instants of the test. A `Subject` of the machine."""

    portal: Portal
    backend: Backend = attrs.field(init=False)
    opened: trio.Event = attrs.Factory(trio.Event)
    _over: trio.Event = attrs.Factory(trio.Event)
    _closed: trio.Event = attrs.Factory(trio.Event)

    async def hold(self, opened: Callable[[], AbstractAsyncContextManager[Backend]]) -> None:
        """Keep the backend open until it is closed."""
        async with opened() as self.backend:
            self.opened.set()
            await self._over.wait()
        self._closed.set()

    def reserve(self, ask: LeaseRequest, now: float, /) -> Granted | Denied:
        (decision,) = self.portal.call(lambda: self.backend.reserve([ask]), now)
        assert isinstance(decision, Granted | Denied)
        return decision

    def complete(self, settlement: Settlement, now: float, /) -> None:
        self.portal.call(lambda: self.backend.complete([settlement]), now)

    def extend(self, lease_ids: Sequence[str], now: float, /) -> list[bool]:
        return list(self.portal.call(lambda: self.backend.extend(lease_ids), now))

    def define(self, limit: SharedLimit, now: float, /) -> LimitState:
        return self.portal.call(lambda: self.backend.define(limit), now)

    def pause(self, key: str, until: float, now: float, /) -> LimitState:
        return self.portal.call(lambda: self.backend.pause(key, until - now), now)

    def states(self, now: float, /) -> list[LimitState]:
        return list(self.portal.call(self.backend.states, now))

    def close(self) -> None:
        """Close the backend, and wait for that."""

        async def end() -> None:
            self._over.set()
            await self._closed.wait()

        trio.from_thread.run(end, trio_token=self.portal.token)


@contextmanager
def open_portal() -> Iterator[Portal]:
    """A Trio run in a thread, for as long as the block."""
    ready: queue.SimpleQueue[Portal] = queue.SimpleQueue()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            ready.put(Portal(trio.lowlevel.current_trio_token(), nursery))
            await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(main,), name="limits")
    thread.start()
    portal = ready.get(timeout=PATIENCE)
    try:
        yield portal
    finally:
        portal.token.run_sync_soon(portal.nursery.cancel_scope.cancel, "done")
        thread.join(PATIENCE)
