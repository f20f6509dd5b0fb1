"""Outputs with tool calls in every vendor's form, and the messages that return the results."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import ScriptError
from trioeval.evaluation.tools import (
    ToolResult,
    first_messages,
    prompt_of,
    read_turn,
    tool_offers,
    with_results,
)
from trioeval.providers import ToolCall
from trioeval.providers.vendors.anthropic_request import read_conversation
from trioeval.providers.vendors.chat import read_message
from trioeval.providers.vendors.gemini import read_candidate
from trioeval.providers.vendors.gemini_request import read_contents
from trioeval.providers.vendors.responses_messages import to_input
from trioeval.question_eval.model import Tool
from trioeval.question_eval.task import ToolBox
from trioeval.testing import run_virtual


def prompt_after(output: Any, *results: ToolResult) -> str:
    """The prompt of the second step."""
    turn = read_turn(output)
    return prompt_of(with_results(first_messages("2 and 3?"), turn, results))


CHAT_CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "add", "arguments": '{"a": 2, "b": 3}'},
}


@pytest.mark.parametrize("text", [None, "Let me see."])
def test_chat_completions_get_their_message_and_messages_of_tools(text: str | None) -> None:
    """A provider made in Python uses the same form."""
    message = {"role": "assistant", "content": text, "tool_calls": [CHAT_CALL], "refusal": None}
    output = read_message(message, "tool_calls", as_json=False, show_thinking=True).output
    turn = read_turn(output)
    assert turn.calls == (ToolCall("add", '{"a": 2, "b": 3}', "c1"),)
    assert turn.text == (text or "")
    user_turn, model_turn, tool_turn = json.loads(prompt_after(output, ToolResult(5)))
    assert user_turn == {"role": "user", "content": "2 and 3?"}
    assert model_turn == {"role": "assistant", "content": text, "tool_calls": [CHAT_CALL]}
    assert tool_turn == {"role": "tool", "tool_call_id": "c1", "content": "5"}


@pytest.mark.parametrize("text", ["", "Let me see.\n\n"])
def test_responses_get_items_of_calls_and_results(text: str) -> None:
    """Their adapter makes items of chat messages; ids of items are not sent back."""
    item = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "add",
        "arguments": '{"a": 2}',
    }
    items = to_input(prompt_after(f"{text}{json.dumps(item)}", ToolResult({"sum": 5})))
    call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 2}'}
    result = {"type": "function_call_output", "call_id": "c1", "output": '{"sum": 5}'}
    assert items[-2:] == [call, result]
    assert len(items) == (4 if text else 3)


@pytest.mark.parametrize("text", ["", "Let me see.\n\n"])
def test_anthropic_gets_blocks(text: str) -> None:
    """The model's message with its `tool_use`, and a message of the user with the results."""
    block = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 2}}
    output = f"{text}{json.dumps(block)}\n\n{json.dumps({**block, 'id': 't2'})}"
    tool_turn = read_conversation(
        prompt_after(output, ToolResult("5"), ToolResult("no", failed=True))
    )
    first, model_turn, results = tool_turn.messages
    assert first == {"role": "user", "content": "2 and 3?"}
    own = [{"type": "text", "text": "Let me see."}] if text else []
    assert model_turn == {"role": "assistant", "content": [*own, block, {**block, "id": "t2"}]}
    one = {"type": "tool_result", "tool_use_id": "t1", "content": "5"}
    two = {"type": "tool_result", "tool_use_id": "t2", "content": "no", "is_error": True}
    assert results == {"role": "user", "content": [one, two]}


def test_gemini_gets_parts() -> None:
    """The model's message unchanged, with its signatures, and the responses of its functions."""
    parts = [
        {"text": "Let me see."},
        {"functionCall": {"name": "add", "args": {"a": 2}}, "thoughtSignature": "s"},
    ]
    answer = read_candidate({"content": {"parts": parts}}, as_json=False, show_thinking=True)
    contents = read_contents(prompt_after(answer.output, ToolResult(5))).contents
    user_turn, model_turn, tool_turn = contents
    assert user_turn == {"role": "user", "parts": [{"text": "2 and 3?"}]}
    assert model_turn == {"role": "model", "parts": parts}
    response = {"name": "add", "response": {"result": 5}}
    assert tool_turn == {"role": "user", "parts": [{"functionResponse": response}]}
    failed = with_results((), read_turn(answer.output), [ToolResult("no", failed=True)])
    assert failed[-1]["parts"][0]["functionResponse"]["response"] == {"error": "no"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "name",
                        "id",
                        "input",
                        "function",
                        "functionCall",
                        "tool_calls",
                        "text",
                        "args",
                    ]
                )
                | st.text(max_size=3),
                inner | st.sampled_from(["tool_use", "function_call"]),
                max_size=4,
            )
        ),
    )
)
def test_any_output_of_a_provider_is_a_turn(output: Any) -> None:
    """No output breaks a question; one without calls adds no results."""
    turn = read_turn(output)
    assert (turn.message is None) == (not turn.calls)
    results = [ToolResult(1)] * len(turn.calls)
    messages = with_results(first_messages("?"), turn, results)
    assert len(messages) == 1 or json.loads(prompt_of(messages))
    assert isinstance(turn.text, str)


@given(st.text())
def test_a_text_without_calls_is_unchanged(text: str) -> None:
    """Nothing that is parsed later is lost."""
    assert read_turn(text).text == text


SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}
ADD = Tool(name="add", target="file:///x/tools.py:add", parameters=SCHEMA)


def test_tools_are_offered_in_the_form_of_chat_completions() -> None:
    """Every vendor's adapter reads this form; a tool without a schema takes an object."""
    look = Tool(name="look", target="file:///x/tools.py:look", description="Looks.")
    add, other = tool_offers([ADD, look])
    assert add == {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
    assert other["function"] == {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {}},
    }


class _Here:
    """Runs functions in place: adds, or fails."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []

    async def call(self, file: Any, function: str, arguments: Any, /) -> Any:
        self.calls.append((str(file), function, arguments))
        (given_,) = arguments
        if given_["a"] < 0:
            raise ScriptError("too small")
        return given_["a"] + 1


def results_of(*calls: ToolCall) -> tuple[list[ToolResult], _Here]:
    here = _Here()
    box = ToolBox.of([ADD], here.call)

    async def main() -> list[ToolResult]:
        return [await box.run(call) for call in calls]

    return run_virtual(main), here


def test_arguments_are_text_or_data() -> None:
    """The function gets them as one object."""
    found, here = results_of(ToolCall("add", '{"a": 1}'), ToolCall("add", {"a": 2}))
    assert found == [ToolResult(2), ToolResult(3)]
    assert here.calls == [
        ("/x/tools.py", "add", [{"a": 1}]),
        ("/x/tools.py", "add", [{"a": 2}]),
    ]


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (ToolCall("sub", "{}"), 'names an unknown function; offered functions are: "add"'),
        (ToolCall("add", "{"), "has arguments that are not JSON"),
        (ToolCall("add", "{}"), "has arguments that do not match"),
        (ToolCall("add", ""), "has arguments that do not match"),
        (ToolCall("add", "[1]"), "has arguments that do not match"),
        (ToolCall("add", '{"a": -1}'), "too small"),
    ],
)
def test_an_impossible_call_is_reported_to_the_model(call: ToolCall, why: str) -> None:
    """It is not a failure of the question."""
    (found,), _ = results_of(call)
    assert found.failed
    assert why in found.value


def test_a_schema_that_cannot_be_checked_is_reported_too() -> None:
    """The function is not called then."""
    here = _Here()
    broken = Tool(name="add", target="file:///x/tools.py:add", parameters={"type": "nothing"})

    async def main() -> ToolResult:
        return await ToolBox.of([broken], here.call).run(ToolCall("add", "{}"))

    assert run_virtual(main).failed
    assert here.calls == []
