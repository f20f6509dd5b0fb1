"""What judges used so far."""

import attrs

from trioeval.grading import Spent


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
