"""Replies have one shape: whatever the vendor, equal contents arrive as equal parts."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
import trio
from loopback import Answer, Seen, serve
from vendor_cases import Vendor, reply
from wire_replies import WIRES, Said, chat, gemini, messages, responses

import trioeval
from trioeval.providers import Reply, Request, ToolCall
from trioeval.providers.http.adapter import HttpProvider
from trioeval.providers.http.client import open_http
from trioeval.providers.http.replies import read_call

ADD = ToolCall("add", {"a": 2, "b": [2, None]}, "c1")
NOW = ToolCall("now", {}, "c2")

CASES = {
    "text": Said(text="It is 4."),
    "text and reasoning": Said(text="It is 4.", reasoning="2 + 2"),
    "one call": Said(calls=(ADD,)),
    "several calls": Said(calls=(ADD, NOW, attrs.evolve(ADD, id="c3"))),
    "text and calls": Said(text="Let me see.", calls=(ADD, NOW)),
    "reasoning, text and a call": Said(text="Let me see.", reasoning="2 + 2", calls=(ADD,)),
    "truncated text": Said(text="It is", is_cut=True),
    "truncated reasoning": Said(text="It", reasoning="2 +", is_cut=True),
}

Wire = Callable[[Said], Mapping[str, Any]]


def shape(answer: Reply) -> tuple[object, ...]:
    return (answer.text, answer.tool_calls, answer.reasoning, answer.finish_reason, answer.refusal)


def expected(said: Said) -> tuple[object, ...]:
    return (said.text, said.calls, said.reasoning or None, said.stop, None)


def asked(vendor: Vendor, said: Mapping[str, Any]) -> Reply:
    """Ask a server on loopback, with the vendor's adapter and real connections."""
    answer = Answer(200, json.dumps(said).encode(), {"content-type": "application/json"})

    async def main() -> Reply:
        async with serve(lambda _: answer) as server, open_http() as client:
            config: dict[str, Any] = {"apiBaseUrl": server.url}
            provider = HttpProvider(vendor.adapter(**config), client)
            return await provider(Request(prompt="Hi"))

    return trio.run(main)


every_wire = pytest.mark.parametrize(
    ("vendor", "wire"), [pytest.param(*pair, id=pair[0].name) for pair in WIRES]
)
over_http = pytest.mark.parametrize(
    ("vendor", "wire"), [pytest.param(*pair, id=pair[0].name) for pair in WIRES[:-1]]
)  # boto3 has its own client


@pytest.mark.network
@over_http
def test_a_reply_from_a_server_has_typed_parts(vendor: Vendor, wire: Wire) -> None:
    """Its usage is that of the body."""
    said = CASES["reasoning, text and a call"]
    answer = asked(vendor, wire(said))
    assert shape(answer) == expected(said)
    assert answer.usage == vendor.answer.usage


@every_wire
@pytest.mark.parametrize("said", CASES.values(), ids=CASES)
def test_equal_contents_are_equal_parts(vendor: Vendor, wire: Wire, said: Said) -> None:
    """Reasoning is in the output only on request, and never in the text."""
    answer = vendor.adapter().parse(reply(wire(said)))
    assert shape(answer) == expected(said)
    assert not said.reasoning or said.reasoning not in json.dumps(answer.output)
    assert isinstance(answer.output, str) == (vendor.name not in ("chat", "generate")) or (
        not said.calls
    )
    if vendor.texts is not None and said.reasoning:
        shown = vendor.adapter(showThinking=True).parse(reply(wire(said)))
        assert shape(shown) == expected(said)
        assert said.reasoning in json.dumps(shown.output)


@every_wire
def test_refusals_are_equal(vendor: Vendor, wire: Wire) -> None:
    """Its text, or the filter's reason, is text and refusal."""
    answer = vendor.adapter().parse(reply(wire(Said(refusal="Not for me."))))
    shown = "[filtered by the provider]" if vendor.name == "converse" else "Not for me."
    assert (answer.text, answer.output) == (shown, shown)
    assert (answer.refusal, answer.is_refusal) == ("Not for me.", True)
    assert (answer.tool_calls, answer.reasoning) == ((), None)
    assert answer.guardrails is not None
    assert answer.guardrails.flagged


@pytest.mark.parametrize(
    ("arguments", "read"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ('{"a": ', '{"a": '),
        ("[1]", "[1]"),
        ([1], "[1]"),
        ("ls -l", "ls -l"),
    ],
)
def test_arguments_are_an_object_or_a_text(arguments: object, read: object) -> None:
    """The model may write anything there."""
    assert read_call("add", arguments, None) == ToolCall("add", read)


def test_output_and_text_follow_from_each_other() -> None:
    """The author of a provider gives either; equal replies are equal, however they were made."""
    assert Reply(text="4") == Reply(output="4") == Reply(output="4", text="4")
    assert (Reply(text="4").output, Reply(output="4").text) == ("4", "4")
    assert (Reply(output=[1]).text, Reply(output=[1]).answer) == ("", [1])
    assert Reply().output is None
    both = Reply(output="Thinking: 2 + 2\n\n4", text="4")
    assert (both.text, both.answer) == ("4", "4")
    assert attrs.evolve(Reply(text="4"), output="5").text == "5"
    assert Reply(refusal="no") == Reply(text="no", refusal="no")
    assert trioeval.ToolCall is ToolCall


def test_the_output_of_a_providers_own_tool_calls_is_that_of_chat_completions() -> None:
    """So that every assertion reads it."""
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "add", "arguments": '{"a": 2, "b": [2, null]}'},
    }
    assert Reply(tool_calls=(ADD,)).output == [call]
    with_text = Reply(text="So:", tool_calls=(ADD,))
    assert with_text.output == {"role": "assistant", "content": "So:", "tool_calls": [call]}
    assert (with_text.text, with_text.answer) == ("So:", with_text.output)


VERDICT = '{"pass": true, "score": 1, "reason": "good"}'
DRAFT = '{"pass": false, "score": 0, "reason": "a draft"}'


@pytest.mark.network
@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize(
    ("entry", "wire"),
    [
        ("openai:chat:m", chat),
        ("openai:responses:m", responses),
        ("anthropic:messages:m", messages),
        ("google:m", gemini),
    ],
)
def test_graders_see_reasoning_only_if_the_provider_shows_it(
    entry: str, wire: Wire, *, shown: bool
) -> None:
    """A judge's own reasoning is never read as its verdict."""
    prompts: list[str] = []

    def answered(seen: Seen) -> Answer:
        prompt = seen.body.decode()
        prompts.append(prompt)
        judges = "about arithmetic" in prompt
        said = Said(text=VERDICT, reasoning=DRAFT) if judges else Said(text="4", reasoning="deep")
        headers = {"content-type": "application/json"}
        return Answer(200, json.dumps(wire(said)).encode(), headers)

    async def main() -> None:
        async with serve(answered) as server:
            config = {"apiBaseUrl": server.url, "apiKey": "k", "showThinking": shown}
            judge = {"id": entry, "config": config}
            suite = {
                "providers": [judge],
                "prompts": ["Hi"],
                "tests": [
                    {
                        "options": {"provider": judge},
                        "assert": [
                            {"type": "contains" if shown else "not-contains", "value": "deep"},
                            {"type": "llm-rubric", "value": "is about arithmetic"},
                        ],
                    }
                ],
            }
            (row,) = await trioeval.collect(trioeval.parse_suite(suite))
        assert row.status is trioeval.Status.PASS, row.error
        asked, judged = prompts
        assert "deep" not in asked
        assert ("deep" in judged) == shown
        assert row.reply is not None
        assert (row.reply.text, row.reply.reasoning) == ("4", "deep")

    trio.run(main)
