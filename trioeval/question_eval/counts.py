"""The status, reason and totals of a task of questions, and of all tasks of a run. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import attrs

TaskStatus: TypeAlias = Literal["pass", "fail", "error"]
TaskReason: TypeAlias = Literal[
    "no_questions",
    "runtime_error",
    "cancelled",
    "budget_exceeded",
    "incorrect_answers",
]

QuestionOutcome: TypeAlias = Literal[
    "correct",
    "incorrect",
    "parse_error",
    "budget_exceeded",
    "runtime_error",
    "cancelled",
    "skipped",
]

OUTCOMES: tuple[QuestionOutcome, ...] = get_args(QuestionOutcome)
"""All outcomes in the order of lists."""

FATAL: frozenset[QuestionOutcome] = frozenset({"runtime_error", "budget_exceeded"})
"""The outcomes after which a task with `failFast` starts no more questions."""

_LEFT: tuple[QuestionOutcome, ...] = ("cancelled", "skipped")
"""The outcomes of rows with `Status.NOT_RUN`."""


@attrs.define
class QuestionCounts:
    """The number of questions by outcome.

    Example:
        >>> found = QuestionCounts.of(["correct", "incorrect", "parse_error", "correct"])
        >>> found.accuracy, found.incorrect, found.status, found.reason
        (0.5, 2, 'fail', 'incorrect_answers')
        >>> QuestionCounts.of(["correct", "runtime_error", "cancelled", "skipped"]).accuracy
        0.5
    """

    by_outcome: Counter[QuestionOutcome] = attrs.field(factory=Counter)
    tokens: int = 0
    """The known tokens of all questions."""

    @classmethod
    def of(cls, outcomes: Iterable[QuestionOutcome]) -> "QuestionCounts":
        """Return the counts of some questions."""
        return cls(Counter(outcomes))

    @classmethod
    def joined(cls, several: Iterable["QuestionCounts"]) -> "QuestionCounts":
        """Return the sum of several counts."""
        found = cls()
        for one in several:
            found.by_outcome.update(one.by_outcome)
            found.tokens += one.tokens
        return found

    def add(self, outcome: QuestionOutcome, tokens: int | None = None) -> None:
        """Count one question and its tokens; None if they are not known."""
        self.by_outcome[outcome] += 1
        self.tokens += tokens or 0

    def add_many(self, outcome: QuestionOutcome, count: int) -> None:
        """Count many questions without tokens."""
        self.by_outcome[outcome] += count

    def add_record(self, record: Mapping[str, Any]) -> None:
        """Count the question of a row, by its record; ignore a row without one."""
        outcome = outcome_of(record)
        if outcome is not None:
            self.add(outcome, record["question"].get("tokensTotal"))

    @property
    def total(self) -> int:
        """The number of all questions."""
        return self.by_outcome.total()

    @property
    def correct(self) -> int:
        """The number of correctly answered questions."""
        return self.by_outcome["correct"]

    @property
    def ended(self) -> int:
        """The number of questions that were run to their end, including those that failed."""
        return self.total - sum(self.by_outcome[name] for name in _LEFT)

    @property
    def incorrect(self) -> int:
        """The number of questions that were run to their end and not answered correctly."""
        return self.ended - self.correct

    @property
    def accuracy(self) -> float:
        """The share of correct ones among the questions that were run to their end, 0 to 1; 0 if none was.

        The pass rate of their rows is the same.
        """
        return self.correct / self.ended if self.ended else 0.0

    @property
    def status(self) -> TaskStatus:
        """The status of the task; see `reason`."""
        match self.reason:
            case None:
                return "pass"
            case "budget_exceeded" | "incorrect_answers":
                return "fail"
            case _:
                return "error"

    @property
    def reason(self) -> TaskReason | None:
        """The first of these reasons that is true; None if all questions were answered correctly."""
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
        """Return the summary for a result file."""
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
    """The counts of all tasks of questions of a run.

    Example:
        >>> right, none = QuestionCounts.of(["correct"]), QuestionCounts()
        >>> found = TaskCounts([right, none])
        >>> found.passed, found.failed, found.errored, found.pass_rate
        (1, 0, 1, 0.5)
    """

    tasks: Sequence[QuestionCounts]
    """One for each task."""

    def _ended(self, status: TaskStatus) -> int:
        return sum(task.status == status for task in self.tasks)

    @property
    def passed(self) -> int:
        """The number of tasks whose questions were all answered correctly."""
        return self._ended("pass")

    @property
    def failed(self) -> int:
        """The number of tasks with wrong or missing answers, or questions that a budget stopped."""
        return self._ended("fail")

    @property
    def errored(self) -> int:
        """The number of tasks with failed or cancelled questions, or without questions."""
        return self._ended("error")

    @property
    def pass_rate(self) -> float:
        """The share of tasks that passed, from 0 to 1; 0 if there are none."""
        return self.passed / len(self.tasks) if self.tasks else 0.0

    @property
    def questions(self) -> QuestionCounts:
        """The counts of all tasks together."""
        return QuestionCounts.joined(self.tasks)

    def facts(self) -> dict[str, Any]:
        """Return all totals by name."""
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
    """Return the outcome of the question of a row, by its record; None if the row has no question."""
    question = record.get("question")
    return None if question is None else question["outcome"]
