import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import GradingError
from trioeval.grading import ASSERTION_TYPES, KINDS, Assertion, grade
from trioeval.grading.grade import INSTEAD, assertion_warnings, check_assertion
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
        {"type": "regex", "value": "["},
        (
            '.value: "[" is not a valid regular expression: unexpected end\n'
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
        {"type": "equals", "value": "x", "weight": -2e9},
        ".weight: must be from -1000000000 to 1000000000, got -2000000000",
    ),
    (
        {"type": "equals", "value": "x", "weight": math.nan},
        ".weight: must be from -1000000000 to 1000000000, got NaN",
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
    wrong = Assertion(type="nothing", weight=math.nan, threshold=math.nan)
    assert [problem.path for problem in check_assertion(wrong)] == [
        ".type",
        ".weight",
        ".threshold",
    ]


@pytest.mark.parametrize("base", sorted(ASSERTION_TYPES))
def test_an_absent_value_is_missing(base: str) -> None:
    """Types that need no value are an exception, and those that promptfoo's suites may leave without one."""
    problems = list(check_assertion(Assertion(type=base), value_given=False))
    if KINDS[base].tolerant:
        assert problems == []
        (warning,) = assertion_warnings(Assertion(type=base))
        assert (warning.path, warning.message) == (".value", "it is missing: its rows are ERRORs")
    elif KINDS[base].bare:
        assert not any(problem.message == '"value" is missing' for problem in problems)
    else:
        (problem,) = problems
        assert (problem.path, problem.message) == ("", '"value" is missing')
        assert problem.hint is not None
        assert problem.hint.startswith("it must be ")


WARNINGS: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"type": "contains", "value": ""},
        ['.value: must be text that is not empty, or a number, got "": its rows are ERRORs'],
    ),
    (
        {"type": "not-icontains", "value": True},
        [".value: must be text that is not empty, or a number, got true: its rows are ERRORs"],
    ),
    (
        {"type": "starts-with", "value": 1},
        [".value: must be text that is not empty, got 1: its rows are ERRORs"],
    ),
    (
        {"type": "regex", "value": None},
        [".value: it is missing: its rows are ERRORs\n  it must be text that is not empty"],
    ),
    (
        {"type": "regex", "value": 12},
        [".value: must be text that is not empty, got 12: its rows are ERRORs"],
    ),
    ({"type": "levenshtein", "value": 5}, [".value: must be text, got 5: its rows are ERRORs"]),
    (
        {"type": "contains-any", "value": []},
        [".value: the list is empty: contains-any holds for nothing"],
    ),
    (
        {"type": "not-icontains-all", "value": " , "},
        [".value: the list is empty: icontains-all holds for every output"],
    ),
    (
        {"type": "word-count", "value": {"min": 1, "maximum": 2}},
        [".value.maximum: it has no effect: only min and max are known"],
    ),
    (
        {"type": "regex", "value": r"\\\p{L}+\p{Lu}"},
        [
            (
                r".value: \p{L} has no special meaning, because patterns have no flags"
                "\n  list the characters, as in [a-zà-ÿ]"
            )
        ],
    ),
    ({"type": "regex", "value": r"\\p{L}"}, []),
    ({"type": "starts-with", "value": "{{x}}"}, []),
    ({"type": "contains-any", "value": ["a"]}, []),
    (
        {"type": "contains", "value": "x", "weight": -1},
        [".weight: the weight is below 0: the assertion lowers the score, and still has to pass"],
    ),
    (
        {"type": "assert-set", "assertions": (Assertion(type="starts-with", value=""),)},
        ['.assert[0].value: must be text that is not empty, got "": its rows are ERRORs'],
    ),
]


@pytest.mark.parametrize(("fields", "warnings"), WARNINGS, ids=[str(text) for _, text in WARNINGS])
def test_what_promptfoo_accepts_is_accepted_with_a_warning(
    fields: dict[str, Any], warnings: list[str]
) -> None:
    """It may be only one of many assertions of a suite that runs there."""
    assertion = Assertion(**fields)
    assert list(check_assertion(assertion)) == []
    assert [str(found) for found in assertion_warnings(assertion)] == warnings


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
    problems = [*check_assertion(assertion), *assertion_warnings(assertion)]
    try:
        grade("abc 1", [assertion])
    except GradingError:
        assert problems
