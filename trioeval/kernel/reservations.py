"""Reservations and usage of a call, and the permits of shared limits.

Every permit is settled or given back once, in the step in which its call is over. For when a call requests
a permit, see `wait_queue`.

Laws: BUDGET, LEASE.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol

import attrs

from trioeval.errors import UsageError
from trioeval.kernel.events import Observer, Shortage
from trioeval.rates import Budget, Follower, Hold, RateHint, Reservation, Throttle

if TYPE_CHECKING:  # a bare `Metered` is a valid annotation; see `jobs.P`
    from typing_extensions import TypeVar

    R = TypeVar("R", default=Any)
else:
    from typing import TypeVar

    R = TypeVar("R")


@attrs.frozen
class Metered(Generic[R]):
    """A result with its usage, which a `send` may return in place of the bare result.

    The lane learns from it, and the caller gets `value`.

    Raises:
        UsageError: An amount is negative or not finite.
    """

    value: R
    tokens: int | None = attrs.field(default=None)
    """Tokens that the call used; None assumes the amount reserved."""
    money: float | None = attrs.field(default=None)
    """Cost of the call; None assumes the amount reserved."""
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
        """Report that the request is over and what it used."""
        ...

    def give_back(self) -> None:
        """Return the permit of a request that was never made."""
        ...


class Permits(Protocol):
    """The source of permits for the calls of one lane."""

    def take_nowait(self, index: int, tokens: int, money: float) -> Permit | None:
        """Return a permit if one is available in this step without passing another waiter, else None.

        Args:
            index: The index of the job that calls.
            tokens: The most that the request may use.
            money: The most that it may cost, in the currency of the calls.

        Raises:
            LimitError: No permit for the call can ever be granted.
        """
        ...

    async def take(
        self, index: int, tokens: int, money: float, on_shortage: Callable[[Shortage], None]
    ) -> Permit:
        """Wait for a permit. A checkpoint. If cancelled, nothing is taken.

        Args:
            index: The index of the job that calls.
            tokens: The most that the request may use.
            money: The most that it may cost.
            on_shortage: Called synchronously when the permit must be waited for, and whenever the reason
                changes. Until then the lane keeps its turn at the cap over all lanes.

        Raises:
            LimitError: No permit for the call can ever be granted, or the limits are unreachable.
        """
        ...


class CallRequest:
    """One call: the most that it may use, and what it has reserved since it started.

    A call that does not fit now waits until another call gives something back; a call that can never fit
    fails, and the run ends with it.

    Args:
        index: The job that makes it.
        observe: The observer of its run.
        budget: The budget of its run; other runs may share it.
        tokens: The most that it may use.
        money: The most that it may cost.
    """

    # Class-level defaults: one object is made for every call, and most calls need few of the fields.
    permit: Permit | None = None
    hold: Hold | None = None
    """Its reservation in the budget."""
    reservation: Reservation | None = None
    """Its reservation of the lane's tokens."""
    transient_failures: int = 0
    """Its transient failures so far."""
    refusals: int = 0
    """Its refusals because of too many requests."""
    mark: int = 0
    """The mark of the lane's throttle at its start."""
    started_at: float = -math.inf
    used: tuple[int, float] | None = None
    """Tokens and money that it used; None while it is in flight, and if it was cancelled there."""
    is_reported: bool = False
    """True if its reply reported the tokens."""

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
        """Raise if not even the whole budget would suffice for the call.

        Raises:
            BudgetError: The call exceeds the whole budget.
        """
        if self.budget is not None:
            shortage = self.budget.shortage(tokens=self.tokens, money=self.money)
            if shortage is not None and shortage.wanted > shortage.limit:
                raise shortage

    def fits_budget(self, waiter: Follower) -> bool:
        """Return whether the budget suffices now; if not, `waiter` is notified when it may.

        Raises:
            BudgetError: It can never suffice.
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
        """Return the permit if it was not used."""
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
