"""Anthropic messages: a request to a body, a reply to an output."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.base import Guardrails, Reply, ToolCall
from trioeval.providers.config import EntryContext, ProviderSettings, did_you_mean, nearest
from trioeval.providers.http.adapter import METRICS, Adapter
from trioeval.providers.http.endpoint import Service
from trioeval.providers.http.replies import (
    FILTERED,
    NOT_JSON,
    count,
    field,
    joined,
    objects,
    read_call,
    read_json,
    text,
)
from trioeval.providers.http.streams import ServerEvent, Texts, load_event
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.other_keys import ALIKE, OtherKeys
from trioeval.providers.vendors import anthropic_request as anthropic_body
from trioeval.providers.vendors.anthropic_request import read_conversation
from trioeval.providers.vendors.chat import PARAMETERS
from trioeval.usage import Usage

# Anthropic messages: joining of an event stream to one message.
#
# A message starts empty (`message_start`), its blocks start and grow by deltas, and facts that are known only
# at the end come with `message_delta`. Unknown events are ignored: the service may add some.


OUTPUT_FIELDS = ("text", "thinking", "partial_json")
"""Members of a delta that are part of the reply or of its reasoning."""


def read_message(events: Iterable[ServerEvent]) -> dict[str, Any] | None:
    """Return the message in a stream, or its error; None if the stream ends too early."""
    so_far = _StreamedMessage()
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
class _StreamedMessage:
    """A message that is still arriving."""

    fields: dict[str, Any] = attrs.field(factory=dict)
    _blocks: dict[int, dict[str, Any]] = attrs.field(factory=dict)
    _inputs: dict[int, list[str]] = attrs.field(factory=dict)
    """JSON texts of the tool inputs, in the parts that have arrived."""
    _texts: Texts = attrs.field(factory=Texts)

    def begin(self, data: dict[str, Any]) -> None:
        """Add a block with its initial content."""
        index = count(data, "index")
        if index is not None:
            self._blocks[index] = dict(data["content_block"])

    def grow(self, data: dict[str, Any]) -> None:
        """Append a part to a block."""
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
        """Add the reason why the message ended; counts are totals, so they replace earlier ones."""
        delta, usage = field(data, "delta"), field(data, "usage")
        if isinstance(delta, dict):
            self.fields |= delta
        if isinstance(usage, dict):
            old = self.fields.get("usage")
            known = {name: value for name, value in usage.items() if value is not None}
            self.fields["usage"] = {**(old if isinstance(old, dict) else {}), **known}

    def whole(self) -> dict[str, Any]:
        """Return the message as it is now."""
        self._texts.join()
        for index, parts in self._inputs.items():
            written = "".join(parts)
            value = read_json(written)
            self._blocks[index]["input"] = written if value is NOT_JSON else value
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        return {**self.fields, "content": blocks}


ANTHROPIC = Service(
    family="anthropic",
    default_url="https://api.anthropic.com",
    key_variables=("ANTHROPIC_API_KEY",),
    url_variables=("ANTHROPIC_BASE_URL",),
    host_path="",
    key_header="x-api-key",
    path="/v1",
    variables={
        "max_tokens": "ANTHROPIC_MAX_TOKENS",
        "temperature": "ANTHROPIC_TEMPERATURE",
    },
)

VERSION = "2023-06-01"
"""API version for the header."""

FINISH_REASONS: Mapping[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""Finish reasons by the service's own; others stay unchanged."""


class MessagesAdapter(Adapter):
    """The Messages API of Anthropic."""

    call_keys = anthropic_body.CALL_KEYS
    other_keys = OtherKeys(
        ignored={
            key.name: "it is a key of chat completions"
            for key in PARAMETERS
            if key.name not in {own.name for own in anthropic_body.CALL_KEYS}
        }
    )
    entry_keys = (METRICS,)
    default_keys = anthropic_body.PARAMETERS
    path = "messages"

    @classmethod
    def find_conflicts(
        cls,
        service: Service,  # noqa: ARG003 - the same for every service
        layers: Sequence[Mapping[str, Any]],
    ) -> list[Problem]:
        """Return duplicate keys in one layer, and a thinking budget that may use up the whole reply."""
        given = anthropic_body.merge(layers)
        return anthropic_body.find_conflicts(layers[-1]) + anthropic_body.check_budget(given)

    @cached_property
    def given(self) -> Mapping[str, Any]:
        """The merged layers; see `anthropic_request.merge`."""
        return anthropic_body.merge(self.layers)

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The endpoint's headers, the version, and the beta features that are requested or needed."""
        header = self.endpoint.headers.get("anthropic-beta", "")
        betas = [name.strip() for name in header.split(",") if name.strip()]
        betas += anthropic_body.list_betas(self.given, self.body)
        union = {"anthropic-beta": ",".join(dict.fromkeys(betas))} if betas else {}
        return {"anthropic-version": VERSION, **self.endpoint.headers, **union}

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the body without messages and system text."""
        body = anthropic_body.fixed_body(self.endpoint.model, self.given, self.defaults)
        return {**body, "stream": True} if self.streams else body

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the messages, and the system text if there is one."""
        conversation = read_conversation(prompt, self.given.get("system"))
        above = {} if conversation.system is None else {"system": conversation.system}
        return {**above, "messages": conversation.messages}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the reply in the blocks of the message."""
        if not isinstance(data.get("content"), list):
            raise self.failure("malformed_reply", "the reply is not a message", reply)
        stop = text(data, "stop_reason")
        refusal = _refusal(data) if stop == "refusal" else None
        blocks = objects(data, "content")
        output, words = self._output(blocks), _texts(blocks)
        reason = None if refusal is None else refusal.reason or FILTERED
        if not output and reason is not None:
            output = words = reason
        return Reply(
            output=output,
            text=words,
            tool_calls=tuple(_calls(blocks)),
            reasoning=joined((text(block, "thinking") for block in blocks), "\n\n"),
            refusal=reason,
            usage=_usage(data.get("usage")),
            finish_reason=None if stop is None else FINISH_REASONS.get(stop, stop.lower()),
            guardrails=refusal,
        )

    def usage(self, data: Mapping[str, Any]) -> Usage:
        """Return the token counts."""
        return _usage(data.get("usage"))

    @property
    def requested_tier(self) -> str | None:
        """None: the tier decides about capacity, and the price is that of the reply's tier."""
        return None

    def served_tier(self, data: Mapping[str, Any]) -> str | None:
        """Return the tier in the usage; the fast mode of a model has a price of its own, which is unknown."""
        usage = data.get("usage")
        return "fast mode" if text(usage, "speed") == "fast" else text(usage, "service_tier")

    def account(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the message as far as the events report its usage.

        The first event counts the output of the first moment, which is not that of the whole.
        """
        so_far = _StreamedMessage()
        for data in parts:
            begun = field(data, "message", "usage")
            so_far.end(
                {"usage": begun | {"output_tokens": None}} if isinstance(begun, dict) else data
            )
        return so_far.fields

    def is_empty(self, data: Mapping[str, Any]) -> bool:
        """Return whether every block is empty."""
        return not any(map(_says_something, objects(data, "content")))

    def has_output(self, event: ServerEvent, /) -> bool:
        """Return whether an event has a part of the reply, or of its reasoning."""
        if "content_block_delta" not in event.data:
            return False
        delta = field(load_event(event), "delta")
        return any(text(delta, name) for name in OUTPUT_FIELDS)

    def join(self, events: Iterable[ServerEvent]) -> dict[str, Any] | None:
        """See `read_message`."""
        return read_message(events)

    def _output(self, blocks: list[dict[str, Any]]) -> Any:
        if anthropic_body.wants_json(self.body):
            data = read_json("".join(filter(None, (text(block, "text") for block in blocks))))
            if data is not NOT_JSON:
                return data
        parts = [self._block_text(block) for block in blocks]
        return "\n\n".join(part for part in parts if part)

    def _block_text(self, block: Mapping[str, Any]) -> str | None:
        """Return a block as text; None if it has nothing to show."""
        match block.get("type"):
            case "text":
                return text(block, "text")
            case "thinking":
                thought = text(block, "thinking")
                return f"Thinking: {thought}" if thought and self.show_thinking else None
            case "redacted_thinking":
                return None
            case _:
                return json.dumps(block, ensure_ascii=False)


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> ProviderSettings | list[Problem]:
    """Read an entry `anthropic:messages:<model>` or `anthropic:<model>`; see `Reader`."""
    kind, colon, named = rest.partition(":")
    if colon and kind != "messages" and nearest(kind, ["messages"], ALIKE):
        hint = did_you_mean([f"{prefix}:messages:{named}"])
        return [Problem(".id", f'"{kind}" is not a kind of request', hint)]
    model = named if kind == "messages" else rest
    if not model.strip():
        hint = f"write {prefix}:messages:<model>"
        return [Problem(".id", f'"{prefix}:{rest}" has no model name', hint)]
    return MessagesAdapter.read_entry(ANTHROPIC, model, config, context.environ)


def _says_something(block: Mapping[str, Any]) -> bool:
    """Return whether a block has content other than redacted thinking; an empty text is content."""
    match block.get("type"):
        case "thinking":
            return text(block, "thinking") is not None
        case kind:
            return kind != "redacted_thinking"


def _texts(blocks: Iterable[Mapping[str, Any]]) -> str:
    texts = (text(block, "text") for block in blocks if block.get("type") == "text")
    return joined(texts, "\n\n") or ""


def _calls(blocks: Iterable[Mapping[str, Any]]) -> Iterator[ToolCall]:
    """Yield the calls that the caller has to answer; the service answers those of its own tools."""
    for block in blocks:
        name = text(block, "name")
        if block.get("type") == "tool_use" and name is not None:
            yield read_call(name, block.get("input"), text(block, "id"))


def _refusal(data: Mapping[str, Any]) -> Guardrails:
    details = data.get("stop_details")
    return Guardrails(
        flagged=True, reason=text(details, "explanation") or text(details, "category")
    )


def _usage(data: Any) -> Usage:
    """Return the token counts; the prompt has three, by their use of the cache."""
    plain, completion = count(data, "input_tokens"), count(data, "output_tokens")
    cached = count(data, "cache_read_input_tokens")
    written = count(data, "cache_creation_input_tokens")
    prompt = None if plain is None else plain + (cached or 0) + (written or 0)
    return Usage(
        prompt=prompt,
        completion=completion,
        total=None if prompt is None or completion is None else prompt + completion,
        cached=cached,
        cache_creation=written,
        reasoning=count(data, "output_tokens_details", "thinking_tokens"),
    )
