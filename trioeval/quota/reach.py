"""Whoever keeps the limits, and for how long nobody has answered there.

All that a program asks goes through here, so that one that waits knows what others have found out:
after a long outage not every call has to wait for its own patience to end. Any answer ends an outage.
One begins only with what is asked again until there is an answer; else nobody might ever hear one.
"""

import math
from collections.abc import Sequence

import attrs
import trio

from trioeval.errors import QuotaError
from trioeval.quota.backend import Backend
from trioeval.quota.leases import Ask, Decision, Settlement, Unknown
from trioeval.quota.limits import Limit, LimitState
from trioeval.quota.making import make_missing


@attrs.define(eq=False)
class Reach:
    """A backend, and whether it answers."""

    _backend: Backend
    patience: float
    """Seconds after which an outage is taken as one that lasts, ≥ 0."""
    since: float | None = None
    """Instant of the first failure after the last answer; None while all is well."""
    reason: str = "nobody was asked"
    """Of the last failure, with who failed."""

    @property
    def lasts_at(self) -> float:
        """The instant from which on the outage lasts if nobody answers before; inf while all is well."""
        return math.inf if self.since is None else self.since + self.patience

    async def reserve(self, asks: Sequence[Ask]) -> Sequence[Decision]:
        """Decide about each, in order; `Unknown` about all of them if there is no answer.

        Raises:
            QuotaError: The backend refuses altogether.
        """
        try:
            decisions = await self._backend.reserve(asks)
        except QuotaError as error:
            if not self._is_outage(error):
                raise
            return [Unknown(error.message)] * len(asks)
        if len(decisions) != len(asks):
            decisions = [Unknown(f"{len(decisions)} answers to {len(asks)} requests")] * len(asks)
        unknown = [one for one in decisions if isinstance(one, Unknown)]
        if unknown and len(unknown) == len(decisions):
            self._failed(unknown[-1].message)
        else:
            self._answered()
        return decisions

    async def complete(self, settlements: Sequence[Settlement]) -> None:
        """End leases.

        Raises:
            QuotaError: As the backend says.
        """
        try:
            await self._backend.complete(settlements)
        except QuotaError as error:
            self._is_outage(error)
            raise
        self._answered()

    async def extend(self, lease_ids: Sequence[str]) -> Sequence[bool]:
        """Put off the expiry of holds.

        Raises:
            QuotaError: As the backend says.
        """
        try:
            answers = await self._backend.extend(lease_ids)
        except QuotaError as error:
            self._is_outage(error)
            raise
        self._answered()
        return answers

    async def states(self) -> Sequence[LimitState]:
        """All limits, by key. Without an answer it begins no outage: nobody need ask that again.

        Raises:
            QuotaError: As the backend says.
        """
        states = await self._backend.states()
        self._answered()
        return states

    async def make_missing(self, limits: Sequence[Limit]) -> list[str]:
        """Make the limits that are not there yet, likewise; returns warnings.

        Raises:
            QuotaError: As `trioeval.quota.making.make_missing` does.
        """
        warnings = await make_missing(self._backend, limits)
        self._answered()
        return warnings

    def _is_outage(self, error: QuotaError) -> bool:
        is_outage = error.reason == "limiter_unavailable"
        if is_outage:
            self._failed(error.message)
        else:
            self._answered()
        return is_outage

    def _failed(self, reason: str) -> None:
        self.reason = reason
        if self.since is None:
            self.since = trio.current_time()

    def _answered(self) -> None:
        self.since = None
