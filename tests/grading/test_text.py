import json
import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trioeval.grading import output_text, quote
from trioeval.text import json_text, number_text, parse_json, read_integer, same_json, score_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)

NUMBERS: list[tuple[float, str]] = [
    (0.0, "0"),
    (-0.0, "0"),
    (1.0, "1"),
    (-2.5, "-2.5"),
    (0.1 + 0.2, "0.30000000000000004"),
    (2.0**53, "9007199254740992"),
    (1e16, "10000000000000000"),
    (123456789012345680000.0, "123456789012345680000"),
    (1e20, "100000000000000000000"),
    (1e21, "1e+21"),
    (1.5e300, "1.5e+300"),
    (0.001, "0.001"),
    (1e-6, "0.000001"),
    (1.25e-6, "0.00000125"),
    (1e-7, "1e-7"),
    (-1.25e-7, "-1.25e-7"),
    (5e-324, "5e-324"),
    (math.nan, "NaN"),
    (math.inf, "Infinity"),
    (-math.inf, "-Infinity"),
    (10**30, "1" + "0" * 30),
]


@pytest.mark.parametrize(("number", "text"), NUMBERS, ids=[text for _, text in NUMBERS])
def test_numbers_are_written_as_in_javascript(number: float, text: str) -> None:
    """Integers have no decimal point; exponents start where those of JavaScript do."""
    assert number_text(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_written_number_is_read_back_unchanged(number: float) -> None:
    """No precision is lost in any form."""
    assert float(number_text(number)) == number


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("a b\n", "a b\n"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (5, "5"),
        (1.0, "1"),
        (math.nan, "null"),
        ({"b": 1.0, "a": [True, None, "ü\n"]}, '{"b":1,"a":[true,null,"ü\\n"]}'),
        ((1, 2), "[1,2]"),
        ({1: "x", None: "y"}, '{"1":"x","null":"y"}'),
    ],
)
def test_outputs_become_compact_json_and_texts_stay(output: Any, text: str) -> None:
    """Keys keep their order, letters are not escaped, and numbers that JSON does not have are null."""
    assert output_text(output) == text


def test_values_that_are_not_json_have_no_text() -> None:
    """The message names the type."""
    with pytest.raises(TypeError, match=r"^a value of type set is not JSON data$"):
        output_text({1})


@pytest.mark.slow
@given(JSON)
@example(6.187209751945945e16)
def test_json_text_is_read_back_as_the_same_value(value: Any) -> None:
    """Writing and reading preserves equality of JSON."""
    finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
    assert same_json(parse_json(json_text(finite)), finite)


@pytest.mark.slow
@given(JSON, JSON)
def test_equality_of_json_is_symmetric_and_reflexive(one: Any, other: Any) -> None:
    """A value equals its copy."""
    assert same_json(one, other) is same_json(other, one)
    assert same_json(one, json.loads(json.dumps(one)))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (10**400, math.inf, False),
        (10**400, 10**400, True),
        (True, 1, False),
        (0, False, False),
        (True, True, True),
        (None, None, True),
        (None, False, False),
        ("1", 1, False),
        ([1, [2]], (1, (2.0,)), True),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({"a": [{"b": True}]}, {"a": [{"b": 1}]}, False),
        ({}, [], False),
    ],
)
def test_values_are_compared_as_json(one: Any, other: Any, same: bool) -> None:  # noqa: FBT001
    """Numbers are compared by value, booleans only with booleans, lists in order, objects without order."""
    assert same_json(one, other) is same


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expecting value"),
        ("[1\n2]", "line 2, column 1: expecting ',' delimiter"),
        ("[NaN]", "NaN is not JSON"),
        ("-Infinity", "-Infinity is not JSON"),
        ("[" * 100_000, "it is nested too deeply"),
    ],
    ids=["empty", "comma", "NaN", "Infinity", "deep"],
)
def test_an_error_of_json_has_its_reason(text: str, message: str) -> None:
    """The message has the line and the column if they are known."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared whole
        parse_json(text)
    assert str(caught.value) == message


def test_huge_integers_are_read_as_infinite() -> None:
    """Python would reject them; JavaScript reads them like this."""
    assert read_integer("9" * 4300) == 10**4300 - 1
    assert parse_json("-" + "9" * 5000) == -math.inf


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", '"a\\nb"'),
        ("ü", '"ü"'),
        ("\ud800", '"\\ud800"'),
        (math.inf, "Infinity"),
        (10**5000, "a number with very many digits"),
        ({1, 2}, "{1, 2}"),
        ("x" * 100, '"' + "x" * 78 + "…"),
        ([1.0, None, {"a": True}], '[1,null,{"a":true}]'),
    ],
    ids=["newline", "letter", "surrogate", "infinite", "huge", "set", "long", "json"],
)
def test_quoted_values_are_one_printable_line(value: object, text: str) -> None:
    """They are JSON if the value is JSON, and never longer than the limit."""
    assert quote(value) == text
    assert quote(value).encode()


def test_recursive_values_are_quoted() -> None:
    """A message about a value must not fail because of the value."""
    loop: list[Any] = []
    loop.append(loop)
    assert quote(loop) == "[" * 79 + "…"


@given(st.floats(allow_nan=False), st.floats(allow_nan=False, allow_infinity=False))
@example(0.79996, 0.8)
@example(5e-324, 0.0)
@example(1.7976931348623157e308, 0.0)
def test_a_rounded_score_stays_on_its_side_of_the_threshold(score: float, threshold: float) -> None:
    """A reason never contradicts its verdict."""
    shown = float(score_text(score, threshold))
    assert (shown > threshold, shown < threshold) == (score > threshold, score < threshold)


def test_scores_are_short() -> None:
    """Integers and values that are not numbers stay unchanged."""
    shown = [score_text(score) for score in (0.1 + 0.2, 956.08699, 10**400, 3.0, math.nan)]
    assert shown == ["0.3", "956.087", "1" + 400 * "0", "3", "NaN"]
    assert score_text(0.6000000000000001, 0.5) == "0.6"
