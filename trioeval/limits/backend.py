"""The interfaces of limit backends (memory, Redis, HTTP) and the permits that lanes get from them."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, runtime_checkable

import attrs

from trioeval.kernel import Permit, Permits, Shortage
from trioeval.limits.denials import duplicate_key, kind_mismatch
from trioeval.limits.json import limit_data
from trioeval.limits.model import (
    MOST,
    Actual,
    Decision,
    LeaseRequest,
    LimitKey,
    LimitState,
    Requirement,
    Settlement,
    SharedLimit,
    Unit,
)


@runtime_checkable
class Backend(Protocol):
    """Keep limits and decide about leases. Each method is one round trip for any number of items.

    Raises:
        LimitError: `limiter_unavailable`: the outcome of the request is unknown; it may be repeated with the
            same lease ids.
    """

    async def reserve(self, asks: Sequence[LeaseRequest], /) -> Sequence[Decision]:
        """Decide about each request; the decisions have the same order."""
        ...

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        """End leases. A lease that is unknown or already over changes nothing."""
        ...

    async def extend(self, lease_ids: Sequence[str], /) -> Sequence[bool]:
        """Postpone the expiry of the holds of leases; False for a lease that is over or unknown."""
        ...

    async def states(self) -> Sequence[LimitState]:
        """Return all limits, by key."""
        ...

    async def define(self, limit: SharedLimit, /) -> LimitState:
        """Create or change a limit. A smaller capacity takes effect as soon as that much of it is free."""
        ...

    async def pause(self, key: str, seconds: float, /) -> LimitState:
        """Grant nothing of a limit for `seconds` from now; 0 resumes it."""
        ...

    async def remove(self, key: str, /) -> None:
        """Remove a limit. Requests for it, waiting or later, are denied for good.

        Leases that hold a share of it keep their other shares.

        Raises:
            LimitError: `unknown_limit_key`.
        """
        ...


class SharedLimits(Protocol):
    """Open shared limits, as lanes use them."""

    def permits(self, lane: str, keys: Sequence[LimitKey]) -> Permits:
        """Return the permits that the calls of one lane acquire before they start.

        Args:
            lane: Its name, for messages.
            keys: The limits that each of its calls counts against.
        """
        ...

    async def states(self) -> Sequence[LimitState]:
        """Return all limits, by key. A checkpoint."""
        ...


# The amounts of a call: an upper bound before it, the actual usage after it.
#
# Amounts are whole numbers: money counts in millionths, and upper bounds are rounded up.


_MICRO = 1_000_000


def requirements_of(keys: Iterable[LimitKey], tokens: int, money: float) -> tuple[Requirement, ...]:
    """Return the most that a request takes of each limit, at least 1.

    Args:
        keys: The limits that it counts against.
        tokens: The most tokens that it may use, ≥ 0.
        money: The most money that it may cost, ≥ 0.

    Example:
        >>> keys = LimitKey("m:rpm", "requests"), LimitKey("m:tpm", "tokens")
        >>> [one.amount for one in requirements_of(keys, 512, 0.0)]
        [1, 512]
    """
    return tuple(Requirement(use.key, max(1, _amount(use.unit, tokens, money))) for use in keys)


def actuals_of(keys: Iterable[LimitKey], tokens: int, money: float) -> tuple[Actual, ...]:
    """Return the actual usage of a request. Requests and slots are left out: they keep what they reserved.

    Args:
        keys: The limits that it counts against.
        tokens: The tokens that it used; a negative number counts as 0.
        money: The money that it cost; a negative number counts as 0.

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
    """Return the usage of a request that was never sent."""
    return tuple(Actual(one.key, 0) for one in requirements)


def _amount(unit: Unit, tokens: int, money: float) -> int:
    if unit == "tokens":
        return max(0, min(tokens, MOST))
    if unit == "cost_micro":
        # The rounding error of a float times a million must not add a millionth.
        return MOST if money >= MOST / _MICRO else max(0, math.ceil(round(money * _MICRO, 3)))
    return 1


# The lease of a call, from its request to the end of the call.


class Leases(Protocol):
    """The source of a program's leases."""

    def take_nowait(
        self, job_id: str, requirements: tuple[Requirement, ...], /
    ) -> LeaseRequest | None:
        """Return a lease that is available at once, or None."""
        ...

    async def take(
        self,
        job_id: str,
        requirements: tuple[Requirement, ...],
        on_shortage: Callable[[Shortage], None],
        /,
    ) -> LeaseRequest | None:
        """Wait for a lease; None if the call is to be made without one."""
        ...

    def end(self, ask: LeaseRequest, actuals: tuple[Actual, ...], /) -> None:
        """End a lease. Synchronous."""
        ...


@attrs.frozen
class LanePermits:
    """The leases of the calls of one lane."""

    _leases: Leases
    _lane: str
    _keys: tuple[LimitKey, ...]

    def take_nowait(self, index: int, tokens: int, money: float) -> Permit | None:
        """Return a lease that is available at once, or None; see `Permits`."""
        requirements = requirements_of(self._keys, tokens, money)
        ask = self._leases.take_nowait(f"{self._lane}[{index}]", requirements)
        return None if ask is None else _RequestLease(self._leases, ask, self._keys)

    async def take(
        self, index: int, tokens: int, money: float, on_shortage: Callable[[Shortage], None]
    ) -> Permit:
        """Wait for a lease. A checkpoint. A cancelled call keeps nothing.

        Args:
            index: The index of the job that calls.
            tokens: The most tokens that the request may use.
            money: The most money that it may cost, in the currency of the calls.
            on_shortage: Called synchronously whenever the reason for waiting changes.

        Raises:
            LimitError: The lease will never be granted, or the backend is unreachable.
        """
        requirements = requirements_of(self._keys, tokens, money)
        ask = await self._leases.take(f"{self._lane}[{index}]", requirements, on_shortage)
        return _RequestLease(self._leases, ask, self._keys)


@attrs.define(eq=False, repr=False)
class _RequestLease:
    """A lease, until its request is over."""

    _leases: Leases
    _ask: LeaseRequest | None
    """None for a call without a lease, made while the backend was unreachable."""
    _keys: tuple[LimitKey, ...]
    _is_over: bool = False

    def settle(self, tokens: int, money: float) -> None:
        """Record the actual usage of a request that is over."""
        self._end(actuals_of(self._keys, tokens, money))

    def give_back(self) -> None:
        """Return the lease of a request that was never sent."""
        self._end(() if self._ask is None else nothing_of(self._ask.requirements))

    def _end(self, actuals: tuple[Actual, ...]) -> None:
        if self._ask is None:
            return
        if self._is_over:
            msg = f"lease {self._ask.lease_id} of {self._ask.job_id} is already over; please report this"
            raise RuntimeError(msg)
        self._is_over = True
        self._leases.end(self._ask, actuals)


# Creating missing limits in a backend.
#
# Existing limits stay as they are.


_WORDS = frozenset({"key", "kind", "unit", "description"})
"""The parts of a definition that are equal anyway or decide nothing."""


def definitions_of(states: Iterable[LimitState]) -> list[SharedLimit]:
    """Return the definitions with which limits have their final capacity.

    Raises:
        LimitError: `invalid_request`: two of them have the same key.
    """
    made: dict[str, SharedLimit] = {}
    for state in states:
        key, pending = state.limit.key, state.pending_capacity
        if key in made:
            raise duplicate_key(key)
        limit = state.limit
        made[key] = limit if pending is None else attrs.evolve(limit, capacity=pending)
    return list(made.values())


async def create_missing(backend: Backend, limits: Sequence[SharedLimit]) -> list[str]:
    """Create the limits that do not exist yet; existing ones stay as they are.

    Returns:
        Warnings of existing limits that differ from the given ones.

    Raises:
        LimitError: `invalid_request`: one exists with another kind; or an error of the backend.
    """
    there = {state.limit.key: state for state in await backend.states()}
    for limit in limits:
        if (state := there.get(limit.key)) is not None and state.limit.kind != limit.kind:
            raise kind_mismatch(limit, state.limit.kind)
    warnings = []
    for limit in limits:
        if (state := there.get(limit.key)) is None:
            await backend.define(limit)
        elif (warning := difference(state, limit)) is not None:
            warnings.append(warning)
    return warnings


def difference(state: LimitState, given: SharedLimit) -> str | None:
    """Return a warning if an existing limit differs from the given one.

    Example:
        >>> daily = SharedLimit(key="daily", kind="budget", capacity=60)
        >>> difference(LimitState(limit=daily), daily)
        >>> difference(LimitState(limit=attrs.evolve(daily, capacity=9)), daily)
        "limit 'daily' stays as it is (capacity 9); the different definition here (capacity 60) is ignored"
    """
    [limit] = definitions_of([state])
    stands, definition = _definition(limit), _definition(given)
    if stands == definition:
        return None
    return (
        f"limit {given.key!r} stays as it is ({stands}); "
        f"the different definition here ({definition}) is ignored"
    )


def _definition(limit: SharedLimit) -> str:
    """Return everything that decides, as text; equal numbers have the same text, whatever their type."""
    facts = (
        f"{name} {int(value) if isinstance(value, float) and value.is_integer() else value}"
        for name, value in limit_data(limit).items()
        if name not in _WORDS
    )
    return ", ".join(facts)
