"""Features of providers, by their settings; see `trioeval.providers.abilities`."""

from pathlib import Path
from typing import Any

import pytest

from trioeval.providers import ProviderSpec, resolve
from trioeval.providers.abilities import abilities, may_search, schema_options
from trioeval.templates import Templates

KEYS = dict.fromkeys(
    (
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "GROQ_API_KEY",
        "MISTRAL_API_KEY",
        "OPENAI_API_KEY",
        "PERPLEXITY_API_KEY",
        "XAI_API_KEY",
    ),
    "sk-0123456789",
)
OPEN = {"type": "object", "properties": {"pass": {"type": "boolean"}}}
CLOSED = {**OPEN, "required": ["pass"], "additionalProperties": False}


def spec_of(entry_id: str, **config: Any) -> ProviderSpec:
    return resolve(
        entry_id, config, environ=KEYS, directory=Path(), templates=Templates(), custom={}
    )


def form_of(entry_id: str, schema: Any = CLOSED, **config: Any) -> Any:
    options = schema_options(spec_of(entry_id, **config).settings, schema)
    return options.get("response_format")


@pytest.mark.parametrize(
    ("entry_id", "able"),
    [
        ("openai:gpt-4.1", {"text"}),
        ("openai:responses:gpt-4.1", {"text"}),
        ("openai:embedding:text-embedding-3-small", {"embedding"}),
        ("mistral:embedding:mistral-embed", {"embedding"}),
        ("google:embedding:gemini-embedding-001", {"embedding"}),
        ("openai:moderation:omni-moderation-latest", {"moderation"}),
        ("anthropic:claude-sonnet-4-6", {"text"}),
        ("google:gemini-2.5-pro", {"text"}),
        ("echo", {"text"}),
        ("exec:cat", {"text", "embedding", "classification", "moderation", "media"}),
    ],
)
def test_a_service_is_identified_by_its_request(entry_id: str, able: set[str]) -> None:
    """A service is judged by its request; programs may return anything."""
    assert abilities(spec_of(entry_id).settings) == able


@pytest.mark.parametrize(
    ("entry_id", "config", "searches"),
    [
        ("openai:gpt-4.1", {}, False),
        ("openai:gpt-4o-search-preview", {}, True),
        ("openai:responses:gpt-4.1", {"tools": [{"type": "web_search"}]}, True),
        ("openai:responses:gpt-4.1", {"tools": [{"type": "function", "name": "f"}]}, False),
        ("anthropic:claude-sonnet-4-6", {}, False),
        ("google:gemini-2.5-pro", {"tools": [{"googleSearch": {}}]}, True),
        ("perplexity:sonar", {}, True),
        ("exec:cat", {}, True),
    ],
)
def test_a_model_may_search_if_its_config_requests_it(
    entry_id: str, config: dict[str, Any], *, searches: bool
) -> None:
    """A model may search if its config requests it, or if that is unknown."""
    assert may_search(spec_of(entry_id, **config).settings) is searches


@pytest.mark.parametrize(
    "entry_id", ["openai:gpt-4.1", "openai:responses:gpt-4.1", "google:gemini-2.5-pro"]
)
def test_a_schema_is_requested_if_the_service_supports_it(entry_id: str) -> None:
    """The options for a schema are valid options of a call."""
    spec = spec_of(entry_id)
    form = form_of(entry_id)
    assert form["json_schema"]["schema"] == CLOSED
    changed: Any = spec.settings
    assert changed.adapter.with_options({"response_format": form}) is not None


@pytest.mark.parametrize(
    ("entry_id", "config"),
    [
        ("openai:gpt-4-turbo", {}),
        ("openai:gpt-4o-2024-05-13", {}),
        ("openai:o1-preview", {}),
        ("openai:gpt-4.1", {"response_format": {"type": "json_object"}}),
        ("openai:gpt-4.1", {"passthrough": {"response_format": {"type": "text"}}}),
        ("openai:responses:gpt-4.1", {"text": {"format": {"type": "text"}}}),
        ("google:gemini-2.5-pro", {"generationConfig": {"responseMimeType": "text/plain"}}),
        ("google:gemini-2.5-pro", {"tools": [{"googleSearch": {}}]}),
        ("anthropic:claude-sonnet-4-6", {}),
        ("groq:llama-3.3-70b", {}),
        ("openai:embedding:text-embedding-3-small", {}),
        ("echo", {}),
    ],
)
def test_no_schema_is_requested_if_support_is_unknown(
    entry_id: str, config: dict[str, Any]
) -> None:
    """No schema is requested if support is unknown, or if the config sets a format: a refusal is worse."""
    assert form_of(entry_id, **config) is None


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        (OPEN, False),
        ({**CLOSED, "properties": {"pass": {"type": "number", "minimum": 0}}}, False),
        ({**CLOSED, "properties": {"pass": {"type": "array", "items": OPEN}}}, False),
        ({**CLOSED, "properties": {"pass": {"type": "array", "items": CLOSED}}}, True),
    ],
)
def test_a_schema_that_the_service_can_enforce_is_strict(schema: Any, *, strict: bool) -> None:
    """Other schemas are only requested."""
    assert form_of("openai:gpt-4.1", schema)["json_schema"]["strict"] is strict
