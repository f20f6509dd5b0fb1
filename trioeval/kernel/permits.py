"""What a call needs besides its lane: a permit of whoever keeps a limit that others share too.

The first call in a lane's line, which the lane could start now, asks for its permit before it takes a slot:
a call that is not granted one holds nothing. A permit that came too late for its lane (which was blocked
meanwhile) is given back unused. Every permit is settled or given back, once, in the step in which its call
is over.
"""

from collections.abc import Callable
from typing import Literal, Protocol

import attrs


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
