"""Redis' limits for who does not run on Trio: a state machine calls them, one operation after another."""

import queue
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import attrs
import trio

from trioeval.quota import Ask, Denied, Granted, Limit, LimitState, Settlement
from trioeval.quota.amounts import nothing_of
from trioeval.quota.redis import RedisLimits, open_redis

T = TypeVar("T")


@attrs.define(eq=False)
class RedisPortal:
    """Operates limits at instants that it is given."""

    _limits: RedisLimits
    _token: trio.lowlevel.TrioToken
    _clock: "_Clock"
    _asks: dict[str, Ask] = attrs.Factory(dict)

    def fresh(self, namespace: str) -> "RedisPortal":
        """Other limits on the same server, with nothing in them."""
        limits = attrs.evolve(self._limits, namespace=namespace)
        return RedisPortal(limits, self._token, self._clock)

    def reserve(self, ask: Ask, now: float, /) -> Granted | Denied:
        (decision,) = self._call(now, lambda: self._limits.reserve([ask]))
        assert isinstance(decision, Granted | Denied)
        if isinstance(decision, Granted):
            self._asks[ask.lease_id] = ask
        return decision

    def complete(self, settlement: Settlement, now: float, /) -> None:
        self._call(now, lambda: self._limits.complete([settlement]))

    def release(self, lease_id: str, now: float, /) -> None:
        """What was never used is settled as nothing."""
        ask = self._asks.get(lease_id)
        actuals = nothing_of(ask.requirements) if ask is not None else ()
        self.complete(Settlement(lease_id, "", actuals), now)

    def extend(self, lease_ids: Sequence[str], now: float, /) -> list[bool]:
        return list(self._call(now, lambda: self._limits.extend(lease_ids)))

    def define(self, limit: Limit, now: float, /) -> LimitState:
        return self._call(now, lambda: self._limits.define(limit))

    def pause(self, key: str, until: float, now: float, /) -> LimitState:
        return self._call(now, lambda: self._limits.pause(key, until - now))

    def states(self, now: float, /) -> list[LimitState]:
        return list(self._call(now, self._limits.states))

    def close(self) -> None:
        """What is left belongs to the server, which is ended with its tests."""

    def _call(self, now: float, operation: Callable[[], Awaitable[T]]) -> T:
        self._clock.now = now
        return trio.from_thread.run(operation, trio_token=self._token)


@attrs.define
class _Clock:
    now: float = 0.0


@contextmanager
def open_portal(url: str) -> Iterator[RedisPortal]:
    """Limits on a server, on a Trio run in a thread of its own."""
    ready: queue.SimpleQueue[tuple[RedisPortal, trio.Event]] = queue.SimpleQueue()
    clock = _Clock()

    async def main() -> None:
        over = trio.Event()
        async with open_redis(url, now=lambda: clock.now) as limits:
            ready.put((RedisPortal(limits, trio.lowlevel.current_trio_token(), clock), over))
            await over.wait()

    thread = threading.Thread(target=trio.run, args=(main,), name="limits on Redis")
    thread.start()
    portal, over = ready.get(timeout=20)
    try:
        yield portal
    finally:
        portal._token.run_sync_soon(over.set)
        thread.join(20)
