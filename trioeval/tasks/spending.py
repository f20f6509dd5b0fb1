"""What was spent so far: on judges, and on calls that failed."""

import attrs

from trioeval.errors import ProviderError
from trioeval.grading import Spent
from trioeval.grading.model import NOTHING_SPENT
from trioeval.usage import Usage


@attrs.define(eq=False)
class Spending:
    """What was spent so far."""

    _replies: list[Spent] = attrs.field(factory=list, init=False)

    @property
    def total(self) -> Spent:
        """By all replies: exactly the same in whatever order they came, because it is rounded once."""
        return Spent.sum(self._replies)

    def add(self, spent: Spent) -> None:
        """Count what one request used, or its reply."""
        self._replies.append(spent)


def spent_on_failure(error: ProviderError) -> Spent:
    """What a call used that failed, as far as its provider has told it; nothing if it has not.

    Example:
        >>> spent_on_failure(ProviderError("empty_reply", "no text", tokens=7)).usage.total
        7
    """
    if error.usage == Usage() and error.money is None:
        return NOTHING_SPENT
    return Spent(usage=error.usage, cost=error.money, calls=1)
