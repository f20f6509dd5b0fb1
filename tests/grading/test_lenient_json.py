import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pace import takes_less

from trioeval.errors import GradingError
from trioeval.grading.flow_yaml import read_yaml
from trioeval.grading.kinds.json import objects_in

PLAIN = st.text("abc xyz,:[]\"'", max_size=10)


@given(
    st.lists(
        st.dictionaries(st.text("abc"), st.integers() | st.text("ab ' "), max_size=3), max_size=3
    ),
    PLAIN,
)
def test_objects_are_found_between_other_text(objects: list[object], between: str) -> None:
    """Objects that are valid JSON are found regardless of the text between them."""
    text = between.join(map(json.dumps, objects))
    assert list(objects_in(text)) == objects


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{a: 1 // no\n, 'b': \"http://x\",}", [{"a": 1, "b": "http://x"}]),
        ("{a: http://x//y}", [{"a": "http://x//y"}]),
        ('{"a": 1', [{"a": 1}]),
        ('{ no json {"a": 1} }', [{"a": 1}]),
        ('{"a": "}"}', []),
        ("{", []),
        ("[1]", []),
    ],
)
def test_objects_in_a_text(text: str, found: list[object]) -> None:
    """They may be written loosely, cut off, or nested in something else."""
    assert list(objects_in(text)) == found


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{" * 100_000, "{%" * 50_000 + "}" * 50_000, "{a " * 50_000])
def test_hostile_texts_are_not_slow(text: str) -> None:
    """Unpaired or deeply nested braces cost no more than one pass."""
    assert takes_less(2, lambda: list(objects_in(text)))  # some 0.1 s on an idle machine


@pytest.mark.parametrize(
    "text",
    [
        "{" * 1_000_001,
        ("{%" * 99 + "}" * 99 + " ") * 1000,
        "{x} " * 20_000,
    ],
)
def test_the_search_is_bounded(text: str) -> None:
    """An output that cannot be searched is an error, not a verdict."""
    with pytest.raises(GradingError, match="too many braces"):
        list(objects_in(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "line 2"),
        ("a\n---\nb", "more than one"),
        ("{[a]: 1}", "a key must be"),
        ("[" * 200 + "]" * 200, "too deeply"),
        ("*a", "undefined alias|unknown alias"),
        ("a: !x b", "tag"),
        ("<<: 1", "merges mappings"),
        ("\x01", "control characters"),
        ("a: &a [x, x, x, x]\n" + "".join(f"k{n}: &k{n} [{', '.join([f'*{b}'] * 9)}]\n" for n, b in
         enumerate(["a", *(f"k{m}" for m in range(9))])), "too many"),
    ],
)  # fmt: skip
def test_invalid_yaml(text: str, message: str) -> None:
    """Each case has its reason; aliases cannot expand without bound."""
    with pytest.raises(ValueError, match=message):
        read_yaml(text)


def test_yaml_values() -> None:
    """The core rules of version 1.2 apply, with merges."""
    text = "a: &x {p: 0x10, q: 1.5}\nb: {<<: *x, p: !!str 1}\nc: [~, TRUE, 'no', no, 0o7]\n1: z"
    assert read_yaml(text) == {
        "a": {"p": 16, "q": 1.5},
        "b": {"p": "1", "q": 1.5},
        "c": [None, True, "no", "no", 7],
        "1": "z",
    }
    assert read_yaml("") is None
