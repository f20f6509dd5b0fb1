from collections.abc import Mapping
from typing import Any

import pytest

from trioeval.errors import Problem
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.vendors.openai_chat import ChatAdapter
from trioeval.providers.vendors.openai_models import is_reasoning, needs_responses
from trioeval.providers.vendors.services import SERVICES


def read(
    config: Mapping[str, Any],
    environ: Mapping[str, str] = {},
    model: str = "gpt-4.1",
    service: str = "openai",
) -> AdapterSettings | list[Problem]:
    return ChatAdapter.read_entry(
        SERVICES[service], model, {"apiKey": "sk-1234", **config}, environ
    )


def parameters(
    config: Mapping[str, Any],
    environ: Mapping[str, str] = {},
    model: str = "gpt-4.1",
    service: str = "openai",
) -> Mapping[str, Any]:
    settings = read(config, environ, model, service)
    assert isinstance(settings, AdapterSettings), settings
    assert isinstance(settings.adapter, ChatAdapter)
    return settings.adapter.parameters


def test_defaults_are_sent_to_ordinary_models() -> None:
    """Without config a request is repeatable and limited."""
    assert parameters({}) == {"temperature": 0, "max_tokens": 1024}


@pytest.mark.parametrize(
    ("model", "config", "expected"),
    [
        ("o3-mini", {}, {}),
        (
            "o3-mini",
            {"temperature": 1, "top_p": 0.5, "max_tokens": 9, "seed": 1},
            {"seed": 1, "max_completion_tokens": 9},
        ),
        (
            "o3-mini",
            {"max_tokens": 9, "max_completion_tokens": 5},
            {"max_completion_tokens": 5},
        ),
        (
            "gpt-5.1",
            {"temperature": 1, "reasoning_effort": "none"},
            {"temperature": 1, "reasoning_effort": "none"},
        ),
        ("o3-mini", {"isReasoningModel": False}, {"temperature": 0, "max_tokens": 1024}),
        (
            "mine",
            {"isReasoningModel": True, "reasoning_effort": "low"},
            {"reasoning_effort": "low"},
        ),
        ("gpt-4.1", {"omitDefaults": True}, {}),
        ("gpt-4.1", {"omit_defaults": True, "seed": 3}, {"seed": 3}),
        ("gpt-4.1", {"temperature": None}, {"max_tokens": 1024}),
        (
            "gpt-4.1",
            {"max_completion_tokens": 9},
            {"temperature": 0, "max_completion_tokens": 9},
        ),
        (
            "gpt-4.1",
            {"maxTokens": 5, "topP": 0.5, "stop": ["x"], "parallelToolCalls": False},
            {
                "temperature": 0,
                "max_tokens": 5,
                "top_p": 0.5,
                "stop": ["x"],
                "parallel_tool_calls": False,
            },
        ),
    ],
)
def test_the_config_takes_precedence_over_defaults(
    model: str, config: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    """Null removes a default; reasoning models get none, and no key that they would refuse."""
    assert parameters(config, model=model) == expected


@pytest.mark.parametrize(
    ("model", "config", "environ", "expected"),
    [
        (
            "gpt-4.1",
            {},
            {"OPENAI_TEMPERATURE": "0.5", "OPENAI_MAX_TOKENS": " 9 ", "OPENAI_TOP_P": "1"},
            {"temperature": 0.5, "max_tokens": 9, "top_p": 1},
        ),
        (
            "gpt-4.1",
            {"omitDefaults": True},
            {"OPENAI_PRESENCE_PENALTY": "-1", "OPENAI_FREQUENCY_PENALTY": ""},
            {"presence_penalty": -1},
        ),
        (
            "gpt-4.1",
            {"temperature": 1, "max_tokens": None},
            {"OPENAI_MAX_TOKENS": "9"},
            {"temperature": 1},
        ),
        ("gpt-4.1", {"omitDefaults": True}, {"OPENAI_MAX_COMPLETION_TOKENS": "9"}, {}),
        (
            "o3",
            {},
            {"OPENAI_MAX_COMPLETION_TOKENS": "9", "OPENAI_MAX_TOKENS": "5", "OPENAI_TOP_P": "1"},
            {"max_completion_tokens": 9},
        ),
    ],
)
def test_the_environment_sets_defaults(
    model: str, config: Mapping[str, Any], environ: Mapping[str, str], expected: Mapping[str, Any]
) -> None:
    """The config takes precedence over variables; each kind of model has its own."""
    assert parameters(config, environ, model) == expected


def test_variables_of_openai_do_not_apply_to_other_vendors() -> None:
    """Other vendors ignore them."""
    defaults = parameters({}, {"OPENAI_TEMPERATURE": "1"}, "llama", "groq")
    assert defaults == {"temperature": 0, "max_tokens": 1024}


@pytest.mark.parametrize("written", ["warm", "nan", "-", "1,5"])
def test_an_invalid_default_is_reported(written: str) -> None:
    """The problem names the variable."""
    assert read({}, {"OPENAI_TEMPERATURE": written}) == [
        Problem(
            ".config.temperature",
            f'the environment variable OPENAI_TEMPERATURE must be a number, got "{written}"',
        )
    ]


@pytest.mark.parametrize(
    ("service", "config", "expected"),
    [
        (
            "mistral",
            {"seed": 3, "max_completion_tokens": 9},
            {"temperature": 0, "random_seed": 3, "max_tokens": 9},
        ),
        ("cerebras", {}, {"temperature": 0, "max_completion_tokens": 1024}),
        ("cerebras", {"max_tokens": 9}, {"temperature": 0, "max_completion_tokens": 9}),
    ],
)
def test_keys_are_renamed_for_a_service(
    service: str, config: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    """Some services have other names for them."""
    assert parameters(config, model="m", service=service) == expected


def test_keys_that_a_service_refuses_are_reported_before_the_first_call() -> None:
    """A key that a service refuses is a problem; null is not sent."""
    fault = "not supported by mistral"
    assert read({"user": "u", "logprobs": None}, service="mistral") == [
        Problem(".config.user", fault, "leave it out")
    ]
    wrong = {"verbosity": "low", "user": "u", "store": True, "logprobs": True}
    problems = read(wrong, service="mistral")
    assert isinstance(problems, list)
    assert [one.path for one in problems] == [f".config.{name}" for name in wrong]


@pytest.mark.parametrize(
    ("config", "path", "message"),
    [
        ({"logprobs": 3}, ".config.logprobs", "must be true or false, got 3"),
        ({"topLogprobs": 21}, ".config.topLogprobs", "must be a whole number from 0 to 20, got 21"),
        ({"n": 0}, ".config.n", "must be a whole number of at least 1, got 0"),
        ({"modalities": "audio"}, ".config.modalities", 'must be a list of texts, got "audio"'),
        ({"metrics": ["tft"]}, ".config.metrics", 'must be "ttft", or a list of it, got ["tft"]'),
        (
            {"passthrough": {"messages": []}},
            ".config.passthrough.messages",
            "messages come from the prompt",
        ),
    ],
)
def test_an_invalid_value_is_reported(config: Mapping[str, Any], path: str, message: str) -> None:
    """The problem has the place, the value and the requirement."""
    found = read(config)
    assert isinstance(found, list)
    assert [(one.path, one.message) for one in found] == [(path, message)]


@pytest.mark.parametrize(
    ("model", "answer"),
    [
        ("o1", True),
        ("o4-mini-2026-04-16", True),
        ("openai/o3", True),
        ("ft:o4-mini:acme", True),
        ("gpt-5", True),
        ("gpt-5.1-mini", True),
        ("codex-mini-latest", True),
        ("gpt-5-chat-latest", False),
        ("gpt-5.1-chat", False),
        ("gpt-4o", False),
        ("gpt-35-turbo", False),
        ("gpt-50", False),
        ("olmo-2", False),
        ("o1ive", False),
    ],
)
def test_reasoning_models_are_recognised_by_name(model: str, *, answer: bool) -> None:
    """The name decides, without vendor and tuning prefixes."""
    assert is_reasoning(model) is answer


@pytest.mark.parametrize(
    ("model", "answer"),
    [
        ("gpt-5.6", True),
        ("gpt-5.6-mini", True),
        ("gpt-5.10", True),
        ("gpt-6", True),
        ("o1-pro", True),
        ("o3-deep-research-2025-06-26", True),
        ("o4-mini-deep-research", True),
        ("gpt-5-pro", True),
        ("gpt-5.2-pro-2025-12-11", True),
        ("gpt-5.1-codex-max", True),
        ("codex-mini-latest", True),
        ("computer-use-preview", True),
        ("gpt-5", False),
        ("gpt-5.1-2025-11-13", False),
        ("gpt-5.4-mini", False),
        ("gpt-4.1", False),
        ("o3", False),
        ("o1-preview", False),
        ("gpt-35-turbo", False),
    ],
)
def test_models_of_the_responses_endpoint_are_recognised_by_name(
    model: str, *, answer: bool
) -> None:
    """Version or kind in the name decides."""
    assert needs_responses(model) is answer
