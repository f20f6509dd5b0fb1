"""Calls that the run's own budget refused.

Nothing failed there: what was allowed to be used is used up, and the row is left for another time, like those
that were never begun. A call that is larger than the whole budget is another matter. It fails, because it
would fail again.
"""

from typing import TypeVar

from trioeval.errors import BudgetError, leaves
from trioeval.kernel import Cut, Failed, Interrupted, NotRun, Outcome

V = TypeVar("V")


def refusal_in(error: BaseException) -> BudgetError | None:
    """What the budget said, if an error is that, or comes from that; None if it is not."""
    left, seen = [error], set[int]()
    while left:
        for one in leaves(left.pop()):
            if isinstance(one, BudgetError) and one.wanted <= one.limit:
                return one
            if one.__cause__ is not None and id(one) not in seen:
                seen.add(id(one))
                left.append(one.__cause__)
    return None


def as_refused(outcome: Outcome[V], *, begun: bool) -> Outcome[V]:
    """How a job ended, where a failure that the budget is the cause of is none.

    Args:
        outcome: As the kernel has it.
        begun: Whether there is a reply already, wherever it came from.

    Returns:
        `NotRun` if nothing has been asked; `Interrupted` if something has; anything else as it is.
    """
    if not isinstance(outcome, Failed) or (refusal := refusal_in(outcome.error)) is None:
        return outcome
    if begun or outcome.calls:
        return Interrupted(
            outcome.index,
            outcome.started_at,
            outcome.finished_at,
            outcome.waited,
            outcome.calls,
            Cut.BUDGET,
        )
    return NotRun(outcome.index, Cut.BUDGET, str(refusal))
