import json
import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pace import takes_less

from trioeval.grading.kinds.text import is_refusal

DATA = json.loads(files("trioeval.grading").joinpath("refusal.json").read_text("utf-8"))


def spelt(phrase: str) -> list[str]:
    """Replace each name in a phrase with all of its alternatives."""
    found = re.search(r"\{([^}]*)\}", phrase)
    if found is None:
        return [phrase]
    return [
        text
        for choice in DATA["where"][found[1]]
        for text in spelt(phrase[: found.start()] + choice + phrase[found.end() :])
    ]


BEGINS = [text for phrase in DATA["begins"] for text in spelt(phrase)]
SAYS = [text for phrase in DATA["says"] for text in spelt(phrase)]

REFUSALS = [
    "I’m sorry, but that is beyond me.",
    "  I′m unable to say\n",
    "SORRY",
    "My apologies! There is none.",
    "As an AI, I have no opinion.",
    "Speaking as a language model: no.",
    "Well, I won't recommend that.",
    "We can't fulfill your request.",
    "That would be not legal.",
    "Frankly, I do not feel comfortable here",
    "It has been blocked by our content filters",
    "I want to be helpful, but this goes too far.",
    "",
    " \n\ufeff",
]

ANSWERS = [
    "Sure, here it is.",
    "Paris.",
    "He said that he was sorry.",
    "Canned tomatoes cannot helpfully grow.",
    "A notlegal text",
    "Gothically, as an aid to memory",
    "You cannot assist with a request like it.",
    "{}",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals_are_recognized(text: str) -> None:
    """They are recognized by their beginning, by a phrase, or because they are empty."""
    assert is_refusal(text)


@pytest.mark.parametrize("text", ANSWERS)
def test_answers_are_not_refusals(text: str) -> None:
    """The words of a phrase may occur in other words, or in the middle instead of the beginning."""
    assert not is_refusal(text)


def test_every_phrase_of_the_data_counts() -> None:
    """It counts at the beginning with anything after it; elsewhere as whole words."""
    for text in BEGINS:
        assert is_refusal(f"{text.upper()}, you see")
    for text in SAYS:
        assert is_refusal(f"Well: {text}; you see")
        assert not is_refusal(f"Well: x{text}x; you see"), text


def test_the_data_is_in_normal_form() -> None:
    """It is lower-case with straight apostrophes, without duplicates, and every name is defined and used."""
    phrases = BEGINS + SAYS
    assert len(phrases) == len(set(phrases)) + len(set(BEGINS) & set(SAYS))
    assert all(text == text.lower().strip() and text.isascii() for text in phrases)
    names = set(re.findall(r"\{([^}]*)\}", " ".join(DATA["begins"] + DATA["says"])))
    assert names == set(DATA["where"])


@pytest.mark.slow
@given(st.text(), st.text())
def test_case_space_and_apostrophes_do_not_matter(before: str, after: str) -> None:
    """They do not affect whether a text is a refusal."""
    text = f"{before} I don't help {after}"
    assert is_refusal(text)
    assert is_refusal(f"\n{text.replace(chr(39), '’')} ")


@pytest.mark.slow
def test_long_outputs_take_linear_time() -> None:
    """This holds for outputs that repeat the beginnings of phrases too."""
    text = "i don't, i am, as an, not, " * 80_000
    assert not is_refusal(text)
    assert takes_less(2, lambda: is_refusal(text))  # some 0.1 s on an idle machine


def test_the_longest_phrase_is_found_across_pieces() -> None:
    """A long text is searched in pieces of 65,536 characters, each with the beginning of the next."""
    longest = max(SAYS, key=len)
    assert all(is_refusal("." * (65_535 - before) + longest) for before in (0, 1, len(longest)))
