"""Entries of OpenAI-compatible services: the endpoint that an id means.

`openai:<model>`, `openai:chat:<model>`, `openai:embedding:<model>`, …: the kind may be left out.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from trioeval.errors import Problem
from trioeval.providers.config import EntryContext, ProviderSettings, to_snake
from trioeval.providers.http.endpoint import Service
from trioeval.providers.vendors.openai_chat import ChatAdapter
from trioeval.providers.vendors.openai_media import ImageAdapter, read_speech, read_video
from trioeval.providers.vendors.openai_models import needs_responses
from trioeval.providers.vendors.openai_other import EmbeddingAdapter, ModerationAdapter
from trioeval.providers.vendors.openai_responses import read_responses
from trioeval.providers.vendors.services import ANY_SERVICE, SERVICES, named_service

KindReader: TypeAlias = Callable[
    [Service, str, Mapping[str, Any], Mapping[str, str]], ProviderSettings | list[Problem]
]

READERS: Mapping[str, KindReader] = {
    "chat": ChatAdapter.read_entry,
    "responses": read_responses,
    "embedding": EmbeddingAdapter.read_entry,
    "embeddings": EmbeddingAdapter.read_entry,
    "moderation": ModerationAdapter.read_entry,
    "image": ImageAdapter.read_entry,
    "speech": read_speech,
    "tts": read_speech,
    "video": read_video,
}
"""The function that reads the entries of each kind."""

ALIKE = 0.8
"""Likeness from which a text is a misspelt kind, and not part of a model's name."""


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> ProviderSettings | list[Problem]:
    """Read an entry of any service with these kinds of endpoints; see `Reader`."""
    service = SERVICES.get(prefix)
    if service is None:
        name, _, rest = rest.partition(":")
        service, prefix = named_service(name), f"{ANY_SERVICE}:{name}"
        if service is None:
            hint = f"write {ANY_SERVICE}:<service>:<model>"
            return [Problem(".id", f'"{prefix}" has no valid service name', hint)]
    kind, model, problems = _split(service, prefix, rest)
    versioned = any(to_snake(key) == "api_version" for key in config)
    if kind is None:
        chosen = service.openai_models and needs_responses(model) and not versioned
        kind = "responses" if chosen else "chat"
    elif kind == "responses" and versioned and service.version_path is not None:
        fault = f"responses of {service.family} have no API version"
        problems.append(Problem(".config.apiVersion", fault, "leave it out"))
    found = READERS[kind](service, model, config, context.environ)
    if problems:
        return [*problems, *(found if isinstance(found, list) else ())]
    return found


def _split(service: Service, prefix: str, rest: str) -> tuple[str | None, str, list[Problem]]:
    """Return kind and model with their problems; the kind is None if it is omitted."""
    kind: str | None
    kind, colon, model = rest.partition(":")
    problems = []
    if kind not in READERS:
        # Model names of other services may contain colons (`llama3:8b`), and resemble a kind.
        likely = READERS if service.openai_models and colon else ()
        for close in difflib.get_close_matches(kind, likely, n=1, cutoff=ALIKE):
            hint = f'did you mean "{prefix}:{close}:{model}"?'
            problems.append(Problem(".id", f'"{kind}" is not a kind of request', hint))
        kind, model = None, rest
    if not model.strip():
        fault = f'"{prefix}:{rest}" has no model name'
        problems.append(Problem(".id", fault, f"write {prefix}:<model>"))
    return kind, model, problems
