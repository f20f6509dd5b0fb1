"""What a call takes besides its slot: tokens of its lane, a part of its run's budget, and a permit.

A call that does not fit now waits until another one gives something back; a call that does not fit
whatever is given back fails, and the run ends with it.

Laws: BUDGET, LEASE.
"""

import math
from collections.abc import Callable
from typing import Generic, Literal, Protocol, TypeVar

import attrs

from trioeval.errors import BudgetError, CallError, Fault, UsageError
from trioeval.rates import Budget, Follower, Hold, RateHint, Reservation, Throttle, TokenPace

# A result of a call, with what the call used and what its reply said of the server's limits.


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


# What a call needs besides its lane: a permit of whoever keeps a limit that others share too.
#
# The first call in a lane's line, which the lane could start now, asks for its permit before it takes a slot:
# a call that is not granted one holds nothing. A permit that came too late for its lane (which was blocked
# meanwhile) is given back unused. Every permit is settled or given back, once, in the step in which its call
# is over.


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


@attrs.frozen
class Purse:
    """What the calls of one run are paid from."""

    budget: Budget
    """Other runs may use it too."""
    on_exhausted: Callable[[BudgetError], None]
    """Told when it is used up."""

    def check(self, tokens: int, money: float) -> None:
        """Refuse at once a call that not even the whole budget would serve.

        Raises:
            BudgetError: It would not.
        """
        shortage = self.budget.shortage(tokens=tokens, money=money)
        if shortage is not None and shortage.wanted > shortage.limit:
            raise shortage

    def take(self, tokens: int, money: float, payer: Follower) -> Hold | None:
        """Hold the most that a call may use; None if it does not fit now, and `payer` is told when it may.

        Raises:
            BudgetError: It will never fit.
        """
        self._refuse_for_good(tokens, money)
        hold = self.budget.reserve(tokens=tokens, money=money)
        if hold is None:
            self.budget.follow(payer)
        return hold

    def fits(self, tokens: int, money: float, payer: Follower) -> bool:
        """Whether `take` would give something, in this very step; if not, `payer` is told when it may.

        Raises:
            BudgetError: It never will.
        """
        self._refuse_for_good(tokens, money)
        fits = self.budget.fits(tokens=tokens, money=money)
        if not fits:
            self.budget.follow(payer)
        return fits

    def _refuse_for_good(self, tokens: int, money: float) -> None:
        shortage = self.budget.shortage(tokens=tokens, money=money)
        if shortage is not None:
            self.on_exhausted(shortage)
            raise shortage


@attrs.frozen
class Need:
    """What a call takes, at most."""

    tokens: int = 0
    money: float = 0.0
    purse: Purse | None = None
    """What it is paid from; None does not bound it."""
    amounts: tuple[int, float] = attrs.field(init=False)
    """The tokens and the money."""

    @amounts.default
    def _both(self) -> tuple[int, float]:
        return self.tokens, self.money

    def check(self, lane: str, pace: TokenPace | None) -> None:
        """Refuse at once what can never be served.

        Args:
            lane: The lane's name.
            pace: Its tokens, if it serves no call of more than a minute's.

        Raises:
            CallError: It is larger than that.
            BudgetError: It is larger than the whole budget.
        """
        if pace is not None and not pace.fits(self.tokens):
            allowed = f"lane {lane!r} allows {pace.largest:g} a minute"
            raise CallError(Fault.REFUSED, f"the call needs {self.tokens} tokens; {allowed}")
        if self.purse is not None:
            self.purse.check(self.tokens, self.money)

    def fits(self, payer: Follower) -> bool:
        """Whether it can be paid in this very step; if not, `payer` is told when it may be.

        Raises:
            BudgetError: It never can be.
        """
        return self.purse is None or self.purse.fits(self.tokens, self.money, payer)


@attrs.frozen
class Account:
    """What a call in flight has reserved."""

    need: Need
    reservation: Reservation | None
    hold: Hold | None
    permit: Permit | None

    def settle(self, throttle: Throttle, used: tuple[int, float]) -> None:
        """The call is over and has used so many tokens and so much money."""
        tokens, money = used
        if self.reservation is not None:
            throttle.settle(self.reservation, tokens)
        if self.need.purse is not None and self.hold is not None:
            self.need.purse.budget.settle(self.hold, tokens=tokens, money=money)
        if self.permit is not None:
            self.permit.settle(tokens, money)
