"""Tokens of failed calls are counted in their questions."""

from pathlib import Path
from typing import Any

import pytest
from asked_questions import RIGHT, Pupil, asked, quiz

from trioeval.errors import ProviderError
from trioeval.kernel.events import CallEnded, Event


@pytest.mark.parametrize("answers", [[500, 500, RIGHT], [500]])
def test_tokens_of_a_question_are_what_its_calls_count_as(
    tmp_path: Path, answers: list[Any]
) -> None:
    """After a server error too, the question reports what the limit was charged."""
    seen: list[int] = []

    def observe(event: Event) -> None:
        if isinstance(event, CallEnded):
            seen.append(event.tokens)

    def says(_number: int, step: int) -> Any:
        said = answers[min(step, len(answers) - 1)]
        return ProviderError("server", "down", status=500) if said == 500 else said

    ran = asked(quiz(tmp_path, 1), Pupil(says=says), observe=observe)
    (question,) = ran.questions
    assert len(seen) >= 2
    assert question.tokens_total == sum(seen) > 0


def test_tokens_of_a_question_that_ran_out_of_time_are_reported(tmp_path: Path) -> None:
    """Its interrupted call may have been paid for."""
    seen: list[int] = []

    def observe(event: Event) -> None:
        if isinstance(event, CallEnded):
            seen.append(event.tokens)

    suite = quiz(tmp_path, 1, evaluateOptions={"timeoutMs": 500})
    ran = asked(suite, Pupil(), observe=observe)
    (question,) = ran.questions
    assert question.outcome == "runtime_error"
    assert question.tokens_total == sum(seen) > 0
