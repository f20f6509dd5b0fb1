"""From how the job of a question ended to what became of the question, and to its row. Pure."""

from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.errors import BudgetError, LaneClosedError, ProviderError, QuotaError
from trioeval.faults import Fault
from trioeval.grading import Verdict, quote
from trioeval.grading.questions import Answer, ParseFault, grade_answer, parse_answer
from trioeval.kernel import Blocked, Cut, Done, Failed, Interrupted, NotRun, Outcome, TimedOut
from trioeval.suite.question_models import Question
from trioeval.tasks.chains import Chain
from trioeval.tasks.endings import explain
from trioeval.tasks.question_chain import Stop
from trioeval.tasks.question_result import (
    ParseError,
    QuestionEvent,
    QuestionOutcome,
    QuestionResult,
    RunError,
    RunErrorKind,
)
from trioeval.tasks.refusals import as_refused

_KINDS: Mapping[Cut, RunErrorKind] = {
    Cut.DEADLINE: "deadline",
    Cut.STOP: "interrupted",
    Cut.CANCEL: "interrupted",
    Cut.LANE: "lane_closed",
    Cut.BUDGET: "budget_exhausted",
    Cut.FAULT: "internal",
}
_MISHAPS = frozenset({Fault.TRANSIENT, Fault.RATE_LIMITED})


@attrs.frozen
class Answered:
    """What a question came to that was not cut off and did not fail."""

    outcome: QuestionOutcome
    verdict: Verdict
    answer: Answer | None = None
    listed: bool | None = None
    fault: ParseFault | None = None
    stop: Stop | None = None


def judged(question: Question, text: str) -> Answered:
    """What the last text of a model is worth.

    Example:
        >>> sky = Question(question="Sky?", answers=("Red", "Blue"), correct_answers=("Blue",))
        >>> judged(sky, "<answer>Red</answer>").verdict.reason
        'the answer "Red" is wrong; right is "Blue"'
    """
    found = parse_answer(text, question.answers)
    if isinstance(found, ParseFault):
        reason = f"{found.kind}: {found.message}"
        return Answered("parse_error", _verdict(reason, passed=False), fault=found)
    grade = grade_answer(found, question.answers, question.correct_answers)
    said = f"the answer {quote(found.raw)}"
    if grade.correct:
        verdict = _verdict(f"{said} is right", passed=True)
        return Answered("correct", verdict, found, listed=True)
    why = "is wrong" if grade.listed else "is none of the choices"
    right = " or ".join(map(quote, question.correct_answers))
    verdict = _verdict(f"{said} {why}; right is {right}", passed=False)
    return Answered("incorrect", verdict, found, grade.listed)


def stopped(stop: Stop) -> Answered:
    """What a question is worth that its budget stopped."""
    verdict = _verdict(f"budget_exceeded: {stop.message}", passed=False)
    return Answered("budget_exceeded", verdict, stop=stop)


def _verdict(reason: str, *, passed: bool) -> Verdict:
    return Verdict(passed=passed, score=float(passed), reason=reason)


def as_left(outcome: Outcome[Answered], *, begun: bool) -> Outcome[Answered]:
    """How a job ended, where it is left for another time although it failed.

    That is so where the budget of the run refused a call, and where the lane was closed under it: neither
    says anything of the question.

    Args:
        outcome: As the kernel has it.
        begun: Whether the model has answered anything.
    """
    if isinstance(outcome, Failed) and isinstance(outcome.error, LaneClosedError):
        if not begun and not outcome.calls:
            return NotRun(outcome.index, Cut.LANE, outcome.error.reason)
        return Interrupted(
            outcome.index,
            outcome.started_at,
            outcome.finished_at,
            outcome.waited,
            outcome.calls,
            Cut.LANE,
        )
    return as_refused(outcome, begun=begun)


def told(outcome: Outcome[Answered], *, failed_fast: int | None) -> str | None:
    """Why a row is no pass; None if it is one.

    Args:
        outcome: After `as_left`.
        failed_fast: The index of the row after whose failure no other was started; None if that was not.
    """
    if isinstance(outcome, Done):
        verdict = outcome.value.verdict
        return None if verdict.passed else verdict.reason
    if _is_skipped(outcome, failed_fast):
        return f"skipped: row {failed_fast} failed first (failFast)"
    return explain(outcome)


def result_of(
    question: Question,
    outcome: Outcome[Answered],
    chain: Chain | None,
    *,
    failed_fast: int | None,
    wait_s: float,
    calls: int,
    events: tuple[QuestionEvent, ...],
) -> QuestionResult:
    """What became of a question.

    Args:
        question: It.
        outcome: Of its job, after `as_left`.
        chain: What it has got to; None if it never began.
        failed_fast: As for `told`.
        wait_s: Seconds that it waited.
        calls: Requests, those of earlier executions among them whose replies are used.
        events: Its life.
    """
    value = outcome.value if isinstance(outcome, Done) else None
    error = _run_error(outcome, failed_fast)
    begun = chain is not None and not isinstance(outcome, NotRun | Blocked)
    return QuestionResult(
        id=question.id,
        question=question.question,
        answers=question.answers,
        correct_answers=question.correct_answers,
        outcome=_name(outcome, failed_fast),
        agent_answer=None if value is None or value.answer is None else value.answer.raw,
        answer_listed=None if value is None else value.listed,
        parse_error=_parse_error(value),
        run_error=error,
        tokens_total=_tokens(chain),
        wall_time_s=chain.elapsed(0.0) if chain is not None and begun else None,
        wait_s=wait_s if begun or wait_s else None,
        attempts=calls,
        steps=0 if chain is None else chain.steps,
        tool_calls={} if chain is None else dict(chain.tool_calls),
        events=events,
    )


def _is_skipped(outcome: Outcome[Any], failed_fast: int | None) -> bool:
    return isinstance(outcome, NotRun) and outcome.cut is Cut.STOP and failed_fast is not None


def _name(outcome: Outcome[Answered], failed_fast: int | None) -> QuestionOutcome:
    match outcome:
        case Done():
            return outcome.value.outcome
        case Failed() | TimedOut():
            return "runtime_error"
        case _:
            return "skipped" if _is_skipped(outcome, failed_fast) else "cancelled"


def _run_error(outcome: Outcome[Answered], failed_fast: int | None) -> RunError | None:
    match outcome:
        case Done(value=Answered(stop=Stop(message=message))):
            return RunError(kind="budget_exceeded", message=message)
        case Done():
            return None
        case Failed(error=error):
            return _failure(error, str(explain(outcome)))
        case TimedOut():
            return RunError(kind="timed_out", message=str(explain(outcome)), retryable=True)
        case Interrupted(cut=cut) | NotRun(cut=cut):
            if _is_skipped(outcome, failed_fast):
                return None
            return RunError(kind=_KINDS[cut], message=str(explain(outcome)), retryable=True)
        case Blocked():
            return RunError(kind="interrupted", message=str(explain(outcome)), retryable=True)


def _failure(error: Exception, message: str) -> RunError:
    match error:
        case ProviderError():
            return RunError(
                kind=error.kind, message=error.message, retryable=error.fault in _MISHAPS
            )
        case QuotaError():
            retryable = error.reason == "limiter_unavailable"
            return RunError(kind=error.reason, message=error.message, retryable=retryable)
        case BudgetError():  # one that is larger than all of it; others are left for another time
            return RunError(kind="exceeds_capacity", message=message)
        case _:
            return RunError(kind="internal", message=message)


def _parse_error(value: Answered | None) -> ParseError | None:
    if value is None or value.fault is None:
        return None
    return ParseError(kind=value.fault.kind, message=value.fault.message)


def _tokens(chain: Chain | None) -> int | None:
    """What a question used, and what its calls count as that failed, or were given up; None without any."""
    if chain is None or not (chain.steps or chain.wasted or chain.lost_tokens or chain.sent_tokens):
        return None
    return chain.tokens + chain.lost_tokens + chain.sent_tokens
