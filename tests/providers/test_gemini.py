import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from damaged import JSON, check_parse, damaged
from fake_runs import with_raw_server
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import Problem, ProviderError
from trioeval.providers.base import Guardrails, Reply, Request
from trioeval.providers.config import Surroundings
from trioeval.providers.fake import FakeAddress
from trioeval.providers.http.adapter import AdapterSettings, HttpProvider, ServerEvent
from trioeval.providers.http.wire import HttpClient, HttpReply
from trioeval.providers.vendors.gemini import EmbedAdapter, GenerateAdapter, read
from trioeval.templates import Templates
from trioeval.usage import Usage

TEMPLATES = Templates()
KEY = {"GEMINI_API_KEY": "AIza-1234"}
HEADERS = {"content-type": "application/json; charset=UTF-8", "server": "scaffolding"}
STREAM = {**HEADERS, "content-type": "text/event-stream"}
MODEL = "gemini-2.5-flash"
BASE = "https://generativelanguage.googleapis.com"

SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}}
CHAT_FORMAT = {"type": "json_schema", "json_schema": {"name": "sums", "schema": SCHEMA}}
CHAT_CLOCK = {
    "type": "function",
    "function": {"name": "clock", "description": "Tells the time", "parameters": SCHEMA},
}
CLOCK = {
    "functionDeclarations": [
        {"name": "clock", "description": "Tells the time", "parametersJsonSchema": SCHEMA}
    ]
}
CALL = {"functionCall": {"name": "clock", "args": {"zone": "UTC"}}}
THOUGHT = {"text": "Two and two.", "thought": True}
TEXT = {"text": "It is four.", "thoughtSignature": "c2ln"}
AUDIO = {"inlineData": {"mimeType": "audio/L16;rate=24000", "data": "AAAA"}}
RATINGS = [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "NEGLIGIBLE"}]
USAGE = {
    "promptTokenCount": 20,
    "toolUsePromptTokenCount": 5,
    "cachedContentTokenCount": 8,
    "candidatesTokenCount": 10,
    "thoughtsTokenCount": 30,
    "totalTokenCount": 65,
}
LOG_PROBS = {
    "chosenCandidates": [
        {"token": "It", "logProbability": -0.25},
        {"token": " is", "logProbability": -1},
    ],
    "topCandidates": [{"candidates": [{"token": "It", "logProbability": -0.25}]}, {}],
}


def around(environ: Mapping[str, str] = KEY) -> Surroundings:
    return Surroundings(environ=environ, directory=Path(), templates=TEMPLATES)


def entry(rest: str, environ: Mapping[str, str], /, **config: Any) -> GenerateAdapter:
    found = read("google", rest, config, around(environ))
    assert isinstance(found, AdapterSettings), found
    assert isinstance(found.adapter, GenerateAdapter)
    return found.adapter


def adapter(**config: Any) -> GenerateAdapter:
    return entry(MODEL, KEY, **config)


def embedder(rest: str = "embedding:gemini-embedding-001", /, **config: Any) -> EmbedAdapter:
    found = read("google", rest, config, around())
    assert isinstance(found, AdapterSettings), found
    assert isinstance(found.adapter, EmbedAdapter)
    return found.adapter


def body(prompt: str = "Hi", **config: Any) -> Any:
    return json.loads(adapter(**config).build(Request(prompt=prompt)).body or b"")


def candidate(*parts: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": list(parts)}
    return {"content": content, "finishReason": "STOP", "index": 0, **more}


def generated(*candidates: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "candidates": list(candidates),
        "usageMetadata": USAGE,
        "modelVersion": "gemini-2.5-flash-001",
        "responseId": "resp_1",
        **more,
    }


def ok(data: object) -> HttpReply:
    return HttpReply(200, HEADERS, json.dumps(data).encode())


def parse(*parts: Mapping[str, Any], **more: Any) -> Reply:
    return adapter().parse(ok(generated(candidate(*parts, **more))))


def error_of(reply: HttpReply, **config: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        adapter(**config).parse(reply)
    return caught.value


def refused(prompt: str, **options: Any) -> str:
    with pytest.raises(ProviderError) as caught:
        adapter().build(Request(prompt=prompt, options=options))
    assert caught.value.kind == "bad_request"
    return caught.value.message


# --- requests ------------------------------------------------------------------


def test_a_plain_prompt_is_one_content() -> None:
    """Nothing has a default, and the key stands in a header, not in the URL."""
    ready = adapter().build(Request(prompt="Hi"))
    assert (ready.method, ready.url) == ("POST", f"{BASE}/v1beta/models/{MODEL}:generateContent")
    assert ready.headers == {"x-goog-api-key": "AIza-1234"}
    assert json.loads(ready.body or b"") == {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]
    }


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
    """A base URL is given with or without it."""
    ready = entry(MODEL, {**KEY, **environ}, **config).build(Request(prompt="Hi"))
    assert ready.url == f"{base}/models/{MODEL}:generateContent"


def test_the_first_key_wins() -> None:
    """Both variables are known."""
    assert entry(MODEL, {"GOOGLE_API_KEY": "b"}).endpoint.credential == "b"
    assert entry(MODEL, {"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": "a"}).endpoint.credential == "a"


def test_parameters_go_where_the_service_has_them() -> None:
    """Single keys and `generationConfig` say the same; both spellings mean the same."""
    sent = body(
        temperature=0.5,
        maxOutputTokens=9,
        stop_sequences=["END"],
        generationConfig={"top_k": 3, "thinkingConfig": {"thinkingBudget": 0}, "newKey": 1},
        safety_settings=[{"category": "c", "threshold": "BLOCK_NONE"}],
        tools=[{"googleSearch": {}}],
        toolConfig={"functionCallingConfig": {"mode": "AUTO"}},
        responseLogprobs=True,
        logprobs=3,
        cachedContent="cachedContents/1",
        systemInstruction="Be brief.",
        passthrough={"labels": {"run": "1"}},
    )
    assert sent == {
        "generationConfig": {
            "temperature": 0.5,
            "maxOutputTokens": 9,
            "stopSequences": ["END"],
            "responseLogprobs": True,
            "logprobs": 3,
            "topK": 3,
            "thinkingConfig": {"thinkingBudget": 0},
            "newKey": 1,
        },
        "safetySettings": [{"category": "c", "threshold": "BLOCK_NONE"}],
        "tools": [{"googleSearch": {}}],
        "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
        "cachedContent": "cachedContents/1",
        "labels": {"run": "1"},
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
    }


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
    """Unless the config names another."""
    assert body(**config)["generationConfig"] == generation


def test_functions_of_chat_completions_are_declared_together() -> None:
    """Other tools stand before them as they are."""
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
    """So that suites say it once for all."""
    assert body(tools=[CLOCK], tool_choice=choice)["toolConfig"] == {
        "functionCallingConfig": calling
    }


# --- prompts -------------------------------------------------------------------


def test_messages_get_the_roles_of_the_service() -> None:
    """The assistant is the model, and system messages stand beside the others."""
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
    """Texts, images in the forms of other services, and parts that are right already."""
    (sent,) = body(json.dumps([{"role": "user", "content": [block]}]))["contents"]
    assert sent == {"role": "user", "parts": parts}


def test_a_plain_prompt_may_hold_an_image() -> None:
    """On a line of its own, as a template puts it there."""
    (sent,) = body(f"What is it?\n{PNG_URI}")["contents"]
    assert sent["parts"] == [{"text": "What is it?"}, PNG]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([{"role": "system", "content": "Be brief."}], "it holds nothing but a system message"),
        (
            [{"role": "user", "content": None}],
            "a message has neither parts nor content that is text or a list",
        ),
        (
            [{"role": "user", "content": [1]}],
            "a content holds something that is neither text nor an object",
        ),
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "https://a/b.png"}}],
                }
            ],
            "an image is not a data: URI; of others Gemini takes fileData alone",
        ),
        (
            [
                {
                    "role": "user",
                    "content": [{"type": "image", "source": {"type": "url", "url": "https://a"}}],
                }
            ],
            "an image is not a data: URI; of others Gemini takes fileData alone",
        ),
    ],
)
def test_what_the_service_does_not_take_is_not_sent(messages: object, text: str) -> None:
    """Before anything is paid for."""
    assert refused(json.dumps(messages)) == f"the prompt cannot be sent: {text}"


# --- options of one call -------------------------------------------------------


def test_options_of_a_call_stand_over_the_config() -> None:
    """However each of them says it; null takes away; the adapter stays as it was."""
    asked = adapter(
        generationConfig={"temperature": 0.5, "topK": 3, "responseSchema": SCHEMA},
        toolConfig={"functionCallingConfig": {"mode": "AUTO"}},
    )
    options = {
        "temperature": 1,
        "top_k": None,
        "response_format": CHAT_FORMAT,
        "tool_choice": "none",
    }
    asked_freely = asked.with_options({"tool_choice": None})
    assert b"toolConfig" not in (asked_freely.build(Request(prompt="Hi")).body or b"")
    sent = json.loads(asked.build(Request(prompt="Hi", options=options)).body or b"")
    assert sent == {
        "generationConfig": {
            "temperature": 1,
            "responseMimeType": "application/json",
            "responseJsonSchema": SCHEMA,
        },
        "toolConfig": {"functionCallingConfig": {"mode": "NONE"}},
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
    }
    plain = json.loads(asked.build(Request(prompt="Hi")).body or b"")
    assert plain["generationConfig"]["topK"] == 3


def test_a_null_takes_away_an_object_as_a_whole() -> None:
    """Keys beside it count all the same."""
    asked = adapter(topK=3, responseSchema=SCHEMA)
    options = {"generationConfig": None, "seed": 1}
    sent = json.loads(asked.build(Request(prompt="Hi", options=options)).body or b"")
    assert sent["generationConfig"] == {"seed": 1}


def test_options_of_a_call_change_how_its_reply_is_read() -> None:
    """The adapter of that call knows them."""
    reply = ok(generated(candidate({"text": '{"sum": 4}'})))
    assert adapter().with_options({"responseSchema": SCHEMA}).parse(reply).output == {"sum": 4}
    assert adapter(responseSchema=SCHEMA).with_options({"responseSchema": None}).parse(
        reply
    ).output == ('{"sum": 4}')


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"top_k": 0}, "top_k: must be a whole number of at least 1, got 0"),
        (
            {"temperature": 1, "generationConfig": {"temperature": 0}},
            "temperature is in generationConfig already",
        ),
        ({"apiKey": "k"}, 'apiKey: "apiKey" is not a key (known are '),
    ],
)
def test_wrong_options_are_told(options: Mapping[str, Any], text: str) -> None:
    """And nothing is sent."""
    assert refused("Hi", **options).startswith(f"the options of the call are not right: {text}")


# --- replies -------------------------------------------------------------------


def test_a_plain_reply_is_text_with_usage_and_origin() -> None:
    """Text, finish reason, tokens and where they came from are kept."""
    data = generated(candidate(TEXT))
    reply = adapter().parse(ok(data))
    assert (reply.output, reply.finish_reason) == ("It is four.", "stop")
    assert reply.usage == Usage(prompt=25, completion=40, total=65, cached=8, reasoning=30)
    assert (reply.is_refusal, reply.guardrails, reply.log_probs) == (False, None, None)
    assert reply.raw == data
    assert reply.metadata == {
        "http": {"status": 200, "headers": HEADERS},
        "id": "resp_1",
        "model": "gemini-2.5-flash-001",
    }


def test_a_call_costs_what_its_tokens_cost() -> None:
    """Thoughts are paid as the answer is."""
    price = {"input": 1, "output": 5, "cachedInput": 0.5}
    reply = adapter(price=price).parse(ok(generated(candidate(TEXT))))
    assert reply.cost == pytest.approx((17 + 8 * 0.5 + 40 * 5) / 1_000_000)


@pytest.mark.parametrize(
    ("usage", "read_"),
    [
        (None, Usage()),
        ({"promptTokenCount": "7"}, Usage()),
        ({"promptTokenCount": 7, "totalTokenCount": 7}, Usage(prompt=7, total=7)),
        ({"thoughtsTokenCount": 7}, Usage(completion=7, reasoning=7)),
    ],
)
def test_numbers_that_were_not_reported_stay_absent(usage: object, read_: Usage) -> None:
    """Usage is never invented."""
    data = generated(candidate(TEXT), usageMetadata=usage)
    assert adapter().parse(ok(data)).usage == read_


@pytest.mark.parametrize(
    ("parts", "config", "output"),
    [
        ([{"text": ""}], {}, ""),
        ([{"text": "It is "}, {"text": "four."}], {}, "It is four."),
        ([THOUGHT, TEXT], {}, "Thinking: Two and two.\n\nIt is four."),
        ([THOUGHT, TEXT], {"showThinking": False}, "It is four."),
        ([CALL], {}, [CALL]),
        ([THOUGHT, TEXT, CALL], {}, [THOUGHT, TEXT, CALL]),
        ([THOUGHT, TEXT, CALL], {"showThinking": False}, [TEXT, CALL]),
        ([AUDIO], {"responseModalities": ["AUDIO"]}, [AUDIO]),
        ([{"text": '{"sum": 4}'}], {"responseSchema": SCHEMA}, {"sum": 4}),
        ([THOUGHT, {"text": '{"sum": 4}'}], {"responseSchema": SCHEMA}, {"sum": 4}),
        ([{"text": '{"sum": '}], {"responseSchema": SCHEMA}, '{"sum": '),
        ([{"text": "{}"}], {"responseMimeType": "application/json"}, "{}"),
    ],
)
def test_the_parts_give_the_output(
    parts: list[Mapping[str, Any]], config: Mapping[str, Any], output: object
) -> None:
    """Texts are one text; whatever else there is makes a list; with a schema the text is its value."""
    assert adapter(**config).parse(ok(generated(candidate(*parts)))).output == output


def test_log_probabilities_are_those_of_the_chosen_tokens() -> None:
    """All of them, or none."""
    assert parse(TEXT, logprobsResult=LOG_PROBS).log_probs == (-0.25, -1.0)
    broken = {"chosenCandidates": [{"logProbability": -1}, {"logProbability": "-Infinity"}]}
    assert parse(TEXT, logprobsResult=broken).log_probs is None


@pytest.mark.parametrize(
    ("reason", "finish_reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("MALFORMED_FUNCTION_CALL", "malformed_function_call"),
        ("LANGUAGE", "language"),
        (None, None),
    ],
)
def test_reasons_to_finish_have_common_words(reason: str | None, finish_reason: str | None) -> None:
    """What has none stays what it is, in lower case."""
    assert parse(TEXT, finishReason=reason).finish_reason == finish_reason


@pytest.mark.parametrize(
    "reason", ["SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"]
)
def test_a_filtered_answer_is_marked(reason: str) -> None:
    """What came before the filter is kept."""
    reply = parse(TEXT, finishReason=reason)
    assert (reply.output, reply.finish_reason) == ("It is four.", "content_filter")
    assert reply.is_refusal
    assert reply.guardrails == Guardrails(flagged=True, flagged_output=True, reason=reason)


@pytest.mark.parametrize("content", [None, {}, {"parts": []}])
def test_a_candidate_that_holds_nothing_is_no_answer(content: object) -> None:
    """It is asked for again, unless it would be cut off again."""
    told = {"content": content, "finishReason": "STOP"}
    error = error_of(ok(generated(told)))
    assert str(error) == "empty_reply: the candidate holds nothing (finish reason stop)"
    assert error.retries == 1
    cut_off = error_of(ok(generated({**told, "finishReason": "MAX_TOKENS"})))
    assert str(cut_off) == (
        "empty_reply: the candidate holds nothing (finish reason length);"
        " there was no room for it: raise maxOutputTokens, or shorten the prompt"
    )
    assert cut_off.retries == 0


def test_a_filtered_answer_may_be_nothing() -> None:
    """Content is left out then; the service may say more of why."""
    data = generated({"finishReason": "SAFETY", "finishMessage": "Not this.", "index": 0})
    reply = adapter().parse(ok(data))
    assert reply.output == "[filtered by the provider]"
    assert reply.guardrails == Guardrails(flagged=True, flagged_output=True, reason="Not this.")


def test_an_answer_that_was_rated_was_not_flagged() -> None:
    """Filters spoke, and let it through."""
    reply = parse(TEXT, safetyRatings=RATINGS)
    assert (reply.is_refusal, reply.guardrails) == (False, Guardrails(flagged=False))


@pytest.mark.parametrize(
    ("feedback", "reason"),
    [
        ({"blockReason": "SAFETY", "safetyRatings": RATINGS}, "SAFETY"),
        ({"blockReason": "OTHER", "blockReasonMessage": "Not this."}, "Not this."),
    ],
)
def test_a_blocked_prompt_is_a_refusal(feedback: Mapping[str, Any], reason: str) -> None:
    """The model never saw it."""
    data = {"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 7}}
    reply = adapter().parse(ok(data))
    assert (reply.output, reply.is_refusal, reply.finish_reason) == (reason, True, "content_filter")
    assert reply.guardrails == Guardrails(flagged=True, flagged_input=True, reason=reason)
    assert reply.usage == Usage(prompt=7)


def api_error(code: int, status: str, message: str, *details: Mapping[str, Any]) -> HttpReply:
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return HttpReply(code, HEADERS, json.dumps({"error": error}).encode())


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
    """There is no header for it; a quota of a day that does not come back soon is exhausted."""
    reply = api_error(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota.", *details)
    error = error_of(reply)
    assert (error.kind, error.retry_after, error.status) == (kind, retry_after, 429)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (api_error(400, "INVALID_ARGUMENT", "Invalid value at 'contents'"), "bad_request"),
        (api_error(401, "UNAUTHENTICATED", "No credentials."), "auth"),
        (api_error(403, "PERMISSION_DENIED", "Blocked."), "permission"),
        (api_error(404, "NOT_FOUND", "models/x is not found"), "not_found"),
        (api_error(500, "INTERNAL", "An internal error has occurred."), "server"),
        (api_error(503, "UNAVAILABLE", "The model is overloaded."), "server"),
        (api_error(504, "DEADLINE_EXCEEDED", "Too late."), "server"),
    ],
)
def test_each_error_of_the_service_has_its_kind(reply: HttpReply, kind: str) -> None:
    """By status."""
    assert error_of(reply).kind == kind


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (ok({"usageMetadata": USAGE}), "empty_reply: the reply holds no candidate"),
        (ok({"candidates": []}), "empty_reply: the reply holds no candidate"),
        (ok({"candidates": {}}), "empty_reply: the reply holds no candidate"),
        (ok({"promptFeedback": {}}), "empty_reply: the reply holds no candidate"),
        (ok({"candidates": [1]}), "malformed_reply: the reply is not one of generateContent"),
        (ok({"id": "x"}), "malformed_reply: the reply is not one of generateContent"),
        (ok([1]), "malformed_reply: the reply is not a JSON object"),
        (HttpReply(200, {}, b"<html>"), "malformed_reply: the reply is not JSON"),
        (
            api_error(403, "PERMISSION_DENIED", "key AIza-1234 is blocked"),
            "permission: HTTP 403 Forbidden: key [hidden] is blocked",
        ),
    ],
)
def test_what_is_no_answer_is_an_error(reply: HttpReply, text: str) -> None:
    """Each way of not answering has its kind, and no error repeats the key."""
    assert str(error_of(reply)) == text


# --- streams -------------------------------------------------------------------


def pieces(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A part as it comes: texts in two halves, what is beside them at the end."""
    if "text" not in part:
        return [dict(part)]
    half = len(part["text"]) // 2
    common = {"thought": True} if part.get("thought") else {}
    return [{**common, "text": part["text"][:half]}, {**part, "text": part["text"][half:]}]


def streamed(whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The replies that one comes as when it is streamed."""
    rest = {name: value for name, value in whole.items() if name != "candidates"}
    named = ("modelVersion", "responseId")
    common: dict[str, Any] = {name: rest[name] for name in named if name in rest}
    chunks: list[dict[str, Any]] = []
    for one in whole.get("candidates", ()):
        for part in one.get("content", {}).get("parts", ()):
            for piece in pieces(part):
                content = {"role": "model", "parts": [piece]}
                chunks.append(
                    {"candidates": [{"content": content, "index": one["index"]}], **common}
                )
        ends = {
            name: value for name, value in one.items() if name not in ("content", "logprobsResult")
        }
        for position, chosen in enumerate(
            one.get("logprobsResult", {}).get("chosenCandidates", ())
        ):
            top = one["logprobsResult"]["topCandidates"][position]
            result = {"chosenCandidates": [chosen], "topCandidates": [top]}
            chunks.append({"candidates": [{"logprobsResult": result, "index": one["index"]}]})
        if "content" in one:
            ends["content"] = {"role": "model", "parts": []}
        chunks.append({"candidates": [ends], "usageMetadata": {"promptTokenCount": 1}})
    return [*chunks, rest]


def written(chunks: list[Any]) -> bytes:
    return "".join(f"data: {json.dumps(one)}\r\n\r\n" for one in chunks).encode()


GOLDEN = [
    generated(candidate(TEXT)),
    generated(candidate(TEXT, logprobsResult=LOG_PROBS, safetyRatings=RATINGS)),
    generated(candidate(THOUGHT, TEXT)),
    generated(candidate(THOUGHT, TEXT, CALL)),
    generated(candidate(CALL, CALL)),
    generated(candidate(AUDIO)),
    generated(candidate({"text": '{"sum": 4}'})),
    generated(candidate({"text": "Ein Gruß 😀"}, finishReason="MAX_TOKENS")),
    generated(candidate(TEXT), candidate({"text": "Four."}, index=1)),
    generated({"finishReason": "SAFETY", "index": 0}),
    {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": USAGE, "responseId": "resp_1"},
]
PRICED: dict[str, Any] = {"price": {"input": 1, "output": 1}}


@pytest.mark.parametrize("whole", GOLDEN)
def test_a_streamed_reply_is_the_same_reply(whole: dict[str, Any]) -> None:
    """Only what is known of the exchange itself differs."""
    read_ = adapter(responseSchema=SCHEMA, metrics="ttft")
    plain = read_.parse(ok(whole))
    stream = read_.parse(HttpReply(200, STREAM, written(streamed(whole))))
    names = (
        "output",
        "usage",
        "finish_reason",
        "is_refusal",
        "guardrails",
        "log_probs",
        "raw",
    )
    assert [getattr(stream, name) for name in names] == [getattr(plain, name) for name in names]
    assert stream.metadata["id"] == "resp_1"


def test_a_stream_is_asked_for_to_time_its_first_token() -> None:
    """By another method; without it, and with an empty list, replies come whole."""
    asked = adapter(metrics="ttft")
    assert asked.streams
    assert asked.build(Request(prompt="Hi")).url == (
        f"{BASE}/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"
    )
    assert not adapter(metrics=[]).streams


def test_a_stream_that_breaks_off_is_no_reply() -> None:
    """Until every candidate says why it finished."""
    chunks = streamed(generated(candidate(TEXT)))
    for length in range(len(chunks) - 1):
        error = error_of(HttpReply(200, STREAM, written(chunks[:length])))
        assert str(error) == "connection: the stream ended before the reply was complete"
    assert adapter().parse(HttpReply(200, STREAM, written(chunks[:-1]))).output == "It is four."


def test_an_error_in_a_stream_is_that_error() -> None:
    """The status was sent before the service knew."""
    chunks: list[Any] = [*streamed(generated(candidate(TEXT)))[:1], "no reply"]
    chunks.append(json.loads(api_error(503, "UNAVAILABLE", "Overloaded.").body))
    error = error_of(HttpReply(200, STREAM, written(chunks)))
    assert str(error) == "server: HTTP 200 OK: Overloaded."


def test_a_reply_that_is_no_stream_after_all_is_read_plainly() -> None:
    """The content type says what came."""
    assert adapter(metrics="ttft").parse(ok(generated(candidate(TEXT)))).output == "It is four."
    assert error_of(api_error(429, "RESOURCE_EXHAUSTED", "Slow.", retry("2s"))).retry_after == 2


@pytest.mark.parametrize(
    ("parts", "answer"),
    [
        ([THOUGHT], True),
        ([TEXT], True),
        ([CALL], True),
        ([{"text": ""}], False),
        ([{"text": "", "thoughtSignature": "c2ln"}], False),
        ([], False),
    ],
)
def test_the_first_token_is_the_first_part_of_an_answer(parts: object, *, answer: bool) -> None:
    """Thoughts and calls are parts of it."""
    chunk = {"candidates": [{"content": {"parts": parts}}]}
    assert adapter().speaks(ServerEvent(json.dumps(chunk))) is answer
    assert not adapter().speaks(ServerEvent("[DONE]"))


# --- embeddings ----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["embedding", "embeddings"])
def test_a_text_is_embedded(kind: str) -> None:
    """The prompt is a text and nothing else."""
    ready = embedder(f"{kind}:gemini-embedding-001").build(Request(prompt='[{"role": "user"}]'))
    assert ready.url == f"{BASE}/v1beta/models/gemini-embedding-001:embedContent"
    assert json.loads(ready.body or b"") == {
        "content": {"parts": [{"text": '[{"role": "user"}]'}]},
    }


def test_parameters_of_an_embedding_are_sent() -> None:
    """Those of a call stand over those of the config."""
    asked = embedder(
        task_type="CLUSTERING", outputDimensionality=8, passthrough={"autoTruncate": True}
    )
    request = Request(prompt="Hi", options={"taskType": None, "title": "T"})
    assert json.loads(asked.build(request).body or b"") == {
        "title": "T",
        "outputDimensionality": 8,
        "autoTruncate": True,
        "content": {"parts": [{"text": "Hi"}]},
    }


def test_an_embedding_is_a_list_of_numbers() -> None:
    """It costs by its text alone."""
    data = {"embedding": {"values": [0.5, -1]}, "usageMetadata": {"promptTokenCount": 3}}
    reply = embedder(**PRICED).parse(ok(data))
    assert reply.output == [0.5, -1.0]
    assert (reply.usage, reply.cost) == (Usage(prompt=3), 3 / 1_000_000)
    assert not embedder().speaks(ServerEvent(json.dumps(data)))


@pytest.mark.parametrize("values", [None, [], [1, "2"], [1, 10**400]])
def test_what_is_no_vector_is_an_error(values: object) -> None:
    """Every number must be one."""
    with pytest.raises(ProviderError, match="malformed_reply: the reply holds no vector"):
        embedder().parse(ok({"embedding": {"values": values}}))


# --- whatever comes ------------------------------------------------------------

STATUSES = st.sampled_from([200, 200, 200, 400, 429, 500])
READER = adapter(responseSchema=SCHEMA, **PRICED)
EMBEDDER = embedder(**PRICED)


@pytest.mark.slow
@given(STATUSES, st.sampled_from(GOLDEN).flatmap(damaged) | JSON)
def test_any_json_is_read_or_fails_in_a_known_way(status: int, data: Any) -> None:
    """Nothing that the service says breaks the adapter."""
    reply = HttpReply(status, HEADERS, json.dumps(data).encode())
    check_parse(READER, reply)


@pytest.mark.slow
@given(damaged({"embedding": {"values": [0.5, -1]}, "usageMetadata": USAGE}) | JSON)
def test_any_vector_is_read_or_fails_in_a_known_way(data: Any) -> None:
    """Likewise."""
    check_parse(EMBEDDER, ok(data))


@pytest.mark.slow
@given(st.sampled_from(GOLDEN), st.data())
def test_any_stream_is_read_or_fails_in_a_known_way(
    whole: dict[str, Any], data: st.DataObject
) -> None:
    """Whatever is wrong with its events, and wherever it is cut."""
    chunks = data.draw(damaged(streamed(whole)))
    raw = written(chunks if isinstance(chunks, list) else [chunks])
    cut = data.draw(st.integers(0, len(raw)))
    check_parse(READER, HttpReply(200, STREAM, raw[:cut] if cut % 2 else raw))


@pytest.mark.slow
@given(STATUSES, st.binary(), st.booleans())
def test_any_bytes_are_read_or_fail_in_a_known_way(
    status: int,
    raw: bytes,
    is_stream: bool,  # noqa: FBT001
) -> None:
    """Not even their encoding is trusted."""
    check_parse(READER, HttpReply(status, STREAM if is_stream else HEADERS, raw))


@pytest.mark.slow
@given(
    st.lists(
        st.fixed_dictionaries({"role": st.text()}, optional={"content": JSON, "parts": JSON}),
        max_size=2,
    )
)
def test_any_messages_are_built_or_refused(messages: list[Any]) -> None:
    """A request is JSON, whatever is asked."""
    try:
        ready = READER.build(Request(prompt=json.dumps(messages)))
    except ProviderError as error:
        assert error.kind == "bad_request"  # noqa: PT017 - some raise nothing
    else:
        assert json.loads(ready.body or b"")["contents"]


# --- entries -------------------------------------------------------------------

NO_KEY = Problem(
    ".config.apiKey",
    "there is no API key",
    "set GEMINI_API_KEY or GOOGLE_API_KEY in the environment, or apiKey or apiKeyEnvar in the config",
)
FORMS = "write google:<model> or google:embedding:<model>"


def test_a_lane_is_one_account_and_model_and_holds_no_key() -> None:
    """Quotas are of a project, whose key it is, and a model; both prefixes mean the same."""
    found = read("google", MODEL, {}, around())
    other = read("gemini", MODEL, {"temperature": 1}, around())
    assert isinstance(found, AdapterSettings)
    assert isinstance(other, AdapterSettings)
    digest = hashlib.sha256(b"AIza-1234").hexdigest()[:12]
    assert found.lane_key == other.lane_key == f"google|{BASE}/v1beta|{digest}|-|{MODEL}"
    assert found.secrets == ("AIza-1234",)
    assert "AIza" not in repr(found)


@pytest.mark.parametrize(
    ("prefix", "rest", "environ", "config", "problem"),
    [
        ("google", MODEL, {}, {}, NO_KEY),
        ("google", "embedding:e", {}, {}, NO_KEY),
        ("google", "", KEY, {}, Problem(".id", '"google:" is no model of Gemini', FORMS)),
        (
            "google",
            "image:imagen",
            KEY,
            {},
            Problem(".id", '"google:image:imagen" is no model of Gemini', FORMS),
        ),
        (
            "google",
            "a/../b?c",
            KEY,
            {},
            Problem(".id", '"google:a/../b?c" is no model of Gemini', FORMS),
        ),
        (
            "vertex",
            MODEL,
            KEY,
            {},
            Problem(
                ".id",
                "Vertex AI is not supported",
                f"write google:{MODEL}, with a key of the Gemini API",
            ),
        ),
        (
            "google",
            MODEL,
            KEY,
            {"apiVersion": "v1/x"},
            Problem(".config.apiVersion", 'must be letters and digits, as v1beta, got "v1/x"'),
        ),
        (
            "google",
            MODEL,
            KEY,
            {"topP": 1, "generation_config": {"top_p": 1}},
            Problem(".config.topP", "is in generationConfig already", "keep one of them"),
        ),
        (
            "google",
            MODEL,
            KEY,
            {"toolConfig": {"a": 1}, "tool_choice": "auto"},
            Problem(".config.tool_choice", "toolConfig says it already", "keep one of them"),
        ),
        (
            "google",
            MODEL,
            KEY,
            {"passthrough": {"contents": []}},
            Problem(
                ".config.passthrough.contents",
                "the contents are those of the prompt",
                "leave it out",
            ),
        ),
        (
            "google",
            MODEL,
            KEY,
            {"systemInstruction": {"text": "Be brief."}},
            Problem(
                ".config.systemInstruction",
                'must be text, or an object with a list of parts, got {"text": "Be brief."}',
            ),
        ),
        (
            "google",
            "embedding:e",
            KEY,
            {"temperature": 1},
            Problem(
                ".config.temperature",
                '"temperature" is not a key',
                "known are apiBaseUrl, apiHost, apiKey, apiKeyEnvar, apiVersion, headers, "
                "maxResponseBytes, organization, "
                "outputDimensionality, passthrough, price, project, taskType, timeoutMs, title",
            ),
        ),
    ],
)
def test_each_mistake_is_told_before_the_first_call(
    prefix: str, rest: str, environ: Mapping[str, str], config: Mapping[str, Any], problem: Problem
) -> None:
    """What cannot work is a problem of the entry, with the place and the way out."""
    assert read(prefix, rest, config, around(environ)) == [problem]


def test_all_mistakes_are_told_together() -> None:
    """Keys, endpoint and what does not go together."""
    config = {"seed": "x", "apiHost": "a/b", "passthrough": {"contents": []}, "y": 1}
    found = read("google", MODEL, config, around())
    assert isinstance(found, list)
    assert len(found) == 4


# --- over sockets --------------------------------------------------------------


@pytest.mark.network
@pytest.mark.parametrize("metrics", [[], ["ttft"]])
def test_a_reply_over_a_socket(metrics: list[str]) -> None:
    """Whole and streamed; a stream tells when its first token came."""
    whole = generated(candidate(TEXT))
    data = written(streamed(whole)) if metrics else ok(whole).body
    kind = "text/event-stream" if metrics else "application/json"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n"

    async def ask(address: FakeAddress, client: HttpClient) -> None:
        base_url = f"http://{address.host}:{address.port}"
        asked = adapter(apiBaseUrl=base_url, metrics=metrics)
        reply = await HttpProvider(asked, client)(Request(prompt="2 + 2?"))
        assert reply.output == "It is four."
        assert (reply.first_token is not None) == bool(metrics)

    with_raw_server(head.encode() + data, ask, max_reply_bytes=10_000)
