"""What a call takes besides its slot: tokens of its lane, a part of its run's budget, and a permit.

A call that does not fit now waits until another one gives something back; a call that does not fit
whatever is given back fails, and the run ends with it.

Laws: BUDGET, LEASE.
"""

from collections.abc import Callable

import attrs

from trioeval.errors import BudgetError, CallError
from trioeval.faults import Fault
from trioeval.kernel.permits import Permit
from trioeval.rates import Budget, Follower, Hold, Reservation, Throttle, TokenPace


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
