"""Assertions on tool calls give the same verdicts for the same calls, whatever the vendor."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import Answer, serve
from vendor_cases import reply
from wire_replies import WIRES, Said, chat, gemini, messages, responses

import trioeval
from trioeval.providers import Reply, Request, ToolCall
from trioeval.testing import run_virtual

NAMES = ("add", "now", "search")
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
ARGUMENTS: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.fixed_dictionaries(
    {"a": st.integers(-3, 3) | st.text(max_size=2)}
)
CALLS = st.lists(st.tuples(st.sampled_from(NAMES), ARGUMENTS), min_size=1, max_size=4)
SAID = st.builds(
    lambda text, reasoning, calls: Said(
        text=text,
        reasoning=reasoning,
        calls=tuple(ToolCall(name, args, f"c{i}") for i, (name, args) in enumerate(calls)),
    ),
    st.sampled_from(["", "Let me see.", "{", '[{"name": "now"}]']),
    st.sampled_from(["", "I need a tool."]),
    CALLS,
)


def offers(names: Sequence[str]) -> list[dict[str, Any]]:
    """Tools in the form of chat completions."""
    return [{"type": "function", "function": {"name": one, "parameters": SCHEMA}} for one in names]


def asserts(expected: Sequence[str], arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "is-valid-openai-tools-call"},
        {"type": "is-valid-function-call"},
        {"type": "tool-call-f1", "value": list(expected), "threshold": 0.5},
        {"type": "trajectory:tool-used", "value": list(expected)},
        {"type": "trajectory:tool-sequence", "value": list(expected)},
        {
            "type": "trajectory:tool-args-match",
            "value": {"name": expected[0], "args": arguments, "mode": "exact"},
        },
    ]


def wanted(
    calls: Sequence[ToolCall],
    offered: Sequence[str],
    expected: Sequence[str],
    arguments: Mapping[str, Any],
) -> list[tuple[bool, float]]:
    """Pass and score of each assertion, by their definitions."""
    names = [call.name for call in calls]
    valid = all(
        call.name in offered and call.arguments.keys() == {"a"} and type(call.arguments["a"]) is int
        for call in calls
    )
    both = len({*names} & {*expected})
    f1 = 2 * both / (len({*names}) + len({*expected}))
    rest = iter(names)
    verdicts = [
        valid,
        valid,
        f1 >= 0.5,
        {*expected} <= {*names},
        all(one in rest for one in expected),
        any(call.name == expected[0] and call.arguments == arguments for call in calls),
    ]
    scores = [float(one) for one in verdicts]
    scores[2] = f1
    return list(zip(verdicts, scores, strict=True))


class Saying:
    """A provider with one reply."""

    def __init__(self, answer: Reply) -> None:
        self.answer = answer

    async def __call__(self, _request: Request) -> Reply:
        return self.answer


def verdicts(suite: Mapping[str, Any], replies: Mapping[str, Reply]) -> list[list[Any]]:
    """Return pass, score and reason of each assertion, for each provider."""

    async def main() -> list[list[Any]]:
        own = {name: Saying(answer) for name, answer in replies.items()}
        parsed = trioeval.parse_suite({**suite, "providers": [*replies]})
        rows = await trioeval.collect(parsed, providers=own)
        return [parts(row) for row in rows]

    return run_virtual(main)


def parts(row: Any) -> list[Any]:
    assert row.verdict is not None, row.error
    return [(one.passed, one.score, one.reason) for one in row.verdict.parts]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    said=SAID,
    offered=st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
    expected=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
    arguments=ARGUMENTS,
)
def test_verdicts_on_tool_calls_do_not_depend_on_the_vendor(
    said: Said, offered: list[str], expected: list[str], arguments: dict[str, Any]
) -> None:
    """They are the ones of the definition, with the same reasons."""
    suite = {
        "prompts": ["Hi"],
        "tests": [{"options": {"tools": offers(offered)}, "assert": asserts(expected, arguments)}],
    }
    replies = {vendor.name: vendor.adapter().parse(reply(wire(said))) for vendor, wire in WIRES}
    of_chat, *others = verdicts(suite, replies)
    passed, scores = zip(*wanted(said.calls, offered, expected, arguments), strict=True)
    assert [one[0] for one in of_chat] == [*passed]
    assert [one[1] for one in of_chat] == pytest.approx(scores)
    assert others == [of_chat] * (len(WIRES) - 1)


OWN_FORMS: list[list[Any]] = [
    offers(["add"]),
    [{"type": "function", "name": "add", "parameters": SCHEMA}],
    [{"name": "add", "input_schema": SCHEMA}],
    [{"functionDeclarations": [{"name": "add", "parameters": SCHEMA}]}],
    [{"toolSpec": {"name": "add", "inputSchema": {"json": SCHEMA}}}],
]


@pytest.mark.parametrize("tools", OWN_FORMS, ids=["chat", "responses", "messages", "gemini", "aws"])
def test_tools_may_be_offered_in_any_vendors_form(tools: list[Any]) -> None:
    """The schema is that of the function."""
    suite = {
        "prompts": ["Hi"],
        "tests": [{"options": {"tools": tools}, "assert": asserts(["add"], {"a": 1})}],
    }
    right = Reply(tool_calls=(ToolCall("add", {"a": 1}),))
    wrong = Reply(tool_calls=(ToolCall("add", {"b": 1}),))
    good, bad = verdicts(suite, {"right": right, "wrong": wrong})
    assert [one[0] for one in good] == [True] * 6
    assert [one[0] for one in bad] == [False, False, True, True, True, False]


def test_a_transform_replaces_the_calls() -> None:
    """The assertion is about its result."""
    suite = {
        "prompts": ["Hi"],
        "tests": [
            {
                "options": {"transform": "output[1]", "tools": offers(["add"])},
                "assert": [{"type": "tool-call-f1", "value": "now"}],
            }
        ],
    }
    both = Reply(tool_calls=(ToolCall("add", {"a": 1}), ToolCall("now")))
    ((verdict,),) = verdicts(suite, {"mine": both})
    assert verdict[:2] == (False, 0)


@pytest.mark.network
def test_four_vendors_pass_the_same_assertions_over_http() -> None:
    """One suite, one definition of the tools, and a server with each vendor's API."""
    said = Said(text="So:", reasoning="Hm.", calls=(ToolCall("add", {"a": 1}, "c1"),))
    by_path = {
        "/chat/completions": chat,
        "/responses": responses,
        "/v1/messages": messages,
        "/v1beta/models/m:generateContent": gemini,
    }

    async def main() -> None:
        async with serve(
            lambda seen: Answer(
                200,
                json.dumps(by_path[seen.target](said)).encode(),
                {"content-type": "application/json"},
            )
        ) as server:
            config = {"apiBaseUrl": server.url, "apiKey": "k", "tools": offers(["add", "now"])}
            ids = ("openai:chat:m", "openai:responses:m", "anthropic:messages:m", "google:m")
            suite = {
                "providers": [{"id": one, "config": config} for one in ids],
                "prompts": ["Hi"],
                "tests": [{"assert": asserts(["add"], {"a": 1})}],
            }
            rows = await trioeval.collect(trioeval.parse_suite(suite))
        assert [parts(row) for row in rows] == [parts(rows[0])] * 4
        assert all(row.status is trioeval.Status.PASS for row in rows), rows[0]

    trio.run(main)
