"""ROUGE-1 and the words of the Penn Treebank, against the package of Google Research, and laws."""

import importlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.grading import Assertion, grade
from trioeval.grading.grade import check_assertion
from trioeval.grading.kinds.meteor_rouge import rouge_1, treebank_words

SCORER: Any = importlib.import_module("rouge_score.rouge_scorer").RougeScorer(["rouge1"])

PLAIN = st.lists(st.sampled_from(["a", "b", "cat", "mat", "zoo"]), max_size=10).map(" ".join)
"""Words that all tokenisers split in the same way."""
ANY = st.text(alphabet="ab'\"`.,!?() \n-nts", max_size=30) | st.text(max_size=20)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \n", []),
        ("a,b", ["a", ",", "b"]),
        ("1,000.5", ["1,000.5"]),
        ("at 5:30: go", ["at", "5:30", ":", "go"]),
        ("It ends.", ["It", "ends", "."]),
        ("It ends.)", ["It", "ends", ".", ")"]),
        ("the u.s.", ["the", "u.s."]),
        ("Wait... what?!", ["Wait", "...", "what", "?", "!"]),
        ("don't can't", ["do", "n't", "ca", "n't"]),
        ("it's they'll", ["it", "'s", "they", "'ll"]),
        ("the dogs' bones", ["the", "dogs", "'", "bones"]),
        ("cannot gonna 'tis", ["can", "not", "gon", "na", "'t", "is"]),
        ("wanna go wanna", ["wan", "na", "go", "wan", "na"]),
        ("scannot cannots", ["scannot", "cannots"]),
        ('say "so" now', ["say", "``", "so", "''", "now"]),
        ('("so")', ["(", "``", "so", "''", ")"]),
        ('end."', ["end", ".", "''"]),
        ("``so'' it", ["``", "so", "''", "it"]),
        ("''so'' it", ["''", "so", "''", "it"]),
        ("x ''so'' it", ["x", "``", "so", "''", "it"]),
        ("a--b <c>", ["a", "--", "b", "<", "c", ">"]),
        ("$5 & 6%", ["$", "5", "&", "6", "%"]),
    ],
)
def test_words_of_the_treebank(text: str, words: list[str]) -> None:
    """Punctuation and the parts of contractions are separate words."""
    assert treebank_words(text) == words


def test_fixed_point() -> None:
    """The value is that of AS-23."""
    assert rouge_1("the cat sat on a mat", "the cat is on the mat") == pytest.approx(2 / 3)


@settings(max_examples=200)
@given(PLAIN, PLAIN)
def test_agrees_with_rouge_score(candidate: str, reference: str) -> None:
    """The other implementation has the same definition and another tokeniser."""
    theirs = SCORER.score(reference, candidate)["rouge1"].fmeasure
    assert rouge_1(candidate, reference) == pytest.approx(theirs, abs=1e-12)


@settings(max_examples=200)
@given(ANY, ANY)
def test_laws(one: str, other: str) -> None:
    """The score is from 0 to 1, symmetric, ignores case, and is 1 for the same words."""
    score = rouge_1(one, other)
    assert 0 <= score <= 1
    assert rouge_1(other, one) == score
    assert rouge_1(one.lower(), other) == score
    assert rouge_1(one, one) == float(bool(treebank_words(one)))
    assert rouge_1(f" {one}\n", other) == score


def test_hostile_texts_take_linear_time() -> None:
    """No rule looks far ahead."""
    for part in ("'", "`", '"', "''a ", ".", "a.b", ").", "' "):
        text = part * 10_000
        assert rouge_1(text, text) == 1


def test_the_type() -> None:
    """The score is that of the metric, also if it fails, and inverted under `not-`."""
    (part,) = grade("a b x y", [Assertion(type="rouge-n", value="a b c d")]).parts
    assert (part.passed, part.score) == (False, 0.5)
    assert part.reason == "the ROUGE-1 score 0.5 is below the threshold 0.75"
    (part,) = grade("a b c", [Assertion(type="not-rouge-n", value="a b c", threshold=0.2)]).parts
    assert (part.passed, part.score) == (False, 0)
    assert part.reason == "the ROUGE-1 score 1 reaches the threshold 0.2"


@pytest.mark.parametrize("value", [None, 5, ["a"], {"a": "b"}])
def test_the_value_must_be_a_text(value: Any) -> None:
    """A list is rejected."""
    (problem,) = check_assertion(Assertion(type="rouge-n", value=value))
    assert problem.message.startswith("must be text, got ")
