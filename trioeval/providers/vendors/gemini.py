"""Gemini generateContent and embedContent: a request to a body, a reply to an output."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.base import MEDIA_SCHEME, Guardrails, Media, Reply, ToolCall
from trioeval.providers.config import (
    EntryContext,
    Key,
    ProviderSettings,
    is_count,
    is_json_object,
    is_text,
    show,
    to_snake,
)
from trioeval.providers.http.adapter import METRICS, Adapter
from trioeval.providers.http.endpoint import Endpoint, Service, read_endpoint
from trioeval.providers.http.replies import (
    FILTERED,
    NOT_JSON,
    count,
    field,
    joined,
    objects,
    read_call,
    read_json,
    read_number,
    text,
)
from trioeval.providers.http.streams import ServerEvent, Texts, load_event
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.other_keys import OtherKeys
from trioeval.providers.vendors import gemini_request as gemini_body
from trioeval.providers.vendors.gemini_media import (
    INLINE,
    ImagenAdapter,
    image_cost,
    image_model,
    makes_images,
    media_uri,
    take_parts,
)
from trioeval.providers.vendors.gemini_request import read_contents
from trioeval.providers.vendors.gemini_video import VeoAdapter
from trioeval.usage import Usage

# The fields of a reply: output, finish reason, filters, tokens. The service omits empty values and zeros, so
# hardly any field is required.


FINISH_REASONS: Mapping[str, str] = {"STOP": "stop", "MAX_TOKENS": "length"}
"""Finish reasons by the service's own; others stay unchanged, in lower case."""

FILTERS = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "MODEL_ARMOR",
    }
)
"""Finish reasons of a filter."""

IN_EVERY_REPLY = frozenset({"candidates", "promptFeedback", "usageMetadata", "modelVersion"})
"""Fields of replies; every reply has at least one of them."""


def read_blocked(data: Mapping[str, Any]) -> Reply | None:
    """Return the reply for a blocked prompt; None if it was not blocked."""
    feedback = data.get("promptFeedback")
    blocked = text(feedback, "blockReason")
    if blocked is None:
        return None
    reason = text(feedback, "blockReasonMessage") or blocked
    return Reply(
        text=reason,
        finish_reason="content_filter",
        refusal=reason,
        guardrails=Guardrails(flagged=True, flagged_input=True, reason=reason),
    )


def read_candidate(candidate: Mapping[str, Any], *, as_json: bool, show_thinking: bool) -> Reply:
    """Return the reply in a candidate.

    Args:
        candidate: The first one of a reply.
        as_json: Whether a text that is JSON is replaced by its value.
        show_thinking: Whether its thoughts precede the text.
    """
    reason = text(candidate, "finishReason")
    parts = objects(candidate, "content", "parts")
    calls = tuple(_calls(parts))
    output = _output(parts, as_json, show_thinking)
    is_media = isinstance(output, str) and output.startswith(MEDIA_SCHEME)
    answer = Reply(
        output=output,
        text=output if is_media else _texts(part for part in parts if not part.get("thought")),
        tool_calls=calls,
        reasoning=_texts(part for part in parts if part.get("thought")) or None,
    )
    if reason in FILTERS:
        why = text(candidate, "finishMessage") or reason
        if not answer.output:
            answer = Reply(text=FILTERED, reasoning=answer.reasoning)
        return attrs.evolve(
            answer,
            finish_reason="content_filter",
            refusal=why,
            guardrails=Guardrails(flagged=True, flagged_output=True, reason=why),
        )
    rated = bool(objects(candidate, "safetyRatings"))
    finish_reason = None if reason is None else FINISH_REASONS.get(reason, reason.lower())
    return attrs.evolve(
        answer,
        finish_reason="tool_calls" if calls and finish_reason == "stop" else finish_reason,
        guardrails=Guardrails(flagged=False) if rated else None,
        log_probs=_log_probs(candidate),
    )


def read_usage(data: Any) -> Usage:
    """Return the token counts; those of tools and thoughts are reported separately and added here."""
    usage = field(data, "usageMetadata")
    thoughts = count(usage, "thoughtsTokenCount")
    return Usage(
        prompt=_sum(count(usage, "promptTokenCount"), count(usage, "toolUsePromptTokenCount")),
        completion=_sum(count(usage, "candidatesTokenCount"), thoughts),
        total=count(usage, "totalTokenCount"),
        cached=count(usage, "cachedContentTokenCount"),
        reasoning=thoughts,
    )


def _output(parts: Sequence[Mapping[str, Any]], as_json: bool, show_thinking: bool) -> Any:  # noqa: FBT001
    every = [part for part in parts if show_thinking or not part.get("thought")]
    uris = [uri for part in every if (uri := media_uri(part)) is not None]
    shown = [part for part in every if media_uri(part) is None]
    if uris and not shown:
        return "\n".join(uris)
    if not all(isinstance(part.get("text"), str) for part in shown):
        return every
    thoughts = _texts(part for part in shown if part.get("thought"))
    answer = _texts(part for part in shown if not part.get("thought"))
    if as_json and (data := read_json(answer)) is not NOT_JSON:
        return data
    return f"Thinking: {thoughts}\n\n{answer}" if thoughts else answer


def _texts(parts: Iterable[Mapping[str, Any]]) -> str:
    return joined((text(part, "text") for part in parts), "") or ""


def _calls(parts: Iterable[Mapping[str, Any]]) -> Iterator[ToolCall]:
    for part in parts:
        call = field(part, "functionCall")
        if (name := text(call, "name")) is not None:
            yield read_call(name, field(call, "args"), text(call, "id"))


def _log_probs(candidate: Mapping[str, Any]) -> tuple[float, ...] | None:
    chosen = objects(candidate, "logprobsResult", "chosenCandidates")
    found = [read_number(one.get("logProbability")) for one in chosen]
    numbers = tuple(number for number in found if number is not None)
    return numbers if numbers and len(numbers) == len(found) else None


def _sum(*counts: int | None) -> int | None:
    """Return the sum of the reported counts; None if there are none."""
    known = [one for one in counts if one is not None]
    return sum(known) if known else None


# Gemini generateContent: joining of a stream of partial replies to one reply.
#
# Consecutive texts become one, as without streaming; for everything else the last value applies. The stream
# has no end mark: it is complete when every candidate has a finish reason, or when the prompt was blocked.


_IN_TEXTS = frozenset({"text", "thought", "thoughtSignature"})
_IN_LISTS = ("chosenCandidates", "topCandidates")


def read_reply(events: Iterable[ServerEvent]) -> dict[str, Any] | None:
    """Return the reply in a stream, or its error; None if the stream ends too early."""
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
    """Add a part to a candidate."""
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
    """Return a list with more items; a value that is not a list counts as empty."""
    if not isinstance(old, list):
        return more
    old += more
    return old


def _continues(before: dict[str, Any], part: dict[str, Any]) -> bool:
    """Return whether two parts belong to one text."""
    are_texts = all(
        isinstance(one.get("text"), str) and one.keys() <= _IN_TEXTS for one in (before, part)
    )
    return are_texts and bool(before.get("thought")) == bool(part.get("thought"))


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

_MODEL = re.compile(r"[A-Za-z0-9._-]+")


class GoogleAdapter(Adapter):
    """The common parts of the Gemini API: URLs and token counts."""

    method = ""
    """The method in the URL."""
    other_keys = OtherKeys(sends=False)

    @classmethod
    def locate(
        cls,
        service: Service,
        model: str,
        values: Mapping[str, Any],
        environ: Mapping[str, str],
    ) -> tuple[Endpoint | None, list[Problem]]:
        """Return the endpoint; its `apiVersion` is part of the path."""
        version = values.get("api_version") or VERSION
        rest = {name: value for name, value in values.items() if name != "api_version"}
        if not version.isalnum():
            fault = f"must be letters and digits, such as {VERSION}, got {show(version)}"
            return None, [Problem(".config.apiVersion", fault)]
        return read_endpoint(attrs.evolve(service, path=f"/{version}"), model, rest, environ)

    def usage(self, data: Mapping[str, Any]) -> Usage:
        """Return the token counts."""
        return read_usage(data)

    def served_tier(self, data: Mapping[str, Any]) -> str | None:
        """Return the tier in the usage."""
        return text(data, "usageMetadata", "serviceTier")

    @property
    def url(self) -> str:
        """The URL of the model's method."""
        return self.endpoint.url(f"models/{self.endpoint.model}:{self.method}")


class GenerateAdapter(GoogleAdapter):
    """The generateContent API."""

    call_keys = gemini_body.CALL_KEYS
    entry_keys = (METRICS,)
    holder = "the candidate"
    limit_key = "maxOutputTokens"
    origin_fields = {"id": "responseId", "model": "modelVersion"}  # noqa: RUF012 - never changed

    @classmethod
    def find_conflicts(
        cls,
        service: Service,  # noqa: ARG003 - the same for every service
        layers: Sequence[Mapping[str, Any]],
    ) -> list[Problem]:
        """See `gemini_request.find_conflicts`."""
        return gemini_body.find_conflicts(layers[-1])

    @property
    def method(self) -> str:  # type: ignore[override] # never assigned
        """The method that returns the reply complete or as a stream."""
        return "streamGenerateContent?alt=sse" if self.streams else "generateContent"

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the body without contents and instruction."""
        body = gemini_body.fixed_body(gemini_body.merge(self.layers))
        if not makes_images(self.endpoint.model):
            return body
        given = {
            "aspectRatio": self.given.get("image_aspect_ratio"),
            "imageSize": self.given.get("image_size"),
        }
        images = {name: value for name, value in given.items() if value is not None}
        generation = {"responseModalities": ["TEXT", "IMAGE"], **body.get("generationConfig", {})}
        if images:
            generation["imageConfig"] = {**generation.get("imageConfig", {}), **images}
        return {**body, "generationConfig": generation}

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the contents, and the instruction if there is one."""
        conversation = read_contents(prompt, self.given.get("system_instruction"))
        above = (
            {}
            if conversation.instruction is None
            else {"systemInstruction": conversation.instruction}
        )
        return {**above, "contents": conversation.contents}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the reply in the first candidate, or for a blocked prompt."""
        usage = read_usage(data)
        candidates = objects(data, "candidates")
        if candidates:
            media = self._media(candidates[0], reply)
            answer = read_candidate(
                candidates[0],
                as_json=gemini_body.wants_json(self.body),
                show_thinking=self.show_thinking,
            )
            return attrs.evolve(answer, usage=usage, media=media)
        blocked = read_blocked(data)
        if blocked is not None:
            return attrs.evolve(blocked, usage=usage)
        if data.get("candidates") or not data.keys() & IN_EVERY_REPLY:
            message = "the reply is not a generateContent reply"
            raise self.failure("malformed_reply", message, reply)
        raise self.failure("empty_reply", "the reply has no candidate", reply)

    def _media(self, candidate: Mapping[str, Any], reply: HttpReply) -> tuple[Media, ...]:
        try:
            return take_parts(objects(candidate, "content", "parts"))
        except ValueError as error:
            message = f"the media in the reply cannot be used: {error}"
            raise self.failure("malformed_reply", message, reply, advice="") from None

    def cost(self, usage: Usage, data: Mapping[str, Any]) -> float | None:
        """Return the cost of the tokens, or of the images."""
        if self.endpoint.price is None and makes_images(self.endpoint.model):
            parts = [
                part
                for one in objects(data, "candidates")
                for part in objects(one, "content", "parts")
            ]
            images = sum(any(name in part for name in INLINE) for part in parts)
            return image_cost(self.endpoint.model, images, self.body, data)
        return super().cost(usage, data)

    def is_empty(self, data: Mapping[str, Any]) -> bool:
        """Return whether the candidate has no part; an empty text is a part."""
        return not objects(objects(data, "candidates")[0], "content", "parts")

    def has_output(self, event: ServerEvent, /) -> bool:
        """Return whether an event has a part of the reply, or of its reasoning."""
        return any(
            part.keys() - _IN_TEXTS or text(part, "text")
            for candidate in objects(load_event(event), "candidates")
            for part in objects(candidate, "content", "parts")
        )

    def join(self, events: Iterable[ServerEvent]) -> dict[str, Any] | None:
        """See `read_reply`."""
        return read_reply(events)


class EmbedAdapter(GoogleAdapter):
    """The embedContent API."""

    call_keys = (
        Key("taskType", "text", is_text),
        Key("title", "text", is_text),
        Key("outputDimensionality", "a whole number of at least 1", is_count),
        Key("passthrough", "an object", is_json_object),
    )
    other_keys = OtherKeys(
        sends=False,
        not_here=frozenset(
            to_snake(key.name) for key in (*gemini_body.CALL_KEYS, *GenerateAdapter.entry_keys)
        ),
    )
    method = "embedContent"
    returns = "embedding"
    show_thinking = False

    def fixed_body(self) -> Mapping[str, Any]:
        """Return the parameters under their own names."""
        names = {to_snake(key.name): key.name for key in self.call_keys[:-1]}
        fixed = {name: self.given.get(key) for key, name in names.items()}
        known = {name: value for name, value in fixed.items() if value is not None}
        return known | (self.given.get("passthrough") or {})

    def prompt_fields(self, prompt: str) -> Mapping[str, Any]:
        """Return the text as content."""
        return {"content": {"parts": [{"text": prompt}]}}

    def read(self, data: Mapping[str, Any], reply: HttpReply) -> Reply:
        """Return the vector as a list of numbers."""
        values = field(data, "embedding", "values")
        vector = [read_number(value) for value in values] if isinstance(values, list) else []
        if not vector or None in vector:
            raise self.failure("malformed_reply", "the reply has no vector", reply)
        return Reply(output=vector, usage=read_usage(data))

    def cost(self, usage: Usage, data: Mapping[str, Any]) -> float | None:
        """Return the cost of the text alone."""
        return super().cost(attrs.evolve(usage, completion=0), data)


_ADAPTERS: Mapping[str, type[Adapter]] = {
    "": GenerateAdapter,
    "embedding": EmbedAdapter,
    "embeddings": EmbedAdapter,
    "image": ImagenAdapter,
    "video": VeoAdapter,
}
"""The adapters by the kind in an id."""


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> ProviderSettings | list[Problem]:
    """Read an entry `google:<model>` or `google:embedding:<model>`; see `Reader`."""
    kind, _, model = rest.rpartition(":")
    if not kind and model and model in _ADAPTERS:
        fault = f'"{prefix}:{rest}" has no model name'
        return [Problem(".id", fault, f"write {prefix}:{rest}:<model>")]
    if kind not in _ADAPTERS or not _MODEL.fullmatch(model):
        named = (f"{prefix}:{one}:<model>" for one in ("embedding", "image"))
        hint = f"write {', '.join((f'{prefix}:<model>', *named))} or {prefix}:video:<model>"
        return [Problem(".id", f'"{prefix}:{rest}" is not a valid Gemini id', hint)]
    if kind == "video" and config.get("vertexai") is True:
        from trioeval.providers.vendors import vertex

        rest_of = {name: value for name, value in config.items() if name != "vertexai"}
        return vertex.read("vertex", rest, rest_of, context)
    if kind == "image":
        model = image_model(model)
    adapter = (
        GenerateAdapter if model.startswith("gemini-") and kind == "image" else _ADAPTERS[kind]
    )
    return adapter.read_entry(GOOGLE, model, config, context.environ)
