"""g-eval: steps first, then a score from 0 to 10."""

from typing import Any

import pytest
from judge_double import NO_VERDICTS, Judge, find, verdict

from trioeval.errors import GradingError
from trioeval.grading import Subject

STEPS = {"steps": ["Look.", "Count."]}
EIGHT = {"score": 8, "reason": "clear"}


def test_the_steps_are_part_of_the_second_request() -> None:
    """The request also has the input and the reply."""
    judge = Judge([STEPS, EIGHT])
    found = find(judge, "g-eval", "is clear", subject=Subject.of("out", prompt='{"a": 1}'))
    assert (found.holds, found.score, found.reason) == (True, 0.8, "clear")
    first, second = judge.rendered
    assert first["criteria"] == second["criteria"] == "is clear"
    assert second["steps"] == "Look.\n- Count."
    assert (second["maxScore"], second["input"], second["output"]) == ("10", {"a": 1}, "out")
    assert found.metadata["renderedGradingPrompt"] == judge.requests[1].prompt
    assert found.metadata["steps"] == [["Look.", "Count."]]
    assert "Look." in judge.requests[1].prompt


def test_prompts_of_the_user_by_part() -> None:
    """The parts are `steps` and `evaluate`."""
    judge = Judge([STEPS, EIGHT], prompts={"steps": "S {{criteria}}", "evaluate": "E {{steps}}"})
    find(judge, "g-eval", "is clear")
    assert [one.prompt for one in judge.requests] == ["S is clear", "E Look.\n- Count."]


@pytest.mark.parametrize(
    ("reply", "threshold", "holds", "score"),
    [
        ({"score": "8", "reason": "so"}, None, True, 0.8),
        ({"score": 7, "reason": "so"}, None, True, 0.7),
        ({"score": 6.9, "reason": "so"}, None, False, 0.69),
        ({"score": 0, "reason": "so"}, 0, True, 0.0),
        ({"score": 10, "reason": "so"}, 1, True, 1.0),
        ('Sure:\n```json\n{\n "score": 5,\n "reason": "so"\n}\n```', 0.5, True, 0.5),
    ],
)
def test_scores(reply: Any, threshold: float | None, holds: bool, score: float) -> None:  # noqa: FBT001
    """The score is a tenth of the judge's, and passes from 0.7."""
    found = find(Judge([STEPS, reply]), "g-eval", "is clear", threshold=threshold)
    assert found.holds is holds
    assert found.score == pytest.approx(score)
    negated = verdict(found, "not-g-eval", "is clear", threshold=threshold)
    assert negated.passed is not holds
    assert negated.score == pytest.approx(1 - score)


@pytest.mark.parametrize(
    "reply",
    [
        *NO_VERDICTS.values(),
        {"score": 11, "reason": "so"},
        {"score": -1, "reason": "so"},
        {"score": "high", "reason": "so"},
        {"score": 8},
        {"score": 8, "reason": " "},
        {"score": 8, "reason": 5},
        {"reason": "so"},
    ],
)
def test_replies_without_a_score(reply: Any) -> None:
    """The judge is called once more, and then it is an error."""
    judge = Judge([STEPS, reply, reply])
    with pytest.raises(GradingError, match="is unusable"):
        find(judge, "g-eval", "is clear")
    assert [one.again for one in judge.requests] == [False, False, True]


@pytest.mark.parametrize(
    "reply",
    [
        *NO_VERDICTS.values(),
        {"steps": []},
        {"steps": "Look."},
        {"steps": ["Look.", 5]},
        {"steps": [""]},
    ],
)
def test_replies_without_steps(reply: Any) -> None:
    """Without steps, nothing is scored."""
    judge = Judge([reply, reply])
    with pytest.raises(GradingError, match="is unusable"):
        find(judge, "g-eval", "is clear")


def test_several_criteria_have_equal_weights() -> None:
    """The score is the mean of theirs; reasons are in the order of the criteria."""

    def answer(prompt: str) -> Any:
        if "By which steps" in prompt:
            return STEPS
        return (
            {"score": 10, "reason": "short"}
            if "is short" in prompt
            else {"score": 5, "reason": "dull"}
        )

    judge = Judge(answer)
    found = find(judge, "g-eval", ["is short", "is fun"])
    assert (found.holds, found.score, found.reason) == (True, 0.75, "short\n\ndull")
    assert len(judge.requests) == len(found.metadata["graderReplies"]) == 4


def test_one_criterion_without_a_score_is_an_error() -> None:
    """It is not the mean of the others."""

    def answer(prompt: str) -> Any:
        if "By which steps" in prompt:
            return STEPS
        return EIGHT if "is short" in prompt else "dull"

    with pytest.raises(GradingError, match="dull"):
        find(Judge(answer), "g-eval", ["is short", "is fun"])


def test_a_missing_prompt_is_an_error() -> None:
    """No judge is called."""
    with pytest.raises(GradingError, match="the prompt is empty"):
        find(Judge(), "g-eval", "x", subject=Subject.of("x"))
