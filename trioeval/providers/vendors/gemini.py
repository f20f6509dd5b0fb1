# Apart from `providers.vendor_hosts`: one module a vendor, loaded when a suite names it.
"""Gemini generateContent: a request to a body, a reply to an output."""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import attrs

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import (
    Key,
    Settings,
    Surroundings,
    is_count,
    is_json_object,
    is_text,
    read_config,
    show,
    to_snake,
)
from trioeval.providers.http.adapter import AdapterSettings, ServerEvent
from trioeval.providers.http.endpoint import ENDPOINT_KEYS, Endpoint, Service, read_endpoint
from trioeval.providers.http.replies import (
    count,
    empty,
    failure,
    field,
    objects,
    read_answer,
    read_hint,
    read_metadata,
    read_number,
    text,
)
from trioeval.providers.http.wire import HttpReply, HttpRequest
from trioeval.providers.vendors import gemini_request as gemini_body
from trioeval.providers.vendors.gemini_reply import (
    IN_EVERY_REPLY,
    Answer,
    read_blocked,
    read_candidate,
    read_usage,
)
from trioeval.providers.vendors.gemini_request import read_contents
from trioeval.providers.vendors.streams import (
    PreparedBody,
    Texts,
    join_stream,
    load_event,
    read_options,
)
from trioeval.usage import Usage

# Gemini embedContent: a text to its vector.


CALL_KEYS = (
    Key("taskType", "text", is_text),
    Key("title", "text", is_text),
    Key("outputDimensionality", "a whole number of at least 1", is_count),
    Key("passthrough", "an object", is_json_object),
)
"""Keys that may differ from call to call."""

KEYS = (*CALL_KEYS, *ENDPOINT_KEYS)

_NAMES = {
    "task_type": "taskType",
    "title": "title",
    "output_dimensionality": "outputDimensionality",
}


@attrs.frozen(kw_only=True, slots=False)
class EmbedAdapter:
    """One model, and all that its requests have in common."""

    endpoint: Endpoint
    given: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """The checked config, by snake_case key."""
    streams: bool = attrs.field(default=False, init=False)
    show_thinking: bool = attrs.field(default=False, init=False)

    def with_options(self, options: Mapping[str, Any]) -> "EmbedAdapter":
        """The adapter for one call whose config differs in some keys.

        Raises:
            ProviderError: `bad_request`, if a key is not known or its value is wrong.
        """
        return attrs.evolve(self, given={**self.given, **read_options(options, CALL_KEYS)})

    def build(self, request: Request, /) -> HttpRequest:
        """The HTTP request for the vector of a prompt.

        Raises:
            ProviderError: `bad_request`, if an option of the call is wrong.
        """
        if request.options:
            return self.with_options(request.options).build(attrs.evolve(request, options={}))
        body = self._prepared.complete({"content": {"parts": [{"text": request.prompt}]}})
        url = self.endpoint.url(f"models/{self.endpoint.model}:embedContent")
        return HttpRequest(url, self.endpoint.headers, body)

    def parse(self, reply: HttpReply, /) -> Reply:
        """The vector, as a list of numbers.

        Raises:
            ProviderError: The reply tells of a failure, or holds no vector.
        """
        data = read_answer(self.endpoint, reply)
        if isinstance(data, Reply):
            return data
        values = field(data, "embedding", "values")
        vector = [read_number(value) for value in values] if isinstance(values, list) else []
        if not vector or None in vector:
            raise failure("malformed_reply", "the reply holds no vector", self.endpoint, reply)
        usage = read_usage(data)
        price = self.endpoint.price
        return Reply(
            output=vector,
            usage=usage,
            hint=read_hint(self.endpoint, reply),
            cost=None if price is None else price.cost(_paid(usage)),
            raw=data,
            metadata=read_metadata(reply, data),
        )

    def speaks(self, event: ServerEvent, /) -> bool:  # noqa: ARG002 - vectors are not streamed
        """No event does: a vector comes as a whole."""
        return False

    @cached_property
    def _prepared(self) -> PreparedBody:
        fixed = {name: self.given.get(key) for key, name in _NAMES.items()}
        known = {name: value for name, value in fixed.items() if value is not None}
        return PreparedBody.of(known | (self.given.get("passthrough") or {}))


def _paid(usage: Usage) -> Usage:
    """A vector costs by its text alone."""
    return attrs.evolve(usage, completion=0)


# Where the Gemini API is: its version is a part of the path.


VERSION = "v1beta"

GOOGLE = Service(
    family="google",
    default_url="https://generativelanguage.googleapis.com",
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    host_variables=("GOOGLE_API_HOST",),
    url_variables=("GOOGLE_API_BASE_URL",),
    host_path="",
    key_header="x-goog-api-key",
    path=f"/{VERSION}",
)


def read_google(
    model: str, values: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[Endpoint | None, list[Problem]]:
    """The endpoint that an entry means; its `apiVersion` stands in the path. See `read_endpoint`."""
    version = values.get("api_version") or VERSION
    rest = {name: value for name, value in values.items() if name != "api_version"}
    if not version.isalnum():
        fault = f"must be letters and digits, as {VERSION}, got {show(version)}"
        return None, [Problem(".config.apiVersion", fault)]
    return read_endpoint(attrs.evolve(GOOGLE, path=f"/{version}"), model, rest, environ)


# Gemini generateContent: a stream of replies that each hold a part, and the reply that they make.
#
# Texts that follow each other become one, as they are without a stream; of what is not text the last word
# stands. There is no mark at the end: a stream is whole when every candidate says why it finished, or when
# the prompt was blocked.


_IN_TEXTS = frozenset({"text", "thought", "thoughtSignature"})
_IN_LISTS = ("chosenCandidates", "topCandidates")


def speaks(event: ServerEvent) -> bool:
    """Whether an event holds a part of the answer, or of its reasoning."""
    return any(
        part.keys() - _IN_TEXTS or text(part, "text")
        for candidate in objects(load_event(event), "candidates")
        for part in objects(candidate, "content", "parts")
    )


def read_reply(events: Iterable[ServerEvent]) -> dict[str, Any] | None:
    """The reply that a stream makes, or its error; None if it breaks off."""
    whole: dict[str, Any] = {}
    candidates: dict[int, dict[str, Any]] = {}
    texts = Texts()
    for event in events:
        data = load_event(event)
        if not isinstance(data, dict):
            continue
        if data.get("error"):
            return data
        for candidate in objects(data, "candidates"):
            _add(candidates.setdefault(count(candidate, "index") or 0, {}), candidate, texts)
        whole |= {name: value for name, value in data.items() if name != "candidates"}
    texts.join()
    if candidates:
        whole["candidates"] = [candidates[index] for index in sorted(candidates)]
    finished = all(one.get("finishReason") for one in candidates.values())
    blocked = field(whole, "promptFeedback", "blockReason")
    return whole if blocked or (candidates and finished) else None


def _add(whole: dict[str, Any], part: dict[str, Any], texts: Texts) -> None:
    """Put to a candidate what came of it now."""
    old, results = whole.get("content"), whole.get("logprobsResult")
    whole |= part
    if isinstance(content := part.get("content"), dict):
        parts = old["parts"] if isinstance(old, dict) else []
        for one in objects(content, "parts"):
            if parts and _continues(parts[-1], one):
                texts.add(parts[-1], "text", one.pop("text"))
                parts[-1] |= one
            else:
                parts.append(one)
        whole["content"] = {**content, "parts": parts}
    elif isinstance(old, dict):
        whole["content"] = old
    if isinstance(results, dict) and isinstance(more := part.get("logprobsResult"), dict):
        lists = {name: _extended(results.get(name), objects(more, name)) for name in _IN_LISTS}
        whole["logprobsResult"] = {**more, **lists}


def _extended(old: Any, more: list[Any]) -> list[Any]:
    """A list with more behind it; what is none is an empty one."""
    if not isinstance(old, list):
        return more
    old += more
    return old


def _continues(before: dict[str, Any], part: dict[str, Any]) -> bool:
    """Whether two parts are one text."""
    are_texts = all(
        isinstance(one.get("text"), str) and one.keys() <= _IN_TEXTS for one in (before, part)
    )
    return are_texts and bool(before.get("thought")) == bool(part.get("thought"))


_MODEL = re.compile(r"[A-Za-z0-9._-]+")


@attrs.frozen(kw_only=True, slots=False)
class GenerateAdapter:
    """One model, and all that its requests have in common."""

    endpoint: Endpoint
    given: Mapping[str, Any] = attrs.field(factory=lambda: gemini_body.gather({}), repr=False)
    """The checked config, as `gemini_body.gather` gives it."""
    streams: bool = False

    @property
    def show_thinking(self) -> bool:
        """Whether the model's thoughts stand before its text."""
        return self.given.get("show_thinking") is not False

    def with_options(self, options: Mapping[str, Any]) -> "GenerateAdapter":
        """The adapter for one call whose config differs in some keys.

        Raises:
            ProviderError: `bad_request`, if a key is not known or its value is wrong.
        """
        layer = read_options(options, gemini_body.CALL_KEYS)
        problems = gemini_body.find_conflicts(layer)
        if problems:
            told = "; ".join(
                f"{one.path.removeprefix('.config.')} {one.message}" for one in problems
            )
            raise ProviderError("bad_request", f"the options of the call are not right: {told}")
        given = gemini_body.merge(self.given, layer)
        return attrs.evolve(self, given=given)

    def build(self, request: Request, /) -> HttpRequest:
        """The HTTP request that asks the model.

        Raises:
            ProviderError: `bad_request`, if the prompt was meant to be messages and is not, or an option
                of the call is wrong.
        """
        if request.options:
            return self.with_options(request.options).build(attrs.evolve(request, options={}))
        said = read_contents(request.prompt, self.given.get("system_instruction"))
        above = {} if said.instruction is None else {"systemInstruction": said.instruction}
        body = self._prepared.complete({**above, "contents": said.contents})
        method = "streamGenerateContent?alt=sse" if self.streams else "generateContent"
        url = self.endpoint.url(f"models/{self.endpoint.model}:{method}")
        return HttpRequest(url, self.endpoint.headers, body)

    def parse(self, reply: HttpReply, /) -> Reply:
        """What the model answered; of a stream, all of its events.

        A prompt that was blocked is a reply too (`is_refusal`).

        Raises:
            ProviderError: The reply tells of a failure, or holds no answer.
        """
        reply = join_stream(self.endpoint, reply, read_reply)
        data = read_answer(self.endpoint, reply)
        if isinstance(data, Reply):
            return data
        answer = self._answer(data)
        if answer is None:
            if data.get("candidates") or not data.keys() & IN_EVERY_REPLY:
                what = "the reply is not one of generateContent"
                raise failure("malformed_reply", what, self.endpoint, reply)
            what = "the reply holds no candidate"
            raise failure("empty_reply", what, self.endpoint, reply)
        usage = read_usage(data)
        price = self.endpoint.price
        named = {"id": data.get("responseId"), "model": data.get("modelVersion")}
        whole = Reply(
            output=answer.output,
            usage=usage,
            hint=read_hint(self.endpoint, reply),
            cost=None if price is None else price.cost(usage),
            finish_reason=answer.finish_reason,
            is_refusal=answer.is_refusal,
            guardrails=answer.guardrails,
            log_probs=answer.log_probs,
            raw=data,
            metadata=read_metadata(reply, named),
        )
        if answer.is_empty:
            raise empty("the candidate", whole, self.endpoint, reply, limit="maxOutputTokens")
        return whole

    def speaks(self, event: ServerEvent, /) -> bool:
        """Whether an event holds a part of the answer, or of its reasoning."""
        return speaks(event)

    @cached_property
    def _body(self) -> Mapping[str, Any]:
        return gemini_body.fixed_body(self.given)

    @cached_property
    def _prepared(self) -> PreparedBody:
        return PreparedBody.of(self._body)

    def _answer(self, data: Mapping[str, Any]) -> Answer | None:
        candidates = objects(data, "candidates")
        if not candidates:
            return read_blocked(data)
        return read_candidate(
            candidates[0],
            as_json=gemini_body.wants_json(self._body),
            show_thinking=self.show_thinking,
        )


def read(
    prefix: str, rest: str, config: Mapping[str, Any], around: Surroundings
) -> Settings | list[Problem]:
    """Read an entry `google:<model>` or `google:embedding:<model>`; see `Reader`."""
    if prefix == "vertex":
        hint = f"write google:{rest}, with a key of the Gemini API"
        return [Problem(".id", "Vertex AI is not supported", hint)]
    kind, _, model = rest.rpartition(":")
    if kind not in ("", "embedding", "embeddings") or not _MODEL.fullmatch(model):
        hint = f"write {prefix}:<model> or {prefix}:embedding:<model>"
        return [Problem(".id", f'"{prefix}:{rest}" is no model of Gemini', hint)]
    if kind:
        return _read_embedding(model, config, around)
    values, problems = read_config(config, gemini_body.KEYS)
    problems += gemini_body.find_conflicts(values)
    endpoint, faults = read_google(model, values, around.environ)
    problems += faults
    if endpoint is None or problems:
        return problems
    return AdapterSettings(
        GenerateAdapter(
            endpoint=endpoint,
            given=gemini_body.gather(_only(values, gemini_body.CALL_KEYS)),
            streams=bool(values.get("metrics")),
        )
    )


def _read_embedding(
    model: str, config: Mapping[str, Any], around: Surroundings
) -> Settings | list[Problem]:
    values, problems = read_config(config, KEYS)
    endpoint, faults = read_google(model, values, around.environ)
    problems += faults
    if endpoint is None or problems:
        return problems
    own = _only(values, CALL_KEYS)
    return AdapterSettings(EmbedAdapter(endpoint=endpoint, given=own))


def _only(values: Mapping[str, Any], keys: tuple[Key, ...]) -> dict[str, Any]:
    """Those of the values that are no business of the endpoint's."""
    names = {to_snake(key.name) for key in keys}
    return {name: value for name, value in values.items() if name in names}
