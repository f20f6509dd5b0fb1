"""From how the job of a question ended to what became of the question, and to its row. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import attrs

from trioeval.errors import BudgetError, Fault, LaneClosedError, LimitError, ProviderError
from trioeval.evaluation.outcomes import as_refused, cut_off, explain
from trioeval.evaluation.row import Row
from trioeval.evaluation.tools import Chain
from trioeval.kernel import Blocked, Cut, Done, Failed, Interrupted, NotRun, Outcome, TimedOut
from trioeval.question_eval.answer import (
    ParseError,
    QuestionOutcome,
    QuestionResult,
    RunError,
    RunErrorKind,
    normalized,
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


def stop_of(budget: QuestionBudget, chain: Chain, working: float) -> str | None:
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
        '500 tokens are used, and 499 are allowed (budget.maxTokens)'
    """
    elapsed = chain.elapsed(working)
    if budget.max_seconds and elapsed > budget.max_seconds:
        used = f"it has taken {elapsed:.3g} seconds, and {budget.max_seconds:g} are allowed"
        return f"{used} (budget.maxSeconds)"
    if budget.max_steps and chain.steps >= budget.max_steps:
        used = f"{chain.steps} steps are made, and {budget.max_steps} are allowed"
        return f"{used} (budget.maxSteps)"
    if budget.max_tokens and chain.tokens > budget.max_tokens:
        used = f"{chain.tokens} tokens are used, and {budget.max_tokens} are allowed"
        return f"{used} (budget.maxTokens)"
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


def judged(question: Question, text: str) -> QuestionResult:
    """The result of a question that a model answered with this text.

    Example:
        >>> sky = Question(question="Sky?", answers=("Red", "Blue"), correct_answers=("Blue",))
        >>> found = judged(sky, "<answer>red</answer>")
        >>> found.outcome, found.answer_listed, found.verdict.reason
        ('incorrect', True, 'the answer "red" is wrong; right is "Blue"')
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
    """The result of a question that its budget stopped."""
    error = RunError(kind="budget_exceeded", message=why)
    return QuestionResult.of(question, "budget_exceeded", run_error=error)


def as_left(outcome: Outcome[QuestionResult], *, begun: bool) -> Outcome[QuestionResult]:
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
        return cut_off(outcome, Cut.LANE)
    return as_refused(outcome, begun=begun)


def result_of(
    question: Question, outcome: Outcome[QuestionResult], *, failed_fast: int | None
) -> QuestionResult:
    """How a question ended, without what it used.

    Args:
        question: It.
        outcome: Of its job, after `as_left`.
        failed_fast: The index of the row after whose failure no other was started; None if that was not.
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
        case NotRun(cut=Cut.STOP) if failed_fast is not None:
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


def question_of(row: Row) -> QuestionResult | None:
    """What became of the question of a row; None of a row of another task type."""
    return row.result if isinstance(row.result, QuestionResult) else None


def _failure(error: Exception, message: str) -> RunError:
    match error:
        case ProviderError():
            return RunError(
                kind=error.kind, message=error.message, retryable=error.fault in _MISHAPS
            )
        case LimitError():
            retryable = error.reason == "limiter_unavailable"
            return RunError(kind=error.reason, message=error.message, retryable=retryable)
        case BudgetError():  # one that is larger than all of it; others are left for another time
            return RunError(kind="exceeds_capacity", message=message)
        case _:
            return RunError(kind="internal", message=message)


def tokens_of(chain: Chain | None) -> int | None:
    """Tokens of a question and of its calls that failed or were given up; None without any."""
    if chain is None or not (chain.steps or chain.wasted or chain.lost_tokens or chain.sent_tokens):
        return None
    return chain.tokens + chain.lost_tokens + chain.sent_tokens
