"""GLEU against NLTK, its fixed point, and laws."""

import importlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.grading import Assertion, grade
from trioeval.grading.kinds.similarity import gleu

NLTK: Any = importlib.import_module("nltk.translate.gleu_score")
WORDS = st.sampled_from(["a", "b", "c", "d"])
LIST = st.lists(WORDS, min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("candidate", "references", "score"),
    [
        ("the cat sat on a mat", ["the cat is on the mat"], 0.27778),
        ("The cat.", ["the cat"], 1),
        ("...", ["..."], 0),
        ("a", ["..."], 0),
        ("a", ["..", "a."], 1),
        (" ", ["a"], 0),
        ("a . b", ["a b"], 2 / 6),
    ],
)
def test_fixed_points(candidate: str, references: list[str], score: float) -> None:
    """The fixed points are those of AS-23, and cases with dots: a word of dots is a word without letters."""
    assert gleu(candidate, references) == pytest.approx(score, abs=1e-5)


@settings(max_examples=150)
@given(LIST, st.lists(LIST, min_size=1, max_size=3))
def test_agrees_with_nltk(candidate: list[str], references: list[list[str]]) -> None:
    """The laws hold: from 0 to 1, the order of references changes nothing, a reference itself has 1."""
    text, texts = " ".join(candidate), [" ".join(reference) for reference in references]
    score = gleu(text, texts)
    assert score == pytest.approx(NLTK.sentence_gleu(references, candidate), abs=1e-12)
    assert 0 <= score <= 1
    assert gleu(text.upper() + ".", texts[::-1]) == score
    assert gleu(text, [*texts, text]) == 1
    assert gleu(text, texts[:1]) == gleu(texts[0], [text])


def test_the_type() -> None:
    """It behaves like the other metrics."""
    (part,) = grade("a b c d", [Assertion(type="gleu", value="a x y z", threshold=0.2)]).parts
    assert (part.passed, part.score) == (False, 0.1)
    assert part.reason == "the GLEU score 0.1 is below the threshold 0.2"
    (part,) = grade("a b c d", [Assertion(type="not-gleu", value="a x y z")]).parts
    assert (part.passed, part.score) == (True, 0.9)
