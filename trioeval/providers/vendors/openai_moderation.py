"""OpenAI moderation: what a text is flagged for."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.adapter import AdapterSettings
from trioeval.providers.answers import failure, field, read_hint, read_metadata, read_object
from trioeval.providers.base import Guardrails, Reply, Request
from trioeval.providers.config import is_flag, is_number, read_config
from trioeval.providers.endpoint import ENDPOINT_KEYS, Endpoint, Service, read_endpoint
from trioeval.providers.server_events import ServerEvent
from trioeval.providers.settings import Settings
from trioeval.providers.vendors.call_options import read_options
from trioeval.providers.vendors.openai_embeddings import PASSTHROUGH
from trioeval.providers.vendors.prepared import PreparedBody
from trioeval.providers.wire import HttpReply, HttpRequest

PARAMETERS = (PASSTHROUGH,)
"""Keys that say what the body holds."""

KEYS = (*PARAMETERS, *ENDPOINT_KEYS)


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
        given = read_options(options, PARAMETERS).get("passthrough") or {}
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
        data = read_object(self.endpoint, reply)
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
    values, problems = read_config(config, KEYS)
    endpoint, faults = read_endpoint(service, model, values, environ)
    problems += faults
    if endpoint is None or problems:
        return problems
    passthrough = values.get("passthrough") or {}
    return AdapterSettings(ModerationAdapter(endpoint=endpoint, passthrough=passthrough))
