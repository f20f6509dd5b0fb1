"""Model outputs with tool calls, and the continuation of their conversations.

Pure. Providers put tool calls into an output in four forms, and accept results in three:

* chat completions: a list of calls with a `function` each, or a message with text and `tool_calls`;
  results are messages of the role `tool`. A provider made in Python uses this form.
* responses: a `function_call` per line of text; they are sent back as chat completions, which its adapter
  translates.
* Anthropic: a `tool_use` block per line of text; results are blocks of a message of the user.
* Gemini: a list of parts, some of which contain a `functionCall`; results are parts, too.

A prompt is built from outputs, and from nothing else that came with a reply: an output is recorded, so a
resumed conversation sends the same prompts, and finds its recorded replies.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import attrs

from trioeval.errors import GradingError, ProviderError
from trioeval.evaluation.journal import RecordedReply
from trioeval.evaluation.metering import counted_tokens
from trioeval.evaluation.scoring import Spending, spent_on_failure
from trioeval.grading import JudgeUsage
from trioeval.grading.kinds.tools import OfferedFunction, UndeclaredError, call_fault
from trioeval.grading.subject import FunctionCall
from trioeval.providers import Reply, ToolCall, Usage
from trioeval.text import parse_json

Form: TypeAlias = Literal["chat", "anthropic", "gemini"]
Message: TypeAlias = Mapping[str, Any]


@attrs.frozen
class ToolResult:
    """The result of a call."""

    value: Any
    """JSON data; for a failure, the error."""
    failed: bool = False


@attrs.frozen
class ModelTurn:
    """The output of a model in one step."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    message: Message | None = None
    """The message as the next prompt repeats it; None without tool calls."""
    form: Form = "chat"


class OfferedTool(Protocol):
    """A tool that is offered to a model."""

    @property
    def name(self) -> str:
        """Its name in calls."""
        ...

    @property
    def description(self) -> str:
        """Its purpose; may be empty."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """JSON schema of its arguments, which are an object."""
        ...


def tool_offers(tools: Iterable[OfferedTool]) -> list[dict[str, Any]]:
    """Return the tools in the form of chat completions, which every vendor's adapter understands."""
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


def read_turn(output: Any) -> ModelTurn:
    """Parse an output into its text and its tool calls.

    Example:
        >>> read_turn("It is blue.")
        ModelTurn(text='It is blue.', calls=(), message=None, form='chat')
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
            return ModelTurn(_text(output))


def first_messages(prompt: str) -> tuple[Message, ...]:
    """Return the conversation that starts with a prompt."""
    return ({"role": "user", "content": prompt},)


def prompt_of(messages: Sequence[Message]) -> str:
    """Return the prompt for a conversation: the text of a single message, else all of it as JSON."""
    match messages:
        case [{"role": "user", "content": str(content)}]:
            return content
    return json.dumps(list(messages), ensure_ascii=False)


def with_results(
    messages: Sequence[Message], turn: ModelTurn, results: Sequence[ToolResult]
) -> tuple[Message, ...]:
    """Return a conversation after a turn whose tools returned these results, in the order of its calls."""
    if turn.message is None:
        return tuple(messages)
    pairs = list(zip(turn.calls, results, strict=True))
    match turn.form:
        case "chat":
            reported = [_chat_result(call, result) for call, result in pairs]
        case "anthropic":
            reported = [{"role": "user", "content": [_anthropic_result(*pair) for pair in pairs]}]
        case "gemini":
            reported = [{"role": "user", "parts": [_gemini_result(*pair) for pair in pairs]}]
    return (*messages, turn.message, *reported)


def _of_lines(output: str) -> ModelTurn:
    """Parse a text with one call per line."""
    kept_lines: list[str] = []
    found: list[Mapping[str, Any]] = []
    for line in output.split("\n"):
        call = _call_line(line)
        if call is None:
            kept_lines.append(line)
        else:
            found.append(call)
    text = "\n".join(kept_lines).strip() if found else output
    if not found:
        return ModelTurn(text)
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


def _of_list(output: list[Any]) -> ModelTurn:
    parts = [part for part in output if isinstance(part, Mapping)]
    if any(isinstance(part.get("functionCall"), Mapping) for part in parts):
        return _of_parts(parts)
    blocks = [part for part in parts if part.get("type") == "tool_use"]
    if blocks:
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        return _of_blocks("\n\n".join(texts), blocks)
    if any(isinstance(part.get("function"), Mapping) for part in parts):
        return _of_chat("", parts)
    return ModelTurn(_text(output))


def _of_chat(text: str, calls: Sequence[Any]) -> ModelTurn:
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
        return ModelTurn(text)
    message = {
        "role": "assistant",
        "content": text or None,
        "tool_calls": [dict(call) for call, _ in found],
    }
    return ModelTurn(text, tuple(call for _, call in found), message)


def _of_blocks(text: str, blocks: Sequence[Mapping[str, Any]]) -> ModelTurn:
    calls = tuple(
        ToolCall(str(block.get("name")), block.get("input"), str(block.get("id")))
        for block in blocks
    )
    content = [{"type": "text", "text": text}] if text else []
    message = {"role": "assistant", "content": [*content, *map(dict, blocks)]}
    return ModelTurn(text, calls, message, "anthropic")


def _of_parts(parts: Sequence[Mapping[str, Any]]) -> ModelTurn:
    calls = []
    for part in parts:
        match part:
            case {"functionCall": {"name": str(name), **call}}:
                given = call.get("id")
                id_ = given if isinstance(given, str) else None
                calls.append(ToolCall(name, call.get("args") or {}, id_))
            case _:
                pass
    texts = [
        part["text"]
        for part in parts
        if isinstance(part.get("text"), str) and not part.get("thought")
    ]
    message = {"role": "model", "parts": [dict(part) for part in parts]}
    return ModelTurn("".join(texts), tuple(calls), message if calls else None, "gemini")


def _chat_result(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    known = {} if call.id is None else {"tool_call_id": call.id}
    return {"role": "tool", **known, "content": _text(result.value)}


def _anthropic_result(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    failed = {"is_error": True} if result.failed else {}
    block = {"type": "tool_result", "tool_use_id": call.id, "content": _text(result.value)}
    return {**block, **failed}


def _gemini_result(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    known = {} if call.id is None else {"id": call.id}
    response = {"error" if result.failed else "result": result.value}
    return {"functionResponse": {**known, "name": call.name, "response": response}}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


# A conversation with a model that calls tools: its messages, and its usage so far.
#
# The state of a conversation outlives its job: after a transient failure the job is run again and continues
# where it failed, and no call is repeated.


@attrs.define
class ToolConversation:
    """The state of a conversation."""

    messages: tuple[Message, ...]
    """The conversation that the next step sends."""
    replies: list[Reply] = attrs.field(factory=list)
    """One per step."""
    empty_replies: list[Reply] = attrs.field(factory=list)
    """Empty replies, which do not count as steps."""
    latency_ms: float = 0.0
    """The total of all steps."""
    tokens: int = 0
    """The total of all steps, estimated where a provider reports none."""
    failures: Spending = attrs.field(factory=Spending)
    """The usage of failed calls, as far as providers reported it."""
    lost_tokens: int = 0
    """The tokens that failed calls count as at limits."""
    sent_tokens: int = 0
    """The tokens that the pending call counts as."""
    tool_calls: Counter[str] = attrs.field(factory=Counter)
    recalled: int = 0
    """Steps that an earlier execution paid for."""
    recalled_s: float = 0.0
    """Their original duration in seconds."""
    worked_s: float = 0.0
    """Seconds of work in earlier runs of its job."""
    cached: int = 0
    """Steps with a reply from the cache."""

    @classmethod
    def of(cls, prompt: str) -> "ToolConversation":
        """Return the state before the first step."""
        return cls(first_messages(prompt))

    @property
    def prompt(self) -> str:
        """The prompt of the next step."""
        return prompt_of(self.messages)

    @property
    def steps(self) -> int:
        """Number of completed steps."""
        return len(self.replies)

    def on_request(self, tokens: int) -> None:
        """Handle the start of a call."""
        self.sent_tokens = tokens

    def on_failure(self, error: ProviderError, tokens: int) -> None:
        """Handle a failed call."""
        self.sent_tokens = 0
        self.lost_tokens += tokens
        self.failures.add(spent_on_failure(error))

    def on_reply(self, paid: RecordedReply, *, recalled: bool) -> None:
        """Handle a reply."""
        reply, self.sent_tokens = paid.reply, 0
        self.tokens += counted_tokens(self.prompt, reply)
        (self.empty_replies if reply.output is None else self.replies).append(reply)
        self.latency_ms += paid.latency_ms
        self.cached += paid.cached
        if recalled and not paid.cached:
            self.recalled += 1
            self.recalled_s += paid.latency_ms / 1000

    def add_results(self, turn: ModelTurn, results: Sequence[ToolResult]) -> None:
        """Add the results of the tools that a step called."""
        self.messages = with_results(self.messages, turn, results)

    def elapsed(self, working: float) -> float:
        """Return the seconds of work so far.

        Args:
            working: Seconds of work in the current run of its job.
        """
        return self.recalled_s + self.worked_s + working

    @property
    def used(self) -> JudgeUsage:
        """The usage of all replies, and of failed calls."""
        replies = (
            JudgeUsage(usage=one.usage, cost=one.cost)
            for one in (*self.empty_replies, *self.replies)
        )
        return JudgeUsage.sum((*replies, self.failures.total))

    def reply(self) -> Reply | None:
        """Return the last reply, with the usage of all of them; None before the first."""
        every = [*self.empty_replies, *self.replies]
        if len(every) <= 1:
            return every[0] if every else None
        costs = [reply.cost for reply in every if reply.cost is not None]
        return attrs.evolve(
            every[-1],
            usage=Usage.sum(reply.usage for reply in every),
            cost=math.fsum(costs) if costs else None,
        )


# Validation of the arguments of a call against the tool's parameters.


def arguments_of(
    call: ToolCall, functions: Sequence[OfferedFunction]
) -> Mapping[str, Any] | ToolResult:
    """Return the arguments of a call; or, if they are invalid, an error for its model.

    Args:
        call: The call.
        functions: The offered functions.

    Example:
        >>> clock = OfferedFunction("clock", {"type": "object"})
        >>> arguments_of(ToolCall("clock", '{"zone": "UTC"}'), [clock])
        {'zone': 'UTC'}
        >>> arguments_of(ToolCall("watch", "{}"), [clock]).failed
        True
    """
    # Some services leave out the arguments of a function without parameters.
    arguments = call.arguments if call.arguments not in (None, "") else {}
    try:
        fault = call_fault(FunctionCall(call.name, arguments), functions)
        if isinstance(arguments, str) and fault is None:
            arguments = parse_json(arguments)
    except (UndeclaredError, GradingError) as error:
        fault = str(error)
    if fault is None and isinstance(arguments, Mapping):
        return arguments
    fault = fault or "has arguments that are not an object"
    return ToolResult(f"the call of {call.name} {fault}", failed=True)
