# Separate from `providers.vendors.openai`: one module for each API of the vendor.
"""OpenAI responses: a request to a body, a reply to an output."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.base import Guardrails, Media, Reply
from trioeval.providers.config import Key, is_flag
from trioeval.providers.http.adapter import Adapter, HttpProvider
from trioeval.providers.http.endpoint import Service
from trioeval.providers.http.polling import Polling, PollingProvider
from trioeval.providers.http.replies import FILTERED, count, field, objects, read_metadata, text
from trioeval.providers.http.streams import ServerEvent, load_event
from trioeval.providers.http.wire import HttpClient, HttpReply
from trioeval.providers.media import take_media
from trioeval.providers.vendors.chat import ENTRY_KEYS
from trioeval.providers.vendors.chat import PARAMETERS as CHAT_PARAMETERS
from trioeval.providers.vendors.openai_models import is_reasoning
from trioeval.providers.vendors.responses_messages import (
    CHAT,
    IMAGE_CALL,
    PARAMETERS,
    is_empty,
    merge,
    pick_defaults,
    read_annotations,
    read_finish_reason,
    read_log_probs,
    read_output,
    read_parts,
    read_usage,
    to_body,
    to_input,
)
from trioeval.usage import Usage

BACKGROUND = Polling("response", "responses", frozenset({"queued", "in_progress"}))
"""Responses in the background."""

# OpenAI responses: reading of an event stream.
#
# The last event of a stream contains the whole response, so nothing has to be joined; only the items of its
# output are taken from earlier events, if a service omits them at the end.


OUTPUT_FIELDS = frozenset(
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
"""Events with a part of the reply, or of its reasoning."""

ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""Events with the whole response."""


def read_response(events: Iterable[ServerEvent]) -> dict[str, Any] | None:
    """Return the response in a stream, in the form that it has without streaming.

    An error event becomes a response with only that `error`.

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


class ResponsesAdapter(Adapter):
    """The Responses API."""

    call_keys = PARAMETERS
    entry_keys = (
        *ENTRY_KEYS,
        Key("background", "true or false", is_flag),
        CHAT["omitDefaults"],
        CHAT["showThinking"],
    )
    default_keys = CHAT_PARAMETERS
    path = "responses"
    holder = "the response"
    limit_key = "max_output_tokens"

    @classmethod
    def find_conflicts(
        cls,
        service: Service,  # noqa: ARG003 - the same for every service
        layers: Sequence[Mapping[str, Any]],
    ) -> list[Problem]:
        """Return a problem if both streaming and background are requested."""
        if not (layers[-1].get("metrics") and layers[-1].get("background")):
            return []
        fault = "a response in the background has no time to the first token"
        return [Problem(".config.metrics", fault, "leave metrics or background out")]

    @property
    def needs_polls(self) -> bool:
        """True for responses in the background."""
        return bool(self.given.get("background"))

    def connect(self, client: HttpClient) -> HttpProvider:
        """Return a provider, which polls responses in the background."""
        if self.needs_polls:
            return PollingProvider(self, client, BACKGROUND)
        return super().connect(client)

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the body of a request without its input."""
        configured = self.given.get("is_reasoning_model")
        reasons = is_reasoning(self.endpoint.model) if configured is None else bool(configured)
        omit = bool(self.given.get("omit_defaults"))
        defaults = pick_defaults(self.defaults, reasons=reasons, omit=omit)
        body: dict[str, Any] = {"model": self.endpoint.model}
        body |= merge(map(to_body, (defaults, *self.layers)), reasons=reasons)
        if self.streams:
            body["stream"] = True
        if self.given.get("background"):
            body["background"] = True
        for layer in self.layers:
            body |= layer.get("passthrough") or {}
        return body

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the input."""
        return {"input": to_input(prompt)}

    def find_failure(self, reply: HttpReply, data: Mapping[str, Any]) -> HttpReply | None:
        """Return the error of a failed response; its other fields may be too large to be searched."""
        if not data.get("error"):
            return None
        return attrs.evolve(reply, body=json.dumps({"error": data["error"]}).encode())

    def fail(self, reply: HttpReply, data: Mapping[str, Any]) -> Reply:
        """Return the refusal in a failed response; raise any other failure."""
        refused = super().fail(reply, data)
        if not data:
            return refused
        return attrs.evolve(refused, raw=data, metadata=read_metadata(reply, data))

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the reply in the items of a finished response."""
        self._check(data, reply)
        items = objects(data, "output")
        media = self._images(items, reply)
        finish_reason = read_finish_reason(data, items)
        answer = read_parts(items)
        reason = answer.refusal
        is_filtered = finish_reason == "content_filter"
        is_refusal = is_filtered or reason is not None
        output = read_output(
            items,
            show_thinking=self.show_thinking,
            wants_json=reason is None and self._wants_json(data),
        )
        extras = {
            "service_tier": text(data, "service_tier"),
            "annotations": read_annotations(items),
        }
        if is_filtered and not output:
            output = FILTERED
        return Reply(
            output=output,
            media=media,
            text=FILTERED if output == FILTERED else answer.text or _only(media),
            tool_calls=answer.tool_calls,
            reasoning=answer.reasoning,
            refusal=(reason or FILTERED) if is_refusal else None,
            usage=read_usage(data.get("usage")),
            finish_reason=finish_reason,
            guardrails=Guardrails(flagged=True, flagged_output=True, reason=reason)
            if is_refusal
            else None,
            log_probs=read_log_probs(items),
            metadata={k: v for k, v in extras.items() if v},
        )

    def _images(self, items: Sequence[dict[str, Any]], reply: HttpReply) -> tuple[Media, ...]:
        """Return the images that the service's own tool made; their URIs take the place of their bytes."""
        made = [one for one in items if one.get("type") == IMAGE_CALL and text(one, "result")]
        try:
            return tuple(take_media(one, "result") for one in made)
        except ValueError as error:
            fault = f"the image in the reply cannot be used: {error}"
            raise self.failure("malformed_reply", fault, reply, advice="") from None

    def usage(self, data: Mapping[str, Any]) -> Usage:
        """Return the token counts."""
        return read_usage(data.get("usage"))

    def account(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the response in the last event that has one, or the body."""
        return super().account([part.get("response") or part for part in parts])

    def is_empty(self, data: Mapping[str, Any]) -> bool:
        """Return whether every item is empty."""
        return is_empty(objects(data, "output"))

    def has_output(self, event: ServerEvent, /) -> bool:
        """Return whether an event has a part of the reply; some services name the event only in its data."""
        if event.name == "message":
            return text(load_event(event), "type") in OUTPUT_FIELDS
        return event.name in OUTPUT_FIELDS

    def join(self, events: Iterable[ServerEvent]) -> dict[str, Any] | None:
        """See `read_response`."""
        return read_response(events)

    def _check(self, data: Mapping[str, Any], reply: HttpReply) -> None:
        """Raise unless the response is finished."""
        status = text(data, "status") or "completed"
        if status in ("failed", "cancelled"):
            raise self.failure("server", f"the response ended as {status}", reply)
        if status in BACKGROUND.unfinished:
            fault = f"the response is still {status}"
            raise self.failure("malformed_reply", fault, reply, advice="")
        if not isinstance(data.get("output"), list):
            raise self.failure("malformed_reply", "the reply is not a response", reply)

    def _wants_json(self, data: Mapping[str, Any]) -> bool:
        """Return whether the reply must match a JSON schema; the service repeats the requested format."""
        body = data if isinstance(data.get("text"), dict) else self.body
        return bool(field(body, "text", "format", "type") == "json_schema")


def _only(media: Sequence[Media]) -> str:
    """Return the text of a response that has only media."""
    return "\n".join(one.uri for one in media)
