"""Lists in variables: lists of texts expand into tests, lists of numbers stay one value and are reported."""

from typing import Any

import pytest

from trioeval.loading.load import parse_suite
from trioeval.suite.expand import expand
from trioeval.suite.model import Suite
from trioeval.suite.sizes import list_notes

HINT = (
    'quote its members for one test each: ["1", "2", "3"]; '
    "with options.disableVarExpansion this is not reported"
)


def suite_of(*tests: Any, prompt: str = "{{n}}", **keys: Any) -> Suite:
    document = {"providers": ["echo"], "prompts": [prompt], "tests": list(tests), **keys}
    return parse_suite(document, environ={})


def values_of(suite: Suite) -> list[Any]:
    return [step.vars["n"] for step in expand(suite)]


def test_a_list_of_texts_expands_and_a_list_of_numbers_does_not() -> None:
    """This is as in promptfoo, which goes by the type of the first member."""
    assert values_of(suite_of({"vars": {"n": ["1", "2"]}})) == ["1", "2"]
    assert values_of(suite_of({"vars": {"n": ["1", 2]}})) == ["1", 2]
    assert values_of(suite_of({"vars": {"n": [1, 2]}})) == [[1, 2]]


def test_a_list_of_numbers_that_is_printed_as_a_whole_causes_a_warning() -> None:
    """There is one warning per variable, at its first position."""
    suite = suite_of({"vars": {"n": "a"}}, {"vars": {"n": [1, 2.5, 3]}}, {"vars": {"n": [4, 5]}})
    [warning] = suite.warnings
    assert warning.path == "$.tests[1].vars.n"
    assert warning.message == ('the list of numbers "n" stays one value, and is printed as 1,2.5,3')
    assert warning.hint == HINT
    [warning] = suite_of({"vars": {}}, defaultTest={"vars": {"n": [*range(100)]}}).warnings
    assert warning.path == "$.defaultTest.vars.n"
    assert warning.message.endswith("is printed as 0,1,2,3,4,5,6,7,8,9…")


@pytest.mark.parametrize(
    ("prompt", "test"),
    [
        ("{{ n | join(' ') }}", {"vars": {"n": [1, 2]}}),
        ("{% for one in n %}{{ one }}{% endfor %}", {"vars": {"n": [1, 2]}}),
        ("{{n}}", {"vars": {"n": [1, 2]}, "options": {"disableVarExpansion": True}}),
        ("{{n}}", {"vars": {"n": [1]}}),
        ("{{n}}", {"vars": {"n": [True, False]}}),
        ("{{n}}", {"vars": {"n": ["1", "2"]}}),
        ("{{n}}", {"vars": {"m": [1, 2]}}),
    ],
)
def test_a_list_that_is_used_as_a_list_causes_no_warning(prompt: str, test: dict[str, Any]) -> None:
    assert suite_of(test, prompt=prompt).warnings == ()


def test_a_plan_explains_every_list_variable_once() -> None:
    suite = suite_of(
        {"vars": {"n": ["a", "b"], "m": [1, 2, 3]}},
        {"vars": {"n": ["c", "d", "e"]}},
        {"vars": {"k": ["x", "y"]}, "options": {"disableVarExpansion": True}},
        prompt="{{k}}",
    )
    assert list(list_notes(expand(suite))) == [
        (
            "tests[0]: the list n expands into 2 tests; "
            "with options.disableVarExpansion it stays one value"
        ),
        (
            "tests[0]: the list m of 3 numbers stays one value; "
            "quote its members to expand it into 3 tests"
        ),
    ]
    assert list(list_notes(expand(suite_of({"vars": {"n": "a"}})))) == []
