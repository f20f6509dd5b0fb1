"""Tokens of failed calls are counted in their questions."""

from pathlib import Path
from typing import Any

import pytest
from asked_questions import RIGHT, Pupil, asked, quiz

from trioeval.errors import ProviderError
from trioeval.kernel.events import CallEnded, Event


@pytest.mark.parametrize("answers", [[500, 500, RIGHT], [500]])
def test_tokens_of_a_question_are_those_charged_to_the_limit(
    tmp_path: Path, answers: list[Any]
) -> None:
    """This includes tokens of calls that failed with a server error."""
    seen: list[int] = []

    def observe(event: Event) -> None:
        if isinstance(event, CallEnded):
            seen.append(event.tokens)

    def says(_number: int, step: int) -> Any:
        answer = answers[min(step, len(answers) - 1)]
        return ProviderError("server", "down", status=500) if answer == 500 else answer

    ran = asked(quiz(tmp_path, 1), Pupil(says=says), observe=observe)
    (question,) = ran.questions
    assert len(seen) >= 2
    assert question.tokens_total == sum(seen) > 0


def test_tokens_of_a_question_that_timed_out_are_reported(tmp_path: Path) -> None:
    """Its interrupted call may have been charged."""
    seen: list[int] = []

    def observe(event: Event) -> None:
        if isinstance(event, CallEnded):
            seen.append(event.tokens)

    suite = quiz(tmp_path, 1, evaluateOptions={"timeoutMs": 500})
    ran = asked(suite, Pupil(), observe=observe)
    (question,) = ran.questions
    assert question.outcome == "runtime_error"
    assert question.tokens_total == sum(seen) > 0
