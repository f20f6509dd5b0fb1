"""From how the job of a question ended to what became of the question, and to its row. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import attrs

from trioeval.errors import BudgetError, Fault, LaneClosedError, ProviderError, QuotaError
from trioeval.evaluation.outcomes import as_refused, explain
from trioeval.evaluation.row import Row
from trioeval.evaluation.tools import Chain
from trioeval.grading import Verdict, quote
from trioeval.kernel import Blocked, Cut, Done, Failed, Interrupted, NotRun, Outcome, TimedOut
from trioeval.question_eval.answer import (
    Answer,
    ParseError,
    ParseFault,
    QuestionEvent,
    QuestionOutcome,
    QuestionResult,
    RunError,
    RunErrorKind,
    grade_answer,
    parse_answer,
)
from trioeval.question_eval.model import Question, QuestionBudget

# How one question is answered: steps of a model, the tools that it calls, and what bounds them.
#
# A step is one call of the model. Between two of them stand tools, and a look at the budget: it stops a
# question before a step, and never cuts one that is under way. What a step has used counts also where an
# earlier execution of the run paid for it, so a question that is resumed stops where it would have stopped.
#
# `elapsed` is work, as for the timeout of a job: calls and tools, and not the waits for lanes and limits.


@attrs.frozen
class Stop:
    """A budget let a question make no further step."""

    message: str


def stop_of(budget: QuestionBudget, chain: Chain, working: float) -> Stop | None:
    """What keeps a question from its next step; None if nothing does.

    So many seconds and tokens as are allowed are not too many.

    Args:
        budget: What it may use.
        chain: What it has got to.
        working: Seconds of work of the present run of its job.

    Example:
        >>> chain = Chain.of("?")
        >>> chain.tokens = 500
        >>> stop_of(QuestionBudget(max_tokens=500), chain, 0.0)
        >>> stop_of(QuestionBudget(max_tokens=499), chain, 0.0)
        Stop(message='500 tokens are used, and 499 are allowed (budget.maxTokens)')
    """
    elapsed = chain.elapsed(working)
    if budget.max_seconds and elapsed > budget.max_seconds:
        used = f"it has taken {elapsed:.3g} seconds, and {budget.max_seconds:g} are allowed"
        return Stop(f"{used} (budget.maxSeconds)")
    if budget.max_steps and chain.steps >= budget.max_steps:
        used = f"{chain.steps} steps are made, and {budget.max_steps} are allowed"
        return Stop(f"{used} (budget.maxSteps)")
    if budget.max_tokens and chain.tokens > budget.max_tokens:
        used = f"{chain.tokens} tokens are used, and {budget.max_tokens} are allowed"
        return Stop(f"{used} (budget.maxTokens)")
    return None


# How a task of questions ended, and all tasks of a run: status, why, and numbers. Pure.


TaskStatus: TypeAlias = Literal["pass", "fail", "error"]
TaskReason: TypeAlias = Literal[
    "no_questions",
    "runtime_error",
    "cancelled",
    "budget_exceeded",
    "incorrect_answers",
]

OUTCOMES: tuple[QuestionOutcome, ...] = get_args(QuestionOutcome)
"""In the order in which they are listed."""

_LEFT: tuple[QuestionOutcome, ...] = ("cancelled", "skipped")
"""Those of rows that are `Status.NOT_RUN`."""


@attrs.define
class QuestionCounts:
    """How many questions ended in which way.

    Example:
        >>> found = QuestionCounts.of(["correct", "incorrect", "parse_error", "correct"])
        >>> found.accuracy, found.incorrect, found.status, found.reason
        (0.5, 2, 'fail', 'incorrect_answers')
        >>> QuestionCounts.of(["correct", "runtime_error", "cancelled", "skipped"]).accuracy
        0.5
    """

    by_outcome: Counter[QuestionOutcome] = attrs.field(factory=Counter)
    tokens: int = 0
    """Those that all of them used, as far as it is known."""

    @classmethod
    def of(cls, outcomes: Iterable[QuestionOutcome]) -> "QuestionCounts":
        """Those of some questions."""
        return cls(Counter(outcomes))

    @classmethod
    def joined(cls, several: Iterable["QuestionCounts"]) -> "QuestionCounts":
        """Those of several columns together."""
        found = cls()
        for one in several:
            found.by_outcome.update(one.by_outcome)
            found.tokens += one.tokens
        return found

    def add(self, outcome: QuestionOutcome, tokens: int | None = None) -> None:
        """Count one more, which used so many tokens; None where that is not known."""
        self.by_outcome[outcome] += 1
        self.tokens += tokens or 0

    def add_many(self, outcome: QuestionOutcome, count: int) -> None:
        """Count many that used nothing."""
        self.by_outcome[outcome] += count

    def add_record(self, record: Mapping[str, Any]) -> None:
        """Count the question of a row, by its record; nothing where the row has none."""
        outcome = outcome_of(record)
        if outcome is not None:
            self.add(outcome, record["question"].get("tokensTotal"))

    @property
    def total(self) -> int:
        """All of them, however they ended."""
        return self.by_outcome.total()

    @property
    def correct(self) -> int:
        """Those that were answered right."""
        return self.by_outcome["correct"]

    @property
    def ended(self) -> int:
        """Those that were run to their end; what failed is among them, and makes no share larger."""
        return self.total - sum(self.by_outcome[name] for name in _LEFT)

    @property
    def incorrect(self) -> int:
        """Those that were run to their end, and not answered right."""
        return self.ended - self.correct

    @property
    def accuracy(self) -> float:
        """Share of the correct ones among those that were run to their end, 0 to 1; 0 where none was.

        The pass rate of their rows is the same.
        """
        return self.correct / self.ended if self.ended else 0.0

    @property
    def status(self) -> TaskStatus:
        """How the task ended; see `reason`."""
        match self.reason:
            case None:
                return "pass"
            case "budget_exceeded" | "incorrect_answers":
                return "fail"
            case _:
                return "error"

    @property
    def reason(self) -> TaskReason | None:
        """Why it is no pass; the first of these that is true. None if all were answered right."""
        if not self.total:
            return "no_questions"
        if self.by_outcome["runtime_error"]:
            return "runtime_error"
        if self.by_outcome["cancelled"]:
            return "cancelled"
        if self.by_outcome["budget_exceeded"]:
            return "budget_exceeded"
        return None if self.correct == self.total else "incorrect_answers"

    def json(self) -> dict[str, Any]:
        """The summary of a result file."""
        return {
            "questionsTotal": self.total,
            "questionsEnded": self.ended,
            "questionsCorrect": self.correct,
            "questionsIncorrect": self.incorrect,
            "questionsByOutcome": {
                name: count for name in OUTCOMES if (count := self.by_outcome[name])
            },
            "accuracy": self.accuracy,
        }


@attrs.frozen
class TaskCounts:
    """How all tasks of questions of a run ended, together.

    Example:
        >>> right, none = QuestionCounts.of(["correct"]), QuestionCounts()
        >>> found = TaskCounts([right, none])
        >>> found.passed, found.failed, found.errored, found.pass_rate
        (1, 0, 1, 0.5)
    """

    tasks: Sequence[QuestionCounts]
    """One for each of them."""

    def _ended(self, status: TaskStatus) -> int:
        return sum(task.status == status for task in self.tasks)

    @property
    def passed(self) -> int:
        """Those whose questions were all answered right."""
        return self._ended("pass")

    @property
    def failed(self) -> int:
        """Those with answers that are wrong or missing, or questions that a budget stopped."""
        return self._ended("fail")

    @property
    def errored(self) -> int:
        """Those with questions that failed or were cancelled, and those without questions."""
        return self._ended("error")

    @property
    def pass_rate(self) -> float:
        """Share of those that passed among all, from 0 to 1; 0 where there are none."""
        return self.passed / len(self.tasks) if self.tasks else 0.0

    @property
    def questions(self) -> QuestionCounts:
        """Those of all tasks together."""
        return QuestionCounts.joined(self.tasks)

    def facts(self) -> dict[str, Any]:
        """All numbers by name."""
        questions = self.questions
        return {
            "tasks_total": len(self.tasks),
            "tasks_passed": self.passed,
            "tasks_failed": self.failed,
            "tasks_errored": self.errored,
            "pass_rate": self.pass_rate,
            "tokens_total": questions.tokens,
            "questions_total": questions.total,
            "questions_ended": questions.ended,
            "questions_correct": questions.correct,
            "questions_incorrect": questions.incorrect,
            "question_accuracy": questions.accuracy,
        }


def outcome_of(record: Mapping[str, Any]) -> QuestionOutcome | None:
    """How the question of a row ended, by its record; None where the row has no question."""
    question = record.get("question")
    return None if question is None else question["outcome"]


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


def question_of(row: Row) -> QuestionResult | None:
    """What became of the question of a row; None of a row of another task type."""
    return row.result if isinstance(row.result, QuestionResult) else None


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
