"""OpenAI responses: a stream of events, and the response that it tells of.

The event that ends a stream holds the whole response, so nothing has to be put together from pieces; only
the items of its output are taken from the events before, if a service leaves them out at the end.
"""

from collections.abc import Iterable
from typing import Any

from trioeval.providers.answers import count, field, text
from trioeval.providers.server_events import ServerEvent
from trioeval.providers.vendors.streams import load_event

SPOKEN = frozenset(
    f"response.{what}.delta"
    for what in (
        "output_text",
        "refusal",
        "reasoning_text",
        "reasoning_summary_text",
        "function_call_arguments",
        "custom_tool_call_input",
    )
)
"""Events that hold a part of the answer, or of its reasoning."""

ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""Events that hold the whole response."""


def speaks(event: ServerEvent) -> bool:
    """Whether an event holds a part of the answer; some services name it in the data alone."""
    if event.name == "message":
        return text(load_event(event), "type") in SPOKEN
    return event.name in SPOKEN


def read_response(events: Iterable[ServerEvent]) -> dict[str, Any] | None:
    """The response that a stream tells of, as it would have come without one.

    An event of an error is a response with nothing but that `error`.

    Returns:
        None if the stream breaks off.
    """
    items: list[tuple[int, dict[str, Any]]] = []
    for event in events:
        data = load_event(event)
        kind = text(data, "type")
        if kind is None and field(data, "error"):
            return {"error": data["error"]}
        if kind == "error":
            return {"error": field(data, "error") or data}
        if kind == "response.output_item.done":
            place, item = count(data, "output_index"), field(data, "item")
            if isinstance(item, dict):
                items.append((len(items) if place is None else place, item))
        if kind in ENDS and isinstance(field(data, "response"), dict):
            response: dict[str, Any] = data["response"]
            if items and response.get("output") in (None, []):
                by_place = sorted(items, key=lambda placed: placed[0])
                return {**response, "output": [item for _, item in by_place]}
            return response
    return None
