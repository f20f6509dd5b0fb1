"""Config keys of the families of models behind Bedrock, as the arguments of Converse that arrive."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sdk_runs import CASES, Answer, Server, opened, with_server

from trioeval.providers.base import Request
from trioeval.providers.config import EntryContext
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.sdk.bedrock import read
from trioeval.providers.sdk.bedrock_request import fixed_body
from trioeval.templates import Templates

ENVIRON = {
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "AKIA1",
    "AWS_SECRET_ACCESS_KEY": "aws-secret",
}
CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
NOVA = "us.amazon.nova-pro-v1:0"
LLAMA = "us.meta.llama3-3-70b-instruct-v1:0"
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}
SPEC = {"toolSpec": {"name": "add", "description": "Adds", "inputSchema": {"json": SCHEMA}}}
TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "Adds", "parameters": SCHEMA}},
    {"name": "add", "description": "Adds", "input_schema": SCHEMA},
    SPEC,
]


def settings(model: str, **config: Any) -> AdapterSettings:
    context = EntryContext(environ=ENVIRON, directory=Path(), templates=Templates())
    found = read("bedrock", model, config, context)
    assert isinstance(found, AdapterSettings), found
    return found


def problems(model: str, **config: Any) -> list[str]:
    context = EntryContext(environ=ENVIRON, directory=Path(), templates=Templates())
    found = read("bedrock", model, config, context)
    assert isinstance(found, list), found
    return [str(one) for one in found]


def sent(model: str, **config: Any) -> Mapping[str, Any]:
    return settings(model, **config).adapter.body


@pytest.mark.parametrize(
    ("model", "config", "expected"),
    [
        (LLAMA, {"max_gen_len": 9, "top_p": 0.5}, {"maxTokens": 9, "topP": 0.5}),
        (CLAUDE, {"max_tokens": 9, "stop": "END"}, {"maxTokens": 9, "stopSequences": ["END"]}),
        (CLAUDE, {"max_tokens_to_sample": 9}, {"maxTokens": 9}),
        (NOVA, {"interfaceConfig": {"max_new_tokens": 9, "top_p": 1}}, {"maxTokens": 9, "topP": 1}),
        (NOVA, {"inferenceConfig": {"maxTokens": 9, "topP": 1}}, {"maxTokens": 9, "topP": 1}),
        (NOVA, {"max_new_tokens": 9, "temperature": 0}, {"maxTokens": 9, "temperature": 0}),
        (
            "amazon.titan-text-express-v1",
            {"textGenerationConfig": {"maxTokenCount": 9, "stopSequences": ["x"]}},
            {"maxTokens": 9, "stopSequences": ["x"]},
        ),
        ("openai.gpt-oss-20b-1:0", {"max_completion_tokens": 9}, {"maxTokens": 9}),
        (
            "cohere.command-r-v1:0",
            {"p": 0.5, "stop": ["a", "b"]},
            {"topP": 0.5, "stopSequences": ["a", "b"]},
        ),
        (
            CLAUDE,
            {"inferenceConfig": {"maxTokens": 9, "temperature": 1}, "max_tokens": 5},
            {"maxTokens": 5, "temperature": 1},
        ),
    ],
)
def test_limits_and_sampling_have_one_name(
    model: str, config: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    """Single keys take precedence over those in an object."""
    assert sent(model, **config) == {"inferenceConfig": expected}


@pytest.mark.parametrize(
    ("model", "config", "expected"),
    [
        (
            CLAUDE,
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "anthropic_beta": ["x"]},
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "anthropic_beta": ["x"]},
        ),
        (CLAUDE, {"top_k": 5}, {"top_k": 5}),
        (NOVA, {"topK": 5}, {"inferenceConfig": {"topK": 5}}),
        (NOVA, {"inferenceConfig": {"topK": 5}}, {"inferenceConfig": {"topK": 5}}),
        ("cohere.command-r-v1:0", {"k": 5, "preamble": "Hi"}, {"k": 5, "preamble": "Hi"}),
        (
            "us.amazon.nova-2-lite-v1:0",
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}},
            {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": "low"}},
        ),
        ("openai.gpt-oss-20b-1:0", {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        (
            "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc",
            {"inferenceModelType": "nova", "topK": 5},
            {"inferenceConfig": {"topK": 5}},
        ),
        (
            LLAMA,
            {"additionalModelRequestFields": {"a": 1}, "seed": 3},
            {"a": 1, "seed": 3},
        ),
    ],
)
def test_what_one_family_has_is_a_field_of_its_model(
    model: str, config: Mapping[str, Any], expected: Mapping[str, Any]
) -> None:
    """Keys that are not ours keep their names."""
    assert sent(model, **config) == {"additionalModelRequestFields": expected}


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_of_every_form_are_those_of_converse(tool: Mapping[str, Any]) -> None:
    """Chat completions', Anthropic's and Converse's own."""
    assert sent(CLAUDE, tools=[tool]) == {"toolConfig": {"tools": [SPEC]}}


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", {"auto": {}}),
        ("required", {"any": {}}),
        ({"type": "any"}, {"any": {}}),
        ({"type": "tool", "name": "add"}, {"tool": {"name": "add"}}),
        ({"type": "function", "function": {"name": "add"}}, {"tool": {"name": "add"}}),
        ({"auto": {}}, {"auto": {}}),
    ],
)
def test_choices_of_a_tool_have_the_form_of_converse(choice: Any, expected: Any) -> None:
    """The choice "none" leaves the tools out."""
    body = sent(CLAUDE, tools=[SPEC], tool_choice=choice)
    assert body["toolConfig"]["toolChoice"] == expected
    assert sent(CLAUDE, tools=[SPEC], tool_choice="none") == {}


def test_a_guardrail_may_be_named_by_single_keys() -> None:
    """Its version is a draft unless it is given."""
    assert sent(CLAUDE, guardrailIdentifier="g") == {
        "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "DRAFT"}
    }
    assert sent(CLAUDE, guardrailIdentifier="g", guardrailVersion=2, trace="enabled") == {
        "guardrailConfig": {
            "guardrailIdentifier": "g",
            "guardrailVersion": "2",
            "trace": "enabled",
        }
    }


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (
            {"inferenceConfig": {"maxToken": 9, "temperature": "hot"}},
            [
                (
                    '.config.inferenceConfig.maxToken: "maxToken" is not a key\n'
                    '  did you mean "maxTokens"?'
                ),
                '.config.inferenceConfig.temperature: must be a number, got "hot"',
            ],
        ),
        (
            {"max_gen_len": 0},
            [".config.max_gen_len: must be a whole number of at least 1, got 0"],
        ),
        (
            {"max_gen_len": 5, "max_tokens": 6},
            [
                '.config.max_gen_len: "max_tokens" and "max_gen_len" mean the same\n  keep one of them'
            ],
        ),
        ({"apiKey": "x"}, ['.config.apiKey: "apiKey" is not a key']),
        (
            {"tools": [SPEC], "toolConfig": {"tools": [SPEC]}},
            [".config.tools: toolConfig has them already\n  keep one of them"],
        ),
        (
            {"guardrailIdentifier": "g", "guardrailConfig": {"guardrailIdentifier": "h"}},
            [".config.guardrailIdentifier: guardrailConfig has it already\n  keep one of them"],
        ),
        (
            {"thinking": {"type": {1}}},
            [".config.thinking.type: must be JSON, got {1}"],
        ),
    ],
)
def test_mistakes_are_located(config: Mapping[str, Any], expected: list[str]) -> None:
    """Also those inside an object."""
    assert problems(CLAUDE, **config) == expected


def test_a_version_of_the_api_of_anthropic_has_no_effect() -> None:
    """Converse has its own."""
    [warning] = settings(CLAUDE, anthropic_version="bedrock-2023-05-31").warnings
    assert str(warning).endswith('"anthropic_version" has no effect\n  Converse sets it')


def test_options_of_a_call_are_converted_too() -> None:
    """They replace those of the entry, and keep its other keys."""
    adapter = settings(LLAMA, max_gen_len=5, seed=1).adapter
    assert adapter.with_options({"max_gen_len": 9, "frob": 2}).body == {
        "inferenceConfig": {"maxTokens": 9},
        "additionalModelRequestFields": {"seed": 1, "frob": 2},
    }


@pytest.mark.parametrize("kind", ["converse", "completion"])
def test_the_kind_of_request_may_be_named(kind: str) -> None:
    """Converse is the request for both."""
    assert settings(f"{kind}:{NOVA}").adapter.endpoint.model == NOVA
    assert settings(f"{kind}:{NOVA}").lane_key == settings(NOVA).lane_key


def test_nothing_is_sent_without_a_config() -> None:
    """Defaults are the model's."""
    assert fixed_body(NOVA, {}) == {}


@pytest.mark.network
@pytest.mark.slow
def test_all_of_it_arrives_through_boto3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The body at the service has Converse's form."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HOME", str(tmp_path))
    bedrock = CASES[-1]

    async def body(server: Server) -> None:
        config = {
            "max_gen_len": 9,
            "stop": "END",
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "tools": [TOOLS[0]],
        }
        async with opened(bedrock.read(server.url, **config)) as provider:
            await provider(Request(prompt="Say hello"))
        [received] = server.received
        assert received.body == {
            "messages": [{"role": "user", "content": [{"text": "Say hello"}]}],
            "inferenceConfig": {"maxTokens": 9, "stopSequences": ["END"]},
            "additionalModelRequestFields": {
                "thinking": {"type": "enabled", "budget_tokens": 1024}
            },
            "toolConfig": {"tools": [SPEC]},
        }

    with_server([Answer(body=bedrock.good)], body)
