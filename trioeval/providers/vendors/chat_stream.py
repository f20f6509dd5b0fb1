"""A streamed chat completion, put together to the one that it would have been without streaming.

Pure. A stream is chunks, each with a `delta` of some choice's message: texts are added to texts, tool calls
to those of the same index, and of everything else the last word stands. The stream is whole when it says
`[DONE]`; one that ends before was cut off, perhaps within a chunk.
"""

from collections.abc import Iterable
from typing import Any

import attrs

from trioeval.providers.answers import field, objects
from trioeval.providers.config import is_integer
from trioeval.providers.server_events import ServerEvent
from trioeval.providers.vendors.streams import Texts, load_event

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
    choices, is_whole = _Choices(), True
    for event in events:
        if event.data.strip() == END:
            finished = {"object": "chat.completion", "choices": choices.finish()}
            return completion | finished if is_whole else {}
        chunk = load_event(event)
        if not isinstance(chunk, dict):
            is_whole = False
            continue
        if event.name == "error" or chunk.get("error"):
            return chunk if chunk.get("error") else {"error": chunk or event.name}
        for choice in objects(chunk, "choices"):
            choices.add(choice)
        completion |= {name: value for name, value in chunk.items() if value not in (None, "", [])}
    return None


@attrs.define
class _Choices:
    """The choices of a completion in the making."""

    _by_index: dict[int, dict[str, Any]] = attrs.field(factory=dict)
    _texts: Texts = attrs.field(factory=Texts)

    def add(self, part: dict[str, Any]) -> None:
        """What a chunk says of a choice."""
        index: Any = part.get("index")
        index = index if is_integer(index) else 0
        choice = self._by_index.setdefault(index, {"index": index, "message": {}})
        # Some services repeat the message so far in every chunk; the deltas say the same.
        delta = {"message": part.get("delta") or {}}
        told = {name: part[name] for name in part if name not in ("index", "delta")}
        self._join(choice, told | delta)

    def finish(self) -> list[dict[str, Any]]:
        """The choices in their order, as they are now."""
        self._texts.join()
        for choice in self._by_index.values():
            for call in objects(choice["message"], "tool_calls"):
                call.pop("index", None)
        return [self._by_index[index] for index in sorted(self._by_index)]

    def _join(self, whole: dict[str, Any], part: dict[str, Any], depth: int = 1) -> None:
        for name, value in part.items():
            match whole.setdefault(name), value:
                case (_, None) | (str(), ""):
                    pass
                case (None | list() as calls, list()) if name == "tool_calls":
                    whole[name] = self._join_calls(calls or [], value, depth)
                case dict() as old, dict() if depth < DEPTH:
                    self._join(old, value, depth + 1)
                case dict(), _ if name == "message":
                    pass
                case list() as old, list():
                    old += value
                case list() as old, str() if name == "content":
                    old += [{"type": "text", "text": value}] if value else []
                case str(), str() if name in JOINED:
                    self._texts.add(whole, name, value)
                case _:
                    whole[name] = value

    def _join_calls(self, calls: list[Any], parts: list[Any], depth: int) -> list[Any]:
        """The tool calls with what is added to them, by index; one without an index is whole, and new."""
        for part in parts:
            index = field(part, "index")
            same = [one for one in calls if is_integer(index) and field(one, "index") == index]
            if same:
                self._join(same[0], part, depth + 1)
            else:
                calls.append(part)
        return calls
