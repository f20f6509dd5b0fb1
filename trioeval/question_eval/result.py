# Separate from `question_eval.task`: pure, while the task waits for models and tools.
"""Conversion of the outcome of a question's job to its result and its row. Pure."""

from collections.abc import Mapping

from trioeval.errors import BudgetError, Fault, LaneClosedError, LimitError, ProviderError
from trioeval.evaluation.outcomes import cut_off, explain, with_refusals
from trioeval.evaluation.tools import ToolConversation
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
from trioeval.question_eval.answer import (
    ParseError,
    QuestionResult,
    RunError,
    RunErrorKind,
    normalized,
    parse_answer,
)
from trioeval.question_eval.counts import QuestionOutcome
from trioeval.question_eval.model import Question, QuestionBudget
from trioeval.text import counted

# Answering of one question: steps of a model, the tools that it calls, and the budget.
#
# A step is one call of the model. Between two steps tools run and the budget is checked: it stops a question
# before a step, and never during one. Usage of a step counts even if an earlier execution of the run paid for
# it, so a resumed question stops where it would have stopped.
#
# `elapsed` is work, as for the timeout of a job: calls and tools, without waits for lanes and limits.


def stop_of(budget: QuestionBudget, chain: ToolConversation, working: float) -> str | None:
    """Return the reason why a question may not make its next step; None if it may.

    Using exactly the allowed seconds and tokens is within the budget.

    Args:
        budget: The limits of the question.
        chain: Its steps so far.
        working: Seconds of work of the current round of its job.

    Example:
        >>> chain = ToolConversation.of("?")
        >>> chain.tokens = 500
        >>> stop_of(QuestionBudget(max_tokens=500), chain, 0.0)
        >>> stop_of(QuestionBudget(max_tokens=499), chain, 0.0)
        '500 tokens used, 499 allowed (budget.maxTokens)'
    """
    elapsed = chain.elapsed(working)
    if budget.max_seconds and elapsed > budget.max_seconds:
        used = f"{elapsed:.3g} seconds used, {budget.max_seconds:g} allowed"
        return f"{used} (budget.maxSeconds)"
    if budget.max_steps and chain.steps >= budget.max_steps:
        used = f"{counted(chain.steps, 'step')} made, {budget.max_steps} allowed"
        return f"{used} (budget.maxSteps)"
    if budget.max_tokens and chain.tokens > budget.max_tokens:
        used = f"{counted(chain.tokens, 'token')} used, {budget.max_tokens} allowed"
        return f"{used} (budget.maxTokens)"
    return None


_KINDS: Mapping[StopReason, RunErrorKind] = {
    StopReason.DEADLINE: "deadline",
    StopReason.STOP: "interrupted",
    StopReason.CANCEL: "interrupted",
    StopReason.LANE: "lane_closed",
    StopReason.BUDGET: "budget_exhausted",
    StopReason.FAULT: "internal",
}
_MISHAPS = frozenset({Fault.TRANSIENT, Fault.RATE_LIMITED})


def judged(question: Question, text: str) -> QuestionResult:
    """Return the result of a question that a model answered with this text.

    Example:
        >>> sky = Question(question="Sky?", answers=("Red", "Blue"), correct_answers=("Blue",))
        >>> found = judged(sky, "<answer>red</answer>")
        >>> found.outcome, found.answer_listed, found.verdict.reason
        ('incorrect', True, 'the answer "red" is wrong; correct: "Blue"')
    """
    answer = parse_answer(text, question.answers)
    if isinstance(answer, ParseError):
        return QuestionResult.of(question, "parse_error", parse_error=answer)
    is_correct = normalized(answer) in map(normalized, question.correct_answers)
    return QuestionResult.of(
        question,
        "correct" if is_correct else "incorrect",
        agent_answer=answer,
        answer_listed=is_correct or normalized(answer) in map(normalized, question.answers),
    )


def stopped(question: Question, why: str) -> QuestionResult:
    """Return the result of a question that its budget stopped."""
    error = RunError(kind="budget_exceeded", message=why)
    return QuestionResult.of(question, "budget_exceeded", run_error=error)


def as_not_run(outcome: Outcome[QuestionResult], *, has_started: bool) -> Outcome[QuestionResult]:
    """Return the outcome of a job, as not run if its failure says nothing about the question.

    That is the case if the budget of the run refused a call, or if the lane was closed.

    Args:
        outcome: The outcome of the kernel.
        has_started: True if the model has answered anything.
    """
    if isinstance(outcome, Failed) and isinstance(outcome.error, LaneClosedError):
        if not has_started and not outcome.calls:
            return NotRun(outcome.index, StopReason.LANE, outcome.error.reason)
        return cut_off(outcome, StopReason.LANE)
    return with_refusals(outcome, has_started=has_started)


def result_of(
    question: Question, outcome: Outcome[QuestionResult], *, failed_fast: int | None
) -> QuestionResult:
    """Return the result of a question, without its usage.

    Args:
        question: The question.
        outcome: The outcome of its job, after `as_not_run`.
        failed_fast: The index of the row whose failure stopped the task; None if it was not stopped.
    """
    name: QuestionOutcome
    kind: RunErrorKind
    match outcome:
        case Done():
            return outcome.value
        case Failed(error=error):
            return QuestionResult.of(
                question, "runtime_error", run_error=_failure(error, str(explain(outcome)))
            )
        case NotRun(cut=StopReason.STOP) if failed_fast is not None:
            return QuestionResult.of(question, "skipped")
        case TimedOut():
            name, kind = "runtime_error", "timed_out"
        case Blocked():
            name, kind = "cancelled", "interrupted"
        case Interrupted(cut=cut) | NotRun(cut=cut):
            name, kind = "cancelled", _KINDS[cut]
    cut_off = RunError(kind=kind, message=str(explain(outcome)), retryable=True)
    return QuestionResult.of(question, name, run_error=cut_off)


def row_error(
    result: QuestionResult, outcome: Outcome[QuestionResult], *, failed_fast: int | None
) -> str | None:
    """The reason why a row is not a pass; None if it is. Arguments as in `result_of`."""
    if isinstance(outcome, Done):
        verdict = result.verdict
        return None if verdict is None or verdict.passed else verdict.reason
    if result.outcome == "skipped":
        return f"skipped: row {failed_fast} failed first (failFast)"
    return explain(outcome)


def _failure(error: Exception, message: str) -> RunError:
    match error:
        case ProviderError():
            return RunError(
                kind=error.kind, message=error.message, retryable=error.fault in _MISHAPS
            )
        case LimitError():
            retryable = error.reason == "limiter_unavailable"
            return RunError(kind=error.reason, message=error.message, retryable=retryable)
        case BudgetError():  # a call above the whole budget; others are not run
            return RunError(kind="exceeds_capacity", message=message)
        case _:
            return RunError(kind="internal", message=message)


def tokens_of(chain: ToolConversation | None) -> int | None:
    """Return the tokens of a question, including failed and abandoned calls; None if it made none."""
    if chain is None or not (
        chain.steps or chain.empty_replies or chain.lost_tokens or chain.sent_tokens
    ):
        return None
    return chain.tokens + chain.lost_tokens + chain.sent_tokens
