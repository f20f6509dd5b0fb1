"""Gemini generateContent: a request to a body, a reply to an output."""

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs

from trioeval.errors import Problem, ProviderError
from trioeval.providers.adapter import AdapterSettings
from trioeval.providers.answers import (
    empty,
    failure,
    objects,
    read_hint,
    read_metadata,
    read_object,
)
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import Key, read_config, to_snake
from trioeval.providers.endpoint import Endpoint
from trioeval.providers.server_events import ServerEvent
from trioeval.providers.settings import Settings, Surroundings
from trioeval.providers.vendors import gemini_body, gemini_embedding, gemini_stream
from trioeval.providers.vendors.call_options import read_options
from trioeval.providers.vendors.gemini_endpoint import read_google
from trioeval.providers.vendors.gemini_prompt import read_contents
from trioeval.providers.vendors.gemini_reply import (
    IN_EVERY_REPLY,
    Answer,
    read_blocked,
    read_candidate,
    read_usage,
)
from trioeval.providers.vendors.prepared import PreparedBody
from trioeval.providers.vendors.streams import join_stream
from trioeval.providers.wire import HttpReply, HttpRequest

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
        reply = join_stream(self.endpoint, reply, gemini_stream.read_reply)
        data = read_object(self.endpoint, reply)
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
        return gemini_stream.speaks(event)

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
    values, problems = read_config(config, gemini_embedding.KEYS)
    endpoint, faults = read_google(model, values, around.environ)
    problems += faults
    if endpoint is None or problems:
        return problems
    own = _only(values, gemini_embedding.CALL_KEYS)
    return AdapterSettings(gemini_embedding.EmbedAdapter(endpoint=endpoint, given=own))


def _only(values: Mapping[str, Any], keys: tuple[Key, ...]) -> dict[str, Any]:
    """Those of the values that are no business of the endpoint's."""
    names = {to_snake(key.name) for key in keys}
    return {name: value for name, value in values.items() if name in names}
