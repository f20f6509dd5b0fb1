"""The steps of agents in spans, and assertions about them."""

import json
from typing import Any

import pytest

from trioeval.errors import GradingError
from trioeval.grading import Assertion, Subject, Verdict, check_assertion, grade
from trioeval.grading.kinds.traces import ReplyTrace, trace_of
from trioeval.grading.kinds.trajectories import SHOWN, steps_of, trajectory_summary


def trace(*spans: dict[str, Any], **more: Any) -> ReplyTrace:
    return trace_of(Subject.of("x", metadata={"trace": {"spans": list(spans), **more}}))


STEPS: list[tuple[str, dict[str, Any], str]] = [
    ("call", {"tool.name": " search "}, "tool:search"),
    ("call", {"gen_ai.tool.name": "a", "tool": "b"}, "tool:b"),
    ("call", {"my_toolName": "a"}, "tool:a"),
    ("call", {"agent.tool.chosen": "a", "tool.result": "b"}, "tool:a"),
    ("call", {"tool.definition": "a"}, "span:call"),
    ("call", {"x.tool": '{"name": "a"}'}, "span:call"),
    ("call", {"x.tool": "{a}"}, "tool:{a}"),
    ("mcp db/query", {}, "tool:query"),
    ("mcp db", {}, "span:mcp db"),
    ("mcp db/ ", {}, "span:mcp db/ "),
    ("call", {"codex.command": "ls -l"}, "command:ls -l"),
    ("call", {"last_command": "ls", "command.output": "x"}, "command:ls"),
    ("call", {"command_output": "x"}, "span:call"),
    ("exec ls -l", {}, "command:ls -l"),
    (
        "call",
        {"tool.name": "Shell", "tool.arguments": '{"command": ["git", " log "]}'},
        "command:git log",
    ),
    ("call", {"tool.name": "shell", "args": {"commands": ["a", 1]}}, "command:a; 1"),
    ("call", {"tool.name": "shell", "args": {"cmd": 3}}, "tool:shell"),
    ("call", {"tool.name": "runner", "args": {"cmd": "ls"}}, "command:ls"),
    ("call", {"tool.name": "other", "args": {"cmd": "ls"}}, "tool:other"),
    ("call", {"search.query": "cats"}, "search:cats"),
    ("db lookup", {"query": "cats"}, "search:cats"),
    ("db", {"query": "cats", "retrieval.k": 3}, "search:cats"),
    ("db", {"query": "cats"}, "span:db"),
    ('search "cats"', {}, "search:cats"),
    ("reasoning_1", {}, "reasoning:reasoning_1"),
    ("think", {"codex.item.type": "reasoning"}, "reasoning:think"),
    ("agent response", {}, "message:agent response"),
    ("say", {"codex.item.type": "agent_message"}, "message:say"),
]


@pytest.mark.parametrize(("name", "attributes", "step"), STEPS)
def test_a_span_is_a_step(name: str, attributes: dict[str, Any], step: str) -> None:
    """Several tracing libraries are supported; a provider may name the tools that run commands."""
    found = trace(
        {"name": name, "attributes": attributes}, metadata={"commandToolNames": ["Runner", 3]}
    )
    assert [str(one) for one in steps_of(found)] == [step]


def test_steps_are_in_the_order_of_their_starts() -> None:
    """Of simultaneous starts, the one that ended first comes first; those without times come last."""
    spans: list[dict[str, Any]] = [
        {"name": "e"},
        {"name": "d", "startTime": 2},
        {"name": "c", "startTime": 1, "endTime": 9},
        {"name": "b", "startTime": 1, "endTime": 3},
        {"name": "a", "startTime": 0, "endTime": 99},
        {"name": "f"},
    ]
    assert [step.name for step in steps_of(trace(*spans))] == ["a", "b", "c", "d", "e", "f"]


def test_a_command_has_several_names() -> None:
    """These are its span, its text, its tool and its program."""
    (step,) = steps_of(
        trace({"name": "s", "attributes": {"tool": "shell", "args": {"cmd": "git log"}}})
    )
    assert set(step.aliases) == {"s", "git log", "shell", "git"}


def tool(name: str, start: int, args: Any = None) -> dict[str, Any]:
    attributes = {"tool.name": name} | ({} if args is None else {"tool.args": args})
    return {"name": "call", "startTime": start, "attributes": attributes}


SPANS = [
    tool("find_order", 0, {"id": 7, "verbose": False, "trace_id": "x"}),
    tool("refund", 1, '{"id": 7, "lines": [{"n": 1, "why": "late"}, {"n": 2}]}'),
    tool("refund", 2),
    {"name": "reasoning", "startTime": 3},
    tool("mail", 4, "plain"),
]
ARGS = "trajectory:tool-args-match"
LINES = {"lines": [{"n": 1}, {"n": 2.0}]}
CASES: list[tuple[str, Any, bool]] = [
    ("trajectory:tool-used", "refund", True),
    ("trajectory:tool-used", "REF*", True),
    ("trajectory:tool-used", "reasoning", False),
    ("trajectory:tool-used", "call", True),
    ("trajectory:tool-used", ["refund", "find_*"], True),
    ("trajectory:tool-used", ["refund", "cancel"], False),
    ("not-trajectory:tool-used", ["refund", "cancel"], False),
    ("not-trajectory:tool-used", ["ban", "cancel"], True),
    ("trajectory:tool-used", {"name": "refund", "min": 2, "max": 2}, True),
    ("trajectory:tool-used", {"pattern": "*", "max": 3}, False),
    ("trajectory:tool-used", {"name": "cancel", "max": 3}, False),
    ("not-trajectory:tool-used", {"name": "refund", "min": 3}, True),
    ("trajectory:tool-used", {"name": "refund", "type": "command"}, False),
    ("trajectory:tool-sequence", ["find_order", "mail"], True),
    ("trajectory:tool-sequence", ["mail", "find_order"], False),
    ("not-trajectory:tool-sequence", ["mail", "find_order"], True),
    ("trajectory:tool-sequence", ["refund", "refund", "refund"], False),
    (
        "trajectory:tool-sequence",
        {"steps": ["find*", {"pattern": "ref*"}, {"name": "refund"}, "mail"], "mode": "exact"},
        True,
    ),
    ("trajectory:tool-sequence", {"steps": ["find_order", "mail"], "mode": "exact"}, False),
    ("trajectory:tool-sequence", {"steps": ["find_order", "mail"], "mode": "in_order"}, True),
    ("trajectory:step-count", {"min": 5, "max": 5}, True),
    ("trajectory:step-count", {"type": "tool", "max": 3}, False),
    ("not-trajectory:step-count", {"type": "tool", "max": 3}, True),
    ("trajectory:step-count", {"type": ["reasoning", "search"], "min": 1}, True),
    ("trajectory:step-count", {"pattern": "refund", "min": 3}, False),
    ("trajectory:step-count", {"name": "refund", "min": 2}, True),
    (ARGS, {"name": "find_order", "args": {"id": 7}}, True),
    (ARGS, {"name": "find_order", "arguments": {"id": 8}}, False),
    ("not-" + ARGS, {"name": "find_order", "args": {"id": 8}}, True),
    (ARGS, {"name": "find_order", "args": {"id": 7}, "mode": "exact"}, False),
    (
        ARGS,
        {
            "name": "find_order",
            "args": {"id": 7.0},
            "mode": "exact",
            "defaults": {"verbose": False},
            "ignore": "TRACE*",
        },
        True,
    ),
    (
        ARGS,
        {
            "name": "find_order",
            "args": {"id": 7},
            "mode": "exact",
            "defaults": {"verbose": 0},
            "ignore": ["trace_id"],
        },
        False,
    ),
    (
        ARGS,
        {"name": "find_order", "args": {"id": 7, "trace_id": "y"}, "ignore": ["trace_id"]},
        True,
    ),
    (
        ARGS,
        {"name": "find_order", "args": {"verbose": False}, "defaults": {"verbose": False}},
        False,
    ),
    (ARGS, {"pattern": "r*", "args": LINES}, True),
    (ARGS, {"pattern": "r*", "args": {"lines": [{"n": 1}]}}, False),
    (ARGS, {"pattern": "r*", "args": {"lines": {"n": 1}}}, False),
    (ARGS, {"pattern": "r*", "args": {"id": {"of": 7}}}, False),
    (ARGS, {"name": "mail", "args": "plain", "mode": "exact", "defaults": {}, "ignore": []}, True),
    (ARGS, {"name": "mail", "args": {}}, False),
    (ARGS, {"name": "cancel", "args": {}}, False),
]


def judged(type_name: str, value: Any) -> Verdict:
    subject = Subject.of("x", metadata={"trace": {"spans": SPANS}})
    return grade(subject, [Assertion(type=type_name, value=value)]).parts[0]


@pytest.mark.parametrize(("type_name", "value", "passes"), CASES)
def test_steps_are_judged(type_name: str, value: Any, *, passes: bool) -> None:
    """A list of tools under `not-` forbids each of them."""
    assert not list(check_assertion(Assertion(type=type_name, value=value)))
    verdict = judged(type_name, value)
    assert (verdict.passed, verdict.score) == (passes, float(passes))


@pytest.mark.parametrize(
    ("type_name", "value", "reason"),
    [
        (
            "trajectory:tool-used",
            ["mail"],
            'tools used: ["find_order","refund","refund","mail"]; wanted: ["mail"]',
        ),
        (
            "trajectory:tool-used",
            {"name": "mail"},
            'found 1 tool call matching "mail", expected at least 1; tools used: ["find_order","ref',
        ),
        (
            "trajectory:tool-sequence",
            ["mail", "x"],
            'the sequence of tools ["find_order","refund","refund","mail"] does not have in this order [',
        ),
        (
            "trajectory:tool-sequence",
            {"steps": ["mail"], "mode": "exact"},
            'the sequence of tools ["find_order","refund","refund","mail"] is not ["mail"]',
        ),
        (
            "trajectory:step-count",
            {"type": "tool", "min": 1},
            'found 4 steps of type tool matching "*", expected at least 1',
        ),
        (
            ARGS,
            {"name": "mail", "args": "plain"},
            'tool:mail was called with "plain", as expected',
        ),
        (
            ARGS,
            {"name": "refund", "args": {"id": 1}},
            'no call that matches "refund" has the arguments {"id":1}; those of its 2 calls: [{"id":7,',
        ),
    ],
)
def test_reasons_state_the_findings(type_name: str, value: Any, reason: str) -> None:
    """They are true under `not-` as well."""
    assert judged(type_name, value).reason.startswith(reason)


@pytest.mark.parametrize(
    ("type_name", "value"),
    [
        ("trajectory:tool-used", None),
        ("trajectory:tool-used", []),
        ("trajectory:tool-used", " "),
        ("trajectory:tool-used", {"min": 1}),
        ("trajectory:tool-used", {"name": "a", "type": "tol"}),
        ("trajectory:tool-sequence", "a"),
        ("trajectory:tool-sequence", [{}]),
        ("trajectory:tool-sequence", {"steps": []}),
        ("trajectory:tool-sequence", {"steps": ["a"], "mode": "inorder"}),
        ("trajectory:tool-sequence", {"steps": ["a"], "order": 1}),
        ("trajectory:step-count", 3),
        ("trajectory:step-count", {"type": "tool"}),
        ("trajectory:step-count", {"type": "tools", "min": 1}),
        (ARGS, "a"),
        (ARGS, {"name": "a"}),
        (ARGS, {"args": {}}),
        (ARGS, {"name": "a", "args": {}, "mode": "full"}),
        (ARGS, {"name": "a", "args": {}, "defaults": []}),
        (ARGS, {"name": "a", "args": {}, "ignore": ["a", ""]}),
    ],
)
def test_invalid_values_are_reported(type_name: str, value: Any) -> None:
    """They are reported before a run."""
    (problem,) = check_assertion(Assertion(type=type_name, value=value))
    assert problem.path == ".value"


@pytest.mark.parametrize("type_name", ["trajectory:tool-used", "not-trajectory:tool-used"])
def test_a_missing_trace_is_an_error(type_name: str) -> None:
    """The absence of calls cannot be determined either."""
    with pytest.raises(GradingError, match="the reply has no trace"):
        grade("x", [Assertion(type=type_name, value="a")])


def test_the_summary_is_short() -> None:
    """Consecutive equal steps are combined, and the middle of many steps is left out."""
    spans = [
        tool("a", 0),
        tool("a", 1),
        {"name": "x", "startTime": 2, "status": {"code": 2, "message": "no"}},
    ]
    summary = json.loads(trajectory_summary(trace(*spans, traceId="t")))
    assert summary == {
        "traceId": "t",
        "stepCount": 3,
        "compactedStepCount": 2,
        "steps": [
            {"index": 1, "type": "tool", "name": "a", "spanName": "call", "collapsedCount": 2},
            {"index": 3, "type": "span", "name": "x", "status": {"code": 2, "message": "no"}},
        ],
    }
    many = trace(*({"name": f"s{place}", "startTime": place} for place in range(SHOWN + 6)))
    shown = json.loads(trajectory_summary(many))["steps"]
    assert len(shown) == SHOWN + 1
    assert shown[SHOWN // 2] == {"omittedCount": 6}
    assert (shown[0]["index"], shown[-1]["index"]) == (1, SHOWN + 6)
