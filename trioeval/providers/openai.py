"""OpenAI chat completions: a request to a body, a reply to an output.

`build` and `parse` are pure and hold all that is known of the format; `OpenAIProvider` sends one
request between them.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import attrs

from trioeval.errors import ProviderError, ProviderErrorKind
from trioeval.providers.base import Reply, Request, Usage
from trioeval.providers.classify import classify, excerpt, hide, read_body_error
from trioeval.providers.config import is_integer
from trioeval.providers.hints import read_hints
from trioeval.providers.messages import to_messages
from trioeval.providers.openai_settings import SECRET_HEADER, OpenAISettings
from trioeval.providers.wire import HttpClient, HttpReply
from trioeval.rates.hints import RateHint

REFUSED_PROMPT = frozenset({"content_filter", "invalid_prompt", "content_policy_violation"})
"""Codes of a 400 that is an answer: the service will not take this prompt."""

FILTERED = "[filtered by the provider]"
"""The output where a content filter left nothing."""

_NOT_JSON = object()


@attrs.frozen
class HttpRequest:
    """A request that is ready to be sent."""

    url: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")


def build(settings: OpenAISettings, request: Request) -> HttpRequest:
    """The HTTP request that asks a model.

    Raises:
        ProviderError: `bad_request`, if the prompt was meant to be messages and is not.
    """
    body = {
        "model": settings.model,
        "messages": to_messages(request.prompt),
        **settings.parameters,
        **settings.passthrough,
    }
    return HttpRequest(
        url=f"{settings.base_url}/chat/completions",
        headers=settings.headers,
        body=json.dumps(body, separators=(",", ":")).encode(),
    )


def parse(settings: OpenAISettings, reply: HttpReply) -> Reply:
    """What a model answered.

    A prompt that the service refuses to take is a reply too (`is_refusal`).

    Raises:
        ProviderError: The reply tells of a failure, or is not a chat completion.
    """
    if not HTTPStatus.OK <= reply.status < HTTPStatus.MULTIPLE_CHOICES:
        return _refused_prompt(settings, reply)
    data = _read_json(reply.body)
    if data is _NOT_JSON:
        raise _bad("malformed_reply", "the reply is not JSON", settings, reply)
    if _field(data, "error"):
        raise classify(reply, secrets=settings.secrets)
    choices = _field(data, "choices")
    if choices == []:
        raise _bad("empty_reply", "the reply holds no choice", settings, reply)
    choice = choices[0] if isinstance(choices, list) else None
    message = _field(choice, "message")
    if not isinstance(message, dict):
        raise _bad("malformed_reply", "the reply is not a chat completion", settings, reply)
    reason = _field(choice, "finish_reason")
    finish_reason = reason.lower() if isinstance(reason, str) else None
    refusal = message.get("refusal")
    return Reply(
        output=_output(settings, message, finish_reason),
        usage=_usage(_field(data, "usage")),
        hint=_hint(settings, reply),
        finish_reason=finish_reason,
        is_refusal=bool(refusal) or finish_reason == "content_filter",
        raw=data,
        metadata=_metadata(reply, data),
    )


@attrs.frozen
class OpenAIProvider:
    """Asks one model over HTTP."""

    settings: OpenAISettings
    _client: HttpClient = attrs.field(repr=False)

    async def __call__(self, request: Request, /) -> Reply:
        """Answer one request. A checkpoint, unless the prompt cannot be sent.

        Raises:
            ProviderError: See `build`, `parse` and `HttpClient.post_json`.
        """
        ready = build(self.settings, request)
        return parse(
            self.settings, await self._client.post_json(ready.url, ready.headers, ready.body)
        )


def _refused_prompt(settings: OpenAISettings, reply: HttpReply) -> Reply:
    found = read_body_error(reply.body)
    if reply.status != HTTPStatus.BAD_REQUEST or not found.codes & REFUSED_PROMPT:
        raise classify(reply, secrets=settings.secrets)
    return Reply(
        output=hide(found.message or FILTERED, settings.secrets),
        hint=_hint(settings, reply),
        finish_reason="content_filter",
        is_refusal=True,
        raw=_read_json(reply.body),
        metadata=_metadata(reply, {}),
    )


def _read_json(body: bytes) -> Any:
    """The parsed body, or a mark.

    Halves of surrogate pairs become "?": no file and no terminal takes them.
    """
    try:
        data = json.loads(body)
        if b"\\ud" in body or b"\\uD" in body:
            data = json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return _NOT_JSON
    return data


def _output(settings: OpenAISettings, message: Mapping[str, Any], finish_reason: str | None) -> Any:
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
    elif _wants_json(settings):
        data = _read_json(content.encode())
        if data is not _NOT_JSON:
            return data
    thinking = message.get("reasoning") or message.get("reasoning_content")
    if settings.show_thinking and isinstance(content, str) and isinstance(thinking, str):
        return f"Thinking: {thinking}\n\n{content}"
    return content


def _wants_json(settings: OpenAISettings) -> bool:
    form = {**settings.parameters, **settings.passthrough}.get("response_format")
    return isinstance(form, Mapping) and form.get("type") == "json_schema"


def _usage(data: Any) -> Usage:
    return Usage(
        prompt=_count(data, "prompt_tokens"),
        completion=_count(data, "completion_tokens"),
        total=_count(data, "total_tokens"),
        cached=_count(_field(data, "prompt_tokens_details"), "cached_tokens"),
        reasoning=_count(_field(data, "completion_tokens_details"), "reasoning_tokens"),
    )


def _hint(settings: OpenAISettings, reply: HttpReply) -> RateHint | None:
    hint = read_hints(reply.headers, host=urlsplit(settings.base_url).hostname or "")
    return None if hint == RateHint() else hint


def _count(data: Any, name: str) -> int | None:
    value = _field(data, name)
    return value if is_integer(value) and value >= 0 else None


def _field(data: Any, name: str) -> Any:
    """A field of what may or may not be an object."""
    return data.get(name) if isinstance(data, dict) else None


def _metadata(reply: HttpReply, data: Any) -> dict[str, Any]:
    headers = {
        name: value for name, value in reply.headers.items() if not SECRET_HEADER.search(name)
    }
    named = {name: data[name] for name in ("id", "model") if isinstance(_field(data, name), str)}
    return {"http": {"status": reply.status, "headers": headers}, **named}


def _bad(
    kind: ProviderErrorKind, message: str, settings: OpenAISettings, reply: HttpReply
) -> ProviderError:
    return ProviderError(
        kind, message, status=reply.status, body_excerpt=excerpt(reply.body, settings.secrets)
    )
