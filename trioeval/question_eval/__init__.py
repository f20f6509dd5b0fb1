"""Tasks of type `question_eval`: multiple-choice questions, one chain of calls for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from trioeval.lazy import lazy_names

if TYPE_CHECKING:
    from trioeval.evaluation.row import Row
    from trioeval.question_eval.answer import QuestionEvent as QuestionEvent
    from trioeval.question_eval.answer import QuestionResult as QuestionResult
    from trioeval.question_eval.model import QuestionSettings
    from trioeval.suite.model import TaskSettings
else:  # type checkers would accept any name
    __getattr__, __dir__, __all__ = lazy_names(
        "trioeval.question_eval",
        {
            "trioeval.question_eval.answer": "QuestionEvent QuestionResult",
        },
        own="is_question_eval question_of",
    )


def is_question_eval(settings: TaskSettings) -> TypeGuard[QuestionSettings]:
    """Return whether the settings of a task are those of this type, without importing the type."""
    return settings.type == "question_eval"


def question_of(row: Row) -> QuestionResult | None:
    """Return the result of the question of a row; None for a row of another task type."""
    if row.result is None:
        return None
    from trioeval.question_eval.answer import QuestionResult

    return row.result if isinstance(row.result, QuestionResult) else None
