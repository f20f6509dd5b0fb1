"""OpenAI embeddings: a text to a vector."""

import math
import struct
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.adapter import AdapterSettings
from trioeval.providers.answers import count, failure, field, read_hint, read_metadata, read_object
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import Key, is_integer, is_json_object, is_text, read_config
from trioeval.providers.endpoint import ENDPOINT_KEYS, Endpoint, Service, read_endpoint
from trioeval.providers.server_events import ServerEvent
from trioeval.providers.settings import Settings
from trioeval.providers.vendors.call_options import read_options
from trioeval.providers.vendors.prepared import PreparedBody
from trioeval.providers.wire import HttpReply, HttpRequest
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
        data = read_object(self.endpoint, reply)
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
