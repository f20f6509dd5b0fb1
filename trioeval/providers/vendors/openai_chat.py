"""OpenAI chat completions: a request to a body, a reply to an output."""

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs

from trioeval.errors import Problem, ProviderError
from trioeval.providers.adapter import AdapterSettings
from trioeval.providers.answers import (
    empty,
    failure,
    field,
    read_answer,
    read_failure,
    read_hint,
    read_metadata,
    read_number,
    text,
)
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import read_config
from trioeval.providers.endpoint import Endpoint, Service, read_endpoint
from trioeval.providers.messages import to_messages
from trioeval.providers.server_events import ServerEvent
from trioeval.providers.vendors.call_options import read_options
from trioeval.providers.vendors.chat_keys import (
    CALL_KEYS,
    KEYS,
    OWN_NAMES,
    body_parameters,
    check_body,
    read_variables,
)
from trioeval.providers.vendors.chat_reply import (
    is_empty,
    read_extras,
    read_finish_reason,
    read_guardrails,
    read_log_probs,
    read_output,
    read_usage,
)
from trioeval.providers.vendors.chat_stream import join_chunks, speaks
from trioeval.providers.vendors.prepared import PreparedBody
from trioeval.providers.vendors.streams import join_stream
from trioeval.providers.wire import HttpReply, HttpRequest
from trioeval.usage import Usage


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
