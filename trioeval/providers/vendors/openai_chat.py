"""OpenAI chat completions: a request to a body, a reply to an output."""

import json
import re
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.adapter import AdapterSettings
from trioeval.providers.answers import (
    FILTERED,
    NOT_JSON,
    count,
    failure,
    field,
    read_hint,
    read_json,
    read_metadata,
    read_object,
    read_refusal,
)
from trioeval.providers.base import Reply, Request, Usage
from trioeval.providers.config import (
    Key,
    is_flag,
    is_integer,
    is_json_list,
    is_json_object,
    is_number,
    is_text,
    read_config,
)
from trioeval.providers.endpoint import ENDPOINT_KEYS, Endpoint, Service, read_endpoint
from trioeval.providers.messages import to_messages
from trioeval.providers.server_events import ServerEvent
from trioeval.providers.wire import HttpReply, HttpRequest

DEFAULT_MAX_TOKENS = 1024

REASONING_MODEL = re.compile(r"o\d+(-|$)|gpt-5(?!(\.\d+)?-chat)")
"""Models that think before they answer: they take neither a temperature nor `max_tokens`."""


def _is_count(value: Any) -> bool:
    return is_integer(value) and value >= 1


def _is_stop(value: Any) -> bool:
    return isinstance(value, str) or (is_json_list(value) and all(map(is_text, value)))


def _is_choice(value: Any) -> bool:
    return is_text(value) or is_json_object(value)


PARAMETERS = (
    Key("temperature", "a number", is_number),
    Key("max_tokens", "a whole number of at least 1", _is_count),
    Key("max_completion_tokens", "a whole number of at least 1", _is_count),
    Key("top_p", "a number", is_number),
    Key("presence_penalty", "a number", is_number),
    Key("frequency_penalty", "a number", is_number),
    Key("seed", "a whole number", is_integer),
    Key("stop", "text or a list of texts", _is_stop),
    Key("response_format", "an object", is_json_object),
    Key("tools", "a list", is_json_list),
    Key("tool_choice", "text or an object", _is_choice),
    Key("parallel_tool_calls", "true or false", is_flag),
    Key("reasoning_effort", "text", is_text),
    Key("user", "text", is_text),
    Key("metadata", "an object", is_json_object),
)
"""Keys that go into the body under their own names."""

KEYS = (
    *PARAMETERS,
    *ENDPOINT_KEYS,
    Key("passthrough", "an object", is_json_object),
    Key("omitDefaults", "true or false", is_flag),
    Key("showThinking", "true or false", is_flag),
)


@attrs.frozen(kw_only=True)
class ChatAdapter:
    """One model, and all that its requests have in common."""

    endpoint: Endpoint
    parameters: Mapping[str, Any] = attrs.field(factory=dict)
    """What the body holds besides model and messages."""
    passthrough: Mapping[str, Any] = attrs.field(factory=dict)
    """Merged last, over everything."""
    show_thinking: bool = True
    streams: bool = False

    def build(self, request: Request, /) -> HttpRequest:
        """The HTTP request that asks the model.

        Raises:
            ProviderError: `bad_request`, if the prompt was meant to be messages and is not.
        """
        body = {
            "model": self.endpoint.model,
            "messages": to_messages(request.prompt),
            **self.parameters,
            **self.passthrough,
        }
        return HttpRequest(
            f"{self.endpoint.base_url}/chat/completions",
            self.endpoint.headers,
            json.dumps(body, separators=(",", ":")).encode(),
        )

    def parse(self, reply: HttpReply, /) -> Reply:
        """What the model answered.

        A prompt that the service refuses to take is a reply too (`is_refusal`).

        Raises:
            ProviderError: The reply tells of a failure, or is not a chat completion.
        """
        if (refused := read_refusal(self.endpoint, reply)) is not None:
            return refused
        data = read_object(self.endpoint, reply)
        choices = data.get("choices")
        if choices == []:
            raise failure("empty_reply", "the reply holds no choice", self.endpoint, reply)
        choice = choices[0] if isinstance(choices, list) else None
        message = field(choice, "message")
        if not isinstance(message, dict):
            what = "the reply is not a chat completion"
            raise failure("malformed_reply", what, self.endpoint, reply)
        reason = field(choice, "finish_reason")
        finish_reason = reason.lower() if isinstance(reason, str) else None
        usage = _usage(data.get("usage"))
        price = self.endpoint.price
        return Reply(
            output=self._output(message, finish_reason),
            usage=usage,
            hint=read_hint(self.endpoint, reply),
            cost=None if price is None else price.cost(usage),
            finish_reason=finish_reason,
            is_refusal=bool(message.get("refusal")) or finish_reason == "content_filter",
            raw=data,
            metadata=read_metadata(reply, data),
        )

    def speaks(self, event: ServerEvent, /) -> bool:
        """Whether an event holds a part of the answer, or of its reasoning."""
        raise NotImplementedError

    def _output(self, message: Mapping[str, Any], finish_reason: str | None) -> Any:
        content = message.get("content")
        calls = message.get("tool_calls") or message.get("function_call")
        if message.get("refusal"):
            return message["refusal"]
        if finish_reason == "content_filter":
            return content or FILTERED
        if calls:
            return dict(message) if content else calls
        if not isinstance(content, str):
            content = content or ""
        elif self._wants_json():
            data = read_json(content)
            if data is not NOT_JSON:
                return data
        thinking = message.get("reasoning") or message.get("reasoning_content")
        if self.show_thinking and isinstance(content, str) and isinstance(thinking, str):
            return f"Thinking: {thinking}\n\n{content}"
        return content

    def _wants_json(self) -> bool:
        form = {**self.parameters, **self.passthrough}.get("response_format")
        return isinstance(form, Mapping) and form.get("type") == "json_schema"


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
    passthrough = values.get("passthrough") or {}
    if passthrough.get("stream"):
        path = ".config.passthrough.stream"
        problems.append(Problem(path, "streamed replies cannot be read", "leave it out"))
    if endpoint is None or problems:
        return problems
    shown = values.get("show_thinking")
    return AdapterSettings(
        ChatAdapter(
            endpoint=endpoint,
            parameters=_parameters(model, values),
            passthrough=passthrough,
            show_thinking=True if shown is None else shown,
        )
    )


def is_reasoning(model: str) -> bool:
    """Whether a model thinks before it answers, by its name.

    Example:
        >>> is_reasoning("openai/o3-mini"), is_reasoning("gpt-4.1")
        (True, False)
    """
    name = model.removeprefix("ft:").rsplit("/", 1)[-1]
    return REASONING_MODEL.match(name) is not None


def _parameters(model: str, values: Mapping[str, Any]) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    if not (values.get("omit_defaults") or is_reasoning(model)):
        defaults["temperature"] = 0
        if values.get("max_completion_tokens") is None:
            defaults["max_tokens"] = DEFAULT_MAX_TOKENS
    given = {key.name: values[key.name] for key in PARAMETERS if key.name in values}
    return {name: value for name, value in (defaults | given).items() if value is not None}


def _usage(data: Any) -> Usage:
    return Usage(
        prompt=count(data, "prompt_tokens"),
        completion=count(data, "completion_tokens"),
        total=count(data, "total_tokens"),
        cached=count(data, "prompt_tokens_details", "cached_tokens"),
        reasoning=count(data, "completion_tokens_details", "reasoning_tokens"),
    )
