"""Prompts and replies as messages of OpenTelemetry's conventions, if the user enabled them. Pure."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trioeval.errors import ProviderError
from trioeval.providers import Reply
from trioeval.providers.messages import to_messages

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that enables them; by the conventions they are off without it."""

_WANTED = frozenset({"true", "1", "span_only", "span_and_event"})


def wants_content(environ: Mapping[str, str]) -> bool:
    """Return whether prompts, replies and reasons are recorded.

    Example:
        >>> (
        ...     wants_content({CAPTURE: "True"}),
        ...     wants_content({CAPTURE: "no_content"}),
        ...     wants_content({}),
        ... )
        (True, False, False)
    """
    return environ.get(CAPTURE, "").strip().lower() in _WANTED


def input_messages(prompt: str) -> str:
    """Return the prompt as JSON text.

    Example:
        >>> input_messages("Hello")
        '[{"role": "user", "parts": [{"type": "text", "content": "Hello"}]}]'
    """
    try:
        messages = to_messages(prompt)
    except ProviderError:  # the provider got the text unchanged in this case
        messages = [{"role": "user", "content": prompt}]
    return _json([_message(one) for one in messages])


def output_messages(reply: Reply) -> str:
    """Return the reply as JSON text.

    Example:
        >>> output_messages(Reply(output="Hi", finish_reason="stop"))
        '[{"role": "assistant", "parts": [{"type": "text", "content": "Hi"}], "finish_reason": "stop"}]'
    """
    message = {"role": "assistant", "parts": [*_parts(reply)]}
    return _json([{**message, "finish_reason": reply.finish_reason or "stop"}])


def _parts(reply: Reply) -> Iterator[dict[str, Any]]:
    """Yield the parts of a reply: reasoning, text or data, and tool calls."""
    if reply.reasoning:
        yield {"type": "reasoning", "content": reply.reasoning}
    if _is_calls(reply.output) and not reply.tool_calls:
        yield from map(_part, reply.output)
    elif not reply.tool_calls:
        yield _part(reply.answer)
    elif reply.text:
        yield _part(reply.text)
    for call in reply.tool_calls:
        known = _known(id=call.id, arguments=call.arguments)
        yield {"type": "tool_call", "name": call.name, **known}


def _is_calls(output: Any) -> bool:
    """Return whether a reply consists of tool calls only."""
    return (
        isinstance(output, list)
        and bool(output)
        and all(isinstance(one, Mapping) and one.get("type") == "function" for one in output)
    )


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    content, role = message.get("content"), str(message.get("role", "user"))
    several = content if isinstance(content, list) else [] if content is None else [content]
    parts = [_part(one) for one in several]
    if role == "tool":
        part = {"type": "tool_call_response", "response": content}
        parts = [part | _known(id=message.get("tool_call_id"))]
    calls = message.get("tool_calls")
    parts += map(_part, calls if isinstance(calls, list) else ())
    return {"role": role, "parts": parts}


def _part(content: Any) -> dict[str, Any]:
    match content:
        case {"type": "function", "function": {"name": str(name), **function}, **call}:
            more = _known(id=call.get("id"), arguments=function.get("arguments"))
            return {"type": "tool_call", "name": name, **more}
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "content": text}
        case str():
            return {"type": "text", "content": content}
        case _:
            return {"type": "text", "content": _json(content)}


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
