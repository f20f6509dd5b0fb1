"""Config keys that are not ours: the bodies that arrive, warnings and mistakes."""

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from loopback import Answer, Seen, as_json, serve

import trioeval
from trioeval.errors import ProviderError, SuiteError
from trioeval.providers import Request, open_providers, resolve
from trioeval.providers.config import LIMITS, Key, is_number, nearest, to_snake
from trioeval.providers.http.endpoint import ENDPOINT_KEYS
from trioeval.providers.other_keys import (
    ALIKE,
    NOT_MISSPELT,
    PROMPTFOO_KEYS,
    OtherKeys,
    read_open_config,
    secret_texts,
)
from trioeval.providers.resolve import ProviderSpec
from trioeval.providers.vendors.anthropic import MessagesAdapter
from trioeval.providers.vendors.openai_chat import ChatAdapter
from trioeval.providers.vendors.openai_other import CompletionAdapter, EmbeddingAdapter
from trioeval.providers.vendors.openai_responses import ResponsesAdapter
from trioeval.templates import Templates

pytestmark = pytest.mark.network

KEY = "sk-very-secret"
COMPLETION = {"choices": [{"message": {"content": "Four"}, "finish_reason": "stop"}]}
REPLIES: Mapping[str, Any] = {
    "chat/completions": COMPLETION,
    "responses": {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "Four"}]}],
    },
    "messages": {"content": [{"type": "text", "text": "Four"}]},
    "embeddings": {"data": [{"embedding": [0.5]}]},
}


def spec_of(entry_id: str, config: Mapping[str, Any]) -> ProviderSpec:
    return resolve(
        entry_id,
        {"apiKey": KEY, **config},
        environ={},
        directory=Path(),
        templates=Templates(),
        custom={},
    )


def problems(entry_id: str, **config: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        spec_of(entry_id, config)
    return [str(one) for one in caught.value.problems]


def warnings(entry_id: str, **config: Any) -> list[str]:
    return [str(one) for one in spec_of(entry_id, config).warnings]


def answer(seen: Seen) -> Answer:
    return as_json(next(data for path, data in REPLIES.items() if seen.target.endswith(path)))


def arrived(
    entry_id: str, options: Mapping[str, Any] = {}, /, **config: Any
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Return the body and the headers that arrive at the service."""

    async def main() -> Seen:
        async with serve(answer) as server:
            spec = spec_of(entry_id, {"apiBaseUrl": server.url, **config})
            async with open_providers([spec], Templates()) as (provider,):
                await provider(Request(prompt="2 + 2", options=options))
            [seen] = server.seen
            return seen

    seen = trio.run(main)
    body: dict[str, Any] = json.loads(seen.body)
    return body, seen.headers


@pytest.mark.parametrize(
    ("entry_id", "config"),
    [
        ("openai:gpt-4.1", {"logit_bias": {"50256": -100}, "web_search_options": {}}),
        ("openai:gpt-4.1", {"prompt_cache_retention": "24h", "safety_identifier": "u1"}),
        ("openai:o3", {"reasoning": {"effort": "low"}}),
        ("openai:responses:gpt-4.1", {"conversation": "c1", "prompt": {"id": "p1"}}),
        ("openai:responses:gpt-4.1", {"prompt_cache_retention": "24h"}),
        ("azure:gpt-4.1", {"data_sources": [{"type": "azure_search", "parameters": {"a": 1}}]}),
        ("xai:grok-4", {"search_parameters": {"mode": "on", "sources": [{"type": "x"}]}}),
        (
            "perplexity:sonar",
            {
                "search_domain_filter": ["python.org"],
                "search_recency_filter": "week",
                "return_related_questions": True,
                "search_mode": "academic",
            },
        ),
        (
            "openrouter:m/x",
            {
                "provider": {"order": ["a"], "allow_fallbacks": False},
                "transforms": ["middle-out"],
                "models": ["m/y"],
                "route": "fallback",
                "top_k": 5,
                "top_a": 0.1,
                "min_p": 0.05,
                "plugins": [{"id": "web"}],
            },
        ),
        ("vllm:m", {"top_k": 5, "repetition_penalty": 1.1, "guided_choice": ["a", "b"]}),
        ("groq:m", {"reasoning_format": "hidden", "search_settings": {"exclude_domains": ["x"]}}),
        ("deepseek:m", {"thinking": {"type": "enabled"}}),
        ("anthropic:claude-haiku-4-5", {"container": "c1", "mcp_servers": [{"type": "url"}]}),
        ("anthropic:claude-haiku-4-5", {"context_management": {"edits": []}}),
        ("nvidia:m", {"chat_template_kwargs": {"thinking": True}}),
        ("openai:embedding:m", {"input_type": "query", "truncate": "END"}),
    ],
)
def test_keys_that_are_not_ours_arrive_as_they_are(
    entry_id: str, config: Mapping[str, Any]
) -> None:
    """They are in the body under their own names, beside ours, and nothing else changes."""
    plain, _ = arrived(entry_id)
    assert arrived(entry_id, **config)[0] == {**plain, **config}
    assert warnings(entry_id, apiBaseUrl="https://a.example", **config) == []


@pytest.mark.parametrize(
    ("entry_id", "right", "wrong", "meant"),
    [
        ("openai:gpt-4.1", 1, "temprature", "temperature"),
        ("openai:gpt-4.1", 1, "max_token", "max_tokens"),
        ("openai:gpt-4.1", 1, "max_new_tokens", "max_tokens"),
        ("openai:gpt-4.1", {}, "reponse_format", "response_format"),
        ("openai:gpt-4.1", "x", "base_url", "apiBaseUrl"),
        ("openai:gpt-4.1", 1, "maxRetry", "maxRetries"),
        ("openai:responses:gpt-4.1", "x", "instruction", "instructions"),
        ("openrouter:m", "x", "reasoning_efort", "reasoning_effort"),
        ("anthropic:claude-haiku-4-5", {}, "thinkin", "thinking"),
        ("google:gemini-2.5-pro", {}, "safetySetting", "safetySettings"),
    ],
)
def test_a_misspelt_key_is_an_error(entry_id: str, right: Any, wrong: str, meant: str) -> None:
    """It would change what is measured; the question names the key that was meant."""
    [problem] = problems(entry_id, **{wrong: right})
    assert problem == f'.config.{wrong}: "{wrong}" is not a key\n  did you mean "{meant}"?'


APIS = (ChatAdapter, ResponsesAdapter, MessagesAdapter, EmbeddingAdapter, CompletionAdapter)


@pytest.mark.parametrize("name", sorted(NOT_MISSPELT))
def test_a_key_of_a_service_may_look_like_ours(name: str) -> None:
    """It is sent; without the list it would be an error of at least one API."""
    looks_like_ours = False
    for api in APIS:
        keys = (*api.call_keys, *api.entry_keys, *ENDPOINT_KEYS)
        ours = {to_snake(key.name) for key in (*keys, *PROMPTFOO_KEYS)} | {*LIMITS}
        if name in ours:
            continue
        assert not read_open_config({name: 1}, keys, api.other_keys).problems
        plain = {one.replace("_", "") for one in ours}
        looks_like_ours |= bool(nearest(name.replace("_", ""), plain, ALIKE))
    assert looks_like_ours


@pytest.mark.parametrize(
    ("entry_id", "config", "expected"),
    [
        (
            "openai:gpt-4.1",
            {"functionToolCallbacks": {"add": "file://x.js"}},
            (
                '.config.functionToolCallbacks: "functionToolCallbacks" has no effect\n'
                "  the call of a tool itself is the output"
            ),
        ),
        ("openai:gpt-4.1", {"basePath": "/x"}, '.config.basePath: "basePath" has no effect'),
        (
            "openai:gpt-4.1",
            {"useDefaultApiKey": False},
            '.config.useDefaultApiKey: "useDefaultApiKey" has no effect',
        ),
        ("openai:gpt-4.1", {"audioCost": 1e-6}, '.config.audioCost: "audioCost" has no effect'),
        (
            "openai:gpt-4.1",
            {"stream": True},
            (
                '.config.stream: "stream" has no effect\n'
                "  replies are streamed only to measure the time to the first token: metrics"
            ),
        ),
        (
            "openai:gpt-4.1",
            {"delay": 5},
            '.config.delay: "delay" has no effect\n  write delay beside config',
        ),
        (
            "openai:gpt-4.1",
            {"maxOutputTokens": 5},
            '.config.maxOutputTokens: "maxOutputTokens" has no effect\n  it is a key of Gemini',
        ),
        (
            "anthropic:claude-haiku-4-5",
            {"frequency_penalty": 1},
            (
                '.config.frequency_penalty: "frequency_penalty" has no effect\n'
                "  it is a key of chat completions"
            ),
        ),
        (
            "xai:grok-4",
            {"organization": "acme"},
            '.config.organization: "organization" has no effect\n  xai has none',
        ),
        (
            "google:gemini-2.5-pro",
            {"frobnicate": 1},
            '.config.frobnicate: "frobnicate" is not a key, and is not sent',
        ),
        (
            "openai:gpt-4.1",
            {"inputCost": 1e-6},
            (
                '.config.inputCost: "inputCost" alone has no effect\n'
                "  write inputCost and outputCost, or price"
            ),
        ),
    ],
)
def test_keys_that_no_service_knows_are_not_sent(
    entry_id: str, config: Mapping[str, Any], expected: str
) -> None:
    """Promptfoo handles them itself, or they have no effect; a warning says so."""
    assert warnings(entry_id, **config) == [expected]
    if not entry_id.startswith("google"):
        assert arrived(entry_id, **config)[0] == arrived(entry_id)[0]


@pytest.mark.parametrize(
    ("entry_id", "config", "expected"),
    [
        (
            "openai:responses:gpt-4.1",
            {"mcp": {"enabled": True, "server": {"command": "npx"}}},
            (
                ".config.mcp: tools of MCP servers are not supported\n"
                "  leave it out, or set enabled: false"
            ),
        ),
        (
            "openai:gpt-4.1",
            {"messages": []},
            ".config.messages: it comes from the prompt\n  leave it out",
        ),
        (
            "azure:gpt-4.1",
            {"azureClientSecret": "x", "apiHost": "a.openai.azure.com"},
            (
                ".config.azureClientSecret: signing in to Microsoft Entra is not supported\n"
                "  set apiKey, or headers: authorization"
            ),
        ),
        (
            "openai:embedding:m",
            {"temperature": 0},
            '.config.temperature: "temperature" is not a key',
        ),
        (
            "openai:gpt-4.1",
            {"timeout": 5, "timeoutMs": 5},
            '.config.timeout: "timeoutMs" and "timeout" mean the same\n  keep one of them',
        ),
        (
            "openai:gpt-4.1",
            {"timeout": "5s"},
            '.config.timeout: must be a number of milliseconds above 0, got "5s"',
        ),
        (
            "xai:grok-4",
            {"search_parameters": {"sources": [{"from": dt.date(2026, 1, 2)}]}},
            (
                ".config.search_parameters.sources[0].from: "
                "must be JSON, got datetime.date(2026, 1, 2)"
            ),
        ),
        ("vllm:m", {"x": float("nan")}, ".config.x: must be JSON, got NaN"),
        ("vllm:m", {"x": {1: 2}}, ".config.x: the names in an object must be texts, got 1"),
    ],
)
def test_what_cannot_be_sent_or_ignored_is_an_error(
    entry_id: str, config: Mapping[str, Any], expected: str
) -> None:
    """It has the path of the part, before the first call."""
    assert problems(entry_id, **config) == [expected]


def test_a_switched_off_mcp_server_is_left_out() -> None:
    """It has no effect in promptfoo either."""
    assert warnings("openai:gpt-4.1", mcp={"enabled": False}) == []
    assert "mcp" not in arrived("openai:gpt-4.1", mcp={"enabled": False})[0]


def test_all_problems_are_in_the_order_of_the_config() -> None:
    """Ours, misspelt ones and those of other keys are reported together."""
    found = problems("vllm:m", x={1}, seed="a", temprature=1, messages=[])
    assert [one.partition(":")[0] for one in found] == [
        ".config.x",
        ".config.seed",
        ".config.temprature",
        ".config.messages",
    ]


def test_costs_per_token_are_prices_per_million() -> None:
    """`price` takes precedence; a price of the cache is optional."""
    for config, expected in (
        ({"cost": 2e-6}, {"input": 2, "output": 2}),
        ({"inputCost": 1.5e-7, "outputCost": 6e-7}, {"input": 0.15, "output": 0.6}),
        ({"cost": 2e-6, "inputCost": 1e-6}, {"input": 1, "output": 2}),
        ({"cost": 2e-6, "cacheReadCost": 1e-6}, {"input": 2, "output": 2, "cachedInput": 1}),
        ({"cost": 9e-6, "price": {"input": 1, "output": 2}}, {"input": 1, "output": 2}),
    ):
        as_price = spec_of("openai:gpt-4.1", {"price": expected})
        assert spec_of("openai:gpt-4.1", config).metering.price == as_price.metering.price
        assert warnings("openai:gpt-4.1", **config) == []


def test_a_service_without_a_key_needs_none() -> None:
    """`apiKeyRequired: false` says so; otherwise the key is missed."""
    config = {"apiKey": None, "apiBaseUrl": "https://mine.example/v1"}
    [problem] = problems("openai:gpt-4.1", **config)
    assert "needs an API key" in problem
    spec = spec_of("openai:gpt-4.1", {**config, "apiKeyRequired": False})
    assert spec.settings.endpoint is not None
    assert spec.settings.endpoint.headers == {}


def test_a_timeout_is_in_milliseconds_and_ends_the_call() -> None:
    """It is that of one request, as `timeoutMs`."""

    async def main() -> str:
        async with serve(lambda _: None) as server:
            spec = spec_of("openai:gpt-4.1", {"apiBaseUrl": server.url, "timeout": 50})
            async with open_providers([spec], Templates()) as (provider,):
                with pytest.raises(ProviderError) as caught:
                    await provider(Request(prompt="2 + 2"))
                return caught.value.kind

    assert trio.run(main) == "attempt_timeout"


def test_options_of_a_call_are_added_to_those_of_the_entry() -> None:
    """A prompt or a test may change one of several keys."""
    options = {"min_p": 0.5, "route": "fallback"}
    body, _ = arrived("openrouter:m", options, min_p=0.1, top_k=3, passthrough={"seed": 1})
    assert {name: body[name] for name in ("min_p", "top_k", "route", "seed")} == {
        "min_p": 0.5,
        "top_k": 3,
        "route": "fallback",
        "seed": 1,
    }


def test_passthrough_takes_precedence() -> None:
    """It is merged last."""
    assert arrived("vllm:m", top_k=1, passthrough={"top_k": 2})[0]["top_k"] == 2


def test_secrets_in_other_keys_are_hidden() -> None:
    """A server that repeats one shows nothing; the lane is that of the account."""
    config = {
        "data_sources": [
            {"parameters": {"authentication": {"type": "api_key", "key": "search-key-1234"}}}
        ]
    }
    assert list(secret_texts(config)) == ["search-key-1234"]

    async def main() -> str:
        refusal = as_json({"error": {"message": "wrong key search-key-1234"}}, 400)
        async with serve(lambda _: refusal) as server:
            spec = spec_of("azure:m", {"apiBaseUrl": server.url, **config})
            assert spec.lane_key == spec_of("azure:m", {"apiBaseUrl": server.url}).lane_key
            async with open_providers([spec], Templates()) as (provider,):
                with pytest.raises(ProviderError) as caught:
                    await provider(Request(prompt="2 + 2"))
            assert "search-key" not in f"{caught.value} {caught.value.body_excerpt} {spec}"
            return str(caught.value)

    assert "wrong key [hidden]" in trio.run(main)


def test_a_warning_is_given_once_for_all_providers() -> None:
    """A shared config does not repeat it; its path is that of the first provider."""
    config = {"apiKey": KEY, "functionToolCallbacks": {}}
    suite = trioeval.parse_suite(
        {
            "providers": [{"id": f"openai:gpt-4.{n}", "config": config} for n in range(3)],
            "prompts": ["Hi"],
        }
    )
    found = [str(one) for one in trioeval.prepare(suite).warnings]
    assert [one.partition("\n")[0] for one in found] == [
        '$.providers[0].config.functionToolCallbacks: "functionToolCallbacks" has no effect'
    ]


def test_null_is_not_sent() -> None:
    """It removes a key, as for ours."""
    assert arrived("vllm:m", top_k=None)[0] == arrived("vllm:m")[0]


def test_a_closed_api_sends_nothing() -> None:
    """Other keys are ignored with a warning."""
    keys = [Key("seed", "a number", is_number)]
    found = read_open_config({"seed": 1, "frob": 2}, keys, OtherKeys(sends=False))
    assert found.folded() == {"seed": 1}
    assert len(found.warnings) == 1
