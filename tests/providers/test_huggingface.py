"""Hugging Face: ids, endpoints, and chat; the tasks themselves are tested in `test_every_vendor`."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from loopback import Answer, Seen, as_json, opened, serve
from vendor_cases import read_entry

from trioeval.errors import ProviderError, SuiteError
from trioeval.evaluation.grader_replies import read_labels
from trioeval.providers import Request, resolve
from trioeval.providers.abilities import abilities
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.resolve import ProviderSpec
from trioeval.providers.vendor_hosts import vendor_of
from trioeval.providers.vendors import huggingface
from trioeval.templates import Templates


def spec_of(entry_id: str, environ: dict[str, str] | None = None, **config: Any) -> ProviderSpec:
    return resolve(
        entry_id,
        config,
        environ={"HF_TOKEN": "hf_12345678"} if environ is None else environ,
        directory=Path(),
        templates=Templates(),
        custom={},
    )


def chat(entry: str = "huggingface:chat:org/m", **config: Any) -> Any:
    settings = read_entry(huggingface.read, entry, config)
    assert isinstance(settings, AdapterSettings), settings
    request = settings.adapter.build(Request(prompt="Hi"))
    return request.url, json.loads(request.body or b"")


def test_chat_is_that_of_the_router() -> None:
    """The keys of chat completions apply; those that only generation has are not sent."""
    url, body = chat(temperature=0.5, max_new_tokens=7, top_k=3, return_full_text=False)
    assert url == "https://router.huggingface.co/v1/chat/completions"
    assert body == {
        "model": "org/m",
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0.5,
        "max_tokens": 7,
    }


@pytest.mark.parametrize(
    ("entry", "model"),
    [
        ("hf:chat:org/m", "org/m:together"),
        ("hf:chat:org/m:sambanova", "org/m:sambanova"),
    ],
)
def test_a_chat_may_name_its_inference_provider(entry: str, model: str) -> None:
    """The one in the id takes precedence."""
    assert chat(entry, inferenceProvider="together")[1]["model"] == model


@pytest.mark.parametrize(
    "whole", ["https://h.example/v1", "https://h.example/v1/chat/completions/"]
)
def test_an_endpoint_of_chat_may_be_given_with_its_path(whole: str) -> None:
    """Such an endpoint of text generation is one of chat, unless the config says otherwise."""
    for entry in ("huggingface:chat:m", "huggingface:text-generation:m"):
        more = {} if "chat/" in whole or ":chat:" in entry else {"chatCompletion": True}
        url, body = chat(entry, apiEndpoint=whole, **more)
        assert url == "https://h.example/v1/chat/completions"
        assert body["messages"]
    url, body = chat("hf:text-generation:m", apiEndpoint=whole, chatCompletion=False)
    assert body["inputs"] == "Hi"


def test_mistakes_of_an_endpoint_name_its_key() -> None:
    """The key of the suite is named, not the one that it becomes."""
    for entry in ("huggingface:chat:m", "huggingface:text-generation:m"):
        with pytest.raises(SuiteError) as caught:
            spec_of(entry, apiEndpoint="nowhere")
        [problem] = caught.value.problems
        assert str(problem) == ".config.apiEndpoint: must be an http or https URL with a host"
    with pytest.raises(SuiteError, match=r"config.inferenceProvider: must be text"):
        spec_of("huggingface:chat:m", inferenceProvider=1)


def test_an_endpoint_needs_no_token() -> None:
    """It may be public; the router is not."""
    spec = spec_of("huggingface:text-generation:m", {}, apiEndpoint="https://h.example/a")
    assert spec.lane_key == "huggingface|https://h.example/a|-|-|m"
    assert spec_of("hf:chat:m", {}, apiEndpoint="https://h.example/v1").secrets == ()
    with pytest.raises(SuiteError, match="set HF_TOKEN or HF_API_TOKEN"):
        spec_of("huggingface:text-generation:m", {})


def test_the_output_of_a_task_is_known() -> None:
    """The wrong judge is refused at load."""
    kinds = {
        "text-generation": "text",
        "text-classification": "classification",
        "token-classification": "classification",
        "feature-extraction": "embedding",
    }
    for task, kind in kinds.items():
        assert abilities(spec_of(f"huggingface:{task}:m").settings) == {kind}


def test_the_token_belongs_to_hugging_face() -> None:
    """An untrusted suite cannot send it elsewhere."""
    vendor = vendor_of("HF_TOKEN")
    assert vendor is not None
    assert vendor.owns("router.huggingface.co")
    assert vendor.owns("x1.us-east-1.aws.endpoints.huggingface.cloud")
    assert not vendor.owns("huggingface.co.example")


@pytest.mark.network
def test_an_endpoint_is_called_at_its_own_url() -> None:
    """The path of the URL is not extended; the scores are those that `classifier` reads."""

    async def main() -> None:
        reply = as_json([[{"label": "POSITIVE", "score": 0.9}]])
        async with serve(lambda _: reply) as server:
            spec = spec_of("huggingface:text-classification:m", apiEndpoint=f"{server.url}/mine")
            async with opened(spec) as provider:
                answer = await provider(Request(prompt="Nice"))
        assert read_labels(answer.output) == {"POSITIVE": 0.9}
        assert answer.raw == [[{"label": "POSITIVE", "score": 0.9}]]
        (seen,) = server.seen
        assert (seen.method, seen.target) == ("POST", "/mine")
        assert seen.headers["authorization"] == "Bearer hf_12345678"
        assert json.loads(seen.body) == {"inputs": "Nice", "parameters": {}}

    trio.run(main)


@pytest.mark.network
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (as_json({"error": "Rate limit reached for hf_12345678"}, 429), "rate_limited"),
        (as_json({"error": "Model m is loading", "estimated_time": 20}, 503), "server"),
        (as_json({"error": "Internal"}, 500), "server"),
        (Answer(200, b"<html>"), "malformed_reply"),
        (as_json({"error": "Authorization header is correct, but the token is not"}, 401), "auth"),
        (None, "attempt_timeout"),
    ],
)
def test_failures_have_their_kinds_and_hide_the_token(answer: Answer | None, kind: str) -> None:
    """Kinds decide about retries; they are those of all services."""

    def respond(_: Seen) -> Answer | None:
        return answer

    async def main() -> None:
        async with serve(respond) as server:
            config: dict[str, Any] = {"timeoutMs": 50} if answer is None else {}
            spec = spec_of("hf:text-generation:m", apiBaseUrl=server.url, **config)
            async with opened(spec) as provider:
                with pytest.raises(ProviderError) as caught:
                    await provider(Request(prompt="Hi"))
        assert caught.value.kind == kind
        assert "hf_12345678" not in f"{caught.value} {caught.value.body_excerpt}"

    trio.run(main)
