import math
from typing import Any

import pytest

from trioeval.suite.documents.yaml_text import read_yaml

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
    """With the types that they have there; keys are text as they are written."""
    found = read(f"a: {text}\n" if text != "-" else "a:\n- \n")["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", [".nan", ".NaN", ".NAN"])
def test_not_a_number_is_a_float(text: str) -> None:
    """So that it is refused as a number that is none, and not taken as text."""
    found = read(f"a: {text}\n")["a"]
    assert isinstance(found, float)
    assert math.isnan(found)


def test_integers_beyond_counting_are_infinite() -> None:
    """So that they are refused with their place."""
    assert read(f"a: -{'9' * 5000}\n") == {"a": -math.inf}
    assert read(f"a: 0x{'f' * 5000}\n") == {"a": 16**5000 - 1}


def test_a_mapping_that_is_merged_twice_is_whole_in_both_places() -> None:
    """Merging takes nothing away from what is merged, in whatever order it is looked at."""
    text = "deep: {inner: &a {x: 1}}\nb: &b {<<: *a, y: 2}\nc: {<<: *b, z: 3}\nd: {<<: *b}\n"
    assert read(text) == {
        "deep": {"inner": {"x": 1}},
        "b": {"x": 1, "y": 2},
        "c": {"x": 1, "y": 2, "z": 3},
        "d": {"x": 1, "y": 2},
    }
