"""How a task of questions ended, and all tasks of a run: status, why, and numbers. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import attrs

from trioeval.tasks.question_result import QuestionOutcome

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
