"""What a call reports of its use, and the permits of limits that others share too.

The first call in a lane's queue, which the lane could start now, asks for its permit before it takes a slot:
a call that is not granted one holds nothing. A permit that came too late for its lane (which was blocked
meanwhile) is given back unused. Every permit is settled or given back, once, in the step in which its call
is over.

Law: LEASE.
"""

import math
from collections.abc import Callable
from typing import Generic, Literal, Protocol, TypeVar

import attrs

from trioeval.errors import UsageError
from trioeval.rates import RateHint

R = TypeVar("R")


@attrs.frozen
class Metered(Generic[R]):
    """What a `send` may return in place of the bare result.

    The lane learns from it, and the caller gets `value`.

    Raises:
        UsageError: An amount is negative or not finite.
    """

    value: R
    tokens: int | None = attrs.field(default=None)
    """Tokens that the call used; None leaves what was reserved."""
    money: float | None = attrs.field(default=None)
    """What it cost; None leaves what was reserved."""
    hint: RateHint | None = None

    @tokens.validator
    @money.validator
    def _check(self, field: "attrs.Attribute[float | None]", value: float | None) -> None:
        if value is not None and not 0 <= value < math.inf:
            msg = f"Metered.{field.name} must be at least 0 and finite, got {value!r}"
            raise UsageError(msg)


@attrs.frozen
class Shortage:
    """Why a permit is not granted yet."""

    kind: Literal["rate_limit", "limit_decreasing", "limiter_error"]
    keys: tuple[str, ...] = ()
    """The limits that lack room."""
    until: float | None = None
    """The instant of the next try on the Trio clock; None where it comes as soon as there is room."""
    message: str = ""


class Permit(Protocol):
    """A share of limits, for one request. Exactly one of its methods is called, once; neither waits."""

    def settle(self, tokens: int, money: float) -> None:
        """The request is over and has used so much."""
        ...

    def give_back(self) -> None:
        """It was never made."""
        ...


class Permits(Protocol):
    """Where the calls of one lane get their permits."""

    def take_nowait(self, index: int, tokens: int, money: float) -> Permit | None:
        """A permit that can be had in this very step, and passes nobody who waits; else None.

        Args:
            index: Of the job that calls.
            tokens: The most that the request may use.
            money: Likewise, in the currency of the calls.

        Raises:
            QuotaError: It can never be had.
        """
        ...

    async def take(
        self, index: int, tokens: int, money: float, told: Callable[[Shortage], None]
    ) -> Permit:
        """Wait for a permit. A checkpoint. Cancelled, it has taken nothing.

        Args:
            index: Of the job that calls.
            tokens: As for `take_nowait`.
            money: Likewise.
            told: Called synchronously when it turns out that there is something to wait for, and whenever
                that changes. Until then the lane keeps its turn at the cap over all lanes.

        Raises:
            QuotaError: It can never be had, or nobody can be asked.
        """
        ...
