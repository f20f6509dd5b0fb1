"""Anthropic messages: a stream of events, and the message that it tells of.

A message begins empty (`message_start`), its blocks begin and grow by deltas, and what is known only at
the end comes with `message_delta`. What is not known here is left out: the service may add events.
"""

from collections.abc import Iterable
from typing import Any

import attrs

from trioeval.providers.answers import NOT_JSON, count, field, read_json, text
from trioeval.providers.server_events import ServerEvent
from trioeval.providers.vendors.streams import Texts, load_event

SPOKEN = ("text", "thinking", "partial_json")
"""Members of a delta that are a part of the answer, or of its reasoning."""


def speaks(event: ServerEvent) -> bool:
    """Whether an event holds a part of the answer, or of its reasoning."""
    if "content_block_delta" not in event.data:
        return False
    delta = field(load_event(event), "delta")
    return any(text(delta, name) for name in SPOKEN)


def read_message(events: Iterable[ServerEvent]) -> dict[str, Any] | None:
    """The message that a stream tells of, or its error; None if it breaks off."""
    so_far = _Message()
    for event in events:
        data = load_event(event)
        match text(data, "type"):
            case "error":
                error: dict[str, Any] = data
                return error
            case "message_start" if isinstance(field(data, "message"), dict):
                so_far.fields = dict(data["message"])
            case "content_block_start" if isinstance(field(data, "content_block"), dict):
                so_far.begin(data)
            case "content_block_delta":
                so_far.grow(data)
            case "message_delta":
                so_far.end(data)
            case "message_stop":
                return so_far.whole()
    return None


@attrs.define
class _Message:
    """A message in the making."""

    fields: dict[str, Any] = attrs.field(factory=dict)
    _blocks: dict[int, dict[str, Any]] = attrs.field(factory=dict)
    _inputs: dict[int, list[str]] = attrs.field(factory=dict)
    """JSON of the inputs of tools, in parts, as far as it has come."""
    _texts: Texts = attrs.field(factory=Texts)

    def begin(self, data: dict[str, Any]) -> None:
        """A block, with what it has from the beginning."""
        index = count(data, "index")
        if index is not None:
            self._blocks[index] = dict(data["content_block"])

    def grow(self, data: dict[str, Any]) -> None:
        """A part of a block."""
        index = count(data, "index")
        if index is None or index not in self._blocks:
            return
        block, delta = self._blocks[index], field(data, "delta")
        for name in ("text", "thinking", "signature"):
            if (part := text(delta, name)) is None:
                continue
            if isinstance(block.get(name), str):
                self._texts.add(block, name, part)
            else:
                block[name] = part
        if (part := text(delta, "partial_json")) is not None:
            self._inputs.setdefault(index, []).append(part)
        if (citation := field(delta, "citation")) is not None:
            if not isinstance(block.get("citations"), list):
                block["citations"] = []
            block["citations"].append(citation)

    def end(self, data: dict[str, Any]) -> None:
        """Why the message ended; counts are totals, so that those that come replace others."""
        delta, usage = field(data, "delta"), field(data, "usage")
        if isinstance(delta, dict):
            self.fields |= delta
        if isinstance(usage, dict):
            old = self.fields.get("usage")
            known = {name: value for name, value in usage.items() if value is not None}
            self.fields["usage"] = {**(old if isinstance(old, dict) else {}), **known}

    def whole(self) -> dict[str, Any]:
        """The message as it is now."""
        self._texts.join()
        for index, parts in self._inputs.items():
            written = "".join(parts)
            value = read_json(written)
            self._blocks[index]["input"] = written if value is NOT_JSON else value
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        return {**self.fields, "content": blocks}
