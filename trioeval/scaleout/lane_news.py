"""The news of the lanes of one worker about a provider, for the other workers of a run.

* A wait that the server asked for pauses the shared slots of the lane. A pause is part of the decision about
  a lease, so no other worker starts a call after it, nor does one that joins later. It is never shortened.
* A rate that the server reports becomes the window of the lane's reported rate, over all workers. That there
  is one, or none any more, is published as well: while there is none, calls do not count against it.
* A cut of the adaptive limit is published on a channel, and kept in a hash for workers that join later.
  The others cut their limits to the same number: they have the same server and about the same load. Each one
  grows again by itself.

Nothing here is needed for a limit to hold: without the news, each worker learns the same from its own
refusals. So a lost message is not repeated, and an unreachable server ends no call.

Laws: RETRY_AFTER, AIMD.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NoReturn

import attrs
import orjson
import trio
from coredis.exceptions import RedisError

from trioeval.errors import LimitError
from trioeval.kernel import Event, Lanes
from trioeval.kernel.events import CallEnded, LimitChanged, Throttled
from trioeval.limits.model import LONGEST_PAUSE
from trioeval.limits.redis import RedisLimits, RedisLink
from trioeval.scaleout.lane_sharing import SharedLane, reported_rate

KEPT_SECONDS = 86_400
"""Seconds for which the adaptive limits of a run are kept for workers that join."""
_BRIEF = 0.01
"""A block of fewer seconds is over when the others hear of it."""
_SETTLED_AFTER = 0.1
"""Seconds after which an adaptive limit is passed on: during a wave of refusals it is lower for a moment."""
_RECONNECT = 1.0


def news_key(namespace: str, run_id: str) -> str:
    """Return the name of the channel, and of the hash, with the adaptive limits of a run."""
    return f"{{{namespace}}}:run:{run_id}:lanes"


def rates_key(key: str) -> str:
    """Return the name of the set of the lanes with a reported rate, for the result of `news_key`."""
    return f"{key}:rates"


@attrs.define(eq=False)
class _Changes:
    """The lanes that may have changed."""

    _lanes: dict[str, None] = attrs.field(factory=dict)
    _event: trio.Event = attrs.field(factory=trio.Event)

    def add(self, lane: str) -> None:
        """Add a lane."""
        self._lanes[lane] = None
        self._event.set()

    async def wait(self) -> None:
        """Wait for one. A checkpoint."""
        await self._event.wait()

    def take(self) -> Iterable[str]:
        """Return and forget them."""
        lanes, self._lanes, self._event = self._lanes, {}, trio.Event()
        return lanes


@attrs.define
class _Known:
    """The state of a lane that the other workers know."""

    limit: int
    blocked_until: float = 0.0
    period: float | None = None


@attrs.define(eq=False, repr=False)
class LaneNews:
    """The news of the lanes of one worker.

    Args:
        lanes: Its lanes.
        shared: The shared limits of lanes, by name.
        backend: Their backend.
        link: The same server.
        key: The result of `news_key`.
        sender: The id of the worker, different for each.
        reported: The lanes whose server reports a rate to keep; changed.
    """

    _lanes: Lanes
    _shared: Mapping[str, SharedLane]
    _backend: RedisLimits
    _link: RedisLink
    _key: str
    _sender: str
    _reported: set[str]
    _known: dict[str, _Known] = attrs.field(init=False)
    _waits: _Changes = attrs.field(init=False, factory=_Changes)
    _limits: _Changes = attrs.field(init=False, factory=_Changes)

    @_known.default
    def _own_limits(self) -> dict[str, _Known]:
        return {name: _Known(self._lanes[name].throttle.limit.limit) for name in self._shared}

    def observe(self, event: Event) -> None:
        """Note that a lane may have learned something; an observer of the runs on the lanes."""
        match event:
            case CallEnded() | LimitChanged() | Throttled() if event.lane in self._shared:
                self._waits.add(event.lane)
                self._limits.add(event.lane)
            case _:
                return

    async def send_continuously(self) -> None:
        """Pass news on, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_changed, self._waits, 0.0, self._send_waits)
            nursery.start_soon(self._send_changed, self._limits, _SETTLED_AFTER, self._send_limit)

    async def _send_changed(
        self, changes: _Changes, delay: float, send: Callable[[str], Awaitable[None]]
    ) -> NoReturn:
        while True:
            await changes.wait()
            await trio.sleep(delay)
            for name in changes.take():
                with contextlib.suppress(LimitError, RedisError):
                    await send(name)

    async def listen(self) -> None:
        """Cut the limits of the lanes as other workers do, until cancelled."""
        while True:
            with contextlib.suppress(LimitError, RedisError):
                await self._listen()
            await trio.sleep(_RECONNECT)

    async def _send_waits(self, name: str) -> None:
        """Pass on a wait and a rate that the server of a lane has named."""
        known, shared, throttle = self._known[name], self._shared[name], self._lanes[name].throttle
        until, wait = throttle.blocked_until, throttle.blocked_until - trio.current_time()
        if until > known.blocked_until and wait > _BRIEF:
            known.blocked_until = until
            await self._backend.pause_at_least(shared.slots, min(wait, LONGEST_PAUSE))
        if (period := throttle.reported_period) != known.period:
            known.period = period
            self._hear_rate(name, is_reported=period is not None)
            await self._backend.define(reported_rate(shared.reported_rate, period))
            rates = rates_key(self._key)
            await self._link.request(b"SREM" if period is None else b"SADD", rates, name)
            await self._link.request(b"EXPIRE", rates, KEPT_SECONDS)
            await self._publish({"lane": name, "reported": period is not None})

    async def _send_limit(self, name: str) -> None:
        """Pass on the adaptive limit of a lane."""
        known, limit = self._known[name], self._lanes[name].throttle.limit.limit
        if limit != known.limit:
            is_cut, known.limit = limit < known.limit, limit
            await self._link.request(b"HSET", self._key, name, limit)
            await self._link.request(b"EXPIRE", self._key, KEPT_SECONDS)
            if is_cut:
                await self._publish({"lane": name, "limit": limit})

    async def _publish(self, news: Mapping[str, Any]) -> None:
        data = orjson.dumps({"by": self._sender, **news})
        await self._link.request(b"PUBLISH", self._key, data)

    async def _listen(self) -> None:
        connection = await self._link.connect()
        try:
            connection.send_command(b"SUBSCRIBE", self._key)
            async with contextlib.aclosing(connection.push_messages) as messages:
                async for message in messages:
                    match message:
                        case [b"subscribe", *_]:
                            await self._take_kept()
                        case [b"message", _, bytes() as data]:
                            self._hear(orjson.loads(data))
        finally:
            connection.invalidate("listening has ended")

    def _hear(self, news: Mapping[str, Any]) -> None:
        """Handle the news of another worker."""
        if news["by"] == self._sender:
            return
        if "limit" in news:
            self._narrow(news["lane"], news["limit"])
        else:
            self._hear_rate(news["lane"], is_reported=news["reported"])

    def _hear_rate(self, lane: str, *, is_reported: bool) -> None:
        if is_reported:
            self._reported.add(lane)
        else:
            self._reported.discard(lane)

    async def _take_kept(self) -> None:
        """Take over the limits and rates of the workers that were there before."""
        self._reported.update(await self._link.request(b"SMEMBERS", rates_key(self._key)))
        kept: Any = await self._link.request(b"HGETALL", self._key)
        pairs = kept.items() if isinstance(kept, dict) else zip(kept[::2], kept[1::2], strict=True)
        for name, limit in pairs:
            self._narrow(name, int(limit))

    def _narrow(self, name: str, limit: int) -> None:
        if name in self._known and limit >= 1:
            lane = self._lanes[name]
            lane.narrow(limit)
            self._known[name].limit = lane.throttle.limit.limit
