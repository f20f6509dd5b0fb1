"""What providers can be asked for, as far as their settings tell.

A service is judged by the request that is built for it, so nothing that a config, a default or the
environment says is forgotten. Functions, programs and servers of the user's may answer anything.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from trioeval.errors import ProviderError
from trioeval.providers.base import Request
from trioeval.providers.config import Settings
from trioeval.providers.http.adapter import Adapter, AdapterSettings
from trioeval.providers.local.echo import EchoSettings
from trioeval.providers.local.embedding import EmbeddingSettings
from trioeval.providers.local.replay import ReplaySettings
from trioeval.providers.local.sequence import SequenceSettings
from trioeval.providers.local.sim import SimSettings
from trioeval.providers.programs.exec import OUTPUT_BY_FUNCTION
from trioeval.providers.programs.python import PythonSettings
from trioeval.providers.vendors.openai_models import takes_schemas

Ability: TypeAlias = Literal["text", "embedding", "classification", "moderation"]

_LOCAL = (EchoSettings, ReplaySettings, SequenceSettings, SimSettings)
"""They know nothing but what they are given."""

_ANYTHING: frozenset[Ability] = frozenset(get_args(Ability))
_EMBEDS = re.compile(r"(/embeddings|:embedContent)(\?|$)")
_MODERATES = re.compile(r"/moderations(\?|$)")
_GENERATES = re.compile(r":(stream)?generateContent(\?|$)", re.IGNORECASE)
_SEARCHES = re.compile(r"(web|google|x)_?search|-search-|search_parameters", re.IGNORECASE)

_SIMPLE = frozenset(
    {"additionalProperties", "description", "enum", "items", "properties", "required", "type"}
)
"""Keywords that every service knows."""


def abilities(settings: Settings) -> frozenset[Ability]:
    """What a provider may answer with."""
    if isinstance(settings, AdapterSettings):
        url, _ = _sent(settings.adapter)
        if _EMBEDS.search(url):
            return frozenset({"embedding"})
        return frozenset({"moderation" if _MODERATES.search(url) else "text"})
    if isinstance(settings, EchoSettings):
        return frozenset({"text"})
    if isinstance(settings, EmbeddingSettings):
        return frozenset({"embedding"})
    if isinstance(settings, PythonSettings):
        only = OUTPUT_BY_FUNCTION.get(settings.workers.function)
        return _ANYTHING if only is None else frozenset({one for one in _ANYTHING if one == only})
    return _ANYTHING


def may_search(settings: Settings) -> bool:
    """Whether a provider may look things up in the web before it answers."""
    if isinstance(settings, _LOCAL):
        return False
    if not isinstance(settings, AdapterSettings):
        return True
    endpoint = settings.adapter.endpoint
    if endpoint.service.family == "perplexity" or "-search" in endpoint.model:
        return True
    _, body = _sent(settings.adapter)
    return any(_SEARCHES.search(json.dumps(part)) for part in _search_parts(body))


def schema_options(
    settings: Settings, schema: Mapping[str, Any], name: str = "verdict"
) -> Mapping[str, Any]:
    """Options of a call that ask for a reply by a JSON schema.

    Nothing where the service is not known to take schemas, or its config says how it is to answer.

    Args:
        settings: Of who is asked.
        schema: Of the reply.
        name: What the reply is, as the model is told: letters, digits, `_` and `-`.
    """
    if not isinstance(settings, AdapterSettings):
        return {}
    adapter = settings.adapter
    url, body = _sent(adapter)
    if _GENERATES.search(url):
        takes = not _says(body, "generationConfig", "responseMimeType") and "tools" not in body
    else:
        known = adapter.endpoint.service.openai_models and takes_schemas(adapter.endpoint.model)
        asks = "messages" in body or "input" in body
        takes = (
            known and asks and "response_format" not in body and not _says(body, "text", "format")
        )
    if not takes:
        return {}
    form = {"name": name, "schema": dict(schema), "strict": _is_strict(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


def _says(body: Mapping[str, Any], part: str, name: str) -> bool:
    inner = body.get(part)
    return isinstance(inner, Mapping) and name in inner


def _is_strict(schema: Any) -> bool:
    """Whether a service can hold a model to a schema: it is simple, and leaves nothing open."""
    if not isinstance(schema, Mapping) or not schema.keys() <= _SIMPLE:
        return False
    members = schema.get("properties", {})
    if schema.get("type") == "object" and (
        schema.get("additionalProperties") is not False
        or set(schema.get("required", ())) != set(members)
    ):
        return False
    inner = [*members.values(), *([schema["items"]] if "items" in schema else [])]
    return all(map(_is_strict, inner))


def _search_parts(body: Mapping[str, Any]) -> list[Any]:
    named = [name for name in body if _SEARCHES.search(name)]
    return [*named, body.get("tools", [])]


def _sent(adapter: Adapter) -> tuple[str, Mapping[str, Any]]:
    """Where a request goes, and what is sent; nothing if none can be built."""
    try:
        request = adapter.build(Request(prompt="hello"))
        body = json.loads(request.body or b"{}")
    except (ProviderError, ValueError):
        return "", {}
    return request.url, body if isinstance(body, Mapping) else {}
