"""Whoever keeps limits: what the in-memory, the Redis and the HTTP one have in common, and its users."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import attrs

from trioeval.kernel import Permits
from trioeval.quota.leases import Ask, Decision, Settlement
from trioeval.quota.limits import Limit, LimitState, Unit


@runtime_checkable
class Backend(Protocol):
    """Keeps limits and decides about leases. Every method is one round trip, however many items it has.

    Raises:
        QuotaError: `limiter_unavailable`: nobody knows what became of the request; it may be repeated, with
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
            QuotaError: `unknown_limit_key`.
        """
        ...


@attrs.frozen
class KeyUse:
    """A limit that the calls of a lane count against."""

    key: str
    unit: Unit
    """What of a call counts: 1 for `requests` and `slots`, its tokens, or its cost in millionths."""


class Quota(Protocol):
    """An open quota, as lanes use it."""

    def permits(self, lane: str, keys: Sequence[KeyUse]) -> Permits:
        """What the calls of one lane ask before they start.

        Args:
            lane: Its name, for people.
            keys: What each of its calls counts against.
        """
        ...

    async def states(self) -> Sequence[LimitState]:
        """All limits, by key. A checkpoint."""
        ...
