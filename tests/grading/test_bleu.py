"""BLEU of single texts against sacrebleu, its fixed points, and laws."""

import importlib
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.grading import Assertion, grade
from trioeval.grading.grade import check_assertion
from trioeval.grading.kinds.similarity import bleu

SACRE: Any = importlib.import_module("sacrebleu")
WORDS = st.sampled_from(["a", "b", "c", "D"])
TEXT = st.lists(WORDS, min_size=1, max_size=9).map(" ".join)


@pytest.mark.parametrize(
    ("candidate", "references", "score"),
    [
        ("the cat sat on a mat", ["the cat is on the mat", "a cat sat on a mat"], 0.75984),
        ("cat", ["the cat"], 0.36788),
        ("cat", ["cat"], 1),
        ("a b", ["a b c", "a"], math.sqrt(1)),
        ("", ["cat"], 0),
        (" \n", ["cat"], 0),
        ("a b", ["a c"], math.sqrt(0.5 * 1e-7)),
    ],
)
def test_fixed_points(candidate: str, references: list[str], score: float) -> None:
    """The fixed points are those of AS-23, and cases in which the settings matter."""
    assert bleu(candidate, references) == pytest.approx(score, abs=1e-5)


PIECE = st.lists(st.sampled_from(["a", "b", "The", "the", "cat", "sat."]), max_size=5)


@settings(max_examples=150)
@given(PIECE, PIECE, PIECE, PIECE, st.lists(st.sampled_from("abcd"), min_size=4, max_size=6))
def test_agrees_with_sacrebleu(
    before: list[str], after: list[str], front: list[str], back: list[str], shared: list[str]
) -> None:
    """Scores equal sacrebleu's with the same settings: no tokeniser, lower case, effective order, one text.

    The texts share four consecutive words, because sacrebleu smooths a precision of zero in another way.
    """
    candidate, reference = (
        " ".join(words) for words in (before + shared + after, front + shared + back)
    )
    found = SACRE.sentence_bleu(
        candidate, [reference], lowercase=True, tokenize="none", use_effective_order=True
    )
    assert bleu(candidate, [reference]) == pytest.approx(found.score / 100, abs=1e-9)


@settings(max_examples=150)
@given(TEXT, st.lists(TEXT, min_size=1, max_size=3))
def test_laws(candidate: str, references: list[str]) -> None:
    """From 0 to 1; 1 for a reference itself; the order of references, case and space do not matter."""
    score = bleu(candidate, references)
    assert 0 < score <= 1 + 1e-12
    assert bleu(candidate, references[::-1]) == score
    assert bleu(f" {candidate.upper()}\t".replace(" ", "  "), references) == score
    assert bleu(candidate, [*references, candidate]) == pytest.approx(1)


def test_the_type() -> None:
    """It takes one text or several, with templates."""
    (part,) = grade("x a b c", [Assertion(type="bleu", value=["z", "x a b c"])]).parts
    assert (part.passed, part.score) == (True, 1)
    assert part.reason == "the BLEU score 1 reaches the threshold 0.5"
    (part,) = grade("a", [Assertion(type="not-bleu", value="{{x}}")], render=lambda _: "a").parts
    assert (part.passed, part.score) == (False, 0)


@pytest.mark.parametrize("type_", ["bleu", "gleu", "meteor"])
@pytest.mark.parametrize("value", [None, 5, [], ["a", 5], {"a": "b"}])
def test_invalid_values_are_reported_at_load(type_: str, value: Any) -> None:
    """The message shows a valid value."""
    (problem,) = check_assertion(Assertion(type=type_, value=value))
    assert problem.path == ".value"
    assert problem.message.startswith("must be text, or a list of texts that is not empty, got ")


@pytest.mark.parametrize("type_", ["bleu", "gleu", "rouge-n"])
def test_invalid_thresholds_are_reported_at_load(type_: str) -> None:
    """A score is never negative."""
    (problem,) = check_assertion(Assertion(type=type_, value="a", threshold=-0.5))
    assert (problem.path, problem.message) == (".threshold", "must be 0 or more, got -0.5")
