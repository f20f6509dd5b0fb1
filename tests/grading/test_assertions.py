"""The verdicts of assertion types on outputs. Ids such as AS-01 are those of the acceptance cases."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.grading import Assertion, grade
from trioeval.grading.kinds.text import KINDS

CASES: list[tuple[str, Any, str, Any, bool, str]] = [
    ("AS-01", "Hello World", "contains", "world", False, 'does not contain "world"'),
    ("AS-01", "Hello World", "icontains", "world", True, 'contains "world" (ignoring case)'),
    ("AS-01", "Hello World", "not-contains", "world", True, 'does not contain "world"'),
    ("AS-02", "n 42", "contains", 42, True, "contains 42"),
    ("AS-02", "n 42", "contains", 42.0, True, "contains 42"),
    ("AS-06", '{"b":1,"a":2}', "equals", {"a": 2, "b": 1}, True, 'equals {"a":2,"b":1}'),
    ("AS-07", "not json", "not-equals", {"a": 1}, True, 'does not equal {"a":1}'),
    ("AS-07", "not json", "equals", {"a": 1}, False, 'does not equal {"a":1}'),
    ("AS-08", "true", "equals", True, True, "equals true"),
    ("AS-08", "5", "equals", 5, True, "equals 5"),
    ("AS-10", "l1\nl2", "regex", "^l2", False, 'does not match "^l2"'),
    ("AS-10", "l1\nl2", "regex", "l2$", True, 'matches "l2$"'),
    ("AS-11", "abc\n", "regex", "c$", False, 'does not match "c$"'),
    ("AS-14", "42", "is-json", None, True, "is JSON"),
    ("equals text", "Paris", "equals", "Paris", True, 'equals "Paris"'),
    ("equals space", "Paris ", "equals", "Paris", False, 'does not equal "Paris"'),
    ("equals null", "null", "equals", None, True, "equals null"),
    ("equals null", " null ", "equals", None, True, "equals null"),
    ("equals null", "none", "equals", None, False, "does not equal null"),
    ("equals list", "[1, 2.0]", "equals", [1, 2], True, "equals [1,2]"),
    ("equals bool", "[1]", "equals", [True], False, "does not equal [true]"),
    ("equals number", "1", "equals", 1.0, True, "equals 1"),
    ("equals object", {"a": [1.0]}, "equals", {"a": [1]}, True, 'equals {"a":[1]}'),
    ("equals its text", {"a": 1}, "equals", '{"a":1}', True, 'equals "{\\"a\\":1}"'),
    ("contains in object", {"a": "xyz"}, "contains", '"xyz"', True, 'contains "\\"xyz\\""'),
    ("not-contains", "abc", "not-contains", "b", False, 'contains "b"'),
    ("not-icontains", "ABC", "not-icontains", "b", False, 'contains "b" (ignoring case)'),
    ("starts-with", "Hello", "starts-with", "He", True, 'starts with "He"'),
    ("starts-with", "Hello", "starts-with", "he", False, 'does not start with "he"'),
    ("not-starts-with", "Hello", "not-starts-with", "he", True,
     'does not start with "he"'),
    ("regex", "abc123", "regex", r"\d+$", True, r'matches "\\d+$"'),
    ("not-regex", "A", "not-regex", "a", True, 'does not match "a"'),
    ("is-json", '"x"', "is-json", None, True, "is JSON"),
    ("is-json", [1], "is-json", None, True, "is JSON"),
    ("is-json", "x 1", "is-json", None, False, "is not JSON: line 1, column 1: expecting value"),
    ("is-json", "NaN", "is-json", None, False, "is not JSON: NaN is not JSON"),
    ("not-is-json", "nope", "not-is-json", None, True,
     "is not JSON: line 1, column 1: expecting value"),
    ("AS-03", "Alpha, beta", "contains-any", 'alpha, "x,y" ,beta', True, 'contains "beta"'),
    ("AS-04", "Alpha, beta", "contains-all", 'alpha, "x,y" ,beta', False, 'does not contain "alpha"'),
    ("AS-05", "zzz", "not-contains-all", ["a", "b"], True, 'does not contain "a"'),
    ("any", "zzz", "not-contains-any", ["a", 1], True, 'does not contain any of ["a","1"]'),
    ("any", "A", "icontains-any", ["b", "a"], True, 'contains "a" (ignoring case)'),
    ("all", "AB", "icontains-all", "a, b", True, 'contains all of ["a","b"] (ignoring case)'),
    ("all", "AB", "icontains-all", "a, c", False, 'does not contain "c" (ignoring case)'),
    ("edits", "kitten", "levenshtein", "sitting", True, 'is at most 5 edits from "sitting"'),
    ("edits", "kitten", "levenshtein", "a sitting duck", False,
     'is more than 5 edits from "a sitting duck"'),
    ("AS-18", "one two", "word-count", {"min": 3}, False, "has 2 words, expected at least 3"),
    ("AS-18", "one two", "word-count", 2, True, "has 2 words, expected 2"),
    ("AS-18", "one two", "word-count", "2", True, "has 2 words, expected 2"),
    ("words", "one", "word-count", {"max": 1}, True, "has 1 word, expected at most 1"),
    ("words", "one", "not-word-count", {"min": 1, "max": 2}, False, "has 1 word, expected not 1 to 2"),
    ("AS-24", "I'm sorry, but no", "is-refusal", None, True, "is a refusal"),
    ("AS-24", "Sure", "is-refusal", None, False, "is not a refusal"),
    ("AS-24", "", "is-refusal", None, True, "is a refusal"),
    ("AS-24", {"a": 1}, "is-refusal", None, True, "is not text, which counts as a refusal"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("output", "type_", "value", "passed", "says"),
    [case[1:] for case in CASES],
    ids=[f"{case[0]} {case[2]}" for case in CASES],
)
def test_a_type_states_its_finding(
    output: Any,
    type_: str,
    value: Any,
    passed: bool,  # noqa: FBT001
    says: str,
) -> None:
    """Pass and score follow from it; the reason is the same sentence with and without `not-`."""
    assertion = Assertion(type=type_, value=value)
    (part,) = grade(output, [assertion]).parts
    assert (part.passed, part.score, part.reason) == (passed, float(passed), f"the output {says}")
    assert part.assertion is assertion


def test_as_09_values_are_rendered() -> None:
    """Texts and the texts in lists are rendered; other values are left unchanged."""
    render = {"Hello {{x}}": "Hello 1", "{{x}}": "1"}.__getitem__
    assert grade("Hello 1", [Assertion(type="equals", value="Hello {{x}}")], render=render).passed
    assert grade('["1",2]', [Assertion(type="equals", value=["{{x}}", 2])], render=render).passed
    deep = Assertion(type="equals", value={"a": "{{x}}"})
    assert grade({"a": "{{x}}"}, [deep], render=render).passed


@pytest.mark.parametrize("type_", ["regex", "not-regex"])
def test_as_12_an_invalid_pattern_at_run_time_fails_either_way(type_: str) -> None:
    """No search was possible, so neither a match nor its absence was shown."""
    assertion = Assertion(type=type_, value="{{p}}")
    verdict = grade("abc", [assertion], render=lambda _: "[")
    assert (verdict.passed, verdict.score) == (False, 0.0)
    assert verdict.reason == '"[" is not a valid regular expression: unexpected end'


VALUES = st.none() | st.booleans() | st.integers() | st.text(min_size=1) | st.lists(st.text())
OUTPUTS = st.text() | VALUES.map(json.dumps)


@pytest.mark.slow
@given(st.sampled_from(sorted(KINDS.keys() - {"regex"})), OUTPUTS, st.text(min_size=1))
def test_not_inverts_every_verdict(base: str, output: str, text: str) -> None:
    """Either a type or its negation passes, for the same reason (it may state what is expected)."""
    values: dict[str, Any] = {"is-json": None, "word-count": len(text)}
    value = [text] if base.endswith(("-any", "-all")) else values.get(base, text)
    (plain,) = grade(output, [Assertion(type=base, value=value)]).parts
    (turned,) = grade(output, [Assertion(type=f"not-{base}", value=value)]).parts
    assert plain.passed is not turned.passed
    assert plain.score + turned.score == 1
    states_expectation = base == "word-count"
    reason = (
        plain.reason.replace(", expected ", ", expected not ")
        if states_expectation
        else plain.reason
    )
    assert turned.reason == reason
    assert (turned.reason != plain.reason) is states_expectation


@pytest.mark.slow
@given(VALUES)
def test_a_value_equals_its_own_json(value: Any) -> None:
    """An output that equals the value passes."""
    assert grade(value, [Assertion(type="equals", value=value)]).passed


@pytest.mark.slow
@given(st.text(), st.text(min_size=1), st.text())
def test_a_joined_text_contains_its_parts(before: str, middle: str, after: str) -> None:
    """It contains them with and without regard to case, and starts with a part if nothing precedes it."""
    output = before + middle + after
    assert grade(output, [Assertion(type="contains", value=middle)]).passed
    assert grade(output, [Assertion(type="icontains", value=middle)]).passed
    assert grade(middle + after, [Assertion(type="starts-with", value=middle)]).passed
