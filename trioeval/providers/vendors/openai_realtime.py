"""OpenAI Realtime: one prompt and one response over a WebSocket of their own.

The session, the messages of the prompt and the request for a response are sent at once; the service handles
them in order. Its events are joined to one response, in the form of the Responses API, with the audio in
place of its parts. A call of a tool is the output, as in chat completions: nothing here runs one.
"""

import json
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import attrs
import trio

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Guardrails, Media, Reply, Request, ToolCall
from trioeval.providers.bounds import SLOW, check_marks
from trioeval.providers.config import (
    Key,
    ProviderResources,
    config_path,
    is_count,
    is_flag,
    is_json_list,
    is_json_object,
    is_positive,
    is_text,
    is_texts,
)
from trioeval.providers.http.adapter import (
    METRICS,
    Adapter,
    AdapterSettings,
    HttpProvider,
    read_reply,
)
from trioeval.providers.http.endpoint import Endpoint, Service
from trioeval.providers.http.rate_hints import read_hint
from trioeval.providers.http.replies import (
    FILTERED,
    NOT_JSON,
    attempt_timeout,
    count,
    field,
    is_success,
    objects,
    read_call,
    read_json,
    text,
)
from trioeval.providers.http.wire import (
    HttpReply,
    HttpRequest,
    WebClient,
    WebSocket,
    request_source,
)
from trioeval.providers.media import take_media
from trioeval.providers.metering import Metering
from trioeval.providers.other_keys import OtherKeys
from trioeval.providers.vendors.chat import read_function
from trioeval.providers.vendors.media_adapter import locate_media
from trioeval.providers.vendors.realtime_events import (
    RealtimeEvents,
    read_limits,
    realtime_price,
    words_of,
)
from trioeval.providers.vendors.responses_messages import to_input
from trioeval.usage import Usage

# The session, and the items of a prompt.


FORMATS: Mapping[str, Mapping[str, Any]] = {
    "pcm16": {"type": "audio/pcm", "rate": 24_000},
    "g711_ulaw": {"type": "audio/pcmu"},
    "g711_alaw": {"type": "audio/pcma"},
}
"""Formats of audio, by their names in the config."""

_RAW = ("pcm", *FORMATS)
_INSTRUCTIONS = "You are a helpful assistant."
_MILLISECONDS = "a number of milliseconds above 0"
_OWN_TOOLS = "the call of a tool itself is the output"


def _is_format(value: Any) -> bool:
    return value in FORMATS


def _is_modalities(value: Any) -> bool:
    return is_texts(value) and bool(value) and {*value} <= {"text", "audio"}


def _is_limit(value: Any) -> bool:
    return value == "inf" or is_count(value)


def _is_named(value: Any) -> bool:
    return is_text(value) or is_json_object(value)


def _is_passthrough(value: Any) -> bool:
    return is_json_object(value) and "items" not in value


def to_items(prompt: str) -> list[Any]:
    """Return the items of a conversation for a prompt: a text, chat messages, or items.

    Raises:
        ProviderError: `bad_request`, if it was meant to be messages and is invalid, or has audio in a file.

    Example:
        >>> to_items('[{"role": "developer", "content": "Be brief."}]')[0]["role"]
        'system'
    """
    given = to_input(prompt)
    if isinstance(given, str):
        data = read_json(given) if given.lstrip().startswith("{") else None
        only = text(data, "prompt")
        return [_message({"role": "user", "content": given if only is None else only})]
    return [_message(item) if "role" in item else _result(item) for item in given]


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    role = "system" if item["role"] == "developer" else item["role"]
    content = item.get("content")
    if not isinstance(content, list):
        content = [{"type": "text", "text": content if isinstance(content, str) else ""}]
    kind = "output_text" if role == "assistant" else "input_text"
    return {
        "type": "message",
        "role": role,
        "content": [_part(part, kind) if isinstance(part, dict) else part for part in content],
    }


def _part(part: dict[str, Any], kind: str) -> dict[str, Any]:
    match part:
        case {"type": "text" | "input_text" | "output_text", "text": str(words)}:
            return {"type": kind, "text": words}
        case {"type": "input_audio", "input_audio": {"data": str(data), **more}}:
            declared = more.get("format", "pcm16")
            if declared not in _RAW:
                formats = " or ".join(FORMATS)
                msg = (
                    f"audio for the Realtime API must be {formats} without a header, got {declared}"
                )
                raise ProviderError("bad_request", msg)
            return {"type": "input_audio", "audio": data}
        case _:
            return part


def _result(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an item whose output is one text."""
    output = item.get("output")
    if not isinstance(output, list):
        return item
    return {**item, "output": "".join(text(part, "text") or "" for part in output)}


def _flat_tool(tool: Any) -> Any:
    """Return a tool in the API's own form."""
    function = read_function(tool)
    if function is None:
        return tool
    facts = attrs.asdict(function, filter=lambda _, value: value is not None)
    return {"type": "function", **facts}


def _flat_choice(choice: Any) -> Any:
    name = text(choice, "function", "name")
    return choice if name is None else {"type": "function", "name": name}


class RealtimeAdapter(Adapter):
    """The Realtime API. The body of its requests is the session, with the items of the prompt."""

    call_keys = (
        Key("modalities", 'a list of "text" and "audio"', _is_modalities),
        Key("instructions", "text", is_text),
        Key("voice", "text or an object", _is_named),
        Key("input_audio_format", " or ".join(FORMATS), _is_format),
        Key("output_audio_format", " or ".join(FORMATS), _is_format),
        Key("input_audio_transcription", "an object", is_json_object),
        Key("turn_detection", "an object", is_json_object),
        Key("max_response_output_tokens", 'a whole number of at least 1, or "inf"', _is_limit),
        Key("tools", "a list", is_json_list),
        Key("tool_choice", "text or an object", _is_named),
        Key("parallel_tool_calls", "true or false", is_flag),
        Key("reasoning", "an object", is_json_object),
        Key("passthrough", "an object without items", _is_passthrough),
    )
    entry_keys = (Key("websocketTimeout", _MILLISECONDS, is_positive), METRICS)
    other_keys = OtherKeys(
        names=dict.fromkeys(("max_output_tokens", "max_tokens"), "max_response_output_tokens"),
        ignored={
            "function_call_handler": _OWN_TOOLS,
            "maintain_context": "each call has a connection of its own; write earlier turns as messages",
            "max_tool_iterations": _OWN_TOOLS,
            "temperature": "the Realtime API has none; to send it nevertheless, write it in passthrough",
            "tool_call_timeout": _OWN_TOOLS,
        },
    )
    path = "realtime"
    holder = "the response"
    limit_key = "max_response_output_tokens"
    show_thinking = False

    @classmethod
    def locate(
        cls,
        service: Service,
        model: str,
        values: Mapping[str, Any],
        environ: Mapping[str, str],
    ) -> tuple[Endpoint | None, list[Problem]]:
        """Return the endpoint; its replies may be larger than texts."""
        wait = values.get("websocket_timeout")
        faults: list[Problem] = []
        if wait is not None and values.get("timeout_ms") is not None:
            both = '"timeoutMs" and "websocketTimeout" mean the same'
            faults.append(Problem(config_path("websocketTimeout"), both, "keep one of them"))
        if values.get("api_version") is not None and service.version_path is not None:
            fault = f"the Realtime API of {service.family} has no API version"
            faults.append(Problem(".config.apiVersion", fault, "leave it out"))
        given = values if wait is None else {**values, "timeout_ms": wait}
        endpoint, problems = locate_media(service, model, given, environ)
        return endpoint, [*faults, *problems]

    @property
    def url(self) -> str:
        """The URL of the WebSocket, which names the model."""
        url = self.endpoint.url(self.path)
        mark = "&" if "?" in url else "?"
        return f"ws{url.removeprefix('http')}{mark}model={quote(self.endpoint.model, safe='')}"

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the session."""
        given = {name: value for name, value in self.given.items() if value is not None}
        modalities = given.get("modalities", ("text", "audio"))
        heard = {
            name: given[key]
            for name, key in (
                ("transcription", "input_audio_transcription"),
                ("turn_detection", "turn_detection"),
            )
            if key in given
        }
        session: dict[str, Any] = {
            "type": "realtime",
            "model": self.endpoint.model,
            "output_modalities": ["audio" if "audio" in modalities else "text"],
            "instructions": given.get("instructions", _INSTRUCTIONS),
            "audio": {
                "input": {"format": FORMATS[given.get("input_audio_format", "pcm16")], **heard},
                "output": {
                    "format": FORMATS[self.audio_format],
                    "voice": given.get("voice", "alloy"),
                },
            },
            "max_output_tokens": given.get("max_response_output_tokens", "inf"),
        }
        if given.get("tools"):
            session["tools"] = [_flat_tool(one) for one in given["tools"]]
            session["tool_choice"] = _flat_choice(given.get("tool_choice", "auto"))
        for name in ("parallel_tool_calls", "reasoning"):
            if name in given:
                session[name] = given[name]
        for layer in self.layers:
            session |= layer.get("passthrough") or {}
        return session

    @property
    def audio_format(self) -> str:
        """The format of the audio in responses."""
        return self.given.get("output_audio_format") or "pcm16"

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the items of the prompt."""
        return {"items": to_items(prompt)}

    def ask(self, prompt: str) -> HttpRequest:
        """Return the request of the handshake, with the session and the items as its body."""
        return attrs.evolve(super().ask(prompt), method="GET")

    def succeeds(self, reply: HttpReply) -> bool:
        """Return whether the handshake succeeded."""
        return reply.status == HTTPStatus.SWITCHING_PROTOCOLS or is_success(reply)

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the texts, the audio and the calls in the items of a response."""
        if data.get("status") == "cancelled":
            raise self.failure("server", "the response ended as cancelled", reply, "")
        items = objects(data, "output")
        parts = [part for item in items for part in objects(item, "content")]
        try:
            media = tuple(
                take_media(part, "audio", self.audio_format)
                for part in parts
                if text(part, "audio")
            )
        except ValueError as error:
            fault = f"the audio in the reply cannot be used: {error}"
            raise self.failure("malformed_reply", fault, reply, "") from None
        words = "\n".join(filter(None, (words_of(part) for part in parts)))
        calls = tuple(_calls(items))
        reason = text(data, "status_details", "reason")
        finish_reason = {"max_output_tokens": "length"}.get(reason or "", reason)
        is_filtered = finish_reason == "content_filter"
        shown = words or (FILTERED if is_filtered else _uris(media))
        return Reply(
            text=shown if shown or not calls else None,
            tool_calls=calls,
            media=media,
            refusal=FILTERED if is_filtered else None,
            guardrails=Guardrails(flagged=True, flagged_output=True) if is_filtered else None,
            finish_reason=finish_reason or ("tool_calls" if calls else "stop"),
            usage=self.usage(data),
        )

    def is_empty(self, data: Mapping[str, Any]) -> bool:
        """Return whether a response has no part and no call."""
        items = objects(data, "output")
        return not any(one.get("type") == "function_call" or one.get("content") for one in items)

    def find_failure(self, reply: HttpReply, data: Mapping[str, Any]) -> HttpReply | None:
        """Return the error event, or that of a failed response."""
        error = data.get("error") or field(data, "status_details", "error")
        if not error and data.get("status") == "failed":
            error = {"message": "the response failed", "type": "server_error"}
        if not error:
            return None
        return attrs.evolve(reply, body=json.dumps({"error": error}).encode())

    def usage(self, data: Mapping[str, Any]) -> Usage:
        """Return the token counts."""
        usage = data.get("usage")
        return Usage(
            prompt=count(usage, "input_tokens"),
            completion=count(usage, "output_tokens"),
            total=count(usage, "total_tokens"),
            cached=count(usage, "input_token_details", "cached_tokens"),
        )

    def cost(self, usage: Usage, data: Mapping[str, Any]) -> float | None:
        """Return the cost by the price in the config, else by the list prices of texts and audio."""
        if self.endpoint.price is not None:
            return super().cost(usage, data)
        listed = realtime_price(self.endpoint.model)
        return None if listed is None else listed.cost(data.get("usage") or {})

    def _completed(self, answer: Reply, reply: HttpReply, data: dict[str, Any]) -> Reply:
        limits = read_limits(data.pop("rate_limits", None))
        done = super()._completed(answer, reply, data)
        hint = read_hint({**reply.headers, **limits}, host=self.endpoint.host)
        return attrs.evolve(done, hint=hint)


def _uris(media: tuple[Media, ...]) -> str:
    return "\n".join(one.uri for one in media)


def _calls(items: list[dict[str, Any]]) -> Iterator[ToolCall]:
    for item in items:
        if item.get("type") == "function_call" and text(item, "name") is not None:
            yield read_call(item["name"], item.get("arguments"), text(item, "call_id"))


# The provider.


class RealtimeSettings(AdapterSettings):
    """The settings of a provider over the Realtime API."""

    @property
    def metering(self) -> Metering:
        """The limits of the session, with the prices of audio unless the config has others."""
        known = super().metering
        listed = realtime_price(self.endpoint.model)
        if known.price is not None or listed is None:
            return known
        return attrs.evolve(known, price=listed.audio)

    @asynccontextmanager
    async def open(self, shared: ProviderResources) -> AsyncGenerator["RealtimeProvider"]:
        """Open the adapter with the client of the run."""
        yield RealtimeProvider(self.adapter, await shared.http())


@attrs.frozen
class RealtimeProvider(HttpProvider):
    """A provider over the Realtime API: one connection for each call."""

    _client: WebClient = attrs.field(repr=False)

    async def _ask(self, adapter: Adapter, ready: HttpRequest, request: Request) -> Reply:  # noqa: ARG002
        timeout = adapter.endpoint.timeout
        reply: Reply | None = None
        with trio.move_on_after(timeout):
            async with self._client.connect(ready) as socket:
                if isinstance(socket, HttpReply):
                    reply = await read_reply(adapter, socket)
                else:
                    reply = await _converse(adapter, socket, ready.body or b"{}")
        if reply is None:
            source = request_source(ready.method, ready.url)
            raise attempt_timeout(source, timeout, "websocketTimeout or timeoutMs")
        return reply


async def _next_event(adapter: Adapter, socket: WebSocket) -> Mapping[str, Any]:
    """Return the next event of the service."""
    message = await socket.receive()
    reply = attrs.evolve(socket.reply, body=message.encode("utf-8", "replace"))
    check_marks(reply.body, adapter.endpoint.max_reply_bytes, source=reply.source)
    if len(message) < SLOW:
        event = read_json(message)
    else:  # abandoned when cancelled: the thread ends by itself
        event = await trio.to_thread.run_sync(read_json, message, abandon_on_cancel=True)
    if event is NOT_JSON or not isinstance(event, dict):
        raise adapter.failure("malformed_reply", "a message of the service is not JSON", reply)
    return event


async def _converse(adapter: Adapter, socket: WebSocket, body: bytes) -> Reply:
    session = json.loads(body)
    items = session.pop("items", [])
    started_at = trio.current_time()
    first_at: float | None = None
    await socket.send(json.dumps({"type": "session.update", "session": session}))
    for item in items:
        await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
    await socket.send(json.dumps({"type": "response.create"}))
    events = RealtimeEvents()
    try:
        while not events.add(await _next_event(adapter, socket)):
            if first_at is None and events.has_begun:
                first_at = trio.current_time()
    except ValueError as error:
        fault = f"the audio in the reply cannot be used: it is not valid base64: {error}"
        raise adapter.failure("malformed_reply", fault, socket.reply, "") from None
    # Abandoned when cancelled: the thread ends by itself.
    joined = (
        events.join()
        if events.size < SLOW
        else await trio.to_thread.run_sync(events.join, abandon_on_cancel=True)
    )
    reply = await read_reply(adapter, attrs.evolve(socket.reply, body=joined))
    if first_at is None or not adapter.streams:
        return reply
    return attrs.evolve(reply, first_token=first_at - started_at)


def read_realtime(
    service: Service, model: str, config: Mapping[str, Any], environ: Mapping[str, str]
) -> AdapterSettings | list[Problem]:
    """Read the config of an entry; see `Adapter.read_entry`."""
    found = RealtimeAdapter.read_entry(service, model, config, environ)
    if isinstance(found, list):
        return found
    return RealtimeSettings(found.adapter, warnings=found.warnings)
