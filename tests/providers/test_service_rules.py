"""Addresses, headers and names of single services, as they arrive over a socket."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from loopback import Answer, Seen, as_json, serve

from trioeval.errors import ProviderError, SuiteError
from trioeval.providers import HttpReply, Request, open_providers, resolve
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.resolve import ProviderSpec
from trioeval.templates import Templates

pytestmark = pytest.mark.network

KEY = "sk-very-secret"
REPLIES: Mapping[str, Any] = {
    "/chat/completions": {"choices": [{"message": {"content": "Four"}, "finish_reason": "stop"}]},
    "/v1/completions": {
        "choices": [{"text": "Four", "finish_reason": "length"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
    },
    "/responses": {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "Four"}]}],
    },
    "/embeddings": {"data": [{"embedding": [0.5]}]},
}


def spec_of(
    entry_id: str, config: Mapping[str, Any], environ: Mapping[str, str] = {}
) -> ProviderSpec:
    return resolve(
        entry_id,
        config,
        environ=environ,
        directory=Path(),
        templates=Templates(),
        custom={},
    )


def url(entry_id: str, environ: Mapping[str, str] = {}, **config: Any) -> str:
    settings = spec_of(entry_id, {"apiKey": KEY, **config}, environ).settings
    assert isinstance(settings, AdapterSettings)
    return settings.adapter.build(Request(prompt="Hi")).url


def problems(entry_id: str, environ: Mapping[str, str] = {}, **config: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        spec_of(entry_id, {"apiKey": KEY, **config}, environ)
    return [str(one) for one in caught.value.problems]


def answer(seen: Seen) -> Answer:
    return as_json(next(data for end, data in REPLIES.items() if seen.target.endswith(end)))


def arrived(
    entry_id: str,
    environ: Mapping[str, str] = {},
    *,
    base: str = "apiBaseUrl",
    prompt: str = "2 + 2",
    **config: Any,
) -> Seen:
    """Return the request that arrives at the service."""

    async def main() -> Seen:
        async with serve(answer) as server:
            spec = spec_of(entry_id, {base: server.url, **config}, environ)
            async with open_providers([spec], Templates()) as (provider,):
                reply = await provider(Request(prompt=prompt))
            assert reply.output in ("Four", [0.5])
            [seen] = server.seen
            return seen

    return trio.run(main)


@pytest.mark.parametrize(
    ("entry_id", "environ", "config", "expected"),
    [
        (
            "cloudflare-ai:chat:@cf/meta/llama-3",
            {},
            {"accountId": "acme"},
            "https://api.cloudflare.com/client/v4/accounts/acme/ai/v1/chat/completions",
        ),
        (
            "cloudflare-ai:embedding:m",
            {"MY_ACCOUNT": "acme"},
            {"accountIdEnvar": "MY_ACCOUNT"},
            "https://api.cloudflare.com/client/v4/accounts/acme/ai/v1/embeddings",
        ),
        (
            "cloudflare-ai:m",
            {"CLOUDFLARE_ACCOUNT_ID": "acme"},
            {"apiBaseUrl": "https://mine.example/v1"},
            "https://mine.example/v1/chat/completions",
        ),
        (
            "cloudflare-gateway:mistral:m",
            {"CLOUDFLARE_ACCOUNT_ID": "acme", "CLOUDFLARE_GATEWAY_ID": "gate"},
            {},
            "https://gateway.ai.cloudflare.com/v1/acme/gate/mistral/v1/chat/completions",
        ),
        (
            "cloudera:m",
            {"CDP_DOMAIN": "ml.acme.example"},
            {},
            "https://ml.acme.example/namespaces/serving-default/endpoints/m/v1/chat/completions",
        ),
        (
            "cloudera:m",
            {},
            {"domain": "ml.acme.example", "namespace": "n", "endpoint": "e"},
            "https://ml.acme.example/namespaces/n/endpoints/e/v1/chat/completions",
        ),
        (
            "snowflake:m",
            {"SNOWFLAKE_ACCOUNT_IDENTIFIER": "org-acme"},
            {},
            "https://org-acme.snowflakecomputing.com/api/v2/cortex/v1/chat/completions",
        ),
        ("xai:grok-4", {}, {}, "https://api.x.ai/v1/chat/completions"),
        (
            "xai:grok-4",
            {},
            {"region": "eu-west-1"},
            "https://eu-west-1.api.x.ai/v1/chat/completions",
        ),
        (
            "databricks:m",
            {},
            {"workspaceUrl": "https://acme.cloud.databricks.com/"},
            "https://acme.cloud.databricks.com/serving-endpoints/chat/completions",
        ),
        ("helicone:openai/gpt-4.1", {}, {}, "http://127.0.0.1:8080/ai/chat/completions"),
        (
            "helicone:openai/gpt-4.1",
            {},
            {"baseUrl": "https://mine.example", "router": "team"},
            "https://mine.example/router/team/chat/completions",
        ),
        (
            "docker:ai/m",
            {"DOCKER_MODEL_RUNNER_BASE_URL": "http://127.0.0.1:12434"},
            {},
            "http://127.0.0.1:12434/engines/v1/chat/completions",
        ),
        (
            "envoy:m",
            {"ENVOY_API_BASE_URL": "https://mine.example"},
            {},
            "https://mine.example/v1/chat/completions",
        ),
        (
            "mlflow-gateway:m",
            {},
            {"gatewayUrl": "http://127.0.0.1:5000"},
            "http://127.0.0.1:5000/gateway/mlflow/v1/chat/completions",
        ),
        (
            "f5:path/m",
            {},
            {"apiBaseUrl": "https://mine.example/api"},
            "https://mine.example/api/path/m/chat/completions",
        ),
        ("jfrog:m", {}, {}, "https://models.qwak-prod.qwak.ai/v1/m/chat/completions"),
        ("voyage:voyage-3", {}, {}, "https://api.voyageai.com/v1/embeddings"),
        ("meta:m", {}, {}, "https://api.meta.ai/v1/responses"),
        ("cohere:command-r", {}, {}, "https://api.cohere.ai/compatibility/v1/chat/completions"),
        (
            "truefoundry:a/m",
            {},
            {"task": "embedding"},
            "https://llm-gateway.truefoundry.com/embeddings",
        ),
        (
            "truefoundry:a/my-embedding",
            {},
            {"task": "chat"},
            "https://llm-gateway.truefoundry.com/chat/completions",
        ),
    ],
)
def test_the_address_follows_from_id_config_and_environment(
    entry_id: str, environ: Mapping[str, str], config: Mapping[str, Any], expected: str
) -> None:
    """A base URL of the config takes precedence over its parts in the environment."""
    assert url(entry_id, environ, **config) == expected


@pytest.mark.parametrize(
    ("entry_id", "environ", "config", "expected"),
    [
        (
            "cloudflare-ai:m",
            {},
            {},
            (
                ".config.accountId: cloudflare-ai:m needs accountId\n"
                "  set config.accountId, or CLOUDFLARE_ACCOUNT_ID in the environment, "
                "or config.apiBaseUrl"
            ),
        ),
        (
            "cloudflare-ai:m",
            {"CLOUDFLARE_ACCOUNT_ID": "../../x"},
            {},
            (
                ".config.accountId: the environment variable CLOUDFLARE_ACCOUNT_ID must be "
                'letters, digits, dots, hyphens and underscores, got "../../x"'
            ),
        ),
        (
            "snowflake:m",
            {},
            {"accountIdentifier": "evil.example/"},
            (
                ".config.accountIdentifier: must be letters, digits, dots, hyphens and underscores, "
                'got "evil.example/"'
            ),
        ),
        (
            "xai:m",
            {},
            {"region": "a/b"},
            '.config.region: must be letters, digits, dots, hyphens and underscores, got "a/b"',
        ),
        (
            "snowflake:m",
            {},
            {"accountIdentifer": "acme", "apiBaseUrl": "https://a.example"},
            (
                '.config.accountIdentifer: "accountIdentifer" is not a key\n'
                '  did you mean "accountIdentifier"?'
            ),
        ),
    ],
)
def test_a_part_of_an_address_is_a_name(
    entry_id: str, environ: Mapping[str, str], config: Mapping[str, Any], expected: str
) -> None:
    """It changes neither the host nor the path around it; a missing one is located."""
    assert expected in problems(entry_id, environ, **config)


def test_portkey_gets_its_key_and_that_of_the_service_behind() -> None:
    """Its own settings are headers; nothing of it is in the body."""
    seen = arrived(
        "portkey:gpt-4.1",
        {"PORTKEY_API_KEY": KEY},
        base="portkeyApiBaseUrl",
        apiKey="sk-upstream-1234",
        portkeyProvider="openai",
        portkeyMetadata={"_user": "u1"},
    )
    assert seen.target == "/chat/completions"
    assert seen.headers["x-portkey-api-key"] == KEY
    assert seen.headers["authorization"] == "Bearer sk-upstream-1234"
    assert seen.headers["x-portkey-provider"] == "openai"
    assert json.loads(seen.headers["x-portkey-metadata"]) == {"_user": "u1"}
    assert json.loads(seen.body).keys() == {"model", "messages", "temperature", "max_tokens"}


def test_the_keys_of_portkey_are_hidden() -> None:
    """Both of them, and a virtual key."""
    spec = spec_of(
        "portkey:m",
        {"portkeyApiKey": KEY, "apiKey": "sk-upstream-1234", "portkeyVirtualKey": "virtual-1234"},
    )
    assert {KEY, "sk-upstream-1234", "virtual-1234"} <= {*spec.secrets}
    assert not any(secret in spec.lane_key for secret in spec.secrets)
    assert "config.portkeyApiKey" in problems("portkey:m", {})[0]


def test_truefoundry_gets_its_metadata_as_a_header() -> None:
    """It is not in the body."""
    seen = arrived(
        "truefoundry:acme/gpt-4.1",
        {"TRUEFOUNDRY_API_KEY": KEY},
        metadata={"team": "a"},
        loggingConfig={"enabled": True},
        mcp_servers=[{"name": "x"}],
    )
    assert json.loads(seen.headers["x-tfy-metadata"]) == {"team": "a"}
    assert json.loads(seen.headers["x-tfy-logging-config"]) == {"enabled": True}
    body = json.loads(seen.body)
    assert body["mcp_servers"] == [{"name": "x"}]
    assert "metadata" not in body


def test_cloudflares_gateway_gets_its_own_token() -> None:
    """Beside the key of the service behind it."""
    seen = arrived("cloudflare-gateway:groq:m", {"GROQ_API_KEY": KEY}, cfAigToken="cf-1234")
    assert seen.headers["cf-aig-authorization"] == "Bearer cf-1234"
    assert seen.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("entry_id", "config", "expected"),
    [
        ("cohere:command-r", {"p": 0.5, "k": 3}, {"top_p": 0.5, "k": 3}),
        (
            "vercel:openai/gpt-4.1",
            {"maxTokens": 9, "topP": 0.5, "stopSequences": ["x"], "providerOptions": {"a": 1}},
            {"max_tokens": 9, "top_p": 0.5, "stop": ["x"], "providerOptions": {"a": 1}},
        ),
        ("databricks:m", {"usageContext": {"team": "a"}}, {"usage_context": {"team": "a"}}),
        ("azure:m", {"dataSources": [{"type": "x"}]}, {"data_sources": [{"type": "x"}]}),
        ("minimax:MiniMax-M3", {"max_tokens": 9}, {"max_completion_tokens": 9}),
    ],
)
def test_names_of_a_service_are_those_of_its_body(
    entry_id: str, config: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    """Other names of our keys are converted; others stay as they are."""
    body = json.loads(arrived(entry_id, apiKey=KEY, **config).body)
    assert {name: body[name] for name in expected} == expected
    assert not body.keys() & ({*config} - {*expected})


@pytest.mark.parametrize(
    ("entry_id", "has_it"),
    [
        ("moonshot:kimi-k3", False),
        ("moonshot:moonshot-v1-8k", True),
        ("orcarouter:anthropic/claude-opus-4-1", False),
        ("orcarouter:openai/gpt-4.1", True),
    ],
)
def test_models_that_refuse_a_temperature_get_no_default(entry_id: str, has_it: bool) -> None:  # noqa: FBT001
    """One in the config is sent."""
    body = json.loads(arrived(entry_id, apiKey=KEY).body)
    assert ("temperature" in body) is has_it
    assert json.loads(arrived(entry_id, apiKey=KEY, temperature=1).body)["temperature"] == 1


def test_a_voyage_model_returns_a_vector() -> None:
    """Its only kind is embeddings."""
    seen = arrived("voyage:voyage-3", {"VOYAGE_API_KEY": KEY}, input_type="document")
    assert seen.target == "/embeddings"
    assert json.loads(seen.body) == {
        "model": "voyage-3",
        "input": "2 + 2",
        "input_type": "document",
    }


def test_a_completion_gets_the_text_unchanged() -> None:
    """Messages are text there; the parameters are those of chat completions."""
    prompt = '[{"role": "user", "content": "2 + 2"}]'
    seen = arrived("ollama:completion:m", prompt=prompt, max_tokens=9, stop=["x"], suffix="!")
    assert seen.target == "/v1/completions"
    assert json.loads(seen.body) == {
        "model": "m",
        "prompt": prompt,
        "temperature": 0,
        "max_tokens": 9,
        "stop": ["x"],
        "suffix": "!",
    }


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"choices": []}, "empty_reply"),
        ({"choices": [{"message": {"content": "Four"}}]}, "malformed_reply"),
        ({"x": 1}, "malformed_reply"),
    ],
)
def test_a_reply_without_a_text_is_no_completion(data: Any, kind: str) -> None:
    """It may be that of another kind of server."""
    settings = spec_of("openai:completion:m", {"apiKey": KEY}).settings
    assert isinstance(settings, AdapterSettings)
    with pytest.raises(ProviderError) as caught:
        settings.adapter.parse(HttpReply(200, {}, json.dumps(data).encode()))
    assert caught.value.kind == kind


def test_a_completion_has_usage_log_probabilities_and_a_reason() -> None:
    """A filtered one is a refusal."""
    settings = spec_of("openai:completion:m", {"apiKey": KEY, "logprobs": 1}).settings
    assert isinstance(settings, AdapterSettings)
    choice = {
        "text": "Four",
        "finish_reason": "content_filter",
        "logprobs": {"token_logprobs": [-0.5]},
    }
    data = {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    reply = settings.adapter.parse(HttpReply(200, {}, json.dumps(data).encode()))
    assert (reply.output, reply.finish_reason, reply.log_probs) == (
        "Four",
        "content_filter",
        (-0.5,),
    )
    assert reply.is_refusal
    assert reply.usage.prompt == 3
    assert settings.adapter.body["logprobs"] == 1


@pytest.mark.parametrize("prefix", ["envoy", "mlflow-gateway", "helicone", "litellm"])
def test_a_router_costs_money_wherever_it_runs(prefix: str) -> None:
    """The services behind it do, so a budget does not take it for free."""
    spec = spec_of(f"{prefix}:m", {"apiBaseUrl": "http://127.0.0.1:9"})
    assert spec.metering.is_paid
    assert not spec_of("docker:m", {}).metering.is_paid
