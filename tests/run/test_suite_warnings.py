"""Warnings about valid suites."""

from typing import Any

import pytest
import trio

from trioeval.loading.load import parse_suite
from trioeval.run import collect, prepare


def warned_of(**suite: Any) -> list[str]:
    prepared = prepare(parse_suite({"providers": ["echo"], **suite}), environ={})
    return [str(warning) for warning in prepared.warnings]


def test_a_misspelt_variable_is_reported() -> None:
    """Each name is reported once, with the test and the probable variable."""
    tests = [{"vars": {"word": "a"}}, {"vars": {"wrod": "b"}}, {"vars": {"wrod": "c"}}]
    assert warned_of(prompts=["Say {{word}}"], tests=tests) == [
        (
            '$.tests[1].vars: the prompt uses word, but the test has "wrod"\n'
            '  did you mean "word"? An undefined variable renders as nothing'
        )
    ]


def test_a_misspelt_variable_of_a_prompt_is_reported_at_the_prompt() -> None:
    """No test has it, so the tests are right."""
    tests = [{"vars": {"word": "a"}}, {"vars": {"word": "b"}}]
    assert warned_of(prompts=["Hi", "Say {{wrod}}"], tests=tests) == [
        (
            '$.prompts[1]: the prompt uses wrod, which no test has; did you mean "word"?\n'
            "  An undefined variable renders as nothing"
        )
    ]


@pytest.mark.parametrize(
    "suite",
    [
        {"prompts": ["{% if word %}{{word}}{% endif %}"], "tests": [{"vars": {"other": "a"}}]},
        {"prompts": ["{{word}}{{words}}"], "tests": [{"vars": {"words": "a"}}]},
        {
            "prompts": ["{{word}}"],
            "defaultTest": {"vars": {"word": "a"}},
            "tests": [{"vars": {"wrod": "b"}}],
        },
        {
            "prompts": ["{{word}}"],
            "tests": [{"vars": {"wrod": "b"}}],
            "evaluateOptions": {"strictVariables": True},
        },
        {
            "prompts": ["{{word}}"],
            "tests": [{"vars": {"wrod": "b"}, "options": {"storeOutputAs": "word"}}],
        },
    ],
    ids=["not alike", "used elsewhere", "in the default test", "an error anyway", "a register"],
)
def test_intended_uses_are_not_reported(suite: dict[str, Any]) -> None:
    """A variable may be left out on purpose."""
    assert warned_of(**suite) == []


def test_a_variable_that_no_row_of_a_task_has_is_reported() -> None:
    """All names are known there; without a list of variables nothing is reported."""
    prompts = ["{{ q }} {{ text }} {{ lang }} {{ env.HOME }}"]
    made = {
        "id": "made",
        "type": "columns",
        "rows": 1,
        "columns": [{"name": "text", "type": "expression", "template": "a"}],
    }
    exam = {
        "id": "exam",
        "type": "prompt_eval",
        "prompts": prompts,
        "defaultTest": {"vars": {"lang": "en"}},
    }
    warning = (
        "$.tasks[1].tests.vars: the prompt uses q, but the rows of made do not provide it\n"
        "  known are lang, text; an undefined variable renders as nothing"
    )
    for variables, wanted in (({"vars": {"text": "text"}}, [warning]), ({}, [])):
        tests = {"fromTask": "made", **variables}
        assert warned_of(tasks=[made, {**exam, "tests": tests}]) == wanted
    strict = {**exam, "tests": tests, "evaluateOptions": {"strictVariables": True}}
    assert warned_of(tasks=[made, strict]) == []


def test_columns_that_share_registers_are_reported() -> None:
    """The warning names the registers and the option that separates them."""
    suite = {"prompts": ["a", "b"], "tests": [{"options": {"storeOutputAs": "it"}}]}
    assert warned_of(**suite) == [
        (
            "$.evaluateOptions: all columns share the values of storeOutputAs: it\n"
            '  set "registerScope": "column" to give each column its own values'
        )
    ]
    assert warned_of(**suite, registerScope="column") == []


def test_a_cluster_variable_that_no_test_has_is_reported() -> None:
    """The warning lists the existing names; there is none if the name exists or may be added later."""

    def warned(name: str, *tests: Any, **more: Any) -> list[str]:
        options = {"evaluateOptions": {"cluster": name}}
        return warned_of(prompts=["x"], tests=[*tests], **options, **more)

    first = {"vars": {"book": "a"}, "metadata": {"year": 1}}
    assert warned("bok", first) == [
        (
            "$.evaluateOptions.cluster: no test has the metadata or variable "
            '"bok"\n  the tests have: book, year'
        )
    ]
    assert warned("bok", {"vars": {}})[0].endswith("add it to the metadata of the tests")
    assert warned("book", {"vars": {"n": 1}}, first) == []
    assert warned("year", first) == []
    assert warned("all", first, defaultTest={"metadata": {"all": 1}}) == []
    assert warned("kept", first | {"options": {"storeOutputAs": "kept"}}) == []


def test_what_promptfoo_accepts_in_assertions_is_reported() -> None:
    """Each place is named; an assertion of the default test once, not for each test."""
    odd = {"type": "starts-with", "value": 1}
    low = {"type": "contains", "value": "a", "weight": -1}
    tests = [{"assert": [{"type": "equals", "value": "a"}, low]}, {"vars": {"x": "1"}}]
    assert warned_of(prompts=["a"], defaultTest={"assert": [odd]}, tests=tests) == [
        "$.defaultTest.assert[0].value: must be text that is not empty, got 1: its rows are ERRORs",
        (
            "$.tests[0].assert[1].weight: the weight is below 0: the assertion lowers the score, "
            "and still has to pass"
        ),
    ]


ODD: list[tuple[list[dict[str, Any]], str, float]] = [
    ([{"weight": -1, "value": "one"}, {"value": "two"}], "pass", 0),
    ([{"weight": -1, "value": "ONE"}, {"value": "two", "weight": 3}], "fail", 1.5),
    ([{"weight": -1, "value": "one"}, {"value": "TWO", "weight": 3}], "fail", -0.5),
    ([{"type": "word-count"}], "error", 0),
    ([{"type": "word-count", "value": ""}], "fail", 0),
    ([{"type": "word-count", "value": "0x2"}], "pass", 1),
    ([{"type": "word-count", "value": {"min": 3, "max": 1}}], "error", 0),
    ([{"type": "word-count", "value": {"min": "1", "foo": 2}}], "pass", 1),
    ([{"value": ""}], "error", 0),
    ([{"type": "not-contains", "value": ""}], "error", 0),
    ([{"type": "contains-any", "value": []}], "fail", 0),
    ([{"type": "not-contains-any", "value": []}], "pass", 1),
    ([{"type": "contains-all", "value": ","}], "pass", 1),
    ([{"type": "contains-any", "value": [""]}], "pass", 1),
    ([{"type": "contains-any", "value": ""}], "error", 0),
    ([{"type": "starts-with", "value": 1}], "error", 0),
    ([{"type": "not-starts-with", "value": ""}], "error", 0),
]
"""Assertions about the output "one two", with the result and the score of their row in promptfoo."""


def test_odd_assertions_have_the_results_of_promptfoo() -> None:
    """A value that cannot be judged makes its row an ERROR, and no other row."""
    tests = [{"assert": [{"type": "contains"} | one for one in odd]} for odd, _, _ in ODD]
    suite = parse_suite({"providers": ["echo"], "prompts": ["one two"], "tests": tests})
    rows = trio.run(collect, suite)
    assert [(row.status.value, row.score) for row in rows] == [
        (end, score) for _, end, score in ODD
    ]
