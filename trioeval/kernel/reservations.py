"""What a call needs and reports of its use, and the permits of limits that others share too.

Every permit is settled or given back, once, in the step in which its call is over. When a call asks for
one, `wait_queue` says.

Laws: BUDGET, LEASE.
"""

import math
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import attrs

from trioeval.errors import UsageError
from trioeval.kernel.events import Observer, Shortage
from trioeval.rates import Budget, Follower, Hold, RateHint, Reservation, Throttle

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
            LimitError: It can never be had.
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
            LimitError: It can never be had, or nobody can be asked.
        """
        ...


class CallRequest:
    """One call: what it takes at most, and what it has reserved of that since it started.

    A call that does not fit now waits until another one gives something back; a call that does not fit
    whatever is given back fails, and the run ends with it.

    Args:
        index: The job that makes it.
        observe: The observer of its run.
        budget: What its run pays from; other runs may use it too.
        tokens: The most that it may use.
        money: Likewise.
    """

    # Defaults of the class: one is made for every call, and most need few of them.
    permit: Permit | None = None
    hold: Hold | None = None
    """Its part of the budget."""
    reservation: Reservation | None = None
    """Its tokens of the lane."""
    mishaps: int = 0
    """Its transient failures so far."""
    refusals: int = 0
    """How often it was one too many."""
    mark: int = 0
    """The mark of the lane's throttle at its start."""
    started_at: float = -math.inf
    used: tuple[int, float] | None = None
    """Tokens and money that it has used; None while it is in flight, and if it was given up there."""
    is_told: bool = False
    """Whether its reply told the tokens."""

    def __init__(
        self,
        index: int,
        observe: Observer | None,
        budget: Budget | None = None,
        tokens: int = 0,
        money: float = 0.0,
    ) -> None:
        self.index = index
        self.observe = observe
        self.budget = budget
        self.tokens = tokens
        self.money = money

    def check_budget(self) -> None:
        """Refuse at once a call that not even the whole budget would serve.

        Raises:
            BudgetError: It would not.
        """
        if self.budget is not None:
            shortage = self.budget.shortage(tokens=self.tokens, money=self.money)
            if shortage is not None and shortage.wanted > shortage.limit:
                raise shortage

    def fits_budget(self, waiter: Follower) -> bool:
        """Whether it can be paid in this very step; if not, `waiter` is notified when it may be.

        Raises:
            BudgetError: It never can be.
        """
        if self.budget is None:
            return True
        if shortage := self.budget.shortage(tokens=self.tokens, money=self.money):
            raise shortage
        fits = self.budget.fits(tokens=self.tokens, money=self.money)
        if not fits:
            self.budget.follow(waiter)
        return fits

    def give_back_permit(self) -> None:
        """Return a permit that is not used, if there is one."""
        permit, self.permit = self.permit, None
        if permit is not None:
            permit.give_back()

    def settle(self, throttle: Throttle, tokens: int, money: float) -> None:
        """Settle what was reserved to what the call has used."""
        if self.reservation is not None:
            throttle.settle(self.reservation, tokens)
        if self.budget is not None and self.hold is not None:
            self.budget.settle(self.hold, tokens=tokens, money=money)
        if self.permit is not None:
            self.permit.settle(tokens, money)
        self.reservation = self.hold = self.permit = None
