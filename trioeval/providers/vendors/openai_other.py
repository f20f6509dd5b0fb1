# Apart from `providers.vendors.openai`: one module an API of the vendor.
"""OpenAI embeddings: a text to a vector."""

import math
import struct
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.base import Guardrails, Reply, Request
from trioeval.providers.config import (
    Key,
    Settings,
    is_flag,
    is_integer,
    is_json_object,
    is_number,
    is_text,
    read_config,
)
from trioeval.providers.http.adapter import AdapterSettings, ServerEvent
from trioeval.providers.http.endpoint import ENDPOINT_KEYS, Endpoint, Service, read_endpoint
from trioeval.providers.http.replies import (
    count,
    failure,
    field,
    read_answer,
    read_hint,
    read_metadata,
)
from trioeval.providers.http.wire import HttpReply, HttpRequest
from trioeval.providers.vendors.streams import PreparedBody, read_options
from trioeval.usage import Usage

FLOAT_BYTES = 4
"""Length of a number in a vector that comes as base64."""

PASSTHROUGH = Key(
    "passthrough",
    "an object without input",
    lambda value: is_json_object(value) and "input" not in value,
)
"""What the body holds besides; the input is the prompt."""

PARAMETERS = (
    Key(
        "dimensions",
        "a whole number of at least 1",
        lambda value: is_integer(value) and value >= 1,
    ),
    Key("encoding_format", '"float" or "base64"', lambda value: value in ("float", "base64")),
    Key("user", "text", is_text),
    PASSTHROUGH,
)
"""Keys that say what the body holds."""

KEYS = (*PARAMETERS, *ENDPOINT_KEYS)


@attrs.frozen(kw_only=True, slots=False)
class EmbeddingAdapter:
    """One model, and all that its requests have in common.

    A request asks for the vector of one text; requests that wait together are not combined.
    """

    endpoint: Endpoint
    values: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    """What the config says, by snake_case key."""
    streams: bool = False
    show_thinking: bool = attrs.field(default=False, init=False)

    def with_options(self, options: Mapping[str, Any]) -> "EmbeddingAdapter":
        """The adapter for one call, some of whose keys are different.

        Raises:
            ProviderError: `bad_request`, if there are no such keys, or not with such values.
        """
        return attrs.evolve(self, values={**self.values, **read_options(options, PARAMETERS)})

    def build(self, request: Request, /) -> HttpRequest:
        """The HTTP request that asks for the vector of the prompt, whatever its text looks like.

        Raises:
            ProviderError: `bad_request`, if the options of the request are not right.
        """
        if request.options:
            return self.with_options(request.options).build(attrs.evolve(request, options={}))
        body = self._prepared.complete({"input": request.prompt})
        return HttpRequest(self.endpoint.url("embeddings"), self.endpoint.headers, body)

    def parse(self, reply: HttpReply, /) -> Reply:
        """The vector, as a list of numbers.

        Raises:
            ProviderError: The reply tells of a failure, or holds no vector.
        """
        data = read_answer(self.endpoint, reply)
        if isinstance(data, Reply):
            return data
        found = data.get("data")
        if found == []:
            raise failure("empty_reply", "the reply holds no vector", self.endpoint, reply)
        vector = read_vector(field(found[0] if isinstance(found, list) else None, "embedding"))
        if vector is None:
            raise failure("malformed_reply", "the reply holds no vector", self.endpoint, reply)
        usage = Usage(
            prompt=count(data, "usage", "prompt_tokens"),
            total=count(data, "usage", "total_tokens"),
        )
        return Reply(
            output=vector,
            usage=usage,
            hint=read_hint(self.endpoint, reply),
            cost=self._cost(usage),
            raw=data,
            metadata=read_metadata(reply, data),
        )

    def speaks(self, _event: ServerEvent, /) -> bool:
        """Never: vectors do not come in streams."""
        return False

    @cached_property
    def _prepared(self) -> PreparedBody:
        named = {name: value for name, value in self.values.items() if value is not None}
        passthrough = named.pop("passthrough", {})
        return PreparedBody.of({"model": self.endpoint.model, **named, **passthrough})

    def _cost(self, usage: Usage) -> float | None:
        """That of the prompt: a vector has no tokens."""
        prompt = usage.total if usage.prompt is None else usage.prompt
        price = self.endpoint.price
        return None if price is None else price.cost(Usage(prompt=prompt, completion=0))


def read_vector(value: Any) -> list[float] | None:
    """The numbers of a vector, in either of its forms; None if it is none.

    Args:
        value: A list of numbers, or the base64 text of little-endian 32-bit floats.

    Example:
        >>> read_vector([1, 0.5]), read_vector("AACAPwAAAD8="), read_vector("AACA")
        ([1.0, 0.5], [1.0, 0.5], None)
    """
    numbers: Sequence[float]
    if isinstance(value, str):
        numbers = _decode(value)
    elif isinstance(value, list) and all(type(one) in (float, int) for one in value):
        numbers = value
    else:
        return None
    try:
        vector = list(map(float, numbers))
    except OverflowError:
        return None
    return vector if vector and all(map(math.isfinite, vector)) else None


def _decode(text: str) -> tuple[float, ...]:
    try:
        packed = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return ()
    size, rest = divmod(len(packed), FLOAT_BYTES)
    return () if rest else struct.unpack(f"<{size}f", packed)


def read_embedding(
    service: Service, model: str, config: Mapping[str, Any], environ: Mapping[str, str]
) -> Settings | list[Problem]:
    """Read the config of an entry.

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
    if endpoint is None or problems:
        return problems
    own = {key.name: values[key.name] for key in PARAMETERS if key.name in values}
    return AdapterSettings(EmbeddingAdapter(endpoint=endpoint, values=own))


# OpenAI moderation: what a text is flagged for.


MODERATION_PARAMETERS = (PASSTHROUGH,)
"""Keys that say what the body holds."""

MODERATION_KEYS = (*MODERATION_PARAMETERS, *ENDPOINT_KEYS)


@attrs.frozen(kw_only=True, slots=False)
class ModerationAdapter:
    """One model, and all that its requests have in common."""

    endpoint: Endpoint
    passthrough: Mapping[str, Any] = attrs.field(factory=dict)
    """Merged last, over everything."""
    streams: bool = False
    show_thinking: bool = attrs.field(default=False, init=False)

    def with_options(self, options: Mapping[str, Any]) -> "ModerationAdapter":
        """The adapter for one call, some of whose keys are different.

        Raises:
            ProviderError: `bad_request`, if there are no such keys, or not with such values.
        """
        given = read_options(options, MODERATION_PARAMETERS).get("passthrough") or {}
        return attrs.evolve(self, passthrough={**self.passthrough, **given})

    def build(self, request: Request, /) -> HttpRequest:
        """The HTTP request that has the prompt judged, whatever its text looks like.

        Raises:
            ProviderError: `bad_request`, if the options of the request are not right.
        """
        if request.options:
            return self.with_options(request.options).build(attrs.evolve(request, options={}))
        body = self._prepared.complete({"input": request.prompt})
        return HttpRequest(self.endpoint.url("moderations"), self.endpoint.headers, body)

    def parse(self, reply: HttpReply, /) -> Reply:
        """The judgement: `flagged`, `categories` and `category_scores`.

        What the text is flagged for is in `metadata["flags"]`, the surest first.

        Raises:
            ProviderError: The reply tells of a failure, or holds no judgement.
        """
        data = read_answer(self.endpoint, reply)
        if isinstance(data, Reply):
            return data
        results = data.get("results")
        if results == []:
            raise failure("empty_reply", "the reply holds no result", self.endpoint, reply)
        result = results[0] if isinstance(results, list) else None
        flagged = field(result, "flagged")
        if not isinstance(flagged, bool):
            raise failure("malformed_reply", "the reply holds no result", self.endpoint, reply)
        categories = _members(result, "categories", is_flag)
        scores = _members(result, "category_scores", is_number)
        flags = read_flags(categories, scores)
        reason = ", ".join(flag["code"] for flag in flags) or None
        return Reply(
            output={"flagged": flagged, "categories": categories, "category_scores": scores},
            hint=read_hint(self.endpoint, reply),
            guardrails=Guardrails(flagged=flagged, flagged_input=flagged, reason=reason),
            raw=data,
            metadata={**read_metadata(reply, data), "flags": flags},
        )

    def speaks(self, _event: ServerEvent, /) -> bool:
        """Never: judgements do not come in streams."""
        return False

    @cached_property
    def _prepared(self) -> PreparedBody:
        return PreparedBody.of({"model": self.endpoint.model, **self.passthrough})


def read_flags(categories: Mapping[str, bool], scores: Mapping[str, float]) -> list[dict[str, Any]]:
    """The categories that hold, each with the service's confidence, the surest first.

    Example:
        >>> read_flags({"hate": False, "self-harm/intent": True}, {"self-harm/intent": 0.9})
        [{'code': 'self-harm/intent', 'description': 'self-harm: intent', 'confidence': 0.9}]
    """
    flags = [
        {"code": code, "description": code.replace("/", ": "), "confidence": scores.get(code)}
        for code, holds in categories.items()
        if holds
    ]
    return sorted(flags, key=lambda flag: -(flag["confidence"] or 0))


def _members(result: Any, name: str, check: Callable[[Any], bool]) -> dict[str, Any]:
    """The members of an object that are of the right type; older models leave some null."""
    found = field(result, name)
    if not isinstance(found, dict):
        return {}
    return {member: value for member, value in found.items() if check(value)}


def read_moderation(
    service: Service, model: str, config: Mapping[str, Any], environ: Mapping[str, str]
) -> Settings | list[Problem]:
    """Read the config of an entry.

    Args:
        service: How the service is reached.
        model: The model's name, as the service knows it.
        config: The entry's config.
        environ: The environment; empty values count as absent.

    Returns:
        The settings, or everything that is wrong.
    """
    values, problems = read_config(config, MODERATION_KEYS)
    endpoint, faults = read_endpoint(service, model, values, environ)
    problems += faults
    if endpoint is None or problems:
        return problems
    passthrough = values.get("passthrough") or {}
    return AdapterSettings(ModerationAdapter(endpoint=endpoint, passthrough=passthrough))
