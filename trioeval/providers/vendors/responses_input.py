"""OpenAI responses: from the text of a prompt to the input of a request.

A prompt is a text, chat messages, or the items of the service itself. Messages are items too, except that
calls of functions and their results stand beside them, and that the parts of their content have other names.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from trioeval.providers.answers import read_json
from trioeval.providers.messages import OPENS_LIKE_JSON, to_messages


def to_input(prompt: str) -> str | list[Any]:
    """The text itself, or the list of items that it stands for.

    Raises:
        ProviderError: `bad_request`, if the text was meant to be messages and is not.

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
    """The items of a prompt that has some which are no messages; None if it has none."""
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
    """The items that a chat message is."""
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
    """A part of a content; what is not known from chat completions is left as it is."""
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
