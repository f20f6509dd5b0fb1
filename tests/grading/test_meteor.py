"""METEOR against the implementation of NLTK, the examples of its definition, and laws."""

import importlib
import os
import string
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.grading import Assertion, grade
from trioeval.grading.grade import check_assertion
from trioeval.grading.kinds.meteor_rouge import STANDARD, Weights, find_synonyms, meteor

NLTK: Any = importlib.import_module("nltk.translate.meteor_score")
PORTER: Any = importlib.import_module("nltk.stem.porter").PorterStemmer
PORTER_STEMMER = PORTER(mode=PORTER.ORIGINAL_ALGORITHM)
SNOWBALL: Any = importlib.import_module("snowballstemmer")

WORDS = ["run", "runs", "running", "runner", "cat", "cats", "the", "a", "nation", "national", "buy"]
SENTENCES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12)
UNIT = st.floats(0.05, 0.95)
stem: Callable[[str], str] = SNOWBALL.stemmer("porter").stemWord


class NoWordNet:
    """A thesaurus without words."""

    def synsets(self, _word: str) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("candidate", "reference", "score"),
    [
        ("the cat sat on the mat", "the cat sat on the mat", 0.9977),
        ("on the mat sat the cat", "the cat sat on the mat", 0.5),
        ("the cat was sat on the mat", "the cat sat on the mat", 0.9654),
        ("hello", "hello", 0.5),
        ("Hello...", "hello", 0.5),
        ("x", "y", 0.0),
        ("", "y", 0.0),
        ("y", "...", 0.0),
        ("he walked", "he walks", 0.9375),
    ],
)
def test_worked_examples(candidate: str, reference: str, score: float) -> None:
    """The first three are usual examples in explanations of METEOR."""
    assert meteor(candidate, [reference], stem=stem) == pytest.approx(score, abs=5e-5)


@settings(max_examples=100)
@given(SENTENCES, st.lists(SENTENCES, min_size=1, max_size=3), UNIT, st.floats(0, 5), UNIT)
def test_agrees_with_nltk(
    candidate: list[str], references: list[list[str]], alpha: float, beta: float, gamma: float
) -> None:
    """Exact words match first, then stems, by Porter's original algorithm. The best reference counts."""
    weights = {"alpha": alpha, "beta": beta, "gamma": gamma}
    theirs = NLTK.meteor_score(
        references, candidate, stemmer=PORTER_STEMMER, wordnet=NoWordNet(), **weights
    )
    texts = [" ".join(reference) for reference in references]
    ours = meteor(" ".join(candidate), texts, stem=stem, weights=Weights(**weights))
    assert ours == pytest.approx(theirs, abs=1e-12)
    assert 0 <= ours <= 1


@settings(max_examples=100)
@given(SENTENCES, SENTENCES)
def test_more_matchers_never_lower_the_score(candidate: list[str], reference: list[str]) -> None:
    """This holds for stems and synonyms without a penalty for order."""
    flat = Weights(gamma=0)
    pair = " ".join(candidate), [" ".join(reference)]
    exact = meteor(*pair, stem=str, weights=flat)
    stems = meteor(*pair, stem=stem, weights=flat)
    synonyms = meteor(*pair, stem=stem, synonyms=lambda _: WORDS, weights=flat)
    assert exact <= stems <= synonyms


def test_synonyms_are_matched_last() -> None:
    """The last free one is used."""
    names = {"big": ["large", "great"]}
    found = meteor("big", ["large great"], stem=str, synonyms=lambda word: names.get(word, ()))
    assert found == pytest.approx(0.5 * 0.5 / (0.9 + 0.1 * 0.5))


def test_long_texts_take_linear_time() -> None:
    """This holds if all words differ, and if all are the same."""
    digits = string.digits
    many = " ".join(a + b + c + d for a in digits for b in digits for c in digits for d in digits)
    assert meteor(many, [many[::-1]], stem=str) > 0
    assert meteor("a " * 10_000, ["a " * 10_000], stem=str) == pytest.approx(1)
    assert meteor("ab" * 100_000, ["ba"], stem=stem) == 0


def test_the_type_has_weights() -> None:
    """They are in its config."""
    pair: dict[str, Any] = {"type": "meteor", "value": ["the cat sat on the mat"]}
    output = "the cat was sat on the mat"
    (plain,) = grade(output, [Assertion(**pair)]).parts
    assert plain.passed
    assert plain.score == pytest.approx(0.9654, abs=5e-5)
    missing = "without synonyms, because WordNet is missing" in plain.reason
    assert missing is (find_synonyms() is None)
    weighed = Assertion(**pair, config={"alpha": 0, "beta": 1, "gamma": 0.5})
    (part,) = grade(output, [weighed]).parts
    assert part.score == pytest.approx((1 - 0.5 * 2 / 6) * 6 / 7)
    inverted = Assertion(**{**pair, "type": "not-meteor"})
    (part,) = grade(output, [inverted]).parts
    assert not part.passed
    assert part.score == pytest.approx(1 - plain.score)


def test_invalid_weights_are_reported_at_load() -> None:
    """The message shows valid values."""
    config = {"alpha": 2, "beta": -1, "gamma": "much", "other": 1}
    wrong = Assertion(type="meteor", value="x", threshold=-1, config=config)
    assert [f"{problem.path}: {problem.message}" for problem in check_assertion(wrong)] == [
        ".threshold: must be 0 or more, got -1",
        ".config.alpha: must be a number from 0 to 1, got 2",
        ".config.beta: must be a number 0 or more, got -1",
        '.config.gamma: must be a number from 0 to 1, got "much"',
    ]
    assert Weights(0.9, 3, 0.5) == STANDARD


SYNSETS = {
    "noun": [("n", "06", ["car", "auto", "motor_car"])],
    "verb": [("v", "40", ["buy", "purchase"])],
}


@pytest.fixture
def wordnet(tmp_path: Path) -> Callable[[str], str]:
    """Create WordNet's files with two synsets in a folder that NLTK searches."""
    folder = tmp_path / "corpora" / "wordnet"
    folder.mkdir(parents=True)
    for name in ("cntlist.rev", "index.sense"):
        (folder / name).write_text("")
    for part in ("noun", "verb", "adj", "adv"):
        data, index = "", ""
        for pos, file, names in SYNSETS.get(part, []):
            offset = f"{len(data):08}"
            words = " ".join(f"{name} 0" for name in names)
            data += (
                f"{offset} {file} {pos} {len(names):02x} {words} 000{' 00' * (pos == 'v')} | it\n"
            )
            index += "".join(f"{name} {pos} 1 0 1 0 {offset}\n" for name in names)
        (folder / f"data.{part}").write_text(data)
        (folder / f"index.{part}").write_text(index)
        (folder / f"{part}.exc").write_text("")
    names_of_files = (f"{number:02}\tfile\t1\n" for number in range(45))
    (folder / "lexnames").write_text("".join(names_of_files))

    def run(script: str) -> str:
        environment = {"NLTK_DATA": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", script]
        return subprocess.check_output(command, env=environment, text=True)

    return run


@pytest.mark.slow
def test_wordnet_is_used_if_installed(wordnet: Callable[[str], str]) -> None:
    """The test uses another process, because NLTK searches for its data once."""
    printed = wordnet(
        "from trioeval.grading import Assertion, grade\n"
        "printed = grade('he will buy a car', [Assertion(type='meteor', value='he will purchase a auto')])\n"
        "print(printed.parts[0].score, printed.parts[0].reason)\n"
    )
    assert printed == "0.996 the METEOR score 0.996 reaches the threshold 0.5\n"
