"""Leases do not expire while their calls run.

Whoever keeps a concurrency limit gives a hold back after its timeout, because its holder may be gone.
One that is still there says so every third of the timeout, for all of its leases at once, so that two
messages in a row may be lost. A lease without holds is forgotten after ten minutes, and what its call has
used would not count then; so it is extended in the same way. What was said counts from when it was sent:
it may have been long on its way.

A failed heartbeat is told, and ends no call.
"""

import math
from collections.abc import Callable

import attrs
import trio

from trioeval.errors import QuotaError
from trioeval.quota.client_rules import after_silence
from trioeval.quota.reach import Reach
from trioeval.quota.records import LEAST_RETENTION
from trioeval.quota.trouble import ToldTrouble, Trouble

_BEATS = 3
"""Heartbeats in one timeout."""
_MOST = 256
"""Leases in one message."""


@attrs.define(eq=False)
class _Held:
    """A lease whose call runs."""

    keys: frozenset[str]
    said_at: float
    """Instant at which its last message that was answered was sent."""


@attrs.define(eq=False)
class Heartbeat:
    """The live leases of one program."""

    _reach: Reach
    _spread: Callable[[], float]
    _told: ToldTrouble
    _timeouts: dict[str, float] | None = None
    """Of all limits, in seconds; inf of those that hold nothing; None before they are known."""
    _held: dict[str, _Held] = attrs.field(factory=dict)
    _news: trio.Event = attrs.field(factory=trio.Event)

    _due_at: float = -math.inf
    """Instant of the next message."""

    def add(self, lease_id: str, keys: frozenset[str], said_at: float) -> None:
        """A lease is granted. Synchronous.

        Args:
            lease_id: Its id.
            keys: Its limits.
            said_at: Instant at which it was asked for.
        """
        self._held[lease_id] = held = _Held(keys, said_at)
        if self._due_of(held) < self._due_at:
            self._news.set()

    def remove(self, lease_id: str) -> None:
        """It is over. Synchronous."""
        self._held.pop(lease_id, None)

    def may_hold(self, key: str) -> bool:
        """Whether what a lease takes of a limit comes back when it is over, as far as is known."""
        return self._timeouts is None or self._timeouts.get(key, 0.0) < math.inf

    def is_stale(self, keys: frozenset[str], said_at: float, now: float) -> bool:
        """Whether a lease that was asked for then may have expired by now."""
        return now - said_at >= _BEATS * self._period(keys)

    async def run(self) -> None:
        """Keep the leases alive, until cancelled."""
        failures = 0
        while True:
            self._news = trio.Event()
            self._due_at = min(map(self._due_of, self._held.values()), default=math.inf)
            if self._timeouts is not None:
                with trio.move_on_at(self._due_at):
                    await self._news.wait()
                    continue
            trouble = await self._beat()
            if trouble is None:
                failures = 0
                continue
            failures += 1
            if self._held:
                held = tuple(self._held)
                message = (
                    f"the holds of calls under way ({len(held)}) cannot be put off now: {trouble}"
                )
                self._told(Trouble("heartbeat", message, held))
            # Half a beat at most, so that the next attempt may still be in time.
            beat = min((self._period(held.keys) for held in self._held.values()), default=math.inf)
            await trio.sleep(min(after_silence(failures, self._spread()), beat / 2))

    def _period(self, keys: frozenset[str]) -> float:
        """Seconds between two messages for a lease of such limits."""
        timeouts = self._timeouts or {}
        return min([LEAST_RETENTION, *(timeouts.get(key, math.inf) for key in keys)]) / _BEATS

    def _due_of(self, held: _Held) -> float:
        if self._timeouts is None or not held.keys <= self._timeouts.keys():
            return -math.inf  # a limit that nothing is known of
        return held.said_at + self._period(held.keys)

    async def _beat(self) -> str | None:
        """Say that all are still there; what is in the way, if anything is."""
        try:
            await self._learn()
            await self._extend()
        except QuotaError as error:
            return error.message
        return None

    async def _learn(self) -> None:
        """Read the timeouts, which others may change."""
        states = await self._reach.states()
        self._timeouts = {one.limit.key: one.limit.timeout or math.inf for one in states}
        for held in self._held.values():  # of limits that were taken away meanwhile
            for key in held.keys - self._timeouts.keys():
                self._timeouts[key] = math.inf

    async def _extend(self) -> None:
        """Put off the expiry of every lease."""
        leases = list(self._held)
        for start in range(0, len(leases), _MOST):
            part, said_at = leases[start : start + _MOST], trio.current_time()
            for lease_id, lives in zip(part, await self._reach.extend(part), strict=True):
                held = self._held.get(lease_id)
                if held is None:  # its call ended meanwhile
                    continue
                if lives:
                    held.said_at = said_at
                    continue
                del self._held[lease_id]
                message = (
                    "the hold of a call expired while it runs: more may run than the limit allows"
                )
                self._told(Trouble("expired", message, (lease_id,)))
