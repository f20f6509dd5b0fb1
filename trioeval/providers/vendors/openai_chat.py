# Apart from `providers.vendors.openai`: one module an API of the vendor.
"""OpenAI chat completions: a request to a body, a reply to an output."""

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import attrs

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import is_integer, read_config
from trioeval.providers.http.adapter import AdapterSettings, ServerEvent
from trioeval.providers.http.endpoint import Endpoint, Service, read_endpoint
from trioeval.providers.http.replies import (
    empty,
    failure,
    field,
    objects,
    read_answer,
    read_failure,
    read_hint,
    read_metadata,
    read_number,
    text,
)
from trioeval.providers.http.wire import HttpReply, HttpRequest
from trioeval.providers.messages import to_messages
from trioeval.providers.vendors.chat import (
    CALL_KEYS,
    KEYS,
    OWN_NAMES,
    body_parameters,
    check_body,
    is_empty,
    read_extras,
    read_finish_reason,
    read_guardrails,
    read_log_probs,
    read_output,
    read_usage,
    read_variables,
)
from trioeval.providers.vendors.streams import (
    PreparedBody,
    Texts,
    join_stream,
    load_event,
    read_options,
)
from trioeval.usage import Usage

# A streamed chat completion, put together to the one that it would have been without streaming.
#
# Pure. A stream is chunks, each with a `delta` of some choice's message: texts are added to texts, tool calls
# to those of the same index, and of everything else the last word stands. The stream is whole when it says
# `[DONE]`; one that ends before was cut off, perhaps within a chunk.


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


@attrs.frozen(kw_only=True, slots=False)
class ChatAdapter:
    """One model, and all that its requests have in common."""

    endpoint: Endpoint
    values: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """What the entry says of its requests, by key in snake_case; None takes a default away."""
    variables: Mapping[str, Any] = attrs.field(factory=dict)
    """Defaults that the environment sets, likewise."""

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """What the body holds besides model and messages, and what is passed through."""
        endpoint = self.endpoint
        return body_parameters(endpoint.service, endpoint.model, self.values, self.variables)

    @cached_property
    def streams(self) -> bool:
        """Whether replies are asked for as streams, to time their first token."""
        return bool(self.values.get("metrics"))

    @property
    def show_thinking(self) -> bool:
        """Whether the model's reasoning stands before its text."""
        return self.values.get("show_thinking") is not False

    @cached_property
    def passthrough(self) -> Mapping[str, Any]:
        """Merged last, over everything."""
        return self.values.get("passthrough") or {}

    @cached_property
    def prepared(self) -> PreparedBody:
        """The body without its messages."""
        body: dict[str, Any] = {"model": self.endpoint.model, **self.parameters}
        if self.streams:
            body["stream"] = True
            if "stream_options" not in self.endpoint.service.rejects:
                body["stream_options"] = {"include_usage": True}
        return PreparedBody.of({**body, **self.passthrough})

    def with_options(self, options: Mapping[str, Any]) -> "ChatAdapter":
        """The adapter for one call, some of whose keys are different.

        Raises:
            ProviderError: `bad_request`, if there are no such keys for one call, or not with such values.
        """
        values = read_options(options, CALL_KEYS)
        problems = check_body(self.endpoint.service, values)
        if problems:
            told = "; ".join(
                f"{one.path.removeprefix('.config.')}: {one.message}" for one in problems
            )
            raise ProviderError("bad_request", f"the options of the call are not right: {told}")
        return attrs.evolve(self, values={**self.values, **values})

    def build(self, request: Request, /) -> HttpRequest:
        """The HTTP request that asks the model.

        Raises:
            ProviderError: `bad_request`, if the prompt was meant to be messages and is not, or the
                options of the call are wrong.
        """
        if request.options:
            own = self.with_options(request.options)
            return own.build(attrs.evolve(request, options={}))
        body = self.prepared.complete({"messages": to_messages(request.prompt)})
        return HttpRequest(self.endpoint.url("chat/completions"), self.endpoint.headers, body)

    def parse(self, reply: HttpReply, /) -> Reply:
        """What the model answered.

        A prompt that the service refuses to take is a reply too (`is_refusal`).

        Raises:
            ProviderError: The reply tells of a failure, is not a chat completion, or is one that holds
                nothing.
        """
        endpoint = self.endpoint
        reply = join_stream(endpoint, reply, join_chunks)
        data = read_answer(endpoint, reply)
        if isinstance(data, Reply):
            return data
        choices = data.get("choices")
        if choices == []:
            raise failure("empty_reply", "the reply holds no choice", endpoint, reply)
        choice = choices[0] if isinstance(choices, list) else None
        if (failed := field(choice, "error")) and isinstance(failed, dict):
            # Of a router, when the service behind it fails.
            told = attrs.evolve(reply, body=json.dumps({"error": failed}).encode())
            return read_failure(endpoint, told)
        message = field(choice, "message")
        if not isinstance(message, dict):
            what = "the reply is not a chat completion"
            raise failure("malformed_reply", what, endpoint, reply)
        finish_reason = read_finish_reason(choice)
        guardrails = read_guardrails(data, choice, finish_reason)
        usage = read_usage(data)
        answer = Reply(
            output=read_output(
                message,
                finish_reason,
                as_json=self._wants_json,
                show_thinking=self.show_thinking,
            ),
            usage=usage,
            hint=read_hint(endpoint, reply),
            cost=self._cost(data, usage),
            finish_reason=finish_reason,
            is_refusal=bool(text(message, "refusal")) or finish_reason == "content_filter",
            guardrails=guardrails,
            log_probs=read_log_probs(choice),
            raw=data,
            metadata=read_metadata(reply, data) | read_extras(data, message),
        )
        if is_empty(message) and not answer.is_refusal:
            raise empty("the message", answer, endpoint, reply, limit="max_tokens")
        return answer

    def speaks(self, event: ServerEvent, /) -> bool:
        """Whether an event holds a part of the answer, or of its reasoning."""
        return speaks(event)

    @cached_property
    def _wants_json(self) -> bool:
        form = {**self.parameters, **self.passthrough}.get("response_format")
        return isinstance(form, Mapping) and form.get("type") == "json_schema"

    def _cost(self, data: Any, usage: Usage) -> float | None:
        """US dollars: what the tokens cost by their price, else what the service says."""
        if self.endpoint.price is not None:
            return self.endpoint.price.cost(usage)
        named = self.endpoint.service.cost_field
        told = read_number(field(data, *named)) if named else None
        return told if told is None or told >= 0 else None


def read_chat(
    service: Service, model: str, config: Mapping[str, Any], environ: Mapping[str, str]
) -> AdapterSettings | list[Problem]:
    """Read the config of an entry.

    A null takes a default away: `temperature: null` sends none.

    Args:
        service: How the service is reached.
        model: The model's name, as the service knows it.
        config: The entry's config.
        environ: The environment; empty values count as absent.

    Returns:
        The settings, or everything that is wrong.
    """
    values, problems = read_config(config, KEYS)
    endpoint, faults = read_endpoint(service, model, values, environ)
    problems += faults
    variables, faults = read_variables(service, environ)
    problems += faults + check_body(service, values)
    if endpoint is None or problems:
        return problems
    # What the endpoint has read stays there: no credential is kept twice.
    own = {name: value for name, value in values.items() if name in OWN_NAMES}
    return AdapterSettings(ChatAdapter(endpoint=endpoint, values=own, variables=variables))
