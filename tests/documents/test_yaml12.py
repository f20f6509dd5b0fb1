import json
import math
import re
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.documents.mistakes import MistakenError
from trioeval.documents.yaml import read_yaml, yaml_spots

VALUES: list[tuple[str, Any]] = [
    ("no", "no"),
    ("Yes", "Yes"),
    ("on", "on"),
    ("y", "y"),
    ("true", True),
    ("True", True),
    ("FALSE", False),
    ("tRue", "tRue"),
    ("null", None),
    ("~", None),
    ("", None),
    ("Null", None),
    ("none", "none"),
    ("0", 0),
    ("-0", 0),
    ("010", 10),
    ("-010", -10),
    ("+5", 5),
    ("0o10", 8),
    ("0O10", "0O10"),
    ("0x1F", 31),
    ("0xg", "0xg"),
    ("0b11", "0b11"),
    ("1_000", "1_000"),
    ("12:30", "12:30"),
    ("1:2:3", "1:2:3"),
    ("190:20:30.15", "190:20:30.15"),
    ("2024-01-01", "2024-01-01"),
    ("2024-01-01 12:00:00Z", "2024-01-01 12:00:00Z"),
    ("1.0", 1.0),
    ("1.", 1.0),
    (".5", 0.5),
    ("-.5e-3", -0.0005),
    ("1e3", 1000.0),
    ("1E+3", 1000.0),
    ("1e", "1e"),
    (".", "."),
    ("-", [None]),
    ("1.2.3", "1.2.3"),
    (".inf", math.inf),
    ("-.INF", -math.inf),
    ("+.Inf", math.inf),
    ("inf", "inf"),
    ("=", "="),
    ("'5'", "5"),
    ('"5"', "5"),
    ("!!str 5", "5"),
    ("[1, no]", [1, "no"]),
    ("{010: 010}", {"010": 10}),
    ("{true: 1, null: 2, 1.0: 3}", {"true": 1, "null": 2, "1.0": 3}),
    ("{<<: {a: 1, b: 1}, a: 2}", {"a": 2, "b": 1}),
    ("{<<: [{a: 1}, {a: 2, b: 2}]}", {"a": 1, "b": 2}),
    ("|\n  a\n  b\n", "a\nb\n"),
    (">-\n  a\n  b\n", "a b"),
]


def read(text: str) -> Any:
    found = read_yaml(text)
    assert found is not None
    return found.data


@pytest.mark.parametrize(("text", "value"), VALUES, ids=[repr(text) for text, _ in VALUES])
def test_values_follow_the_core_rules_of_yaml_12(text: str, value: Any) -> None:
    """Types follow those rules; keys are their literal text."""
    found = read(f"a: {text}\n" if text != "-" else "a:\n- \n")["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", [".nan", ".NaN", ".NAN"])
def test_nan_is_a_float(text: str) -> None:
    """It is refused as a number that is not finite, instead of being read as text."""
    found = read(f"a: {text}\n")["a"]
    assert isinstance(found, float)
    assert math.isnan(found)


def test_huge_integers_are_infinite() -> None:
    """They are refused with their position."""
    assert read(f"a: -{'9' * 5000}\n") == {"a": -math.inf}
    assert read(f"a: 0x{'f' * 5000}\n") == {"a": 16**5000 - 1}


def test_a_mapping_that_is_merged_twice_is_complete_in_both_places() -> None:
    """Merging does not modify the merged mapping, in whatever order it is used."""
    text = "deep: {inner: &a {x: 1}}\nb: &b {<<: *a, y: 2}\nc: {<<: *b, z: 3}\nd: {<<: *b}\n"
    assert read(text) == {
        "deep": {"inner": {"x": 1}},
        "b": {"x": 1, "y": 2},
        "c": {"x": 1, "y": 2, "z": 3},
        "d": {"x": 1, "y": 2},
    }


class Composing(yaml.CSafeLoader):
    """PyYAML's own construction of values, with the rules of YAML 1.2 and merged keys in place."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's
        self.flatten_mapping(node)
        return {key.value: self.construct_object(value, deep=deep) for key, value in node.value}

    def construct_integer(self, node: yaml.ScalarNode) -> int:
        return int(node.value, 0 if node.value[:2] in {"0o", "0x"} else 10)


for tag, pattern, first in (
    ("null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("bool", r"true|True|TRUE|false|False|FALSE", tuple("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", tuple("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", tuple("-+.0123456789")),
    ("merge", "<<", ("<",)),
):
    name = f"tag:yaml.org,2002:{tag}"
    Composing.add_implicit_resolver(name, re.compile(f"^(?:{pattern})\\Z"), list(first))
Composing.add_constructor("tag:yaml.org,2002:int", Composing.construct_integer)

PIECES = (
    *("a", "b", ": ", "- ", "\n", "\n  ", "\n    ", "&x ", "*x", "<<: ", "[", "]", "{", "}", ", "),
    *("'", '"', "1", "010", "no", "true", "~", "!!str ", "!t ", "? ", "|\n", "#c", "---\n", "<<"),
)
OURS = (
    "2002:merge",  # `<<` as a value is text here
    "duplicate anchor",  # an anchor may be defined again
)


@pytest.mark.slow
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example("&y true: *y")
@example("a: &x {b: 1}\nc: {b: 2, <<: *x}\nd: {<<: *x, b: 3}")
@example("!!str [a]")
def test_values_equal_those_of_pyyaml(text: str) -> None:
    """For any text the values are the same; refused is what either of two other readers refuses."""
    try:
        tree = yaml_spots(text)
        composed = yaml.load(text, Loader=Composing)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, MistakenError) as error:
        if not any(words in str(error) for words in OURS):
            with pytest.raises((yaml.YAMLError, MistakenError)):
                read_yaml(text)
        return
    found = read_yaml(text)
    if tree.root is None:
        assert found is None
        return
    assert found is not None
    assert found.repeated == bool(tree.repeated)
    if not found.repeated:
        assert json.dumps(found.data, sort_keys=True) == json.dumps(composed, sort_keys=True)


def test_merged_keys_are_at_the_place_of_the_merge() -> None:
    """The order of variables determines that of their combinations."""
    merged = read("base: &b {x: 1, y: 2}\none: {a: 0, <<: *b, z: 3}\ntwo: {y: 0, <<: *b, x: 5}\n")
    assert [*merged["one"]] == ["a", "x", "y", "z"]
    assert [*merged["two"].items()] == [("y", 0), ("x", 5)]


def test_a_merge_key_in_quotes_is_a_key() -> None:
    """It is an ordinary key."""
    assert read("{'<<': {a: 1}}") == {"<<": {"a": 1}}


def test_an_anchor_may_be_defined_again() -> None:
    """An alias refers to the last anchor before it."""
    assert read("- &x 1\n- *x\n- &x 2\n- *x\n") == [1, 1, 2, 2]
