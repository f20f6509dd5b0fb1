import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import GradingError
from trioeval.grading import ASSERTION_TYPES, KINDS, Assertion, grade
from trioeval.grading.grade import INSTEAD, check_assertion
from trioeval.grading.kinds.text import KINDS as TEXT_KINDS

LISTED = "all types are listed in docs/reference/assertions.md"

PROBLEMS: list[tuple[dict[str, Any], str]] = [
    (
        {"type": "contians", "value": "x"},
        '.type: "contians" is not an assertion type\n  did you mean "contains" or "icontains"?',
    ),
    (
        {"type": "not-Equals", "value": "x"},
        '.type: "not-Equals" is not an assertion type\n  did you mean "not-equals"?',
    ),
    (
        {"type": "not-not-contains", "value": "x"},
        (
            '.type: "not-not-contains" is not an assertion type\n'
            '  did you mean "not-contains" or "not-icontains"?'
        ),
    ),
    ({"type": "xyz"}, f'.type: "xyz" is not an assertion type\n  {LISTED}'),
    ({"type": ""}, f'.type: "" is not an assertion type\n  {LISTED}'),
    (
        {"type": "not-empty"},
        '.type: "not-empty" is not an assertion type\n  write {"type": "regex", "value": "\\\\S"}',
    ),
    (
        {"type": "json-schema-valid"},
        '.type: "json-schema-valid" is not an assertion type\n  use "is-json"',
    ),
    (
        {"type": "min-length", "value": 5},
        (
            '.type: "min-length" is not an assertion type\n'
            '  write {"type": "regex", "value": "^[^]{5,}$"} for at least 5 characters'
        ),
    ),
    (
        {"type": "not-max-length", "value": "7"},
        (
            '.type: "not-max-length" is not an assertion type\n'
            '  write {"type": "regex", "value": "^[^]{0,7}$"} for at most 7 characters'
        ),
    ),
    (
        {"type": "max-length", "value": "x"},
        (
            '.type: "max-length" is not an assertion type\n'
            '  write {"type": "regex", "value": "^[^]{0,10}$"} for at most 10 characters'
        ),
    ),
    (
        {"type": "is-sql", "value": {"allowedTabels": []}},
        '.value.allowedTabels: "allowedTabels" is not a known key\n  did you mean "allowedTables"?',
    ),
    (
        {"type": "contians-al", "value": "a"},
        (
            '.type: "contians-al" is not an assertion type\n'
            '  did you mean "contains-all" or "icontains-all"?'
        ),
    ),
    (
        {"type": "not-contian", "value": "a"},
        (
            '.type: "not-contian" is not an assertion type\n'
            '  did you mean "not-contains", "not-icontains" or "not-contains-any"?'
        ),
    ),
    (
        {"type": "is-json", "value": {"properties": {"a": {"type": "strnig"}}}},
        '.value.properties.a.type: "strnig" is not a JSON Schema type\n  did you mean "string"?',
    ),
    (
        {"type": "contains-json", "value": "type: [null, intger]"},
        '.value: "intger" is not a JSON Schema type\n  did you mean "integer"?',
    ),
    (
        {"type": "is-json", "value": "{{{ not json"},
        (
            ".value: must be a JSON schema: an object, or its JSON or YAML text, got text that is not "
            "YAML: line 2, column 1: did not find expected ',' or '}'"
        ),
    ),
    (
        {"type": "contains", "value": ""},
        '.value: must be text that is not empty, or a number, got ""',
    ),
    (
        {"type": "icontains", "value": True},
        ".value: must be text that is not empty, or a number, got true",
    ),
    (
        {"type": "starts-with", "value": ["a"]},
        '.value: must be text that is not empty, got ["a"]',
    ),
    ({"type": "regex", "value": None}, ".value: must be text that is not empty, got null"),
    (
        {"type": "regex", "value": "["},
        (
            '.value: "[" is not a valid regular expression: [ is never closed\n'
            "  patterns are those of JavaScript, without flags"
        ),
    ),
    (
        {"type": "contains", "value": "x", "assertions": (Assertion(type="equals", value="x"),)},
        (
            '.assert: "contains" has no assertions of its own\n'
            '  only a set has members: write "type": "assert-set"'
        ),
    ),
    (
        {"type": "assert-set"},
        'a set has no assertions\n  write them as a list under "assert"',
    ),
    (
        {"type": "assert-set", "assertions": (Assertion(type="assert-set"),)},
        ".assert[0].type: a set cannot contain a set\n  write its assertions here",
    ),
    (
        {"type": "not-assert-set"},
        (
            '.type: "not-assert-set" is not an assertion type: a set cannot be inverted\n'
            '  write "assert-set"'
        ),
    ),
    (
        {"type": "equals", "value": "x", "weight": -1},
        ".weight: must be from 0 to 1000000000, got -1",
    ),
    (
        {"type": "equals", "value": "x", "weight": math.nan},
        ".weight: must be from 0 to 1000000000, got NaN",
    ),
    (
        {"type": "equals", "value": "x", "threshold": math.inf},
        ".threshold: must be a finite number, got Infinity",
    ),
]


@pytest.mark.parametrize(("fields", "problem"), PROBLEMS, ids=[text for _, text in PROBLEMS])
def test_a_problem_names_the_key_the_value_and_a_suggestion(
    fields: dict[str, Any], problem: str
) -> None:
    """AS-12 (constant pattern) and AS-28 (unknown type) are among the cases."""
    assert [str(found) for found in check_assertion(Assertion(**fields))] == [problem]


def test_all_problems_are_reported_at_once() -> None:
    """One wrong key does not hide another."""
    wrong = Assertion(type="nothing", weight=-1, threshold=math.nan)
    assert [problem.path for problem in check_assertion(wrong)] == [
        ".type",
        ".weight",
        ".threshold",
    ]


@pytest.mark.parametrize("base", sorted(ASSERTION_TYPES))
def test_an_absent_value_is_missing(base: str) -> None:
    """Types that need no value are an exception; an explicit null is a value."""
    problems = list(check_assertion(Assertion(type=base), value_given=False))
    if KINDS[base].bare:
        assert not any(problem.message == '"value" is missing' for problem in problems)
    else:
        (problem,) = problems
        assert (problem.path, problem.message) == ("", '"value" is missing')
        assert problem.hint is not None
        assert problem.hint.startswith("it must be ")


@pytest.mark.parametrize("value", ["{{ pattern }}[", "{% if x %}[{% endif %}", "{# note #}["])
def test_patterns_with_templates_are_checked_when_rendered(value: str) -> None:
    """They are not constants, so they are not checked at load."""
    assert list(check_assertion(Assertion(type="regex", value=value))) == []


def test_the_lists_of_types_do_not_overlap() -> None:
    """A type is suggested only for a name that does not exist."""
    assert ASSERTION_TYPES.isdisjoint(INSTEAD)


@pytest.mark.slow
@given(
    st.sampled_from([name for base in sorted(TEXT_KINDS) for name in (base, f"not-{base}")]),
    st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers()),
    st.floats(),
)
def test_a_checked_assertion_can_be_evaluated(name: str, value: Any, weight: float) -> None:
    """A text assertion without problems never ends in an error; one with problems may."""
    assertion = Assertion(type=name, value=value, weight=weight)
    problems = list(check_assertion(assertion))
    try:
        grade("abc 1", [assertion])
    except GradingError:
        assert problems
