"""Checks that the providers of columns can do what the columns need, before the first call. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioeval.columns.model import Column, ColumnsSettings, EmbeddingColumn, JudgeColumn, LlmColumn
from trioeval.errors import Problem, ProviderError
from trioeval.providers import ProviderSpec, Request
from trioeval.providers.abilities import Ability, abilities
from trioeval.providers.http.adapter import AdapterSettings

_HINTS: Mapping[Ability, str] = {
    "text": "name a chat model, such as openai:gpt-4.1-mini",
    "embedding": "name a model of embeddings, such as openai:embedding:text-embedding-3-small",
}


def wrong_models(settings: ColumnsSettings, specs: Sequence[ProviderSpec]) -> Iterator[Problem]:
    """Yield columns whose provider does not support them, or does not accept the keys of their config.

    Args:
        settings: The columns.
        specs: The providers of their task, in its order.
    """
    for position, column in enumerate(settings.columns):
        match column:
            case LlmColumn() | JudgeColumn():
                place, config = column.asking.provider, column.asking.config
                found = _wrong(column, specs[place], "text", config)
            case EmbeddingColumn():
                found = _wrong(column, specs[column.provider], "embedding", column.config)
            case _:
                continue
        for key, message, hint in found:
            yield Problem(f"$.columns[{position}].{key}", message, hint)


def _wrong(
    column: Column, spec: ProviderSpec, ability: Ability, config: Mapping[str, Any]
) -> Iterator[tuple[str, str, str | None]]:
    if ability not in abilities(spec.settings):
        output_kind = "text" if ability == "text" else "embeddings"
        yield (
            "provider",
            f"{spec.id} does not return {output_kind}, which column {column.name} needs",
            _HINTS[ability],
        )
    elif config and isinstance(spec.settings, AdapterSettings):
        try:
            spec.settings.adapter.build(Request(prompt="hello", options=config))
        except ProviderError as error:
            yield "config", error.message, None
