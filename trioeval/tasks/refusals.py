"""Rows that are left for another time, although their jobs were started.

Where the run's own budget refused a call nothing failed: what was allowed to be used is used up, and the
row is left like those that were never begun. A call that is larger than the whole budget is another matter.
It fails, because it would fail again.

A job that a stop withdrew while it waited for its first permit has asked for nothing either.
"""

from typing import TypeVar

from trioeval.errors import BudgetError, leaves
from trioeval.kernel import Cut, Failed, Interrupted, NotRun, Outcome

V = TypeVar("V")


class StoppedError(Exception):
    """Raised by the body of a job between two of its calls, to leave its row; nobody sees it.

    What was asked for is known as a reply: other calls of such a job have come to nothing.

    Args:
        cut: Why the row is left.
    """

    def __init__(self, cut: Cut = Cut.STOP) -> None:
        self.cut = cut
        super().__init__(cut.value)


def cut_by(error: BaseException) -> Cut | None:
    """Why the row of a job that raised this is left for another time; None if it is not.

    Example:
        >>> cut_by(StoppedError())
        <Cut.STOP: 'stop'>
        >>> cut_by(BudgetError("requests", limit=3, used=3, wanted=1))
        <Cut.BUDGET: 'budget_exceeded'>
        >>> cut_by(ValueError("no")) is None
        True
    """
    if isinstance(error, StoppedError):
        return error.cut
    return None if refusal_in(error) is None else Cut.BUDGET


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
    """How a job ended, where a failure that the budget is the cause of is none, and a job withdrawn not run.

    Args:
        outcome: As the kernel has it.
        begun: Whether there is a reply already, wherever it came from.

    Returns:
        `NotRun` if nothing has been asked; `Interrupted` if something has; anything else as it is.
    """
    paid = begun or (isinstance(outcome, Interrupted | Failed) and outcome.calls > 0)
    if isinstance(outcome, Interrupted) and outcome.cut is Cut.STOP and not paid:
        return NotRun(outcome.index, Cut.STOP)
    if not isinstance(outcome, Failed):
        return outcome
    if isinstance(outcome.error, StoppedError):
        cut = outcome.error.cut
        return _cut(outcome, cut) if begun else NotRun(outcome.index, cut)
    if (refusal := refusal_in(outcome.error)) is None:
        return outcome
    return _cut(outcome, Cut.BUDGET) if paid else NotRun(outcome.index, Cut.BUDGET, str(refusal))


def _cut(failed: Failed, cut: Cut) -> Interrupted:
    times = (failed.started_at, failed.finished_at, failed.waited)
    return Interrupted(failed.index, *times, failed.calls, cut)
