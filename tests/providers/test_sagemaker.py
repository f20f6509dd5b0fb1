"""SageMaker: bodies and replies of each type of model, and calls through boto3."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from sdk_runs import Answer, HangUp, Hold, Server, opened, with_server

from trioeval.errors import Problem, ProviderError
from trioeval.providers.abilities import abilities
from trioeval.providers.base import Request
from trioeval.providers.config import EntryContext
from trioeval.providers.http.adapter import HttpProvider
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.sdk import sagemaker
from trioeval.providers.sdk.sagemaker import SageMakerSettings
from trioeval.providers.vendor_hosts import vendor_of
from trioeval.templates import Templates

KEY = "aws-very-secret"
ACCESS = {"accessKeyId": "AKIA", "secretAccessKey": KEY}
HELLO = Request(prompt="Hi")
MESSAGES = [{"role": "user", "content": "Hi"}]


def read(entry: str, environ: dict[str, str] | None = None, **config: Any) -> Any:
    context = EntryContext(environ=environ or {}, directory=Path(), templates=Templates())
    return sagemaker.read("sagemaker", entry, {**ACCESS, **config}, context)


def settings(entry: str, environ: dict[str, str] | None = None, **config: Any) -> SageMakerSettings:
    found = read(entry, environ, **config)
    assert isinstance(found, SageMakerSettings), found
    return found


def sent(
    entry: str, prompt: str = "Hi", environ: dict[str, str] | None = None, **config: Any
) -> Any:
    adapter = settings(entry, environ, **config).adapter
    return json.loads(adapter.build(Request(prompt=prompt)).body or b"")


def parsed(entry: str, data: Any, **config: Any) -> Any:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    return settings(entry, **config).adapter.parse(HttpReply(200, {}, body)).output


SAMPLING = {"temperature": 0.7, "top_p": 1}
INSIDE = {"max_new_tokens": 1024, **SAMPLING}


@pytest.mark.parametrize(
    ("entry", "prompt", "body"),
    [
        ("openai:e", "Hi", {"prompt": "Hi", "max_tokens": 1024, **SAMPLING}),
        (
            "openai:e",
            json.dumps(MESSAGES),
            {"messages": MESSAGES, "max_tokens": 1024, **SAMPLING},
        ),
        ("llama:e", "Hi", {"inputs": "Hi", "parameters": INSIDE}),
        ("llama:e", json.dumps(MESSAGES), {"inputs": MESSAGES, "parameters": INSIDE}),
        (
            "huggingface:e",
            json.dumps(MESSAGES),
            {
                "inputs": json.dumps(MESSAGES),
                "parameters": {**INSIDE, "do_sample": True, "return_full_text": False},
            },
        ),
        ("jumpstart:e", "Hi", {"inputs": "Hi", "parameters": {**INSIDE, "do_sample": True}}),
        ("llama:jumpstart-e", "Hi", {"inputs": "Hi", "parameters": {**INSIDE, "do_sample": True}}),
        ("custom:e", "Hi", {"prompt": "Hi"}),
        ("custom:e", '{"text": "Hi"}', {"text": "Hi"}),
        ("custom:e", "[1]", [1]),
        ("embedding:e", "Hi", {"input": "Hi", "text": "Hi", "inputs": "Hi"}),
    ],
)
def test_each_type_of_model_has_its_body(entry: str, prompt: str, body: Any) -> None:
    """The bodies are those of promptfoo."""
    assert sent(entry, prompt) == body


def test_parameters_come_from_the_config_and_the_environment() -> None:
    """The config precedes the environment."""
    environ = {"AWS_SAGEMAKER_MAX_TOKENS": "9", "AWS_SAGEMAKER_TEMPERATURE": "0"}
    config = {"maxTokens": 7, "topP": 0.5, "stopSequences": ["END"]}
    assert sent("e", "Hi", environ, modelType="openai", **config) == {
        "prompt": "Hi",
        "max_tokens": 7,
        "temperature": 0,
        "top_p": 0.5,
        "stop": ["END"],
    }
    assert sent("huggingface:e", "Hi", environ)["parameters"]["do_sample"] is False
    assert sent("embedding:e", modelType="openai") == {"model": "embedding", "input": "Hi"}
    assert sent("embedding:e", modelType="huggingface") == {"inputs": "Hi"}


CHAT = {"choices": [{"message": {"content": "4"}}], "usage": {"prompt_tokens": 3}}


@pytest.mark.parametrize(
    ("entry", "data", "output"),
    [
        ("openai:e", CHAT, "4"),
        ("openai:e", {"choices": [{"text": "4"}]}, "4"),
        ("openai:e", {"generated_text": "4"}, "4"),
        ("llama:e", {"generation": "4"}, "4"),
        ("huggingface:e", [{"generated_text": "4"}], "4"),
        ("huggingface:e", [{"label": "x"}], {"label": "x"}),
        ("jumpstart:e", {"generated_text": "4"}, "4"),
        ("custom:e", {"output": "4"}, "4"),
        ("custom:e", {"response": {"a": 1}}, {"a": 1}),
        ("custom:e", {"other": 1}, {"other": 1}),
        ("custom:e", b"plain text", "plain text"),
        ("custom:e", [1, 2], [1, 2]),
        ("embedding:e", {"embedding": [1, 0.5]}, [1.0, 0.5]),
        ("embedding:e", {"data": [{"embedding": [1]}]}, [1.0]),
        ("embedding:e", [[1, 2]], [1.0, 2.0]),
    ],
)
def test_the_output_is_found_in_each_form(entry: str, data: Any, output: Any) -> None:
    """A reply in an unknown form is the output itself."""
    assert parsed(entry, data) == output


def test_a_path_finds_the_output() -> None:
    """Without a match the output is the whole reply."""
    data = {"outputs": [{"text": "4"}]}
    path = {"path": "json.outputs[0].text"}
    assert parsed("custom:e", data, responseFormat=path) == "4"
    assert parsed("custom:e", {"x": 1}, responseFormat=path) == {"x": 1}
    path = {"path": "json.vectors[0]"}
    assert parsed("embedding:e", {"vectors": [[1, 2]]}, responseFormat=path) == [1.0, 2.0]


def test_usage_is_copied_and_not_estimated() -> None:
    """Only the form of OpenAI reports it."""
    reply = HttpReply(200, {}, json.dumps(CHAT).encode())
    assert settings("openai:e").adapter.parse(reply).usage.prompt == 3
    reply = HttpReply(200, {}, b'{"generation": "4"}')
    assert settings("llama:e").adapter.parse(reply).usage.prompt is None


@pytest.mark.parametrize("data", [{}, {"embedding": ["x"]}, [], "text"])
def test_a_reply_without_a_vector_is_malformed(data: Any) -> None:
    """It is retried once."""
    with pytest.raises(ProviderError, match="the reply has no vector") as caught:
        parsed("embedding:e", data)
    assert caught.value.kind == "malformed_reply"


def test_mistakes_are_found_at_load() -> None:
    """All of them are reported together."""
    types = "openai, llama, huggingface, jumpstart, custom"
    assert read("gpt:e") == [
        Problem(".id", '"gpt" is not a type of model', f"use {types} or embedding")
    ]
    hint = f"write sagemaker:<type>:e, or set modelType: {types}"
    assert read("e") == [Problem(".id", '"sagemaker:e" has no type of model', hint)]
    assert [one.path for one in read("llama:", topP="x", responseFormat={"path": "a => a"})] == [
        ".config.topP",
        ".id",
        ".config.responseFormat.path",
    ]
    (problem,) = read("llama:e", region="nowhere")
    assert problem.path == ".config.region"


def test_the_region_has_a_default_and_the_endpoint_may_be_in_the_config() -> None:
    """The lane is that of one endpoint and one account."""
    found = settings("llama:e")
    assert found.adapter.url == (
        "https://runtime.sagemaker.us-east-1.amazonaws.com/endpoints/e/invocations"
    )
    assert found.lane_key.startswith("sagemaker|https://runtime.sagemaker.us-east-1")
    found = settings("llama:e", {"AWS_REGION": "eu-west-1"}, endpoint="other")
    assert "sagemaker.eu-west-1.amazonaws.com/endpoints/other/" in found.adapter.url
    assert found.secrets == (KEY,)
    assert abilities(settings("embeddings:e")) == {"embedding"}
    vendor = vendor_of("AWS_SECRET_ACCESS_KEY")
    assert vendor is not None
    assert vendor.owns("runtime.sagemaker.eu-west-1.amazonaws.com")


# --- over sockets, through boto3 -----------------------------------------------


@pytest.fixture
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use no proxies, and no credentials except those of the test."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_of_this_machine")
def test_a_request_is_signed_and_its_reply_read() -> None:
    """boto3 sends the body as it was built."""

    async def body(server: Server) -> None:
        async with opened(settings("llama:e", endpointUrl=server.url)) as provider:
            reply = await provider(HELLO)
        assert not isinstance(reply, str)
        assert reply.output == "4"
        assert reply.raw == {"generation": "4"}
        (seen,) = server.received
        assert (seen.method, seen.target) == ("POST", "/endpoints/e/invocations")
        assert seen.body == {"inputs": "Hi", "parameters": INSIDE}
        assert seen.headers["content-type"] == "application/json"
        assert seen.headers["accept"] == "application/json"
        assert seen.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIA/")

    with_server([Answer(body={"generation": "4"})], body)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_of_this_machine")
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (
            Answer(429, {"message": "slow"}, {"x-amzn-errortype": "ThrottlingException"}),
            "rate_limited",
        ),
        (Answer(424, {"message": "CUDA"}, {"x-amzn-errortype": "ModelError"}), "server"),
        (Answer(500, {"message": "no"}, {"x-amzn-errortype": "InternalFailure"}), "server"),
        (
            Answer(403, {"message": "no"}, {"x-amzn-errortype": "AccessDeniedException"}),
            "permission",
        ),
        (HangUp(), "connection"),
        (Hold(), "attempt_timeout"),
    ],
    ids=["throttled", "model", "internal", "denied", "closed", "hung"],
)
def test_failures_have_their_kinds(answer: Any, kind: str) -> None:
    """No secret is shown; nothing is retried below the lane."""

    async def body(server: Server) -> None:
        config: dict[str, Any] = {"timeoutMs": 500} if isinstance(answer, Hold) else {}
        async with opened(settings("llama:e", endpointUrl=server.url, **config)) as provider:
            assert isinstance(provider, HttpProvider)
            with pytest.raises(ProviderError) as caught:
                await provider(HELLO)
        assert caught.value.kind == kind
        assert KEY not in f"{caught.value} {caught.value.body_excerpt}"
        assert len(server.received) == 1

    with_server([answer], body)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_of_this_machine")
def test_a_large_reply_is_not_read_to_its_end() -> None:
    """The limit is that of all providers."""

    async def body(server: Server) -> None:
        config: dict[str, Any] = {"endpointUrl": server.url, "maxResponseBytes": 100}
        async with opened(settings("llama:e", **config)) as provider:
            with pytest.raises(ProviderError, match="maxResponseBytes") as caught:
                await provider(HELLO)
        assert caught.value.kind == "malformed_reply"

    with_server([Answer(body={"generation": "4" * 200})], body)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.usefixtures("nothing_of_this_machine")
def test_a_cancelled_call_ends_at_once() -> None:
    """Its thread is abandoned."""

    async def body(server: Server) -> None:
        async with opened(settings("llama:e", endpointUrl=server.url)) as provider:
            arrived = server.request_arrived
            async with trio.open_nursery() as calls:
                calls.start_soon(provider, HELLO)
                await arrived.wait()
                calls.cancel_scope.cancel()

    with_server([Hold()], body)
