"""Gemini generateContent: a stream of replies that each hold a part, and the reply that they make.

Texts that follow each other become one, as they are without a stream; of what is not text the last word
stands. There is no mark at the end: a stream is whole when every candidate says why it finished, or when
the prompt was blocked.
"""

from collections.abc import Iterable
from typing import Any

from trioeval.providers.answers import count, field, objects, text
from trioeval.providers.server_events import ServerEvent
from trioeval.providers.vendors.streams import load_event

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
    for event in events:
        data = load_event(event)
        if not isinstance(data, dict):
            continue
        if data.get("error"):
            return data
        for candidate in objects(data, "candidates"):
            index = count(candidate, "index") or 0
            candidates[index] = _joined(candidates.get(index, {}), candidate)
        whole |= {name: value for name, value in data.items() if name != "candidates"}
    if candidates:
        whole["candidates"] = [candidates[index] for index in sorted(candidates)]
    finished = all(one.get("finishReason") for one in candidates.values())
    blocked = field(whole, "promptFeedback", "blockReason")
    return whole if blocked or (candidates and finished) else None


def _joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A candidate, with what came of it now."""
    joined = {**old, **new}
    contents = [one["content"] for one in (old, new) if isinstance(one.get("content"), dict)]
    if contents:
        parts: list[dict[str, Any]] = []
        for part in (part for content in contents for part in objects(content, "parts")):
            if parts and _continues(parts[-1], part):
                parts[-1] = {**parts[-1], **part, "text": parts[-1]["text"] + part["text"]}
            else:
                parts.append(part)
        joined["content"] = {**contents[-1], "parts": parts}
    results = [one.get("logprobsResult") for one in (old, new)]
    if all(isinstance(result, dict) for result in results):
        lists = {
            name: [one for result in results for one in objects(result, name)] for name in _IN_LISTS
        }
        joined["logprobsResult"] = {**new["logprobsResult"], **lists}
    return joined


def _continues(before: dict[str, Any], part: dict[str, Any]) -> bool:
    """Whether two parts are one text."""
    are_texts = all(
        isinstance(one.get("text"), str) and one.keys() <= _IN_TEXTS for one in (before, part)
    )
    return are_texts and bool(before.get("thought")) == bool(part.get("thought"))
