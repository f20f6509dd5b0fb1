"""Tasks of type `question_eval`: multiple-choice questions, one chain of calls for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

if TYPE_CHECKING:
    from trioeval.question_eval.model import QuestionSettings
    from trioeval.suite.model import TaskSettings


def is_question_eval(settings: TaskSettings) -> TypeGuard[QuestionSettings]:
    """Return whether the settings of a task are those of this type, without importing the type."""
    return settings.type == "question_eval"
