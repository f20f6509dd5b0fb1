"""similar, classifier and moderation: judges that return numbers or flags."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_double import Judge, find, verdict

from trioeval.errors import GradingError
from trioeval.grading import Subject, Verdict
from trioeval.grading.judges.moderate import last_user_text
from trioeval.grading.judges.similar import cosine, distance, dot
from trioeval.grading.services import Flag

VECTORS = {
    "out": [1.0, 0.0],
    "same": [2.0, 0.0],
    "near": [4.0, 3.0],
    "far": [0.0, 1.0],
    "against": [-1.0, 0.0],
    "zero": [0.0, 0.0],
    "long": [1.0, 0.0, 0.0],
}


def graded(name: str, value: Any, threshold: float | None = None) -> Verdict:
    found = find(Judge(vectors=VECTORS), name, value, subject="out", threshold=threshold)
    return verdict(found, name, value, threshold=threshold)


@pytest.mark.parametrize(
    ("name", "value", "threshold", "passed", "score"),
    [
        ("similar", "same", None, True, 1.0),
        ("similar", "near", None, True, 0.8),
        ("similar", "near", 0.8, True, 0.8),
        ("similar", "near", 0.81, False, 0.8),
        ("similar", "zero", None, False, 0.0),
        ("similar", "against", None, False, -1.0),
        ("similar:cosine", "near", None, True, 0.8),
        ("similar:dot", "near", None, True, 4.0),
        ("similar:dot", "far", None, False, 0.0),
        ("similar:euclidean", "same", 1, True, 0.5),
        ("similar:euclidean", "same", None, False, 0.5),
        ("similar:euclidean", "out", 0, True, 1.0),
        ("not-similar", "near", None, False, 0.2),
        ("not-similar", "near", 0.8, True, 0.2),
        ("not-similar", "far", None, True, 1.0),
        ("not-similar:dot", "near", 4, True, -3.0),
        ("not-similar:euclidean", "same", 1, True, 0.5),
        ("not-similar:euclidean", "same", 1.1, False, 0.5),
        ("similar", ["far", "near", "same"], None, True, 0.8),
        ("similar", ["far", "against"], None, False, 0.0),
        ("similar", ["against", "far"], None, False, 0.0),
        ("not-similar", ["far", "against"], None, True, 1.0),
        ("not-similar", ["against", "far", "near"], None, False, 0.2),
        ("not-similar", ["same", "near"], None, False, 0.0),
        ("not-similar:euclidean", ["near", "same"], 0.5, True, 0.5),
    ],
)
def test_similarity(
    name: str,
    value: Any,
    threshold: float | None,
    passed: bool,  # noqa: FBT001
    score: float,
) -> None:
    """One similar text is enough; under `not-` none may be, and at the threshold both pass."""
    found = graded(name, value, threshold)
    assert found.passed is passed
    assert found.score == pytest.approx(score)


def test_every_text_is_embedded_at_once() -> None:
    """Each text is embedded once."""
    judge = Judge(vectors=VECTORS)
    find(judge, "similar", ["far", "near"], subject="out")
    assert sorted(judge.embedded) == ["far", "near", "out"]


@pytest.mark.parametrize("name", ["similar", "similar:dot", "similar:euclidean", "not-similar"])
def test_incomparable_vectors_are_an_error(name: str) -> None:
    """These have different lengths, infinite numbers, or are missing."""
    with pytest.raises(GradingError, match="different lengths: 3 and 2"):
        graded(name, "long")
    with pytest.raises(GradingError, match="no vector"):
        graded(name, "unknown")
    huge = {"out": [1e308, 1e308], "same": [-1e308, 1e308]}
    with pytest.raises(GradingError, match="too large"):
        find(Judge(vectors=huge), name, "same", subject="out")


VECTOR = st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3)


@settings(max_examples=100)
@given(VECTOR, VECTOR)
def test_measures_are_symmetric_and_in_range(one: list[float], other: list[float]) -> None:
    """A text has the greatest similarity to itself."""
    assert dot(one, other) == dot(other, one)
    assert distance(one, other) == distance(other, one) >= 0
    assert cosine(one, other) == cosine(other, one)
    assert -1 <= cosine(one, other) <= 1
    assert distance(one, one) == 0
    if math.hypot(*one) > 1e-3:
        assert cosine(one, one) == pytest.approx(1)


SCORES = {"joy": 0.7, "anger": 0.2, "0": 0.1}


@pytest.mark.parametrize(
    ("value", "threshold", "holds", "score"),
    [
        ("joy", 0.7, True, 0.7),
        ("joy", 0.71, False, 0.7),
        ("joy", None, False, 0.7),
        ("anger", 0.1, True, 0.2),
        ("fear", 0.1, False, 0.0),
        ("fear", 0, True, 0.0),
        (None, 0.7, True, 0.7),
        (None, None, False, 0.7),
    ],
)
def test_labels(value: str | None, threshold: float | None, holds: bool, score: float) -> None:  # noqa: FBT001
    """A missing label has 0; without a label the highest score counts."""
    found = find(Judge(scores=SCORES), "classifier", value, threshold=threshold)
    assert (found.holds, found.score) == (holds, score)
    other = verdict(found, "not-classifier", value, threshold=threshold)
    assert other.passed is not holds
    assert other.score == pytest.approx(1 - score)


def test_a_classifier_without_scores_is_an_error() -> None:
    """It is an error under `not-` too."""
    with pytest.raises(GradingError, match="returned no scores"):
        find(Judge(scores={}), "not-classifier", "joy")


FLAGS = [Flag("hate", "hateful", 0.9), Flag("violence")]


@pytest.mark.parametrize(
    ("value", "flags", "holds", "reason"),
    [
        (None, [], True, "reported nothing"),
        (None, FLAGS, False, "reported hateful, violence"),
        ([], FLAGS, False, "reported hateful, violence"),
        (["violence"], FLAGS, False, "reported violence"),
        (["self-harm"], FLAGS, True, "none of these categories"),
    ],
)
def test_flags(value: Any, flags: list[Flag], holds: bool, reason: str) -> None:  # noqa: FBT001
    """Only flags of the requested categories count."""
    judge = Judge(flags=flags)
    found = find(judge, "moderation", value)
    assert found.holds is holds
    assert reason in found.reason
    assert judge.moderated == [("the prompt", "the output")]
    other = verdict(found, "not-moderation", value)
    assert (other.passed, other.score) == (not holds, float(not holds))


def test_an_empty_text_needs_no_moderation() -> None:
    """No judge is called."""
    judge = Judge()
    assert find(judge, "moderation", subject=Subject.of("", prompt="p")).holds
    assert judge.moderated == []
    with pytest.raises(GradingError, match="the prompt is empty"):
        find(judge, "moderation", subject=Subject.of("x"))


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("Hi", "Hi"),
        ("[1, 2]", "[1, 2]"),
        ('{"role": "user"}', '{"role": "user"}'),
        ('[{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]', "b"),
        ('[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]', "a"),
        ('[{"role": "system", "content": "a"}]', "a"),
        (
            '[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, "b"]}]',
            "a\nb",
        ),
        ('[{"role": "user", "content": {"text": null, "content": "a"}}]', "a"),
        (
            '[{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "image"}]}]',
            "a",
        ),
        ("[" * 900 + "]" * 900, "[" * 900 + "]" * 900),
    ],
)
def test_the_last_message_of_the_user_is_moderated(prompt: str, text: str) -> None:
    """These are the texts of the last user message that has any."""
    assert last_user_text(prompt) == text


def test_a_message_may_be_deeply_nested() -> None:
    """It is searched without recursion."""
    content = '{"content":' * 400 + '"a"' + "}" * 400
    assert last_user_text(f'[{{"role": "user", "content": {content}}}]') == "a"
