"""How jobs end, in the words of rows."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.agents.dependencies import Lacking
from trioeval.errors import BlockedError, GradingError, ProviderError, TrioevalError
from trioeval.grading import Verdict
from trioeval.kernel import Blocked, Cut, Done, Failed, Interrupted, NotRun, Outcome, TimedOut
from trioeval.tasks.rows import Row, Status

TaskEnd: TypeAlias = Literal["complete", "incomplete", "cut"]
"""How a task ended: everything of it is there; something is missing; or only what was left for another time
is, because the budget of the run is used up."""

NAMES: Mapping[type, str] = {
    Done: "done",
    Failed: "failed",
    TimedOut: "timed_out",
    Interrupted: "interrupted",
    Blocked: "blocked",
    NotRun: "not_run",
}

_CUTS = {
    Cut.DEADLINE: "the run's deadline (maxEvalTimeMs) passed",
    Cut.STOP: "the run was stopped",
    Cut.CANCEL: "the run was cancelled",
    Cut.LANE: "its lane is closed",
    Cut.BUDGET: "the budget of the run is used up",
    Cut.FAULT: "the run itself failed",
}


def name_of(outcome: Outcome[Any]) -> str:
    """How a job ended, in a word. One that found out itself that it may not begin is blocked."""
    if isinstance(outcome, Failed) and isinstance(outcome.error, BlockedError):
        return NAMES[Blocked]
    return NAMES[type(outcome)]


def provider_failure(outcome: Outcome[Any]) -> ProviderError | None:
    """How the provider failed; None if it did not."""
    if isinstance(outcome, Failed) and isinstance(outcome.error, ProviderError):
        return outcome.error
    return None


def grading_details(outcome: Outcome[Verdict]) -> Mapping[str, Any]:
    """What else is known of why a row could not be judged."""
    if isinstance(outcome, Failed) and isinstance(outcome.error, GradingError):
        return outcome.error.metadata
    return {}


def lacking_task(row: Row, lacking: Lacking) -> Row:
    """A row of a task that never began, because another task is not complete."""
    kind: type = Blocked
    why, cut = f"blocked by task {lacking.by}", None
    if lacking.how == "fail":
        kind, why = Failed, f"task {lacking.by}, which it depends on, is not complete"
    elif lacking.how == "cut":
        kind, cut = NotRun, Cut.BUDGET
        why = f"not run: {_CUTS[cut]} before task {lacking.by} was complete"
    question = row.question
    if question is not None and question.run_error is not None:
        kind_of = question.run_error.kind if cut is None else "budget_exhausted"
        run_error = attrs.evolve(question.run_error, kind=kind_of, message=why)
        question = attrs.evolve(question, run_error=run_error)
    outcome = NAMES[kind]
    status = Status.without_verdict(outcome)
    return attrs.evolve(row, status=status, outcome=outcome, error=why, cut=cut, question=question)


def cut_of(outcome: Outcome[Any]) -> Cut | None:
    """What kept a job from running to its end; None if nothing did."""
    return outcome.cut if isinstance(outcome, NotRun | Interrupted) else None


def explain(outcome: Outcome[Verdict]) -> str | None:
    """Why there is no verdict, or why it is not a pass."""
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
