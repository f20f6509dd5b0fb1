import json
from collections.abc import Mapping
from typing import Any

import pytest
from vendor_cases import ENVIRON, parse_failure, read_entry, reply
from vendor_google import (
    BASE,
    CALL,
    CHAT_FORMAT,
    GENERATE,
    LOG_PROBS,
    MODEL,
    RATINGS,
    SCHEMA,
    TEXT,
    THOUGHT,
    api_error,
    candidate,
    generated,
)
from vendor_vectors import EMBED_CONTENT

from trioeval.providers.base import Guardrails, Reply, Request
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.vendors.gemini import GenerateAdapter, read
from trioeval.usage import Usage

CHAT_CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "Returns the time", "parameters": SCHEMA},
}
CLOCK = {
    "functionDeclarations": [
        {"name": "clock", "description": "Returns the time", "parametersJsonSchema": SCHEMA}
    ]
}


def entry(rest: str, environ: Mapping[str, str], /, **config: Any) -> GenerateAdapter:
    found = read_entry(read, f"google:{rest}", config, environ)
    assert isinstance(found, AdapterSettings), found
    assert isinstance(found.adapter, GenerateAdapter)
    return found.adapter


def adapter(**config: Any) -> GenerateAdapter:
    return entry(MODEL, ENVIRON, **config)


def body(prompt: str = "Hi", **config: Any) -> Any:
    return json.loads(adapter(**config).build(Request(prompt=prompt)).body or b"")


def parse(*parts: Mapping[str, Any], **more: Any) -> Reply:
    return adapter().parse(reply(generated(candidate(*parts, **more))))


# --- requests ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "config", "base"),
    [
        ({}, {"apiVersion": "v1"}, f"{BASE}/v1"),
        ({"GOOGLE_API_BASE_URL": "http://a/"}, {}, "http://a/v1beta"),
        ({"GOOGLE_API_BASE_URL": "http://a/v1beta"}, {}, "http://a/v1beta"),
        ({"GOOGLE_API_BASE_URL": "http://a", "GOOGLE_API_HOST": "b"}, {}, "https://b/v1beta"),
        ({"GOOGLE_API_HOST": "b"}, {"apiBaseUrl": "http://c/x"}, "http://c/x/v1beta"),
    ],
)
def test_the_version_is_a_part_of_the_path(
    environ: Mapping[str, str], config: Mapping[str, Any], base: str
) -> None:
    """A base URL may or may not contain it."""
    ready = entry(MODEL, {**ENVIRON, **environ}, **config).build(Request(prompt="Hi"))
    assert ready.url == f"{base}/models/{MODEL}:generateContent"


def test_the_first_set_key_variable_is_used() -> None:
    """Both variables are read, in order."""
    assert entry(MODEL, {"GOOGLE_API_KEY": "b"}).endpoint.credential == "b"
    assert entry(MODEL, {"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": "a"}).endpoint.credential == "a"


@pytest.mark.parametrize(
    ("config", "generation"),
    [
        (
            {"responseSchema": SCHEMA},
            {"responseSchema": SCHEMA, "responseMimeType": "application/json"},
        ),
        (
            {"generationConfig": {"response_json_schema": SCHEMA}},
            {"responseJsonSchema": SCHEMA, "responseMimeType": "application/json"},
        ),
        (
            {"response_format": CHAT_FORMAT},
            {"responseJsonSchema": SCHEMA, "responseMimeType": "application/json"},
        ),
        ({"response_format": {"type": "json_object"}}, {"responseMimeType": "application/json"}),
        (
            {"responseSchema": SCHEMA, "responseMimeType": "text/x.enum"},
            {"responseSchema": SCHEMA, "responseMimeType": "text/x.enum"},
        ),
    ],
)
def test_a_schema_sets_the_type_of_the_reply(
    config: Mapping[str, Any], generation: Mapping[str, Any]
) -> None:
    """The type is set unless the config sets one."""
    assert body(**config)["generationConfig"] == generation


def test_functions_of_chat_completions_are_declared_together() -> None:
    """Other tools precede them unchanged."""
    assert body(tools=[CHAT_CLOCK, {"googleSearch": {}}])["tools"] == [{"googleSearch": {}}, CLOCK]


@pytest.mark.parametrize(
    ("choice", "calling"),
    [
        ("auto", {"mode": "AUTO"}),
        ("required", {"mode": "ANY"}),
        ("any", {"mode": "ANY"}),
        ("none", {"mode": "NONE"}),
        (
            {"type": "function", "function": {"name": "clock"}},
            {"mode": "ANY", "allowedFunctionNames": ["clock"]},
        ),
    ],
)
def test_tool_choices_of_chat_completions_are_modes(choice: object, calling: object) -> None:
    """The form of chat completions is converted to modes."""
    assert body(tools=[CLOCK], tool_choice=choice)["toolConfig"] == {
        "functionCallingConfig": calling
    }


# --- prompts -------------------------------------------------------------------


def test_messages_get_the_roles_of_the_service() -> None:
    """The assistant becomes the model, and system messages are separate."""
    prompt = json.dumps(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
            {"role": "user", "parts": [{"text": "2 + 2?"}]},
        ]
    )
    sent = body(prompt, systemInstruction={"parts": [{"text": "Be exact."}]})
    assert sent["systemInstruction"] == {
        "parts": [{"text": "Be exact."}, {"text": "Be brief."}, {"text": "Be kind."}]
    }
    assert sent["contents"] == [
        {"role": "user", "parts": [{"text": "Hi"}]},
        {"role": "model", "parts": [{"text": "Hello"}]},
        {"role": "user", "parts": [{"text": "2 + 2?"}]},
    ]


PNG = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
PNG_URI = "data:image/png;base64,iVBORw=="


@pytest.mark.parametrize(
    ("block", "parts"),
    [
        ("bare", [{"text": "bare"}]),
        ({"type": "text", "text": "What is it?"}, [{"text": "What is it?"}]),
        ({"type": "image_url", "image_url": {"url": PNG_URI}}, [PNG]),
        ({"type": "image", "source": {"type": "base64", "data": PNG_URI}}, [PNG]),
        (
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="},
            },
            [PNG],
        ),
        ({"inlineData": {"data": PNG_URI}}, [PNG]),
        ({"inline_data": {"mime_type": "image/png", "data": PNG_URI}}, [PNG]),
        (PNG, [PNG]),
        (CALL, [CALL]),
        ({"fileData": {"fileUri": "https://a"}}, [{"fileData": {"fileUri": "https://a"}}]),
        (f"Look:\n{PNG_URI}\nWhat is it?", [{"text": "Look:"}, PNG, {"text": "What is it?"}]),
        (f"{PNG_URI}\n\n{PNG_URI}", [PNG, PNG]),
        (f"It begins with {PNG_URI}", [{"text": f"It begins with {PNG_URI}"}]),
    ],
)
def test_contents_become_parts(block: object, parts: object) -> None:
    """Texts, images in other services' forms, and parts in the service's own form are accepted."""
    (sent,) = body(json.dumps([{"role": "user", "content": [block]}]))["contents"]
    assert sent == {"role": "user", "parts": parts}


def test_a_plain_prompt_may_contain_an_image() -> None:
    """The image is on a separate line, as rendered by a template."""
    (sent,) = body(f"What is it?\n{PNG_URI}")["contents"]
    assert sent["parts"] == [{"text": "What is it?"}, PNG]


# --- replies -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "read_"),
    [
        ({"promptTokenCount": 7, "totalTokenCount": 7}, Usage(prompt=7, total=7)),
        ({"thoughtsTokenCount": 7}, Usage(completion=7, reasoning=7)),
    ],
)
def test_usage_may_be_reported_in_part(usage: object, read_: Usage) -> None:
    """Thoughts are part of the completion."""
    data = generated(candidate(TEXT), usageMetadata=usage)
    assert adapter().parse(reply(data)).usage == read_


@pytest.mark.parametrize(
    ("parts", "config", "output"),
    [
        ([{"text": "It is "}, {"text": "four."}], {}, "It is four."),
        ([THOUGHT, TEXT, CALL], {"showThinking": True}, [THOUGHT, TEXT, CALL]),
        ([THOUGHT, TEXT, CALL], {}, [TEXT, CALL]),
        ([{"text": "{}"}], {"responseMimeType": "application/json"}, "{}"),
    ],
)
def test_the_output_is_made_of_the_parts(
    parts: list[Mapping[str, Any]], config: Mapping[str, Any], output: object
) -> None:
    """Texts are joined; any other part makes the output a list."""
    assert adapter(**config).parse(reply(generated(candidate(*parts)))).output == output


def test_log_probabilities_are_those_of_the_chosen_tokens() -> None:
    """Either all tokens have one, or the result is None."""
    assert parse(TEXT, logprobsResult=LOG_PROBS).log_probs == (-0.25, -1.0)
    broken = {"chosenCandidates": [{"logProbability": -1}, {"logProbability": "-Infinity"}]}
    assert parse(TEXT, logprobsResult=broken).log_probs is None


def test_a_rated_reply_is_not_flagged() -> None:
    """A reply that was rated and not filtered is not flagged."""
    answer = parse(TEXT, safetyRatings=RATINGS)
    assert (answer.is_refusal, answer.guardrails) == (False, Guardrails(flagged=False))


def quota(quota_id: str) -> dict[str, Any]:
    return {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [
            {
                "quotaMetric": "generativelanguage.googleapis.com/generate_requests",
                "quotaId": quota_id,
                "quotaDimensions": {"model": MODEL, "location": "global"},
                "quotaValue": "10",
            }
        ],
    }


def retry(delay: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


HELP = {"@type": "type.googleapis.com/google.rpc.Help", "links": [{"url": "https://ai.example"}]}
MINUTE = quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier")
DAY = quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier")


@pytest.mark.parametrize(
    ("details", "kind", "retry_after"),
    [
        ([MINUTE, HELP, retry("38s")], "rate_limited", 38),
        ([MINUTE, retry("38.123456s")], "rate_limited", 38.123456),
        ([retry("0.5s")], "rate_limited", 0.5),
        ([MINUTE], "rate_limited", None),
        ([DAY, HELP, retry("41438s")], "quota_exhausted", 41438),
        ([DAY, retry("20s")], "rate_limited", 20),
    ],
)
def test_a_wait_is_read_from_the_body(
    details: list[Mapping[str, Any]], kind: str, retry_after: float | None
) -> None:
    """Gemini has no header for it; a daily quota that is not available soon is exhausted."""
    data = api_error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", *details)
    error = parse_failure(adapter(), reply(data, 429))
    assert (error.kind, error.retry_after, error.status) == (kind, retry_after, 429)


# --- entries -------------------------------------------------------------------


def test_all_mistakes_are_reported_together() -> None:
    """Problems of keys, endpoint and their combinations are reported together."""
    config = {"seed": "x", "apiHost": "a/b", "passthrough": {"contents": []}, "sed": 1}
    found = GENERATE.read(config)
    assert isinstance(found, list)
    assert len(found) == 4


@pytest.mark.parametrize(
    ("entry_id", "lane"),
    [
        (f"gemini:{MODEL}", GENERATE.lane),
        ("google:embeddings:gemini-embedding-001", EMBED_CONTENT.lane),
    ],
)
def test_aliases_of_a_model_share_a_lane(entry_id: str, lane: str) -> None:
    """They share the quota of a project and a model."""
    found = read_entry(read, entry_id, {})
    assert isinstance(found, AdapterSettings)
    assert found.lane_key == lane
