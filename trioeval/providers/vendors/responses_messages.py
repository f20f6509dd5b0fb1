"""OpenAI responses: the body of a request, from prompt and config.

Configs are written for chat completions as often as for responses, so the names and forms of the former are
accepted too. Each layer (defaults, config, options of a call) is first converted to the form of the body on
its own, and only then merged over the previous one: a `max_tokens` of a call replaces a `max_output_tokens`
of the config.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from trioeval.providers.base import Reply, ToolCall
from trioeval.providers.config import Key, is_count, is_json_object, is_number, is_text, is_texts
from trioeval.providers.http.replies import (
    NOT_JSON,
    count,
    field,
    joined,
    objects,
    read_call,
    read_json,
    text,
)
from trioeval.providers.messages import OPENS_LIKE_JSON, to_messages
from trioeval.providers.vendors.chat import CALL_KEYS, DEFAULTS, REASONING_DEFAULTS, drop_sampling
from trioeval.usage import Usage

# OpenAI responses: from the text of a prompt to the input of a request.
#
# A prompt is a text, chat messages, or the service's own items. Messages are items too, except that function
# calls and their results are separate items, and that the parts of their content have other names.


def to_input(prompt: str) -> str | list[Any]:
    """Return the text itself, or the list of items in it.

    Raises:
        ProviderError: `bad_request`, if the text was meant to be messages and is invalid.

    Example:
        >>> to_input("Hello")
        'Hello'
        >>> to_input('[{"role": "tool", "tool_call_id": "c1", "content": "4"}]')
        [{'type': 'function_call_output', 'call_id': 'c1', 'output': '4'}]
    """
    items = _read_items(prompt)
    if items is not None:
        return items
    messages = to_messages(prompt)
    if messages == [{"role": "user", "content": prompt}]:
        return prompt
    return [item for message in messages for item in _to_items(message)]


def _read_items(prompt: str) -> list[Any] | None:
    """Return the items of a prompt if some are not messages; else None."""
    if not OPENS_LIKE_JSON.match(prompt):
        return None
    data = read_json(prompt)
    if not isinstance(data, list):
        return None
    are_items = all(
        isinstance(item, dict) and isinstance(item.get("role", item.get("type")), str)
        for item in data
    )
    if not are_items or all("role" in item for item in data):
        return None
    return [
        translated
        for item in data
        for translated in (_to_items(item) if "role" in item else [item])
    ]


def _to_items(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the items of a chat message."""
    content = message.get("content")
    if message["role"] == "tool":
        yield {
            "type": "function_call_output",
            "call_id": message.get("tool_call_id"),
            "output": _to_parts(content, "user"),
        }
        return
    calls = message.get("tool_calls")
    calls = calls if isinstance(calls, list) else []
    if content is not None or not calls:
        plain = {name: value for name, value in message.items() if name != "tool_calls"}
        if content is not None:
            plain["content"] = _to_parts(content, message["role"])
        yield plain
    for call in calls:
        yield _to_call(call)


def _to_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return call
    return {
        "type": "function_call",
        "call_id": call.get("id"),
        "name": function.get("name"),
        "arguments": function.get("arguments"),
    }


def _to_parts(content: Any, role: str) -> Any:
    if not isinstance(content, list):
        return content
    return [_to_part(part, role) if isinstance(part, dict) else part for part in content]


def _to_part(part: dict[str, Any], role: str) -> dict[str, Any]:
    """Convert a part of a content; parts that chat completions do not have are left unchanged."""
    kind = part.get("type")
    if kind == "text":
        return {**part, "type": "output_text" if role == "assistant" else "input_text"}
    inner = part.get(kind) if kind in ("image_url", "file") else None
    if kind == "image_url" and isinstance(inner, str):
        return {**part, "type": "input_image"}
    if kind == "image_url" and isinstance(inner, dict) and "url" in inner:
        more = {name: value for name, value in inner.items() if name != "url"}
        return {"type": "input_image", "image_url": inner["url"], **more}
    if kind == "file" and isinstance(inner, dict):
        return {"type": "input_file", **inner}
    return part


# OpenAI responses: from the items of a response to one output.
#
# Each item with content is one or more lines; the lines of all items, in order, are the output. Unknown items
# are skipped: the service adds new ones.


Item: TypeAlias = Mapping[str, Any]

CALLS = frozenset({"function_call", "custom_tool_call"})
"""Items that the caller has to answer."""

IMAGE_CALL = "image_generation_call"
"""The type of items with an image that the service's own tool made."""


def is_empty(items: Sequence[Item]) -> bool:
    """Return whether a response has no content at all; an empty text and an unknown item are content.

    Example:
        >>> is_empty([{"type": "reasoning", "summary": []}])
        True
        >>> is_empty([{"type": "message", "content": [{"type": "output_text", "text": ""}]}])
        False
    """
    return not any(map(_says_something, items))


def read_output(items: Sequence[Item], *, show_thinking: bool, wants_json: bool) -> Any:
    """Return the output: lines of text, or the data in a JSON message.

    Args:
        items: The items of the response.
        show_thinking: Whether the model's reasoning is part of the output.
        wants_json: Whether messages must match a JSON schema; text that is not JSON stays text.
    """
    if wants_json and not any(text(item, "type") in CALLS for item in items):
        data = read_json("\n".join(part for item in items for part in _message(item)))
        if data is not NOT_JSON:
            return data
    return "\n".join(
        line for item in items for line in _lines(item, show_thinking=show_thinking) if line
    )


def read_parts(items: Sequence[Item]) -> Reply:
    """Return the reply in the items of a response, without an output for anything but text and calls."""
    refusals = [text(part, "refusal") for part in _parts(items) if part.get("type") == "refusal"]
    thoughts = [text(part, "text") for item in items for part in _reasoning(item)]
    return Reply(
        text="\n".join(words for item in items for words in _message(item)),
        tool_calls=tuple(call for item in items for call in _calls(item)),
        reasoning=joined(thoughts, "\n"),
        refusal=joined(refusals[:1], ""),
    )


def read_log_probs(items: Sequence[Item]) -> tuple[float, ...] | None:
    """Return the natural logarithms of the tokens' probabilities; None if there are none."""
    found: list[Any] = [
        token.get("logprob")
        for part in _parts(items)
        if part.get("type") == "output_text"
        for token in objects(part, "logprobs")
    ]
    return tuple(one for one in found if is_number(one)) or None


def read_annotations(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Return the service's annotations of its texts: citations of pages and files."""
    return [note for part in _parts(items) for note in objects(part, "annotations")]


def read_finish_reason(data: Item, items: Sequence[Item]) -> str:
    """Return the reason why the response ended, as in `Reply.finish_reason`."""
    if data.get("status") == "incomplete":
        reason = text(data, "incomplete_details", "reason") or "length"
        return "length" if reason == "max_output_tokens" else reason.lower()
    return "tool_calls" if items and text(items[-1], "type") in CALLS else "stop"


def read_usage(data: Any) -> Usage:
    """Return the token counts of the field `usage`."""
    return Usage(
        prompt=count(data, "input_tokens"),
        completion=count(data, "output_tokens"),
        total=count(data, "total_tokens"),
        cached=count(data, "input_tokens_details", "cached_tokens"),
        cache_creation=count(data, "input_tokens_details", "cache_write_tokens"),
        reasoning=count(data, "output_tokens_details", "reasoning_tokens"),
    )


def _parts(items: Sequence[Item]) -> Iterator[dict[str, Any]]:
    for item in items:
        if item.get("type") == "message":
            yield from objects(item, "content")


def _says_something(item: Item) -> bool:
    match item.get("type"):
        case "message":
            return bool(objects(item, "content"))
        case "reasoning":
            return any(text(part, "text") for part in _thoughts(item))
        case _:
            return True


def _calls(item: Item) -> Iterator[ToolCall]:
    name = text(item, "name")
    if text(item, "type") in CALLS and name is not None:
        arguments = item.get("arguments" if item["type"] == "function_call" else "input")
        yield read_call(name, arguments, text(item, "call_id") or text(item, "id"))


def _reasoning(item: Item) -> list[dict[str, Any]]:
    return _thoughts(item) if item.get("type") == "reasoning" else []


def _thoughts(item: Item) -> list[dict[str, Any]]:
    """Return the parts of a reasoning item, of its summary if there is one."""
    return objects(item, "summary") or objects(item, "content")


def _message(item: Item) -> Iterator[str]:
    """Yield the texts of a message, or its refusal."""
    for part in _parts([item]):
        words = text(part, "refusal") if part.get("type") == "refusal" else text(part, "text")
        if words:
            yield words


def _lines(item: Item, *, show_thinking: bool) -> Iterator[str]:
    match item.get("type"):
        case "message":
            yield from _message(item)
        case "function_call" | "custom_tool_call":
            yield json.dumps(item, ensure_ascii=False)
        case "reasoning" if show_thinking:
            thoughts = "\n".join(filter(None, (text(part, "text") for part in _thoughts(item))))
            yield f"Thinking: {thoughts}" if thoughts else ""
        case "web_search_call":
            yield _line("Web search", _searched(item.get("action")))
        case "image_generation_call":
            yield text(item, "result") or ""
        case "code_interpreter_call":
            yield _line("Code interpreter", text(item, "code"))
        case "mcp_call":
            failed = item.get("error")
            title = f"MCP {text(item, 'name') or 'tool'}{' failed' if failed else ''}"
            yield _line(title, _plain(failed) if failed else text(item, "output"))
        case "mcp_list_tools":
            names = ", ".join(filter(None, (text(tool, "name") for tool in objects(item, "tools"))))
            yield _line(f"MCP tools of {text(item, 'server_label') or 'the server'}", names)
        case "mcp_approval_request":
            call = f"{text(item, 'name') or 'tool'} {text(item, 'arguments') or ''}"
            yield _line("MCP asks for approval", call)
        case _:
            pass


def _line(title: str, detail: str | None) -> str:
    """Return one line, whatever the detail is."""
    return " ".join(f"{title}: {detail or ''}".split()).removesuffix(":")


def _searched(action: Any) -> str | None:
    """Return the query, pattern or URL of a web search."""
    queries = field(action, "queries")
    listed = [one for one in queries if isinstance(one, str)] if isinstance(queries, list) else []
    place = text(action, "url")
    return text(action, "query") or "; ".join(listed) or text(action, "pattern") or place


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


LOG_PROBS = "message.output_text.logprobs"
"""The value of `include` that requests log probabilities."""

LIMITS = ("max_output_tokens", "max_completion_tokens", "max_tokens")
"""Names of the same limit; the first one that is set applies."""


def _is_passthrough(value: Any) -> bool:
    if not is_json_object(value) or "input" in value:
        return False
    return not (value.get("stream") or value.get("background"))


CHAT = {key.name: key for key in CALL_KEYS}
"""Keys of chat completions by name."""

PARAMETERS = (
    Key("instructions", "text", is_text),
    Key("max_output_tokens", "a whole number of at least 1", is_count),
    CHAT["max_completion_tokens"],
    CHAT["max_tokens"],
    CHAT["temperature"],
    CHAT["top_p"],
    Key("reasoning", "an object", is_json_object),
    CHAT["reasoning_effort"],
    Key("text", "an object", is_json_object),
    CHAT["response_format"],
    CHAT["verbosity"],
    CHAT["tools"],
    CHAT["tool_choice"],
    CHAT["parallel_tool_calls"],
    Key("max_tool_calls", "a whole number of at least 1", is_count),
    Key("include", "a list of texts", is_texts),
    CHAT["logprobs"],
    CHAT["top_logprobs"],
    Key("previous_response_id", "text", is_text),
    Key("truncation", "text", is_text),
    CHAT["metadata"],
    CHAT["store"],
    CHAT["service_tier"],
    CHAT["user"],
    CHAT["prompt_cache_key"],
    Key("passthrough", "an object without input, stream or background", _is_passthrough),
)
"""Keys of the body; they may differ for one call."""

_NAMES = frozenset(key.name for key in PARAMETERS)

_IN_PARTS = ("reasoning", "text")
"""Fields whose members are merged individually."""

_UNCHANGED = (
    _NAMES
    - {*LIMITS, *_IN_PARTS, "reasoning_effort", "response_format", "verbosity"}
    - {"tools", "tool_choice", "passthrough"}
)
"""Keys that go into the body unchanged, except `logprobs`."""


def pick_defaults(variables: Mapping[str, Any], *, reasons: bool, omit: bool) -> dict[str, Any]:
    """Return the parameters to send if the config does not set them.

    Args:
        variables: The defaults from the environment.
        reasons: Whether it is a reasoning model; its token limit has a separate variable, and other
            defaults do not apply to it.
        omit: Whether only the environment sets defaults.
    """
    values = {**({} if omit else DEFAULTS), **variables}
    return {
        name: value
        for name, value in values.items()
        if name in _NAMES and (name in REASONING_DEFAULTS) == reasons
    }


def to_body(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return one layer by the names of the body, with `logprobs`; None removes an earlier value.

    Example:
        >>> to_body({"max_tokens": 5, "reasoning_effort": "low", "user": None})
        {'user': None, 'max_output_tokens': 5, 'reasoning': {'effort': 'low'}}
    """
    body = {name: value for name, value in values.items() if name in _UNCHANGED}
    for name in LIMITS:
        if name in values:
            body["max_output_tokens"] = values[name]
            break
    _gather(body, values, "reasoning", effort="reasoning_effort")
    _gather(body, values, "text", format="response_format", verbosity="verbosity")
    form = (body.get("text") or {}).get("format")
    if form is not None:
        body["text"]["format"] = _unwrapped(form, "json_schema")
    if "tools" in values:
        tools = values["tools"]
        body["tools"] = tools and [_unwrapped(tool, "function") for tool in tools]
    if "tool_choice" in values:
        body["tool_choice"] = _unwrapped(values["tool_choice"], "function")
    return body


def merge(layers: Iterable[Mapping[str, Any]], *, reasons: bool) -> dict[str, Any]:
    """Return the body after all layers, without removed values.

    Args:
        layers: From `to_body`, the last one takes precedence.
        reasons: Whether it is a reasoning model; unless reasoning is switched off, it accepts neither
            a temperature nor `top_p`.

    Example:
        >>> merge([{"temperature": 0, "user": "a"}, {"user": None}], reasons=False)
        {'temperature': 0}
    """
    body: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            old = body.get(name)
            if name in _IN_PARTS and isinstance(old, dict) and isinstance(value, Mapping):
                body[name] = {**old, **value}
            else:
                body[name] = value
    for name in _IN_PARTS:
        if isinstance(body.get(name), dict):
            body[name] = {k: v for k, v in body[name].items() if v is not None} or None
    if body.pop("logprobs", None):
        included = body.get("include") or ()
        body["include"] = [*included, *({LOG_PROBS} - {*included})]
    if reasons:
        body = drop_sampling(body, (body.get("reasoning") or {}).get("effort"))
    return {name: value for name, value in body.items() if value is not None}


def _gather(body: dict[str, Any], values: Mapping[str, Any], name: str, **spellings: str) -> None:
    """Set a field whose members may also be separate keys, which take precedence."""
    members = {member: values[key] for member, key in spellings.items() if key in values}
    whole = values.get(name)
    if members or whole is not None:
        body[name] = {**(whole or {}), **members}
    elif name in values:
        body[name] = None


def _unwrapped(value: Any, kind: str) -> Any:
    """Return `{"type": kind, kind: {…}}` of chat completions with the inner members beside the type."""
    inner = value.get(kind) if isinstance(value, Mapping) else None
    if not isinstance(inner, Mapping) or value.get("type") != kind:
        return value
    return {**{name: one for name, one in value.items() if name != kind}, **inner, "type": kind}
