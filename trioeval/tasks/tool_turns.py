"""What a model said, and how the conversation goes on when it called tools.

Pure. Providers put the calls of tools into an output in four forms, and take results back in three:

* chat completions: a list of calls with a `function` each, or a message with text and `tool_calls`;
  results are messages of the role `tool`. What a provider made in Python gives and gets is this form.
* responses: a `function_call` a line of text; they are sent back as chat completions, which its adapter
  translates.
* Anthropic: a `tool_use` block a line of text; results are blocks of a message of the user.
* Gemini: a list of parts, some of which hold a `functionCall`; results are parts likewise.

A prompt is made of what outputs say, and of nothing else that came with a reply: an output is written down,
so a conversation that is resumed asks with the same prompts, and what was paid for is known again.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import attrs

Form: TypeAlias = Literal["chat", "anthropic", "gemini"]
Message: TypeAlias = Mapping[str, Any]


@attrs.frozen
class ToolCall:
    """A call of a tool, as a model wrote it."""

    name: str
    arguments: Any
    """JSON data, or the text of it."""
    id: str | None = None
    """By which its result is known again; None where results come in the order of calls."""


@attrs.frozen
class ToolResult:
    """What became of a call."""

    value: Any
    """JSON data; of a failure, what went wrong."""
    failed: bool = False


@attrs.frozen
class Turn:
    """What a model said in one step."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    said: Message | None = None
    """The same as the next prompt repeats it; None where nothing was called."""
    form: Form = "chat"


class Offered(Protocol):
    """A tool as a model is told of it."""

    @property
    def name(self) -> str:
        """By which it is called."""
        ...

    @property
    def description(self) -> str:
        """What it is good for; may be empty."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """JSON schema of its arguments, which are an object."""
        ...


def tool_offers(tools: Iterable[Offered]) -> list[dict[str, Any]]:
    """The tools as chat completions offer them, which every vendor's adapter understands."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                **({"description": tool.description} if tool.description else {}),
                "parameters": dict(tool.parameters) or {"type": "object", "properties": {}},
            },
        }
        for tool in tools
    ]


def read_turn(output: Any) -> Turn:
    """What an output says, and which tools it calls.

    Example:
        >>> read_turn("It is blue.")
        Turn(text='It is blue.', calls=(), said=None, form='chat')
        >>> turn = read_turn([{"id": "c", "function": {"name": "add", "arguments": "{}"}}])
        >>> turn.calls
        (ToolCall(name='add', arguments='{}', id='c'),)
    """
    match output:
        case str():
            return _of_lines(output)
        case {"tool_calls": list(calls)}:
            return _of_chat(_text(output.get("content")), calls)
        case list():
            return _of_list(output)
        case _:
            return Turn(_text(output))


def first_messages(prompt: str) -> tuple[Message, ...]:
    """The conversation that a prompt opens."""
    return ({"role": "user", "content": prompt},)


def prompt_of(messages: Sequence[Message]) -> str:
    """The text of the prompt that a conversation is: what its single message says, else all of it as JSON."""
    match messages:
        case [{"role": "user", "content": str(content)}]:
            return content
    return json.dumps(list(messages), ensure_ascii=False)


def with_results(
    messages: Sequence[Message], turn: Turn, results: Sequence[ToolResult]
) -> tuple[Message, ...]:
    """A conversation after a turn whose tools gave these results, in the order of its calls."""
    if turn.said is None:
        return tuple(messages)
    pairs = list(zip(turn.calls, results, strict=True))
    match turn.form:
        case "chat":
            told = [_chat_result(call, result) for call, result in pairs]
        case "anthropic":
            told = [{"role": "user", "content": [_anthropic_result(*pair) for pair in pairs]}]
        case "gemini":
            told = [{"role": "user", "parts": [_gemini_result(*pair) for pair in pairs]}]
    return (*messages, turn.said, *told)


def _of_lines(output: str) -> Turn:
    """A text in which each call is a line of its own."""
    said: list[str] = []
    found: list[Mapping[str, Any]] = []
    for line in output.split("\n"):
        call = _call_line(line)
        if call is None:
            said.append(line)
        else:
            found.append(call)
    text = "\n".join(said).strip() if found else output
    if not found:
        return Turn(text)
    if all(call["type"] == "tool_use" for call in found):
        return _of_blocks(text, found)
    return _of_chat(
        text,
        [
            {
                "id": call.get("call_id"),
                "type": "function",
                "function": {"name": call["name"], "arguments": call.get("arguments")},
            }
            for call in found
            if call["type"] == "function_call"
        ],
    )


def _call_line(line: str) -> Mapping[str, Any] | None:
    line = line.strip()
    if not (line.startswith("{") and line.endswith("}")):
        return None
    try:
        data: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError):
        return None
    match data:
        case {"type": "tool_use", "name": str(), "id": str(), "input": dict()}:
            return data
        case {"type": "function_call", "name": str(), "call_id": str()}:
            return data
        case _:
            return None


def _of_list(output: list[Any]) -> Turn:
    parts = [part for part in output if isinstance(part, Mapping)]
    if any(isinstance(part.get("functionCall"), Mapping) for part in parts):
        return _of_parts(parts)
    blocks = [part for part in parts if part.get("type") == "tool_use"]
    if blocks:
        said = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        return _of_blocks("\n\n".join(said), blocks)
    if any(isinstance(part.get("function"), Mapping) for part in parts):
        return _of_chat("", parts)
    return Turn(_text(output))


def _of_chat(text: str, calls: Sequence[Any]) -> Turn:
    found = []
    for call in calls:
        match call:
            case {"function": {"name": str(name)} as function}:
                given = call.get("id")
                id_ = given if isinstance(given, str) else None
                found.append((call, ToolCall(name, function.get("arguments"), id_)))
            case _:
                pass
    if not found:
        return Turn(text)
    said = {
        "role": "assistant",
        "content": text or None,
        "tool_calls": [dict(call) for call, _ in found],
    }
    return Turn(text, tuple(call for _, call in found), said)


def _of_blocks(text: str, blocks: Sequence[Mapping[str, Any]]) -> Turn:
    calls = tuple(
        ToolCall(str(block.get("name")), block.get("input"), str(block.get("id")))
        for block in blocks
    )
    content = [{"type": "text", "text": text}] if text else []
    said = {"role": "assistant", "content": [*content, *map(dict, blocks)]}
    return Turn(text, calls, said, "anthropic")


def _of_parts(parts: Sequence[Mapping[str, Any]]) -> Turn:
    calls = []
    for part in parts:
        match part:
            case {"functionCall": {"name": str(name), **call}}:
                given = call.get("id")
                id_ = given if isinstance(given, str) else None
                calls.append(ToolCall(name, call.get("args") or {}, id_))
            case _:
                pass
    said = [
        part["text"]
        for part in parts
        if isinstance(part.get("text"), str) and not part.get("thought")
    ]
    message = {"role": "model", "parts": [dict(part) for part in parts]}
    return Turn("".join(said), tuple(calls), message if calls else None, "gemini")


def _chat_result(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    known = {} if call.id is None else {"tool_call_id": call.id}
    return {"role": "tool", **known, "content": _text(result.value)}


def _anthropic_result(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    failed = {"is_error": True} if result.failed else {}
    told = {"type": "tool_result", "tool_use_id": call.id, "content": _text(result.value)}
    return {**told, **failed}


def _gemini_result(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    known = {} if call.id is None else {"id": call.id}
    said = {"error" if result.failed else "result": result.value}
    return {"functionResponse": {**known, "name": call.name, "response": said}}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
