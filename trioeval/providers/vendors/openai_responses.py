# Apart from `providers.vendors.openai`: one module an API of the vendor.
"""OpenAI responses: a request to a body, a reply to an output."""

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import Any
from urllib.parse import quote

import attrs
import trio

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Guardrails, Provider, Reply, Request
from trioeval.providers.cache_key import Question
from trioeval.providers.config import Key, Settings, Shared, is_flag, read_config
from trioeval.providers.http.adapter import (
    Adapter,
    AdapterSettings,
    ServerEvent,
    ask_for,
    read_reply,
)
from trioeval.providers.http.endpoint import ENDPOINT_KEYS, Endpoint, Service, read_endpoint
from trioeval.providers.http.replies import (
    FILTERED,
    NOT_JSON,
    count,
    empty,
    failure,
    field,
    is_success,
    objects,
    read_failure,
    read_hint,
    read_json,
    read_metadata,
    text,
)
from trioeval.providers.http.wire import HttpClient, HttpReply, HttpRequest
from trioeval.providers.vendors.chat import ENTRY_KEYS, read_variables
from trioeval.providers.vendors.openai_models import is_reasoning
from trioeval.providers.vendors.responses_messages import (
    CHAT,
    PARAMETERS,
    is_empty,
    merge,
    pick_defaults,
    read_annotations,
    read_finish_reason,
    read_log_probs,
    read_output,
    read_refusal_text,
    read_usage,
    to_body,
    to_input,
)
from trioeval.providers.vendors.streams import PreparedBody, join_stream, load_event, read_options
from trioeval.usage import Usage

# OpenAI responses that are made in the background: asked for, looked after, and stopped if unwanted.
#
# The service answers at once with an id, under which the response is fetched until it is finished. Whoever
# stops waiting for it tells the service so, because it would go on, and charge for it. Only a response whose
# id never arrived cannot be stopped.


PERIOD = 1.0
"""Seconds between two looks at a response."""

CANCEL_GRACE = 10.0
"""Seconds that stopping a response may take."""

UNFINISHED = frozenset({"queued", "in_progress"})
"""Statuses of a response that is still being made."""


@attrs.frozen
class BackgroundSettings:
    """The settings of a provider whose responses are made in the background."""

    adapter: Adapter

    @property
    def lane_key(self) -> str:
        """That of the endpoint."""
        return self.adapter.endpoint.lane_key

    @property
    def secrets(self) -> tuple[str, ...]:
        """Those of the endpoint."""
        return self.adapter.endpoint.secrets

    @asynccontextmanager
    async def open(self, shared: Shared) -> AsyncGenerator[Provider]:
        """The adapter with the client of the run."""
        yield BackgroundProvider(self.adapter, await shared.http())


@attrs.frozen
class BackgroundProvider:
    """Asks a service that answers later."""

    adapter: Adapter
    _client: HttpClient = attrs.field(repr=False)

    async def __call__(self, request: Request, /) -> Reply:
        """Answer one request. A checkpoint, unless the prompt cannot be sent.

        A look that fails is a failure of the call, and stops the response: only the lane repeats.

        Raises:
            ProviderError: See `Adapter.build`, `Adapter.parse` and `HttpClient.send`; or
                `attempt_timeout`.
        """
        endpoint = self.adapter.endpoint
        most = endpoint.max_reply_bytes
        ready = attrs.evolve(self.adapter.build(request), max_reply_bytes=most)
        timeout = endpoint.timeout
        with trio.move_on_after(timeout):
            reply = await self._client.send(ready)
            response_id = read_unfinished(reply)
            if response_id:
                reply = await self._wait_finished(f"responses/{quote(response_id, safe='')}")
            return await read_reply(self.adapter, reply)
        msg = f"no finished response within {timeout:g} seconds (timeoutMs)"
        raise ProviderError("attempt_timeout", msg)

    def cache_question(self, request: Request, /) -> Question:
        """See `Cacheable`."""
        return ask_for(self.adapter, request)

    async def _wait_finished(self, path: str) -> HttpReply:
        """The reply that tells of the finished response, or of a failure."""
        endpoint = self.adapter.endpoint
        look = HttpRequest(
            endpoint.url(path),
            endpoint.headers,
            None,
            "GET",
            max_reply_bytes=endpoint.max_reply_bytes,
        )
        stop = HttpRequest(endpoint.url(f"{path}/cancel"), endpoint.headers, b"{}")
        is_finished = False
        try:
            while True:
                await trio.sleep(PERIOD)
                reply = await self._client.send(look)
                if read_unfinished(reply) is None:
                    is_finished = is_success(reply)
                    return reply
        finally:
            if not is_finished:
                # The service must hear of it even when the run is cancelled, or it goes on for money.
                with trio.move_on_after(CANCEL_GRACE, shield=True), suppress(ProviderError):
                    await self._client.send(stop)


def read_unfinished(reply: HttpReply) -> str | None:
    """The id of the response that a reply tells of, if that is still being made.

    Returns:
        "" if it has none; None if there is no such response.
    """
    data = read_json(reply.body) if is_success(reply) else None
    return (text(data, "id") or "") if text(data, "status") in UNFINISHED else None


# OpenAI responses: a stream of events, and the response that it tells of.
#
# The event that ends a stream holds the whole response, so nothing has to be put together from pieces; only
# the items of its output are taken from the events before, if a service leaves them out at the end.


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


KEYS = (
    *PARAMETERS,
    *ENTRY_KEYS,
    Key("background", "true or false", is_flag),
    CHAT["omitDefaults"],
    CHAT["showThinking"],
    *ENDPOINT_KEYS,
)
"""All keys of an entry."""


@attrs.frozen(kw_only=True, slots=False)
class ResponsesAdapter:
    """One model, and all that its requests have in common."""

    endpoint: Endpoint
    reasons: bool = False
    """Whether the model thinks before it answers."""
    layers: tuple[Mapping[str, Any], ...] = attrs.field(default=(), repr=False)
    """What the body holds besides model and input, from `to_body`, the strongest last."""
    passthrough: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """Merged last, over everything."""
    show_thinking: bool = True
    streams: bool = False
    background: bool = False
    """Whether the service answers at once, and goes on by itself."""

    def with_options(self, options: Mapping[str, Any]) -> "ResponsesAdapter":
        """The adapter for one call, some of whose keys are different.

        Raises:
            ProviderError: `bad_request`, if there are no such keys, or not with such values.
        """
        values = read_options(options, PARAMETERS)
        passthrough = {**self.passthrough, **(values.get("passthrough") or {})}
        return attrs.evolve(self, layers=(*self.layers, to_body(values)), passthrough=passthrough)

    def build(self, request: Request, /) -> HttpRequest:
        """The HTTP request that asks the model.

        Raises:
            ProviderError: `bad_request`, if the prompt was meant to be messages and is not, or if the
                options of the request are not right.
        """
        if request.options:
            return self.with_options(request.options).build(attrs.evolve(request, options={}))
        body = self._prepared.complete({"input": to_input(request.prompt)})
        return HttpRequest(self.endpoint.url("responses"), self.endpoint.headers, body)

    def parse(self, reply: HttpReply, /) -> Reply:
        """What the model answered.

        A prompt that the service refuses to take is a reply too (`is_refusal`).

        Raises:
            ProviderError: The reply tells of a failure, is not a response or not a finished one, or is one
                that holds nothing.
        """
        if not is_success(reply):
            return read_failure(self.endpoint, reply)
        reply = join_stream(self.endpoint, reply, read_response)
        data = self._data(reply)
        try:
            if data.get("error"):
                return self._read_error(reply, data)
            self._check(reply, data)
            return self._read(reply, data)
        except RecursionError:
            # Parsed it could still be; parts of it are written as JSON again.
            what = "the reply is nested too deeply"
            raise failure("malformed_reply", what, self.endpoint, reply) from None

    def speaks(self, event: ServerEvent, /) -> bool:
        """Whether an event holds a part of the answer, or of its reasoning."""
        return speaks(event)

    @cached_property
    def _fixed(self) -> dict[str, Any]:
        """The body of a request, but for its input."""
        own: dict[str, Any] = {"model": self.endpoint.model}
        own |= merge(self.layers, reasons=self.reasons)
        if self.streams:
            own["stream"] = True
        if self.background:
            own["background"] = True
        return {**own, **self.passthrough}

    @cached_property
    def _prepared(self) -> PreparedBody:
        return PreparedBody.of(self._fixed)

    def _data(self, reply: HttpReply) -> dict[str, Any]:
        data = read_json(reply.body)
        if data is NOT_JSON:
            raise failure("malformed_reply", "the reply is not JSON", self.endpoint, reply)
        if not isinstance(data, dict):
            raise failure("malformed_reply", "the reply is not a JSON object", self.endpoint, reply)
        return data

    def _read_error(self, reply: HttpReply, data: Mapping[str, Any]) -> Reply:
        """The refusal that a failed response is; or what it failed by, raised."""
        # The rest of a response may be too large to look for an error in.
        told = attrs.evolve(reply, body=json.dumps({"error": data["error"]}).encode())
        refused = read_failure(self.endpoint, told)
        usage = read_usage(data.get("usage"))
        return attrs.evolve(
            refused,
            usage=usage,
            cost=self._cost(usage),
            raw=data,
            metadata=read_metadata(reply, data),
        )

    def _check(self, reply: HttpReply, data: Mapping[str, Any]) -> None:
        """Raise unless it is a finished response."""
        status = text(data, "status") or "completed"
        if status in ("failed", "cancelled"):
            raise failure("server", f"the response ended as {status}", self.endpoint, reply)
        if status in UNFINISHED:
            what = f"the response is still {status}"
            raise failure("malformed_reply", what, self.endpoint, reply)
        if not isinstance(data.get("output"), list):
            raise failure("malformed_reply", "the reply is not a response", self.endpoint, reply)

    def _read(self, reply: HttpReply, data: Mapping[str, Any]) -> Reply:
        items = objects(data, "output")
        finish_reason = read_finish_reason(data, items)
        refusal = read_refusal_text(items)
        is_filtered = finish_reason == "content_filter"
        output = read_output(
            items,
            show_thinking=self.show_thinking,
            wants_json=refusal is None and self._wants_json(data),
        )
        usage = read_usage(data.get("usage"))
        extras = {
            "service_tier": text(data, "service_tier"),
            "annotations": read_annotations(items),
        }
        answer = Reply(
            output=(output or FILTERED) if is_filtered else output,
            usage=usage,
            hint=read_hint(self.endpoint, reply),
            cost=self._cost(usage),
            finish_reason=finish_reason,
            is_refusal=is_filtered or refusal is not None,
            guardrails=Guardrails(flagged=True, flagged_output=True, reason=refusal)
            if is_filtered or refusal is not None
            else None,
            log_probs=read_log_probs(items),
            raw=data,
            metadata=read_metadata(reply, data) | {k: v for k, v in extras.items() if v},
        )
        if is_empty(items) and not is_filtered:
            limit = "max_output_tokens"
            raise empty("the response", answer, self.endpoint, reply, limit=limit)
        return answer

    def _wants_json(self, data: Mapping[str, Any]) -> bool:
        """Whether the answer was to be JSON by a schema; the service repeats what it was asked for."""
        asked = data if isinstance(data.get("text"), dict) else self._fixed
        return bool(field(asked, "text", "format", "type") == "json_schema")

    def _cost(self, usage: Usage) -> float | None:
        price = self.endpoint.price
        return None if price is None else price.cost(usage)


def read_responses(
    service: Service, model: str, config: Mapping[str, Any], environ: Mapping[str, str]
) -> Settings | list[Problem]:
    """Read the config of an entry.

    A null takes a default away: `temperature: null` sends none.

    Args:
        service: How the service is reached.
        model: The model's name, as the service knows it.
        config: The entry's config.
        environ: The environment; empty values count as absent.

    Returns:
        The settings, or everything that is wrong.

    Example:
        >>> from trioeval.providers.vendors.services import SERVICES
        >>> config = {"apiBaseUrl": "http://127.0.0.1:8080/v1", "max_tokens": 5}
        >>> settings = read_responses(SERVICES["openai"], "m-1", config, {})
        >>> settings.adapter.build(Request(prompt="2 + 2 = ?")).url
        'http://127.0.0.1:8080/v1/responses'
    """
    values, problems = read_config(config, KEYS)
    endpoint, faults = read_endpoint(service, model, values, environ)
    problems += faults
    variables, faults = read_variables(service, environ)
    problems += faults
    streams, background = bool(values.get("metrics")), bool(values.get("background"))
    if streams and background:
        fault = "a response that is made in the background has no first token to wait for"
        problems.append(Problem(".config.metrics", fault, "leave metrics or background out"))
    if endpoint is None or problems:
        return problems
    shown = values.get("show_thinking")
    said = values.get("is_reasoning_model")
    reasons = is_reasoning(model) if said is None else bool(said)
    defaults = pick_defaults(variables, reasons=reasons, omit=bool(values.get("omit_defaults")))
    own = {key.name: values[key.name] for key in PARAMETERS if key.name in values}
    adapter = ResponsesAdapter(
        endpoint=endpoint,
        reasons=reasons,
        layers=(to_body(defaults), to_body(own)),
        passthrough=values.get("passthrough") or {},
        show_thinking=True if shown is None else shown,
        streams=streams,
        background=background,
    )
    return BackgroundSettings(adapter) if background else AdapterSettings(adapter)
