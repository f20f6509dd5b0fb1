import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from trioeval.errors import GradingError
from trioeval.grading import Assertion, grade
from trioeval.grading.kinds.text import SPACES, comma_list, is_list

TEXTS = st.text(
    st.sampled_from('abAB ,"\\\n') | st.characters(exclude_categories=["Cs"]), max_size=6
)


def passes(output: Any, type_: str, value: Any, **more: Any) -> bool:
    return grade(output, [Assertion(type=type_, value=value, **more)]).passed


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@pytest.mark.slow
@given(st.lists(TEXTS), st.sampled_from([",", " , ", ",,", ",\n"]))
def test_quoted_elements_are_read_back_from_a_comma_list(texts: list[str], comma: str) -> None:
    """Elements and commas may be in any form."""
    assert comma_list(comma.join(map(quoted, texts))) == texts


@pytest.mark.slow
@given(st.text("ab ,\n\xa0"))
def test_plain_elements_are_separated_by_commas(text: str) -> None:
    """The space around them is removed, and blank ones are left out."""
    stripped = [element.strip(SPACES) for element in text.split(",")]
    assert comma_list(text) == [element for element in stripped if element]


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ('a "b", c"', ['a "b"', 'c"']),
        ('"a\\\nb"', ["a\\\nb"]),
        (r'"l\n"', [r"l\n"]),
        ('"a"\x85', None),
        ("\ufeff a \xa0,", ["a"]),
        ('"""', None),
        (r'"a\"', None),
    ],
)
def test_quotes_and_escapes_of_a_comma_list(text: str, elements: list[str] | None) -> None:
    """A quote counts at the start of an element; a backslash escapes a quote or a backslash."""
    if elements is not None:
        assert comma_list(text) == elements
        return
    with pytest.raises(ValueError, match="do not match"):
        comma_list(text)


@pytest.mark.parametrize("value", ["", None, 5, {"a": 1}, '"a', [object()]])
def test_invalid_lists_of_texts_are_rejected(value: Any) -> None:
    """An empty list is one, as in promptfoo: all of its texts are in every output."""
    assert all(map(is_list, ([], (), " , ", "a")))
    assert not is_list(value)


@pytest.mark.slow
@given(
    st.text("abAB1", max_size=12), st.lists(st.text("abAB1", max_size=3) | st.just(1), min_size=1)
)
def test_lists_are_any_or_all(output: str, elements: list[Any]) -> None:
    """The result equals that of separate checks of each element; `not-` inverts the whole."""
    texts = [str(element) for element in elements]
    for case, present, wanted in (
        ("", output, texts),
        ("i", output.lower(), [text.lower() for text in texts]),
    ):
        some, every = any(w in present for w in wanted), all(w in present for w in wanted)
        assert passes(output, f"{case}contains-any", elements) is some
        assert passes(output, f"not-{case}contains-any", elements) is not some
        assert passes(output, f"{case}contains-all", elements) is every
        assert passes(output, f"not-{case}contains-all", elements) is not every


def test_elements_are_rendered_and_a_text_may_render_to_a_list() -> None:
    """Both happen before the text is split at commas."""
    names = {"{{a}}": "x", "{{all}}": 'q, "x"', "b": "b"}
    for value in (["{{a}}", "b"], "{{all}}"):
        assertion = Assertion(type="contains-any", value=value)
        assert grade("x", [assertion], render=names.__getitem__).passed
    with pytest.raises(GradingError, match=r"the value must be a list, .* got \"\\\"x\""):
        grade("x", [Assertion(type="contains-any", value="{{v}}")], render=lambda _: '"x')


def distance(one: str, other: str) -> int:
    """Compute the distance with the textbook's table, row by row."""
    row = list(range(len(other) + 1))
    for place, character in enumerate(one):
        last, row[0] = row[0], place + 1
        for at, wanted in enumerate(other):
            last, row[at + 1] = (
                row[at + 1],
                min(row[at + 1] + 1, row[at] + 1, last + (character != wanted)),
            )
    return row[-1]


@pytest.mark.slow
@given(
    st.text("ab😀", max_size=9), st.text("ab😀", max_size=9), st.integers(-1, 9) | st.floats(0, 9)
)
def test_edits_are_counted_in_characters(one: str, other: str, threshold: float) -> None:
    """The number is compared with the threshold, which may be a fraction."""
    edits = distance(one, other)
    assert Levenshtein.distance(one, other) == edits
    assert passes(one, "levenshtein", other, threshold=threshold) is (edits <= threshold)
    assert passes(one, "not-levenshtein", other, threshold=threshold) is (edits > threshold)


@pytest.mark.parametrize(
    ("threshold", "passed"), [(3, True), (2, False), (None, True), (math.inf, True)]
)
def test_as_13_kitten_is_three_edits_from_sitting(threshold: float | None, passed: bool) -> None:  # noqa: FBT001
    """The default threshold is 5."""
    assert passes("kitten", "levenshtein", "sitting", threshold=threshold) is passed


def test_edits_of_long_texts_are_counted_as_far_as_needed() -> None:
    """A low threshold is possible at any length; with a high one, a text that is too long is an error."""
    one, other = "ab" * 2_000_000, "ba" * 2_000_000
    assert passes(one, "levenshtein", other)
    assert not passes(one, "levenshtein", "a" * 10, threshold=1e6)
    with pytest.raises(GradingError, match="too long to count edits up to 3000000"):
        passes(one, "levenshtein", other, threshold=3e6)


@pytest.mark.slow
@given(
    st.lists(st.text("ab😀\x1c\x85", min_size=1)), st.sampled_from([" ", "\n\t", "\ufeff", "\xa0 "])
)
def test_words_are_separated_by_spaces(words: list[str], space: str) -> None:
    """Spaces are those of JavaScript, which are fewer than Python's."""
    output = f"{space}{space.join(words)}{space}"
    assert passes(output, "word-count", len(words))
    assert passes(output, "word-count", {"min": len(words), "max": str(len(words))})
    assert passes(output, "word-count", {"max": hex(len(words)), "maximum": 0})
    assert passes(output, "word-count", "") is not bool(words)
    assert not passes(output, "word-count", {"min": len(words) + 1})
    assert not passes(output, "word-count", {"max": len(words) - 1})


@pytest.mark.parametrize(
    "value",
    [
        {}, {"min": 3, "max": 2}, {"min": None}, True, [1], "two", "0x", "1e999", math.nan, {"min": math.inf},
    ],
)  # fmt: skip
def test_a_number_of_words_is_a_number_or_a_range(value: Any) -> None:
    """Any other value is rejected."""
    with pytest.raises(GradingError, match="the value must be a number of words, or"):
        passes("x", "word-count", value)


@pytest.mark.slow
def test_rarely_used_packages_are_not_imported_with_the_types() -> None:
    """Their import takes time, which delays the command line."""
    code = """
import sys
import trioeval.grading as grading
assert grading.grade("x", [grading.Assertion(type="contains-any", value="x")]).passed
assert not {"regex", "rapidfuzz"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
