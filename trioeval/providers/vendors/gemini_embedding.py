"""Gemini embedContent: a text to its vector."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import attrs

from trioeval.providers.answers import (
    failure,
    field,
    read_hint,
    read_metadata,
    read_number,
    read_object,
)
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import Key, is_count, is_json_object, is_text
from trioeval.providers.endpoint import ENDPOINT_KEYS, Endpoint
from trioeval.providers.server_events import ServerEvent
from trioeval.providers.vendors.call_options import read_options
from trioeval.providers.vendors.gemini_reply import read_usage
from trioeval.providers.vendors.prepared import PreparedBody
from trioeval.providers.wire import HttpReply, HttpRequest
from trioeval.usage import Usage

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
        data = read_object(self.endpoint, reply)
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
