"""Limits that a Redis server keeps, for many processes and machines.

Every operation, also one about many leases, is one run of one script on the server, which is one step there:
between looking whether there is room and taking it nothing else happens. Instants are the server's, so the
clocks of its clients do not matter. The server keeps all state; a client that is killed leaves its holds to
their timeout, and one that is restarted finds everything as it was.

Rejected: the client's clock (windows of two machines would overlap by as much as their clocks differ), and
optimistic transactions (under contention most attempts are for nothing).
"""

import contextlib
import functools
import hashlib
import math
from collections.abc import AsyncIterator, Callable, Sequence
from importlib import resources
from typing import Any, NoReturn

import attrs
import orjson
import trio
from coredis.exceptions import NoScriptError, RedisError

from trioeval.errors import QuotaError
from trioeval.quota.denials import (
    Lack,
    check_definition,
    check_pause,
    denied,
    never,
    other_kind,
    other_requirements,
    wrong_ask,
)
from trioeval.quota.leases import Ask, Decision, Granted, Settlement
from trioeval.quota.limits import Limit, LimitState
from trioeval.quota.redis_link import Link, open_link

_MICRO = 1_000_000
_RECONNECT = 1.0
"""Seconds between attempts to listen again."""


@functools.cache
def _script() -> tuple[str, str]:
    """What runs on the server, and the name under which it remembers it."""
    text = (resources.files("trioeval.quota") / "lua" / "quota.lua").read_text(encoding="utf-8")
    return text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


@attrs.define(eq=False)
class RedisLimits:
    """Limits under one name on a Redis server. A `Backend`.

    Args:
        namespace: What the limits are kept under there: without braces, and not blank.
        now: The instant in seconds, for tests that give it; None for the server's clock.
    """

    _link: Link
    namespace: str
    _now: Callable[[], float] | None = None

    async def reserve(self, asks: Sequence[Ask], /) -> Sequence[Decision]:
        """Decide about each, in order. One round trip."""
        wrong = [wrong_ask(ask) for ask in asks]
        sent = [ask for ask, mistake in zip(asks, wrong, strict=True) if mistake is None]
        items = [(one.lease_id, [(r.key, r.amount) for r in one.requirements]) for one in sent]
        answers = iter(await self._run("reserve", items) if sent else ())
        return [
            mistake if mistake is not None else _decision(ask, next(answers))
            for ask, mistake in zip(asks, wrong, strict=True)
        ]

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        """End leases. One round trip."""
        items = [(one.lease_id, [(a.key, a.amount) for a in one.actuals]) for one in settlements]
        await self._run("complete", items)

    async def extend(self, lease_ids: Sequence[str], /) -> Sequence[bool]:
        """Put off the expiry of the holds of leases. One round trip."""
        return [answer == 1 for answer in await self._run("extend", list(lease_ids))]

    async def states(self) -> Sequence[LimitState]:
        """All limits, by key."""
        states = [_state(row) for row in await self._run("states", [])]
        return sorted(states, key=lambda state: state.limit.key)

    async def define(self, limit: Limit, /) -> LimitState:
        """Make a limit, or change one.

        Raises:
            QuotaError: `invalid_request`: there is one of another kind under its key, or it is out of range.
        """
        check_definition(limit)
        span = _micro(limit.window or limit.timeout or limit.reset or 0.0)
        items = (limit.key, limit.kind, limit.capacity, span)
        told = (limit.overage, limit.unit, limit.description)
        is_done, answer = await self._run("define", [*items, *told])
        if not is_done:
            raise other_kind(limit, answer)
        return _state(answer)

    async def pause(self, key: str, seconds: float, /) -> LimitState:
        """Grant nothing of a limit for so many seconds; 0 opens it.

        Raises:
            QuotaError: `unknown_limit_key`; `invalid_request`: so many seconds are out of range.
        """
        check_pause(key, seconds)
        is_done, answer = await self._run("pause", [key, _micro(seconds)])
        if not is_done:
            raise QuotaError("unknown_limit_key", f"there is no limit {key!r}", keys=(key,))
        return _state(answer)

    async def remove(self, key: str, /) -> None:
        """Forget a limit, and what leases have taken of it.

        Raises:
            QuotaError: `unknown_limit_key`.
        """
        if not await self._run("remove", [key]):
            raise QuotaError("unknown_limit_key", f"there is no limit {key!r}", keys=(key,))

    async def wakes(self, told: Callable[[tuple[str, ...]], None]) -> NoReturn:
        """Listen for room, so that whoever waits asks again at once. Runs until it is cancelled.

        It is a help and no promise: what is told while the connection is lost, or of room that comes by
        itself, is not heard. Whoever waits must ask again after `retry_after` all the same.

        Args:
            told: Called synchronously with the keys that have room again; with none of them whenever
                listening begins, since anything may have happened before.
        """
        while True:
            with contextlib.suppress(QuotaError, RedisError):
                await self._listen(told)
            await trio.sleep(_RECONNECT)

    async def _listen(self, told: Callable[[tuple[str, ...]], None]) -> None:
        connection = await self._link.connect()
        try:
            connection.send_command(b"SUBSCRIBE", f"{self._tag}:room")
            async with contextlib.aclosing(connection.push_messages) as messages:
                async for message in messages:
                    match message:
                        case [b"subscribe", *_]:
                            told(())
                        case [b"message", _, bytes() as keys]:
                            told(tuple(orjson.loads(keys)))
        finally:
            connection.invalidate("nobody listens any more")

    @property
    def _tag(self) -> str:
        return "{" + self.namespace + "}"

    async def _run(self, operation: str, items: Sequence[object]) -> Any:
        text, name = _script()
        now = "" if self._now is None else _micro(self._now())
        rest = (1, self._tag, operation, now, orjson.dumps(items))
        try:
            try:
                return await self._link.request(b"EVALSHA", name, *rest)
            except NoScriptError:
                # A server that was restarted has forgotten it; this makes it remember.
                return await self._link.request(b"EVAL", text, *rest)
        except RedisError as error:
            # Loading, read-only, out of memory: nothing was done, and it may pass.
            raise QuotaError("limiter_unavailable", f"{self._link}: {error}") from error


@contextlib.asynccontextmanager
async def open_redis(
    url: str,
    *,
    namespace: str = "trioeval",
    request_timeout: float = 2.0,
    now: Callable[[], float] | None = None,
) -> AsyncIterator[RedisLimits]:
    """Limits that a Redis server keeps. Nothing is asked of it before the first operation.

    Args:
        url: `redis://[user:password@]host[:port][/db]`, `rediss://…` for TLS, or `unix:///path[?db=…]`.
        namespace: Whoever shares the limits uses the same one; no braces, not blank.
        request_timeout: Seconds, > 0, after which nobody knows what became of a request.
        now: The instant in seconds, for tests that give it; None for the server's clock.

    Raises:
        QuotaError: `invalid_request`: the URL or the namespace is none.
    """
    if not namespace.strip() or "{" in namespace or "}" in namespace:
        msg = f"the namespace {namespace!r} must not be blank or have braces"
        raise QuotaError("invalid_request", msg)
    async with open_link(url, request_timeout) as link:
        yield RedisLimits(link, namespace, now)


def _micro(seconds: float) -> int:
    return round(seconds * _MICRO)


def _decision(ask: Ask, answer: Sequence[Any]) -> Decision:
    match answer:
        case [1, reserved_at]:
            return Granted(reserved_at / _MICRO)
        case [_, "invalid_request", *_]:
            return other_requirements(ask.lease_id)
        case [_, ("exceeds_capacity" | "budget_exhausted") as reason, _, lacks]:
            return never(reason, [_lack(*one) for one in lacks])
        case [_, reason, retry_after, keys]:
            return denied(reason, keys, retry_after / _MICRO)
    msg = f"Redis answers {answer!r}"  # only a script that is not ours does
    raise QuotaError("limiter_unavailable", msg)


def _lack(key: str, amount: int, capacity: int, left: int, anew: int) -> Lack:
    return Lack(key, amount, capacity, left, math.inf if anew < 0 else anew / _MICRO)


def _state(row: Sequence[Any]) -> LimitState:
    (
        key,
        kind,
        capacity,
        span,
        overage,
        unit,
        description,
        pending,
        used,
        outstanding,
        debt,
        paused,
        began,
        closed,
    ) = row
    seconds = span / _MICRO or None
    return LimitState(
        limit=Limit(
            key=key,
            kind=kind,
            capacity=capacity,
            window=seconds if kind == "rolling" else None,
            timeout=seconds if kind == "concurrency" else None,
            reset=seconds if kind == "budget" else None,
            overage=overage,
            unit=unit,
            description=description,
        ),
        status="decreasing" if pending else "active",
        pending_capacity=pending or None,
        used=used,
        outstanding=outstanding,
        debt=debt,
        paused_until=paused / _MICRO if paused else None,
        paused_for=closed / _MICRO if closed else None,
        began_at=began / _MICRO if kind == "budget" and span else None,
    )
