"""Whoever keeps limits: what the in-memory, the Redis and the HTTP one have in common, and its users."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

import attrs

from trioeval.kernel import Permit, Permits, Shortage
from trioeval.limits.denials import other_kind, two_of_one_key
from trioeval.limits.json import limit_data
from trioeval.limits.model import (
    MOST,
    Actual,
    Ask,
    Decision,
    Limit,
    LimitKey,
    LimitState,
    Requirement,
    Settlement,
    Unit,
)


@runtime_checkable
class Backend(Protocol):
    """Keeps limits and decides about leases. Every method is one round trip, however many items it has.

    Raises:
        LimitError: `limiter_unavailable`: nobody knows what became of the request; it may be repeated, with
            the same lease ids.
    """

    async def reserve(self, asks: Sequence[Ask], /) -> Sequence[Decision]:
        """Decide about each, in order; the decisions have the same places."""
        ...

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        """End leases. One that is unknown, or over already, changes nothing."""
        ...

    async def extend(self, lease_ids: Sequence[str], /) -> Sequence[bool]:
        """Put off the expiry of the holds of leases; False for one that is over or unknown."""
        ...

    async def states(self) -> Sequence[LimitState]:
        """All limits, by key."""
        ...

    async def define(self, limit: Limit, /) -> LimitState:
        """Make a limit, or change one. A smaller capacity holds as soon as so much of it is free."""
        ...

    async def pause(self, key: str, seconds: float, /) -> LimitState:
        """Grant nothing of a limit for so many seconds from now; 0 opens it again."""
        ...

    async def remove(self, key: str, /) -> None:
        """Forget a limit: whoever asks for it from now on, or waits for it, is denied for good.

        Leases that took of it live on with what else they have.

        Raises:
            LimitError: `unknown_limit_key`.
        """
        ...


class SharedLimits(Protocol):
    """Open shared limits, as lanes use them."""

    def permits(self, lane: str, keys: Sequence[LimitKey]) -> Permits:
        """What the calls of one lane ask before they start.

        Args:
            lane: Its name, for people.
            keys: What each of its calls counts against.
        """
        ...

    async def states(self) -> Sequence[LimitState]:
        """All limits, by key. A checkpoint."""
        ...


# What a call counts against its limits: before it, at most; after it, really.
#
# Amounts are whole numbers: money counts in millionths, and what is counted at most is rounded up.


_MICRO = 1_000_000


def requirements_of(keys: Iterable[LimitKey], tokens: int, money: float) -> tuple[Requirement, ...]:
    """What a request takes at most of each limit, 1 at least.

    Args:
        keys: What it counts against.
        tokens: The most that it may use, ≥ 0.
        money: Likewise, ≥ 0.

    Example:
        >>> keys = LimitKey("m:rpm", "requests"), LimitKey("m:tpm", "tokens")
        >>> [one.amount for one in requirements_of(keys, 512, 0.0)]
        [1, 512]
    """
    return tuple(Requirement(use.key, max(1, _amount(use.unit, tokens, money))) for use in keys)


def actuals_of(keys: Iterable[LimitKey], tokens: int, money: float) -> tuple[Actual, ...]:
    """What it has used; of requests and slots nothing is said: they keep what they took.

    Args:
        keys: What it counts against.
        tokens: What it used; less than nothing is taken as nothing.
        money: Likewise.

    Example:
        >>> keys = LimitKey("m:rpm", "requests"), LimitKey("team:cost_micro", "cost_micro")
        >>> actuals_of(keys, 512, 0.0125)
        (Actual(key='team:cost_micro', amount=12500),)
    """
    return tuple(
        Actual(use.key, _amount(use.unit, tokens, money))
        for use in keys
        if use.unit in {"tokens", "cost_micro"}
    )


def nothing_of(requirements: Iterable[Requirement]) -> tuple[Actual, ...]:
    """What a request has used that was never made."""
    return tuple(Actual(one.key, 0) for one in requirements)


def _amount(unit: Unit, tokens: int, money: float) -> int:
    if unit == "tokens":
        return max(0, min(tokens, MOST))
    if unit == "cost_micro":
        # A float times a million is off by so little that it must not cost a millionth more.
        return MOST if money >= MOST / _MICRO else max(0, math.ceil(round(money * _MICRO, 3)))
    return 1


# What a lane has of a lease: from the question to the end of its request.


class Leases(Protocol):
    """Where the leases of this program come from."""

    def take_nowait(self, job_id: str, requirements: tuple[Requirement, ...], /) -> Ask | None:
        """A lease that can be had in this step; None if there is none."""
        ...

    async def take(
        self,
        job_id: str,
        requirements: tuple[Requirement, ...],
        told: Callable[[Shortage], None],
        /,
    ) -> Ask | None:
        """Wait for a lease; None if the call is to be made without one."""
        ...

    def end(self, ask: Ask, actuals: tuple[Actual, ...], /) -> None:
        """A lease is over. Synchronous."""
        ...


@attrs.frozen
class LanePermits:
    """Where the calls of one lane get their leases."""

    _leases: Leases
    _lane: str
    _keys: tuple[LimitKey, ...]

    def take_nowait(self, index: int, tokens: int, money: float) -> Permit | None:
        """See `Permits`."""
        requirements = requirements_of(self._keys, tokens, money)
        ask = self._leases.take_nowait(f"{self._lane}[{index}]", requirements)
        return None if ask is None else _Lease(self._leases, ask, self._keys)

    async def take(
        self, index: int, tokens: int, money: float, told: Callable[[Shortage], None]
    ) -> Permit:
        """Wait for a lease. A checkpoint. Cancelled, it has taken nothing that is not given back.

        Args:
            index: Of the job that calls.
            tokens: The most that the request may use.
            money: Likewise, in the currency of the calls.
            told: Called synchronously whenever what it waits for changes.

        Raises:
            LimitError: It can never be had, or nobody can be asked.
        """
        requirements = requirements_of(self._keys, tokens, money)
        ask = await self._leases.take(f"{self._lane}[{index}]", requirements, told)
        return _Lease(self._leases, ask, self._keys)


@attrs.define(eq=False)
class _Lease:
    """A lease, until the request that it is for is over."""

    _leases: Leases
    _ask: Ask | None
    """None for a call that nobody could be asked about, and nobody counts."""
    _keys: tuple[LimitKey, ...]
    _is_over: bool = False

    def settle(self, tokens: int, money: float) -> None:
        """The request is over and has used so much."""
        self._end(actuals_of(self._keys, tokens, money))

    def give_back(self) -> None:
        """It was never made."""
        self._end(() if self._ask is None else nothing_of(self._ask.requirements))

    def _end(self, actuals: tuple[Actual, ...]) -> None:
        if self._ask is None:
            return
        if self._is_over:
            msg = f"lease {self._ask.lease_id} of {self._ask.job_id} is over already; please report this"
            raise RuntimeError(msg)
        self._is_over = True
        self._leases.end(self._ask, actuals)


# Making limits where somebody else keeps them: those that are not there yet.
#
# What is there already stays as others have made it.


_WORDS = frozenset({"key", "kind", "unit", "description"})
"""Of a definition, what is the same anyway or decides nothing."""


def made_of(states: Iterable[LimitState]) -> list[Limit]:
    """What has to be made so that limits become as they are to be, where nothing of them is in use.

    Raises:
        LimitError: `invalid_request`: two of them have the same key.
    """
    made: dict[str, Limit] = {}
    for state in states:
        key, pending = state.limit.key, state.pending_capacity
        if key in made:
            raise two_of_one_key(key)
        limit = state.limit
        made[key] = limit if pending is None else attrs.evolve(limit, capacity=pending)
    return list(made.values())


async def make_missing(backend: Backend, limits: Sequence[Limit]) -> list[str]:
    """Make the limits that are not there yet; those that are keep what others have made of them.

    Returns:
        Warnings of those that are there and are not as they are given.

    Raises:
        LimitError: `invalid_request`: one is there of another kind; or as the backend says.
    """
    there = {state.limit.key: state for state in await backend.states()}
    for limit in limits:
        if (state := there.get(limit.key)) is not None and state.limit.kind != limit.kind:
            raise other_kind(limit, state.limit.kind)
    warnings = []
    for limit in limits:
        if (state := there.get(limit.key)) is None:
            await backend.define(limit)
        elif (warning := difference(state, limit)) is not None:
            warnings.append(warning)
    return warnings


def difference(kept: LimitState, given: Limit) -> str | None:
    """A warning, if a limit that is kept does not allow what it is given to allow.

    Example:
        >>> daily = Limit(key="daily", kind="budget", capacity=60)
        >>> difference(LimitState(limit=daily), daily)
        >>> difference(LimitState(limit=attrs.evolve(daily, capacity=9)), daily)
        "the limit 'daily' stays as it is kept (capacity 9), not as it is given here (capacity 60)"
    """
    [limit] = made_of([kept])
    stands, wanted = _definition(limit), _definition(given)
    if stands == wanted:
        return None
    return f"the limit {given.key!r} stays as it is kept ({stands}), not as it is given here ({wanted})"


def _definition(limit: Limit) -> str:
    """All that decides, in words; equal numbers are written alike, whoever sent them."""
    said = (
        f"{name} {int(value) if isinstance(value, float) and value.is_integer() else value}"
        for name, value in limit_data(limit).items()
        if name not in _WORDS
    )
    return ", ".join(said)
