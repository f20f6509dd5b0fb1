"""Gemini generateContent: a stream of replies that each hold a part, and the reply that they make.

Texts that follow each other become one, as they are without a stream; of what is not text the last word
stands. There is no mark at the end: a stream is whole when every candidate says why it finished, or when
the prompt was blocked.
"""

from collections.abc import Iterable
from typing import Any

from trioeval.providers.answers import count, field, objects, text
from trioeval.providers.server_events import ServerEvent
from trioeval.providers.vendors.streams import Texts, load_event

_IN_TEXTS = frozenset({"text", "thought", "thoughtSignature"})
_IN_LISTS = ("chosenCandidates", "topCandidates")


def speaks(event: ServerEvent) -> bool:
    """Whether an event holds a part of the answer, or of its reasoning."""
    return any(
        part.keys() - _IN_TEXTS or text(part, "text")
        for candidate in objects(load_event(event), "candidates")
        for part in objects(candidate, "content", "parts")
    )


def read_reply(events: Iterable[ServerEvent]) -> dict[str, Any] | None:
    """The reply that a stream makes, or its error; None if it breaks off."""
    whole: dict[str, Any] = {}
    candidates: dict[int, dict[str, Any]] = {}
    texts = Texts()
    for event in events:
        data = load_event(event)
        if not isinstance(data, dict):
            continue
        if data.get("error"):
            return data
        for candidate in objects(data, "candidates"):
            _add(candidates.setdefault(count(candidate, "index") or 0, {}), candidate, texts)
        whole |= {name: value for name, value in data.items() if name != "candidates"}
    texts.join()
    if candidates:
        whole["candidates"] = [candidates[index] for index in sorted(candidates)]
    finished = all(one.get("finishReason") for one in candidates.values())
    blocked = field(whole, "promptFeedback", "blockReason")
    return whole if blocked or (candidates and finished) else None


def _add(whole: dict[str, Any], part: dict[str, Any], texts: Texts) -> None:
    """Put to a candidate what came of it now."""
    old, results = whole.get("content"), whole.get("logprobsResult")
    whole |= part
    if isinstance(content := part.get("content"), dict):
        parts = old["parts"] if isinstance(old, dict) else []
        for one in objects(content, "parts"):
            if parts and _continues(parts[-1], one):
                texts.add(parts[-1], "text", one.pop("text"))
                parts[-1] |= one
            else:
                parts.append(one)
        whole["content"] = {**content, "parts": parts}
    elif isinstance(old, dict):
        whole["content"] = old
    if isinstance(results, dict) and isinstance(more := part.get("logprobsResult"), dict):
        lists = {name: _extended(results.get(name), objects(more, name)) for name in _IN_LISTS}
        whole["logprobsResult"] = {**more, **lists}


def _extended(old: Any, more: list[Any]) -> list[Any]:
    """A list with more behind it; what is none is an empty one."""
    if not isinstance(old, list):
        return more
    old += more
    return old


def _continues(before: dict[str, Any], part: dict[str, Any]) -> bool:
    """Whether two parts are one text."""
    are_texts = all(
        isinstance(one.get("text"), str) and one.keys() <= _IN_TEXTS for one in (before, part)
    )
    return are_texts and bool(before.get("thought")) == bool(part.get("thought"))
