"""factuality: categories, in an object or as a letter in parentheses, and their scores."""

from typing import Any

import pytest
from judge_double import NO_VERDICTS, Judge, find, verdict

from trioeval.errors import GradingError
from trioeval.grading import Subject


@pytest.mark.parametrize("name", ["factuality", "model-graded-factuality"])
@pytest.mark.parametrize(
    ("reply", "category", "reason"),
    [
        ({"category": "A", "reason": "a part"}, "A", "a part"),
        ({"category": " d "}, "D", "the output contradicts the facts"),
        ("(B) It says more.", "B", "It says more."),
        ("The answer is C) the same", "C", "the same"),
        ("(e)", "E", "the output differs in nothing that is relevant to the facts"),
        ("I choose (D), yes (D).", "D", ", yes (D)."),
        ('{"note": 1} (A)', "A", "the output states a part of the facts and contradicts none"),
    ],
)
def test_categories(name: str, reply: Any, category: str, reason: str) -> None:
    """Only a contradiction fails."""
    judge = Judge([reply])
    found = find(judge, name, "Paris")
    assert found.metadata["category"] == category
    assert (found.holds, found.score) == (category != "D", float(category != "D"))
    assert found.reason == reason
    shown = {key: judge.rendered[0][key] for key in ("input", "ideal", "completion")}
    assert shown == {"input": "the prompt", "ideal": "Paris", "completion": "the output"}


@pytest.mark.parametrize(
    "reply",
    [
        *NO_VERDICTS.values(),
        {"category": "Z"},
        {"category": "AB"},
        {"category": None, "reason": "(B) perhaps"},
        {"category": ["B"], "reason": "(B) perhaps"},
        {"category": "A", "reason": {"why": "so"}},
        "Either (A) or (B).",
        "D",
        "see the idea) there",
        '{"category": "F"} (A)',
    ],
)
def test_replies_without_a_category(reply: Any) -> None:
    """The nearest letter is not guessed."""
    judge = Judge([reply] * 2)
    with pytest.raises(GradingError, match="is unusable"):
        find(judge, "factuality", "Paris")
    assert len(judge.requests) == 2


def test_a_test_may_define_the_scores_of_categories() -> None:
    """A score above 0 passes."""
    scores = {"superset": 0.3, "disagree": 0.1, "subset": 0, "agree": 2}
    for letter, score in zip("ABCD", (0.0, 0.3, 2.0, 0.1), strict=True):
        found = find(Judge([f"({letter})"]), "factuality", "x", settings={"factuality": scores})
        assert (found.holds, found.score) == (score > 0, score)
        negated = verdict(found, "not-factuality", "x")
        assert (negated.passed, negated.score) == (score == 0, min(1.0, max(0.0, 1 - score)))


def test_lenient_reading_takes_the_first_letter() -> None:
    """It follows promptfoo; any other letter fails."""
    lenient = {"lenient": True}
    assert find(Judge(["(A) or (D)"]), "factuality", "x", settings=lenient).holds
    found = find(Judge([{"category": "Z"}]), "not-factuality", "x", settings=lenient)
    assert (found.holds, found.invertible) == (False, False)


def test_a_missing_prompt_is_an_error() -> None:
    """Facts are judged as an answer to a prompt."""
    with pytest.raises(GradingError, match="the prompt is empty"):
        find(Judge(), "factuality", "x", subject=Subject.of("x"))
