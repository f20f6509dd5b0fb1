"""Calls compared with offered tools, and skills; names of tools are in the compatibility cases."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

import trioeval
from trioeval.errors import GradingError
from trioeval.grading import Assertion, Subject, Verdict, check_assertion, grade

ADD = {
    "name": "add",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "number"}},
        "required": ["a"],
        "additionalProperties": False,
    },
}
NOW = {"name": "now"}
BROKEN = {"name": "broken", "parameters": {"minimum": "none"}}
FUNCTIONS = [ADD, NOW, BROKEN]
TOOLS = [
    {"type": "web_search"},
    None,
    *({"type": "function", "function": function} for function in FUNCTIONS),
]
GOOGLE = [
    {
        "functionDeclarations": [
            {
                "name": "add",
                "parameters": {
                    "type": "OBJECT",
                    "properties": {"a": {"type": "NUMBER"}},
                    "required": ["a"],
                },
            }
        ]
    },
    {"googleSearch": {}},
]


def judged(output: Any, type_name: str, value: Any = None, **known: Any) -> Verdict:
    return grade(Subject.of(output, **known), [Assertion(type=type_name, value=value)]).parts[0]


CALLS: list[tuple[Any, str | None]] = [
    ({"name": "add", "arguments": '{"a": 1.5}'}, None),
    ({"name": "now", "arguments": "{}"}, None),
    (
        {"name": "now", "arguments": '{"a": 1}'},
        'the call of "now" has arguments, but its function takes none',
    ),
    (
        {"name": "add", "arguments": "{}"},
        'the call of "add" has arguments that do not match: "a" is a required property',
    ),
    (
        {"name": "add", "arguments": '{"a": 1, "b": 2}'},
        'the call of "add" has arguments that do not match: Additional',
    ),
    (
        {"name": "add", "arguments": "a=1"},
        'the call of "add" has arguments that are not JSON: line 1',
    ),
    (
        {"name": "sub", "arguments": "{}"},
        'the call of "sub" names an unknown function; offered functions are: "add", "broken", "now"',
    ),
    (
        {"name": "broken", "arguments": "{}"},
        'the arguments of "broken" cannot be checked with its schema: ',
    ),
]


@pytest.mark.parametrize(("call", "reason"), CALLS)
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_call_must_match_an_offered_tool(
    call: dict[str, str], reason: str | None, *, wrapped: bool
) -> None:
    """This holds for functions and for tools; a call that cannot be checked fails under `not-` too."""
    output: Any = {"function_call": call} if wrapped else call
    outputs: Any = [{"function": call}, {"function": CALLS[0][0]}]
    outputs = {"tool_calls": outputs} if wrapped else outputs
    for type_name, answer in (
        ("is-valid-function-call", output),
        ("is-valid-openai-function-call", output),
        ("is-valid-openai-tools-call", outputs),
    ):
        known = {"functions": FUNCTIONS, "tools": TOOLS}
        verdict = judged(answer, type_name, **known)
        assert (verdict.passed, verdict.score) == (reason is None, float(reason is None))
        assert verdict.reason.startswith(reason or "the output calls offered functions: ")
        other = judged(answer, f"not-{type_name}", **known)
        assert other.passed is (reason is not None and "cannot be checked" not in reason)


def test_calls_of_google_are_checked_with_declared_functions() -> None:
    """Types in their schemas may be upper-case; all of several calls must match."""
    right = [{"text": "so"}, {"functionCall": {"name": "add", "args": {"a": 1}}}]
    wrong = {"toolCall": {"functionCalls": [{"name": "add", "args": {"a": 1}}, {"name": "add"}]}}
    for offered in (GOOGLE, TOOLS):
        assert judged(right, "is-valid-function-call", tools=offered).passed
        assert "required" in judged(wrong, "is-valid-function-call", tools=offered).reason
    assert not judged([{"text": "so"}], "is-valid-function-call", tools=GOOGLE).passed
    assert not judged(right, "is-valid-function-call", functions=FUNCTIONS).passed


@pytest.mark.parametrize(
    "output", ["{}", [], {"tool_calls": None}, [{"function": {"name": "add"}}], [3]]
)
def test_values_that_are_not_lists_of_calls_are_invalid(output: Any) -> None:
    """Text is invalid, even if it is the JSON of a call."""
    verdict = judged(output, "is-valid-openai-tools-call", tools=TOOLS)
    assert (verdict.passed, verdict.reason[:31]) == (False, "the output is not a list of too")


def test_f1_of_an_output_that_cannot_be_searched_fails() -> None:
    """It fails under `not-` too, and in a thread of a run."""
    for type_name in ("tool-call-f1", "not-tool-call-f1"):
        verdict = judged("{" * 70_000, type_name, "a")
        assert (verdict.passed, verdict.score) == (False, 0)
        assert verdict.reason.startswith(
            "the output cannot be searched for tool calls: it has more"
        )


SKILLS = [
    {"name": "plan"},
    {"name": "plan"},
    {"name": "review", "is_error": True},
    {"name": "re.do"},
    7,
]
USED: list[tuple[str, Any, bool]] = [
    ("skill-used", " plan ", True),
    ("skill-used", "review", False),
    ("skill-used", "Plan", False),
    ("skill-used", ["plan", "re.do"], True),
    ("skill-used", ["plan", "x"], False),
    ("not-skill-used", ["plan", "x"], False),
    ("not-skill-used", ["y", "x"], True),
    ("skill-used", {"name": "plan"}, True),
    ("skill-used", {"name": "plan", "max": 1}, False),
    ("skill-used", {"name": "plan", "min": 2, "max": 2}, True),
    ("skill-used", {"name": "plan", "min": 3}, False),
    ("skill-used", {"name": "x", "max": 1}, True),
    ("skill-used", {"pattern": "RE.*"}, True),
    ("skill-used", {"pattern": "re?d*", "min": 2}, False),
    ("skill-used", {"name": "plan", "pattern": "re*"}, False),
    ("not-skill-used", {"name": "plan"}, False),
    ("not-skill-used", {"name": "plan", "max": 0}, False),
    ("not-skill-used", {"name": "x", "max": 0}, True),
]


@pytest.mark.parametrize(("type_name", "value", "passes"), USED)
def test_skills_are_counted(type_name: str, value: Any, *, passes: bool) -> None:
    """Failed ones do not count; each of a list is required, or each is forbidden."""
    verdict = judged("x", type_name, value, metadata={"skillCalls": SKILLS})
    assert verdict.passed is passes
    assert '["plan","plan","re.do"]' in verdict.reason


def test_bounds_are_invalid_under_not() -> None:
    """They are an error when the suite is loaded, and without a loader."""
    bounded = Assertion(type="not-skill-used", value={"name": "a", "min": 1})
    (problem,) = check_assertion(bounded)
    assert (problem.path, problem.message[:35]) == (".value", "not-skill-used means not at all: it")
    with pytest.raises(GradingError, match="no max but 0"):
        grade("x", [bounded])


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        [],
        ["a", ""],
        {},
        {"name": ""},
        {"name": "a", "most": 1},
        {"name": "a", "min": -1},
        {"name": "a", "min": True},
        {"name": "a", "max": 1e999},
        {"pattern": 3},
        5,
    ],
)
def test_invalid_skills_are_reported(value: Any) -> None:
    """They are reported before a run."""
    (problem,) = check_assertion(Assertion(type="skill-used", value=value))
    assert problem.path == ".value"


def test_tools_are_those_of_the_config_of_the_provider(tmp_path: Path) -> None:
    """They may be in a file, and those of a test replace them."""
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    program = f"def call_api(*_):\n    return {{'output': [{{'function': {CALLS[0][0]}}}]}}"
    (tmp_path / "p.py").write_text(program)
    suite = tmp_path / "suite.json"
    sub = [{"type": "function", "function": {"name": "sub"}}]
    tests = [
        {"assert": [{"type": "is-valid-openai-tools-call"}]},
        {"assert": [{"type": "not-is-valid-openai-tools-call"}], "options": {"tools": sub}},
    ]
    providers = [{"id": "file://p.py", "config": {"tools": "file://tools.json"}}]
    suite.write_text(json.dumps({"providers": providers, "prompts": ["p"], "tests": tests}))

    rows = trio.run(partial(trioeval.collect, suite))
    assert [row.error for row in rows] == [None, None]
    assert [row.verdict and row.verdict.parts[0].reason for row in rows] == [
        'the output calls offered functions: "add"',
        'the call of "add" names an unknown function; offered functions are: "sub"',
    ]
