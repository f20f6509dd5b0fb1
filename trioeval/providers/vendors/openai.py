"""Entries of OpenAI-compatible services: the endpoint that an id means.

`openai:<model>`, `openai:chat:<model>`, `openai:embedding:<model>`, …: the kind may be left out.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from trioeval.errors import Problem
from trioeval.providers.config import EntryContext, ProviderSettings, is_text, to_snake
from trioeval.providers.http.endpoint import Service
from trioeval.providers.kinds import kind_problem
from trioeval.providers.vendors.openai_chat import ChatAdapter
from trioeval.providers.vendors.openai_media import ImageAdapter, SpeechAdapter, VideoAdapter
from trioeval.providers.vendors.openai_models import needs_completions, needs_responses
from trioeval.providers.vendors.openai_other import (
    CompletionAdapter,
    EmbeddingAdapter,
    ModerationAdapter,
)
from trioeval.providers.vendors.openai_responses import ResponsesAdapter
from trioeval.providers.vendors.services import (
    ANY_SERVICE,
    BEHIND_GATEWAY,
    GATEWAY,
    SERVICES,
    gateway_service,
    named_service,
)

KindReader: TypeAlias = Callable[
    [Service, str, Mapping[str, Any], Mapping[str, str]], ProviderSettings | list[Problem]
]


def _read_realtime(
    service: Service, model: str, config: Mapping[str, Any], environ: Mapping[str, str]
) -> ProviderSettings | list[Problem]:
    from trioeval.providers.vendors.openai_realtime import read_realtime  # most suites have none

    return read_realtime(service, model, config, environ)


READERS: Mapping[str, KindReader] = {
    "chat": ChatAdapter.read_entry,
    "responses": ResponsesAdapter.read_entry,
    "embedding": EmbeddingAdapter.read_entry,
    "embeddings": EmbeddingAdapter.read_entry,
    "moderation": ModerationAdapter.read_entry,
    "completion": CompletionAdapter.read_entry,
    "image": ImageAdapter.read_entry,
    "speech": SpeechAdapter.read_entry,
    "tts": SpeechAdapter.read_entry,
    "video": VideoAdapter.read_entry,
    "realtime": _read_realtime,
}
"""The function that reads the entries of each kind."""

_OTHER_NAMES = {("mistral", "embed"): "embedding"}
"""Other names of kinds, by service."""

ALIKE = 0.8
"""Likeness from which a text is a misspelt kind, and not part of a model's name."""


def read(
    prefix: str, rest: str, config: Mapping[str, Any], context: EntryContext
) -> ProviderSettings | list[Problem]:
    """Read an entry of any service with these kinds of endpoints; see `Reader`."""
    service = SERVICES.get(prefix)
    if prefix == GATEWAY:
        name, _, rest = rest.partition(":")
        service, prefix = gateway_service(name), f"{GATEWAY}:{name}"
        if service is None:
            hint = (
                f"supported are {', '.join(f'{GATEWAY}:{one}:<model>' for one in BEHIND_GATEWAY)}"
            )
            return [Problem(".id", f'"{prefix}" is not supported', hint)]
    elif service is None:
        name, _, rest = rest.partition(":")
        service, prefix = named_service(name), f"{ANY_SERVICE}:{name}"
        if service is None:
            hint = f"write {ANY_SERVICE}:<service>:<model>"
            return [Problem(".id", f'"{prefix}" has no valid service name', hint)]
    if rest in READERS and is_text(config.get("model")):
        rest = f"{rest}:{config['model']}"
    if service.embeds_by_name and config.get("task") in ("chat", "embedding"):
        rest = f"{config['task']}:{rest}"
        config = {name: value for name, value in config.items() if name != "task"}
    kind, model, problems = _split(service, prefix, rest)
    versioned = any(to_snake(key) == "api_version" for key in config)
    if kind is None:
        kind = _kind_of(service, model, versioned=versioned)
    elif kind == "responses" and versioned and service.version_path is not None:
        fault = f"responses of {service.family} have no API version"
        problems.append(Problem(".config.apiVersion", fault, "leave it out"))
    found = READERS[kind](service, model, config, context.environ)
    if problems:
        return [*problems, *(found if isinstance(found, list) else ())]
    return found


def _kind_of(service: Service, model: str, *, versioned: bool) -> str:
    """Return the kind of request for a model whose id names none."""
    if service.embeds_by_name and "embedding" in model.lower():
        return "embedding"
    if service.openai_models and needs_completions(model):
        return "completion"
    if service.openai_models and needs_responses(model) and not versioned:
        return "responses"
    return service.kinds[0]


def _split(service: Service, prefix: str, rest: str) -> tuple[str | None, str, list[Problem]]:
    """Return kind and model with their problems; the kind is None if it is omitted."""
    kind: str | None
    kind, colon, model = rest.partition(":")
    kind = _OTHER_NAMES.get((service.family, kind), kind)
    problems = []
    if kind not in READERS:
        # Model names of other services may contain colons (`llama3:8b`), and resemble a kind.
        likely = READERS if service.openai_models and colon else ()
        for close in difflib.get_close_matches(kind, likely, n=1, cutoff=ALIKE):
            hint = f'did you mean "{prefix}:{close}:{model}"?'
            problems.append(Problem(".id", f'"{kind}" is not a kind of request', hint))
        kind, model = None, rest
    elif kind not in service.kinds:
        problems.append(kind_problem(prefix, kind, service.kinds))
    if not model.strip():
        fault = f'"{prefix}:{rest}" has no model name'
        named = f"{kind}:" if kind not in (None, service.kinds[0]) else ""
        problems.append(Problem(".id", fault, f"write {prefix}:{named}<model>"))
    return kind, model, problems
