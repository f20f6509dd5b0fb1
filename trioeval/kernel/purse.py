"""The budget of a run, as its lanes see it.

A call that does not fit now waits until another one gives something back; a call that does not fit
whatever is given back fails, and the run ends with it.

Law: BUDGET.
"""

from collections.abc import Callable

import attrs

from trioeval.errors import BudgetError
from trioeval.rates import Budget, Follower, Hold


@attrs.frozen
class Purse:
    """What the calls of one run are paid from."""

    budget: Budget
    """Other runs may use it too."""
    on_exhausted: Callable[[BudgetError], None]
    """Told when it is used up."""

    def take(self, tokens: int, money: float, payer: Follower) -> Hold | None:
        """Hold the most that a call may use; None if it does not fit now, and `payer` is told when it may.

        Raises:
            BudgetError: It will never fit.
        """
        shortage = self.budget.shortage(tokens=tokens, money=money)
        if shortage is not None:
            self.on_exhausted(shortage)
            raise shortage
        hold = self.budget.reserve(tokens=tokens, money=money)
        if hold is None:
            self.budget.follow(payer)
        return hold
