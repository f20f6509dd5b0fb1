"""A streamed chat completion, put together to the one that it would have been without streaming.

Pure. A stream is chunks, each with a `delta` of some choice's message: texts are added to texts, tool calls
to those of the same index, and of everything else the last word stands. The stream is whole when it says
`[DONE]`; one that ends before was cut off.
"""

from collections.abc import Iterable
from typing import Any

from trioeval.providers.answers import field, objects
from trioeval.providers.config import is_integer
from trioeval.providers.server_events import ServerEvent
from trioeval.providers.vendors.streams import load_event

END = "[DONE]"

SPOKEN = (
    "content",
    "refusal",
    "reasoning",
    "reasoning_content",
    "tool_calls",
    "function_call",
    "audio",
)
"""Fields of a delta that are a part of the answer, or of its reasoning."""

JOINED = frozenset(
    {"content", "refusal", "reasoning", "reasoning_content", "arguments", "transcript", "data"}
)
"""Texts that come in parts; other texts come whole."""

DEPTH = 4
"""How deep objects are joined: choice, message, tool call, function. Deeper ones come whole."""


def speaks(event: ServerEvent) -> bool:
    """Whether a chunk holds a part of the answer, or of its reasoning."""
    deltas = (one.get("delta") for one in objects(load_event(event), "choices"))
    return any(field(delta, name) for delta in deltas for name in SPOKEN)


def join_chunks(events: Iterable[ServerEvent]) -> dict[str, Any] | None:
    """The completion that the chunks of a stream make; None if they end too early.

    A chunk that tells of an error stands for the whole, and one that is no object leaves nothing of it.
    """
    completion: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.data.strip() == END:
            return completion | {"object": "chat.completion", "choices": _finish(choices)}
        chunk = load_event(event)
        if not isinstance(chunk, dict):
            return {}
        if event.name == "error" or chunk.get("error"):
            return chunk if chunk.get("error") else {"error": chunk or event.name}
        for choice in objects(chunk, "choices"):
            _add_choice(choices, choice)
        completion |= {name: value for name, value in chunk.items() if value not in (None, "", [])}
    return None


def _finish(choices: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    for choice in choices.values():
        for call in objects(choice["message"], "tool_calls"):
            call.pop("index", None)
    return [choices[index] for index in sorted(choices)]


def _add_choice(choices: dict[int, dict[str, Any]], part: dict[str, Any]) -> None:
    index: Any = part.get("index")
    index = index if is_integer(index) else 0
    choice = choices.setdefault(index, {"index": index, "message": {}})
    # Some services repeat the message so far in every chunk; the deltas say the same.
    delta = {"message": part.get("delta") or {}}
    _add(choice, {name: part[name] for name in part if name not in ("index", "delta")} | delta)


def _add(whole: dict[str, Any], part: dict[str, Any], depth: int = 1) -> None:
    for name, value in part.items():
        whole[name] = _joined(name, whole.get(name), value, depth)


def _joined(name: str, old: Any, new: Any, depth: int) -> Any:
    """What a field is, of what it was and what a chunk adds."""
    match old, new:
        case _, None:
            return old
        case (None | list(), list()) if name == "tool_calls":
            return _add_calls(old or [], new, depth)
        case dict(), dict() if depth < DEPTH:
            _add(old, new, depth + 1)
            return old
        case dict(), _ if name == "message":
            return old
        case list(), list():
            return [*old, *new]
        case list(), str() if name == "content":
            return [*old, {"type": "text", "text": new}] if new else old
        case str(), str() if name in JOINED:
            return old + new
        case str(), "":
            return old
        case _:
            return new


def _add_calls(calls: list[Any], parts: list[Any], depth: int) -> list[Any]:
    """The tool calls with what is added to them, by index; one without an index is whole, and new."""
    for part in parts:
        index = field(part, "index")
        same = [one for one in calls if is_integer(index) and field(one, "index") == index]
        if same:
            _add(same[0], part, depth + 1)
        else:
            calls.append(part)
    return calls
