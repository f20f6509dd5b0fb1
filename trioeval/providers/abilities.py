"""The features that a provider supports, as far as its settings show.

A service is judged by the request built for it, so that config, defaults and environment are all taken
into account. The user's own functions, programs and servers may return anything.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias, get_args

from trioeval.errors import ProviderError
from trioeval.providers.base import Request
from trioeval.providers.config import ProviderSettings
from trioeval.providers.http.adapter import Adapter, AdapterSettings, Returned
from trioeval.providers.local.echo import EchoSettings
from trioeval.providers.local.embedding import EmbeddingSettings
from trioeval.providers.local.replay import ReplaySettings
from trioeval.providers.local.sequence import SequenceSettings
from trioeval.providers.local.sim import SimSettings
from trioeval.providers.programs.exec import OUTPUT_BY_FUNCTION
from trioeval.providers.programs.python import PythonSettings
from trioeval.providers.vendors.openai_models import takes_schemas

Ability: TypeAlias = Returned

_LOCAL = (EchoSettings, ReplaySettings, SequenceSettings, SimSettings)
"""Settings of providers that know only what they are given."""

_ANYTHING: frozenset[Ability] = frozenset(get_args(Ability))
_CHATS = re.compile(r"/chat/completions(\?|$)")
_GENERATES = re.compile(r":(stream)?generateContent(\?|$)", re.IGNORECASE)
_SEARCHES = re.compile(r"(web|google|x)_?search|-search-|search_parameters", re.IGNORECASE)

_SIMPLE = frozenset(
    {"additionalProperties", "description", "enum", "items", "properties", "required", "type"}
)
"""Schema keywords that every service supports."""


def abilities(settings: ProviderSettings) -> frozenset[Ability]:
    """Return the kinds of output that a provider may return."""
    if isinstance(settings, AdapterSettings):
        return frozenset({settings.adapter.returns})
    if isinstance(settings, EchoSettings):
        return frozenset({"text"})
    if isinstance(settings, EmbeddingSettings):
        return frozenset({"embedding"})
    if isinstance(settings, PythonSettings):
        only = OUTPUT_BY_FUNCTION.get(settings.workers.function)
        return _ANYTHING if only is None else frozenset({one for one in _ANYTHING if one == only})
    return _ANYTHING


def accepted_media(settings: ProviderSettings) -> frozenset[str]:
    """Return the kinds of media that a prompt for a provider may have, as far as its API allows them."""
    if not isinstance(settings, AdapterSettings):
        return frozenset({"audio", "image", "video"})
    url, _ = _sent(settings.adapter)
    if _GENERATES.search(url):
        return frozenset({"audio", "image", "video"})
    return frozenset({"audio", "image"} if _CHATS.search(url) else {"image"})


def may_search(settings: ProviderSettings) -> bool:
    """Return whether a provider may search the web before it replies."""
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
    settings: ProviderSettings, schema: Mapping[str, Any], name: str = "verdict"
) -> Mapping[str, Any]:
    """Return the call options that request a reply in a JSON schema.

    Empty if the service is not known to support schemas, or if its config already sets a reply format.

    Args:
        settings: The settings of the provider.
        schema: The schema of the reply.
        name: The schema's name as sent to the model: letters, digits, `_` and `-`.
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
    """Return whether services can enforce a schema: it has only simple keywords and no optional member."""
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
    """Return the URL and the body of a request; empty if none can be built."""
    try:
        request = adapter.build(Request(prompt="hello"))
        body = json.loads(request.body or b"{}")
    except (ProviderError, ValueError):
        return "", {}
    return request.url, body if isinstance(body, Mapping) else {}
