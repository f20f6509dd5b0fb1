"""What a lane has of a lease that somebody else keeps: from the question to the end of its request."""

from collections.abc import Callable
from typing import Protocol

import attrs

from trioeval.kernel import Permit, Shortage
from trioeval.quota.amounts import actuals_of, nothing_of, requirements_of
from trioeval.quota.backend import KeyUse
from trioeval.quota.leases import Actual, Ask, Requirement


class Leases(Protocol):
    """Where leases come from."""

    async def take(
        self,
        job_id: str,
        requirements: tuple[Requirement, ...],
        told: Callable[[Shortage], None],
    ) -> Ask | None:
        """Wait for a lease; None if the call is to be made without one."""
        ...

    def end(self, ask: Ask, actuals: tuple[Actual, ...]) -> None:
        """A lease is over. Synchronous."""
        ...


@attrs.frozen
class RemotePermits:
    """Where the calls of one lane get their leases."""

    _quota: Leases
    _lane: str
    _keys: tuple[KeyUse, ...]

    def take_nowait(self, index: int, tokens: int, money: float) -> None:
        """No lease can be had without a message."""

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
            QuotaError: It can never be had, or nobody can be asked.
        """
        requirements = requirements_of(self._keys, tokens, money)
        ask = await self._quota.take(f"{self._lane}[{index}]", requirements, told)
        return _Unleased() if ask is None else Lease(self._quota, ask, self._keys)


@attrs.define(eq=False)
class Lease:
    """A granted lease, until the request that it is for is over."""

    _quota: Leases
    _ask: Ask
    _keys: tuple[KeyUse, ...]
    _is_over: bool = False

    def settle(self, tokens: int, money: float) -> None:
        """The request is over and has used so much."""
        self._end(actuals_of(self._keys, tokens, money))

    def give_back(self) -> None:
        """It was never made."""
        self._end(nothing_of(self._ask.requirements))

    def _end(self, actuals: tuple[Actual, ...]) -> None:
        if self._is_over:
            msg = f"lease {self._ask.lease_id} of {self._ask.job_id} is over already; please report this"
            raise RuntimeError(msg)
        self._is_over = True
        self._quota.end(self._ask, actuals)


class _Unleased:
    """Stands for a lease that nobody could be asked for."""

    def settle(self, tokens: int, money: float) -> None:
        """Nobody counts it."""

    def give_back(self) -> None:
        """There is nothing."""
