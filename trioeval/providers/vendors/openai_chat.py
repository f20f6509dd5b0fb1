"""OpenAI chat completions: a request to a body, a reply to an output."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.base import Media, Reply
from trioeval.providers.config import is_integer
from trioeval.providers.http.adapter import Adapter
from trioeval.providers.http.endpoint import Service
from trioeval.providers.http.replies import field, objects, read_number, text
from trioeval.providers.http.streams import ServerEvent, Texts, load_event
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.media import take_media
from trioeval.providers.messages import to_messages
from trioeval.providers.vendors.chat import (
    CALL_KEYS,
    ENTRY_KEYS,
    PARAMETERS,
    body_parameters,
    check_body,
    is_empty,
    read_extras,
    read_finish_reason,
    read_guardrails,
    read_log_probs,
    read_message,
    read_usage,
)
from trioeval.usage import Usage

# Joining of a streamed chat completion to the form that it has without streaming.
#
# Pure. A stream is chunks, each with a `delta` for the message of a choice: texts are appended, tool calls
# are joined by index, and for everything else the last value applies. The stream is complete at `[DONE]`; one
# that ends before was cut off, perhaps within a chunk.


END = "[DONE]"

OUTPUT_FIELDS = (
    "content",
    "refusal",
    "reasoning",
    "reasoning_content",
    "tool_calls",
    "function_call",
    "audio",
)
"""Fields of a delta that are part of the reply or of its reasoning."""

JOINED = frozenset(
    {"content", "refusal", "reasoning", "reasoning_content", "arguments", "transcript", "data"}
)
"""Texts that arrive in parts; other texts arrive complete."""

DEPTH = 4
"""Depth to which objects are joined: choice, message, tool call, function. Deeper ones arrive complete."""


def join_chunks(events: Iterable[ServerEvent]) -> dict[str, Any] | None:
    """Return the completion in the chunks of a stream; None if they end too early.

    A chunk with an error replaces the whole, and a chunk that is not an object makes the result empty.
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
    """The choices of a completion that is still arriving."""

    _by_index: dict[int, dict[str, Any]] = attrs.field(factory=dict)
    _texts: Texts = attrs.field(factory=Texts)

    def add(self, part: dict[str, Any]) -> None:
        """Add a chunk's part of a choice."""
        index: Any = part.get("index")
        index = index if is_integer(index) else 0
        choice = self._by_index.setdefault(index, {"index": index, "message": {}})
        # Some services repeat the message so far in every chunk; the deltas contain the same.
        delta = {"message": part.get("delta") or {}}
        reported = {name: part[name] for name in part if name not in ("index", "delta")}
        self._join(choice, reported | delta)

    def finish(self) -> list[dict[str, Any]]:
        """Return the choices in their order, as they are now."""
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
        """Return the tool calls joined with more parts by index; a part without an index is a new call."""
        for part in parts:
            index = field(part, "index")
            same = [one for one in calls if is_integer(index) and field(one, "index") == index]
            if same:
                self._join(same[0], part, depth + 1)
            else:
                calls.append(part)
        return calls


class ChatAdapter(Adapter):
    """Chat completions."""

    call_keys = CALL_KEYS
    entry_keys = ENTRY_KEYS
    default_keys = PARAMETERS
    path = "chat/completions"

    @classmethod
    def find_conflicts(cls, service: Service, layers: Sequence[Mapping[str, Any]]) -> list[Problem]:
        """See `check_body`."""
        return check_body(service, layers[-1])

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of the body besides model, messages and passthrough."""
        return body_parameters(
            self.endpoint.service, self.endpoint.model, self.given, self.defaults
        )

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the body without its messages."""
        body: dict[str, Any] = {"model": self.endpoint.model, **self.parameters}
        if self.streams:
            body["stream"] = True
            if "stream_options" not in self.endpoint.service.rejects:
                body["stream_options"] = {"include_usage": True}
        return {**body, **(self.given.get("passthrough") or {})}

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the messages."""
        return {"messages": to_messages(prompt)}

    def find_failure(self, reply: HttpReply, data: Mapping[str, Any]) -> HttpReply | None:
        """Return the failure of the whole, or of a choice, as a router reports a failed service behind it."""
        error = field(_first_choice(data), "error")
        if data.get("error") or not isinstance(error, dict):
            return super().find_failure(reply, data)
        return attrs.evolve(reply, body=json.dumps({"error": error}).encode())

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the first choice."""
        if data.get("choices") == []:
            raise self.failure("empty_reply", "the reply has no choice", reply)
        choice = _first_choice(data)
        message = field(choice, "message")
        if not isinstance(message, dict):
            raise self.failure("malformed_reply", "the reply is not a chat completion", reply)
        media = self._audio(message, reply)
        finish_reason = read_finish_reason(choice)
        form = field(self.body, "response_format")
        answer = read_message(
            message,
            finish_reason,
            as_json=isinstance(form, Mapping) and form.get("type") == "json_schema",
            show_thinking=self.show_thinking,
        )
        return attrs.evolve(
            answer,
            media=media,
            usage=read_usage(data),
            finish_reason=finish_reason,
            guardrails=read_guardrails(data, choice, finish_reason),
            log_probs=read_log_probs(choice),
            metadata=read_extras(data, message),
        )

    def _audio(self, message: Mapping[str, Any], reply: HttpReply) -> tuple[Media, ...]:
        """Return the audio of a message; its URI takes the place of its bytes."""
        audio = message.get("audio")
        if not isinstance(audio, dict) or not text(audio, "data"):
            return ()
        declared = text(audio, "format") or text(self.body, "audio", "format") or ""
        try:
            return (take_media(audio, "data", declared),)
        except ValueError as error:
            fault = f"the audio in the reply cannot be used: {error}"
            raise self.failure("malformed_reply", fault, reply, advice="") from None

    def usage(self, data: Mapping[str, Any]) -> Usage:
        """Return the token counts."""
        return read_usage(data)

    def is_empty(self, data: Mapping[str, Any]) -> bool:
        """Return whether the message is empty."""
        return is_empty(_first_choice(data)["message"])

    def cost(self, usage: Usage, data: Mapping[str, Any]) -> float | None:
        """Return the cost in US dollars: by the price of the tokens, else as the service reports it."""
        named = self.endpoint.service.cost_field
        if self.endpoint.price is not None or not named:
            return super().cost(usage, data)
        reported = read_number(field(data, *named))
        return reported if reported is None or reported >= 0 else None

    def has_output(self, event: ServerEvent, /) -> bool:
        """Return whether a chunk has a part of the reply, or of its reasoning."""
        deltas = (one.get("delta") for one in objects(load_event(event), "choices"))
        return any(field(delta, name) for delta in deltas for name in OUTPUT_FIELDS)

    def join(self, events: Iterable[ServerEvent]) -> dict[str, Any] | None:
        """See `join_chunks`."""
        return join_chunks(events)


def _first_choice(data: Mapping[str, Any]) -> Any:
    choices = data.get("choices")
    return choices[0] if choices and isinstance(choices, list) else None
