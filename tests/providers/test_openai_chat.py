import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from damaged import check_parse, damaged
from hypothesis import given
from vendor_cases import KEY, LIMITS, parse_failure, reply
from vendor_openai import CALLS, CHAT, CHAT_FORMAT, CLEAN, FULL, completion

from trioeval.errors import ProviderError
from trioeval.providers import Guardrails, Request, Usage, resolve
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.http.wire import HttpReply
from trioeval.providers.vendors.openai_chat import ChatAdapter
from trioeval.providers.vendors.services import SERVICES
from trioeval.rates.throttle import Allowance, RateHint
from trioeval.templates import Templates


def adapter(model: str = "gpt-4.1", service: str = "openai", /, **config: Any) -> ChatAdapter:
    read = ChatAdapter.read_entry(SERVICES[service], model, {"apiKey": KEY, **config}, {})
    assert isinstance(read, AdapterSettings), read
    assert isinstance(read.adapter, ChatAdapter)
    return read.adapter


@pytest.mark.parametrize(
    ("config", "message", "output"),
    [
        ({}, {"content": "", "tool_calls": CALLS}, CALLS),
        ({}, {"content": None, "function_call": {"name": "f"}}, {"name": "f"}),
        ({}, {"content": "So:", "tool_calls": CALLS}, {"content": "So:", "tool_calls": CALLS}),
        ({}, {"content": [{"type": "text"}]}, [{"type": "text"}]),
        ({"passthrough": {"response_format": CHAT_FORMAT}}, {"content": '{"a": 1}'}, {"a": 1}),
        ({"response_format": {"type": "json_object"}}, {"content": "{}"}, "{}"),
        (
            {"showThinking": True},
            {"content": "4", "reasoning_content": "2 + 2"},
            "Thinking: 2 + 2\n\n4",
        ),
        ({}, {"content": None, "reasoning": "2 + 2"}, ""),
        ({}, {"content": None, "audio": {"id": "a1"}}, ""),
    ],
)
def test_the_output_is_made_of_the_message(
    config: Mapping[str, Any], message: Mapping[str, Any], output: object
) -> None:
    """Text, tool calls, parsed JSON and thinking each have one form."""
    assert adapter(**config).parse(reply(completion(message))).output == output


@pytest.mark.parametrize(
    ("of_prompt", "of_answer", "guardrails"),
    [
        (CLEAN, CLEAN, Guardrails(flagged=False)),
        (
            {**CLEAN, "jailbreak": {"filtered": False, "detected": True}},
            CLEAN,
            Guardrails(flagged=True, flagged_input=True, reason="jailbreak"),
        ),
        (
            CLEAN,
            {**CLEAN, "hate": {"filtered": True, "severity": "high"}},
            Guardrails(flagged=True, flagged_output=True, reason="hate"),
        ),
    ],
)
def test_filters_report_on_prompt_and_output(
    of_prompt: object, of_answer: object, guardrails: Guardrails
) -> None:
    """Azure's filters report on every reply, and mostly that nothing was found."""
    choice = {"message": {"content": "4"}, "content_filter_results": of_answer}
    filtered = {"prompt_index": 0, "content_filter_results": of_prompt}
    data = {"choices": [choice], "prompt_filter_results": [filtered]}
    answer = adapter().parse(reply(data))
    assert (answer.guardrails, answer.is_refusal) == (guardrails, False)


@pytest.mark.parametrize(
    ("logprobs", "expected"),
    [
        ({"content": [{"token": "4", "logprob": -0.5}, {"logprob": 0}]}, (-0.5, 0.0)),
        ({"tokens": ["4"], "token_logprobs": [-0.25]}, (-0.25,)),
        ({"content": None, "refusal": []}, None),
        ({"content": [{"logprob": "x"}]}, None),
        ({"content": [{"logprob": -1}, {}]}, None),
        ({"content": [{"logprob": 10**400}]}, None),
        (None, None),
    ],
)
def test_log_probabilities_are_those_of_all_tokens(
    logprobs: object, expected: tuple[float, ...] | None
) -> None:
    """Those of some tokens alone would be useless."""
    choice = {"message": {"content": "4"}, "logprobs": logprobs}
    answer = adapter().parse(reply({"choices": [choice]}))
    assert answer.log_probs == expected


def test_audio_replies_have_their_transcript() -> None:
    """The sound is media of the reply; the metadata has its URI."""
    audio = {"id": "a1", "data": "UklGRgQAAABXQVZF", "transcript": "Four.", "expires_at": 1}
    answer = adapter().parse(reply(completion({"content": None, "audio": audio})))
    assert answer.output == "Four."
    (sound,) = answer.media
    assert (sound.mime_type, sound.size) == ("audio/wav", 12)
    assert answer.metadata["audio"] == {**audio, "data": sound.uri}
    assert "UklG" not in json.dumps(answer.raw)


def test_audio_without_a_header_becomes_a_wav_file_and_other_data_is_refused() -> None:
    """The form of the request decides what the samples are."""
    spoken = completion({"content": None, "audio": {"id": "a1", "data": "AAABAA=="}})
    answer = adapter(audio={"voice": "alloy", "format": "pcm16"}).parse(reply(spoken))
    (sound,) = answer.media
    assert answer.output == sound.uri
    assert sound.read()[-4:] == bytes([0, 0, 1, 0])
    for data, fault in (("AAABAA==", "not an image, audio or video"), ("%%", "not valid base64")):
        wrong = completion({"content": None, "audio": {"data": data}})
        with pytest.raises(ProviderError, match=fault) as caught:
            adapter().parse(reply(wrong))
        assert caught.value.kind == "malformed_reply"


def test_reasoning_in_parts_of_the_content_is_separated_from_the_text() -> None:
    """Mistral's form is supported; with unknown parts the content is unchanged."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "2 + 2"}]}
    content = [thought, {"type": "text", "text": "It is "}, {"type": "text", "text": "4"}]
    parsed = reply(completion({"content": content}))
    assert adapter(showThinking=True).parse(parsed).output == "Thinking: 2 + 2\n\nIt is 4"
    assert adapter().parse(parsed).output == "It is 4"
    odd = [*content, {"type": "image"}]
    assert adapter().parse(reply(completion({"content": odd}))).output == odd


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            {
                "prompt_tokens": 32,
                "completion_tokens": 9,
                "total_tokens": 135,
                "completion_tokens_details": {
                    "reasoning_tokens": 94,
                    "accepted_prediction_tokens": 3,
                    "rejected_prediction_tokens": 4,
                },
            },
            Usage(
                prompt=32,
                completion=103,
                total=135,
                reasoning=94,
                accepted_prediction=3,
                rejected_prediction=4,
            ),
        ),
        (
            {"prompt_tokens": 9, "prompt_cache_hit_tokens": 8, "prompt_cache_miss_tokens": 1},
            Usage(prompt=9, cached=8),
        ),
        (
            {"prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 7}},
            Usage(cached=0, cache_creation=7),
        ),
    ],
)
def test_usage_has_the_same_meaning_for_every_service(usage: object, expected: Usage) -> None:
    """Reasoning is part of the completion, even if a service counts it separately."""
    assert adapter().parse(reply(completion({"content": "4"}, usage=usage))).usage == expected


@pytest.mark.parametrize(
    ("usage", "config", "cost"),
    [
        ({"cost": 0.25}, {}, 0.25),
        ({"cost": -1}, {}, None),
        ({"cost": "1"}, {}, None),
        ({}, {}, None),
        (
            {"cost": 0.25, "prompt_tokens": 2, "completion_tokens": 1},
            {"price": {"input": 1_000_000, "output": 0}},
            2.0,
        ),
    ],
)
def test_a_service_may_report_the_cost(
    usage: object, config: Mapping[str, Any], cost: float | None
) -> None:
    """A price in the config takes precedence."""
    priced = adapter("m", "openrouter", **config)
    assert priced.parse(reply(completion({"content": "4"}, usage=usage))).cost == cost


def test_other_fields_of_a_reply_are_kept() -> None:
    """Source and service tier are in the metadata."""
    annotations = [{"type": "url_citation", "url_citation": {"url": "https://a.example"}}]
    more: Any = {"provider": "p", "service_tier": "flex", "citations": ["https://b.example"]}
    message = {"content": "4", "annotations": annotations}
    answer = adapter().parse(reply(completion(message, **more)))
    assert answer.metadata["annotations"] == annotations
    assert answer.metadata["service_tier"] == "flex"
    assert answer.metadata["provider"] == "p"
    assert answer.metadata["citations"] == ["https://b.example"]


FLAGGED = {
    "code": 403,
    "message": "Your input was flagged",
    "metadata": {"reasons": ["violence", KEY], "flagged_input": "x", "provider_name": "p"},
}


@pytest.mark.parametrize(
    "flagged",
    [
        reply({"error": FLAGGED}, 403),
        reply({"error": FLAGGED}),
        reply({"choices": [{"error": FLAGGED}]}),
    ],
)
def test_a_prompt_flagged_by_a_router_is_a_refusal(flagged: HttpReply) -> None:
    """It concerns only this prompt, so other prompts are still sent; a plain 403 is a permission error."""
    refused = adapter().parse(flagged)
    assert (refused.output, refused.is_refusal) == ("Your input was flagged", True)
    assert refused.guardrails == Guardrails(
        flagged=True, flagged_input=True, reason="violence, [hidden]"
    )


@pytest.mark.parametrize("metadata", [None, "x", {}, {"reasons": [], "flagged_input": ""}])
def test_any_other_403_is_a_permission_error(metadata: object) -> None:
    """Other metadata of a router does not matter."""
    error = {"code": 403, "message": "No.", "metadata": metadata}
    failure = parse_failure(adapter(), reply({"error": error}, 403))
    assert str(failure) == "permission: HTTP 403 Forbidden: check config.apiKey; No."


def test_nan_in_a_reply_is_null() -> None:
    """Some servers send NaN, and the rest of their reply is valid."""
    body = (
        b'{"choices": [{"message": {"content": "4"}, "logprobs": {"content": [{"logprob": NaN}]}}]}'
    )
    answer = adapter().parse(HttpReply(200, {}, body))
    assert (answer.output, answer.log_probs) == ("4", None)
    assert b"null" in json.dumps(answer.raw, allow_nan=False).encode()


def test_infinite_numbers_are_not_counts() -> None:
    """No cost can be computed from them, but the reply is valid."""
    usage = {"prompt_tokens": 10**400, "completion_tokens": 1}
    answer = adapter().parse(reply(completion({"content": "4"}, usage=usage)))
    assert (answer.output, answer.usage, answer.cost) == ("4", Usage(completion=1), None)


def test_a_private_server_needs_no_key() -> None:
    """A model's name may contain a colon."""
    config = {"apiBaseUrl": "http://127.0.0.1:1/v1"}
    spec = resolve(
        "openai:chat:m:1", config, environ={}, directory=Path(), templates=Templates(), custom={}
    )
    assert isinstance(spec.settings, AdapterSettings)
    ready = spec.settings.adapter.build(Request(prompt="2 + 2"))
    assert (ready.url, ready.headers) == ("http://127.0.0.1:1/v1/chat/completions", {})
    assert json.loads(ready.body or b"")["model"] == "m:1"


def test_limits_of_a_service_have_its_window() -> None:
    """Groq counts requests per day."""
    groq = adapter(apiBaseUrl="https://api.groq.com/openai/v1")
    answer = groq.parse(attrs.evolve(reply(CHAT.good), headers=LIMITS))
    assert answer.hint == RateHint(Allowance(50, 0, window=86400))


@pytest.mark.parametrize(
    ("finish_reason", "message"), [(None, ""), (KEY, " (finish reason [hidden])")]
)
def test_an_empty_message_names_its_finish_reason(finish_reason: str | None, message: str) -> None:
    """A service may send any text as the reason."""
    error = parse_failure(adapter(), reply(completion({}, finish_reason)))
    assert str(error) == f"empty_reply: HTTP 200 OK: the message is empty{message}"
    assert error.retries == 1


ROUTER = adapter("m", "openrouter")


@pytest.mark.slow
@given(damaged(FULL))
def test_any_body_of_a_router_is_a_reply_or_an_error(data: Any) -> None:
    """A router's reported costs are arbitrary as well."""
    check_parse(ROUTER, reply(data))
