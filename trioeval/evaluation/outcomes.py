"""The outcomes of jobs in terms of rows."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypeVar

import attrs

from trioeval.errors import (
    BlockedError,
    BudgetError,
    GradingError,
    ProviderError,
    TrioevalError,
    leaves,
)
from trioeval.evaluation.row import Row
from trioeval.evaluation.status import Status
from trioeval.grading import Verdict
from trioeval.kernel import (
    Blocked,
    Done,
    Failed,
    Interrupted,
    NotRun,
    Outcome,
    StopReason,
    TimedOut,
)
from trioeval.suite.dependencies import Unsatisfied

# Rows to retry later although their jobs had started.
#
# If the run's own budget refused a call, nothing failed: the budget is used up, and the row is left like
# those that never started. A single call that exceeds the whole budget is different: it fails, because it
# would fail again.
#
# A job that a stop withdrew while it waited for its first permit has made no call either.


V = TypeVar("V")


class StoppedError(Exception):
    """Raised by the body of a job between two of its calls, to leave its row; never reported to the user.

    Completed calls of such a job are known as replies: its other calls had no result.

    Args:
        cut: The reason for leaving the row.
    """

    def __init__(self, cut: StopReason = StopReason.STOP) -> None:
        self.cut = cut
        super().__init__(cut.value)


def cut_by(error: BaseException) -> StopReason | None:
    """Return the reason why the row of a job with this exception is left for later; None if it is not.

    Example:
        >>> cut_by(StoppedError())
        <StopReason.STOP: 'stop'>
        >>> cut_by(BudgetError("requests", limit=3, used=3, wanted=1))
        <StopReason.BUDGET: 'budget_exceeded'>
        >>> cut_by(ValueError("no")) is None
        True
    """
    if isinstance(error, StoppedError):
        return error.cut
    return None if refusal_in(error) is None else StopReason.BUDGET


def refusal_in(error: BaseException) -> BudgetError | None:
    """Return the refusal of the budget that an error is or was caused by; None without one."""
    left, seen = [error], set[int]()
    while left:
        for one in leaves(left.pop()):
            if isinstance(one, BudgetError) and one.wanted <= one.limit:
                return one
            if one.__cause__ is not None and id(one) not in seen:
                seen.add(id(one))
                left.append(one.__cause__)
    return None


def with_refusals(outcome: Outcome[V], *, has_started: bool) -> Outcome[V]:
    """Return an outcome, with failures that the budget caused and withdrawn jobs as not run or interrupted.

    Args:
        outcome: The kernel's outcome.
        has_started: Whether there is a reply already, from any source.

    Returns:
        `NotRun` if no call was made; `Interrupted` if there was one; any other outcome unchanged.
    """
    paid = has_started or (isinstance(outcome, Interrupted | Failed) and outcome.calls > 0)
    if isinstance(outcome, Interrupted) and outcome.cut is StopReason.STOP and not paid:
        return NotRun(outcome.index, StopReason.STOP)
    if not isinstance(outcome, Failed):
        return outcome
    if isinstance(outcome.error, StoppedError):
        cut = outcome.error.cut
        return cut_off(outcome, cut) if has_started else NotRun(outcome.index, cut)
    if (refusal := refusal_in(outcome.error)) is None:
        return outcome
    return (
        cut_off(outcome, StopReason.BUDGET)
        if paid
        else NotRun(outcome.index, StopReason.BUDGET, str(refusal))
    )


def cut_off(failed: Failed, cut: StopReason) -> Interrupted:
    """Return a failed job's outcome as interrupted."""
    times = (failed.started_at, failed.finished_at, failed.waited)
    return Interrupted(failed.index, *times, failed.calls, cut)


TaskEnd: TypeAlias = Literal["complete", "incomplete", "cut"]
"""The end of a task: all of it is done; something is missing; or only rows are missing that are left for
later because the budget of the run is used up."""

NAMES: Mapping[type, str] = {
    Done: "done",
    Failed: "failed",
    TimedOut: "timed_out",
    Interrupted: "interrupted",
    Blocked: "blocked",
    NotRun: "not_run",
}

_CUTS = {
    StopReason.DEADLINE: "the run's deadline (maxEvalTimeMs) passed",
    StopReason.STOP: "the run was stopped",
    StopReason.CANCEL: "the run was cancelled",
    StopReason.LANE: "its lane is closed",
    StopReason.BUDGET: "the budget of the run is used up",
    StopReason.FAULT: "the run itself failed",
}


def outcome_name(outcome: Outcome[Any]) -> str:
    """Return the name of an outcome. A job that found out itself that it may not start is blocked."""
    if isinstance(outcome, Failed) and isinstance(outcome.error, BlockedError):
        return NAMES[Blocked]
    return NAMES[type(outcome)]


def provider_failure(outcome: Outcome[Any]) -> ProviderError | None:
    """Return the provider's failure; None without one."""
    if isinstance(outcome, Failed) and isinstance(outcome.error, ProviderError):
        return outcome.error
    return None


def refusal_of(row: Row) -> str | None:
    """Return the refusal of the budget because of which a row was not run; None for any other row."""
    told, prefix = row.error or "", explain(NotRun(row.index, StopReason.BUDGET, ""))
    return told.removeprefix(prefix) if prefix and told.startswith(prefix) else None


def grading_details(outcome: Outcome[Verdict]) -> Mapping[str, Any]:
    """Return additional data about a row that could not be judged."""
    if isinstance(outcome, Failed) and isinstance(outcome.error, GradingError):
        return outcome.error.metadata
    return {}


def with_lacking_task(row: Row, lacking: Unsatisfied) -> Row:
    """Return a row of a task that never started, because another task is not complete."""
    kind: type = Blocked
    why, cut = f"blocked by task {lacking.by}", None
    if lacking.how == "fail":
        kind, why = Failed, f"task {lacking.by}, which it depends on, is not complete"
    elif lacking.how == "cut":
        kind, cut = NotRun, StopReason.BUDGET
        why = f"not run: {_CUTS[cut]} before task {lacking.by} was complete"
    result = None if row.result is None else row.result.blocked(why, is_stopped=cut is not None)
    outcome = NAMES[kind]
    status = Status.without_verdict(outcome)
    return attrs.evolve(row, status=status, outcome=outcome, error=why, cut=cut, result=result)


def cut_of(outcome: Outcome[Any]) -> StopReason | None:
    """Return the reason why a job did not run to its end; None if it did."""
    return outcome.cut if isinstance(outcome, NotRun | Interrupted) else None


def explain(outcome: Outcome[Verdict]) -> str | None:
    """Return the reason for a missing verdict, or for one that is not a pass."""
    match outcome:
        case Done():
            return None if outcome.value.passed else outcome.value.reason
        case Failed():
            if isinstance(outcome.error, TrioevalError):
                return str(outcome.error)
            return f"{type(outcome.error).__name__}: {outcome.error}"
        case TimedOut():
            return f"timed out after {outcome.timeout:g} s of working time (timeoutMs)"
        case Interrupted():
            return f"interrupted: {_CUTS[outcome.cut]}"
        case Blocked():
            return f"blocked by row {outcome.by}"
        case NotRun():
            more = "" if outcome.reason is None else f": {outcome.reason}"
            return f"not run: {_CUTS[outcome.cut]}{more}"
