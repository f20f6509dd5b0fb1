"""Chat completions, the API of OpenAI that most services support."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vendor_cases import KEY, Call, Refusal, Stream, Streamed, Texts, Vendor, no_key

from trioeval.providers.base import Guardrails, Reply
from trioeval.providers.http.streams import ServerEvent
from trioeval.providers.vendors.openai import read
from trioeval.usage import Usage

WAV = "UklGRgQAAABXQVZF"
"""The beginning of a WAV file in base64."""

SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}}
CHAT_FORMAT = {
    "type": "json_schema",
    "json_schema": {"name": "sums", "schema": SCHEMA, "strict": True},
}
BASE = "https://api.openai.com/v1"
DIGEST = "88dc28d0f030"
BEARER = {"authorization": f"Bearer {KEY}"}
MISSING = no_key("OPENAI_API_KEY")


def write_events(events: Sequence[Any]) -> bytes:
    """Return a stream whose events have no names."""
    texts = (one if isinstance(one, str) else json.dumps(one) for one in events)
    return "".join(f"data: {text}\n\n" for text in texts).encode()


CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
CLEAN = {"hate": {"filtered": False, "severity": "safe"}, "jailbreak": {"detected": False}}
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CHAT_USAGE = {
    "prompt_tokens": 7,
    "completion_tokens": 3,
    "total_tokens": 10,
    "prompt_tokens_details": {"cached_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 1},
}
END = "[DONE]"


def completion(
    message: Mapping[str, Any], finish_reason: str | None = "stop", **more: Any
) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": finish_reason}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt-4.1-x",
        "choices": [choice],
        "usage": CHAT_USAGE,
        **more,
    }


def chunk(delta: object = None, **more: Any) -> dict[str, Any]:
    """Return a part of a stream with one choice."""
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": None, **more}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "model": "gpt-4.1-x",
        "choices": [choice],
    }


def usage_chunk() -> dict[str, Any]:
    return {"id": "chatcmpl-1", "model": "gpt-4.1-x", "choices": [], "usage": CHAT_USAGE}


def call(index: int, arguments: str, **named: Any) -> dict[str, Any]:
    """Return a part of a tool call."""
    name = {"name": named.pop("name")} if "name" in named else {}
    return {"index": index, **named, "function": {**name, "arguments": arguments}}


def chunked(
    whole: Mapping[str, Any], *deltas: object, finish_reason: str = "stop", **config: Any
) -> Streamed:
    """Return a message, and its deltas."""
    events = [*map(chunk, deltas), chunk(finish_reason=finish_reason), usage_chunk(), END]
    return Streamed(completion(whole, finish_reason), events, config)


CHAT_CASES = (
    chunked(
        {"role": "assistant", "content": "Four"},
        {"role": "assistant", "content": ""},
        {"content": "Fo"},
        {"content": "ur"},
    ),
    chunked(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "assistant", "content": None},
        {"tool_calls": [call(0, "", id="a", type="function", name="f")]},
        {"tool_calls": [call(0, '{"x"')]},
        {"tool_calls": [call(1, "{}", id="b", type="function", name="g")]},
        {"tool_calls": [call(0, ": 1}")]},
        finish_reason="tool_calls",
    ),
    chunked(
        {"role": "assistant", "function_call": {"name": "f", "arguments": '{"x": 1}'}},
        {"role": "assistant", "function_call": {"name": "f", "arguments": '{"x'}},
        {"function_call": {"arguments": '": 1}'}},
        finish_reason="function_call",
    ),
    chunked(
        {"role": "assistant", "refusal": "I cannot."},
        {"role": "assistant", "refusal": "I can"},
        {"refusal": "not."},
    ),
    chunked(
        {"role": "assistant", "content": "So far"},
        {"role": "assistant", "content": "So f"},
        {"content": "ar"},
        finish_reason="content_filter",
    ),
    chunked(
        {"reasoning_content": "2 + 2", "content": "4"},
        {"reasoning_content": "2 +"},
        {"reasoning_content": " 2"},
        {"content": "4"},
    ),
    chunked(
        {"content": '{"a": 1}'},
        {"content": '{"a"'},
        {"content": ": 1}"},
        response_format=CHAT_FORMAT,
    ),
    chunked({"content": "😀"}, {"content": "\ud83d"}, {"content": "\ude00"}),
    chunked(
        {"audio": {"id": "a1", "transcript": "Four", "data": WAV, "expires_at": 1}},
        {"audio": {"id": "a1", "transcript": "Fo"}},
        {"audio": {"data": WAV[:4], "transcript": "ur"}},
        {"audio": {"data": WAV[4:], "expires_at": 1}},
        modalities=["text", "audio"],
    ),
)

CHAT_PARAMETERS = {
    "n": 2,
    "logprobs": True,
    "top_logprobs": 3,
    "functions": [{"name": "f"}],
    "function_call": {"name": "f"},
    "verbosity": "low",
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy", "format": "wav"},
    "prediction": {"type": "content", "content": "x"},
    "service_tier": "flex",
    "store": False,
    "prompt_cache_key": "k",
}
FULL_MESSAGE = {
    "role": "assistant",
    "content": [{"type": "text", "text": "4"}],
    "refusal": None,
    "reasoning": "2 + 2",
    "tool_calls": CALLS,
    "audio": {"id": "a1", "data": WAV, "transcript": "Four."},
    "annotations": [{"type": "url_citation"}],
}
FULL: dict[str, Any] = {
    "id": "chatcmpl-1",
    "model": "gpt-4.1-x",
    "service_tier": "default",
    "prompt_filter_results": [{"content_filter_results": CLEAN}],
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "content_filter_results": CLEAN,
            "logprobs": {"content": [{"token": "4", "logprob": -0.5, "top_logprobs": []}]},
            "message": FULL_MESSAGE,
        }
    ],
    "usage": {**CHAT_USAGE, "cost": 0.5},
}
NOTHING: tuple[Mapping[str, Any], ...] = (
    {},
    {"content": None},
    {"content": []},
    {"tool_calls": []},
)
NO_CHAT = "malformed_reply: HTTP 200 OK: the reply is not a chat completion; check apiBaseUrl"
SAID_NO = Guardrails(flagged=True, flagged_output=True, reason="I cannot.")
FILTERED_OUTPUT = Guardrails(flagged=True, flagged_output=True)

CHAT = Vendor(
    name="chat",
    reader=read,
    entry="openai:chat:gpt-4.1",
    url=f"{BASE}/chat/completions",
    headers=BEARER,
    asked={"model": "gpt-4.1", "messages": [{"role": "user", "content": "Hi"}]},
    defaults={"temperature": 0, "max_tokens": 1024},
    good=completion({"role": "assistant", "content": "Four"}),
    answer=Reply(
        output="Four",
        finish_reason="stop",
        usage=Usage(prompt=7, completion=3, total=10, cached=2, reasoning=1),
        cost=(5 + 2 * 0.5 + 3 * 5) / 1_000_000,
        metadata={"id": "chatcmpl-1", "model": "gpt-4.1-x"},
    ),
    lane=f"openai|{BASE}|{DIGEST}|-|gpt-4.1",
    missing=MISSING,
    usage=("usage", "prompt_tokens"),
    sends=(
        (
            {
                "tools": TOOLS,
                "tool_choice": "required",
                "response_format": CHAT_FORMAT,
                "reasoningEffort": "low",
                "metadata": {"run": "1"},
                "user": "u",
                "passthrough": {"model": "other", "temperature": 1, "top_k": 5},
            },
            {
                "model": "other",
                "temperature": 1,
                "max_tokens": 1024,
                "tools": TOOLS,
                "tool_choice": "required",
                "response_format": CHAT_FORMAT,
                "reasoning_effort": "low",
                "metadata": {"run": "1"},
                "user": "u",
                "top_k": 5,
            },
        ),
        ({"omitDefaults": True, **CHAT_PARAMETERS}, CHAT_PARAMETERS),
    ),
    calls=(
        Call(
            {"temperature": 0.5, "seed": 3, "passthrough": {"top_k": 5}},
            {"maxCompletionTokens": 9, "seed": None, "passthrough": {"top_k": 6}},
            {"temperature": 0.5, "max_completion_tokens": 9, "top_k": 6},
            {"seed": 3, "top_k": 5},
        ),
    ),
    wrong_options=(
        ({"seeed": 3}, 'seeed: "seeed" is not a key (did you mean "seed"?)'),
        ({"seed": "x"}, 'seed: must be a whole number, got "x"'),
        (
            {"passthrough": {"stream": True}},
            (
                "passthrough.stream: streaming is decided by metrics "
                '(leave it out; metrics: ["ttft"] streams, and measures the time to the first token)'
            ),
        ),
    ),
    unsendable=(
        (
            '[{"role": "user"',
            (
                "it starts like JSON but is not valid: Expecting ',' delimiter: line 1 column 17 (char 16)"
            ),
        ),
    ),
    strangers=(
        ({"choices": []}, "empty_reply: HTTP 200 OK: the reply has no choice"),
        ({"id": "x"}, NO_CHAT),
        ({"choices": {}}, NO_CHAT),
        ({"choices": [{}]}, NO_CHAT),
        ({"error": {"code": 429, "message": "busy"}}, "rate_limited: HTTP 200 OK: busy"),
        (
            {"choices": [{"error": {"code": 502, "message": f"{KEY} is down"}}]},
            "server: HTTP 200 OK: [hidden] is down",
        ),
    ),
    samples=(FULL, {**FULL, "choices": [{"index": 0, "delta": FULL_MESSAGE}]}),
    texts=Texts(
        say=lambda text: completion({"content": text}),
        think=lambda thought, text: completion({"content": text, "reasoning": thought}),
        called=(completion({"content": None, "tool_calls": CALLS}), CALLS),
        schema={"response_format": CHAT_FORMAT},
        stops=tuple(
            (completion({"content": ""}, word), reason)
            for word, reason in (
                ("stop", "stop"),
                ("EOS", "stop"),
                ("function_call", "tool_calls"),
                ("model_length", "length"),
                (None, None),
            )
        ),
        refusals=(
            Refusal(
                completion({"content": None, "refusal": "I cannot."}), "I cannot.", SAID_NO, "stop"
            ),
            Refusal(
                completion({"content": None}, "content_filter"),
                "[filtered by the provider]",
                FILTERED_OUTPUT,
            ),
            Refusal(completion({"content": "So far"}, "Content_Filter"), "So far", FILTERED_OUTPUT),
        ),
        nothing=tuple(completion(one) for one in NOTHING),
        cut=lambda data: {
            **data,
            "choices": [{**data["choices"][0], "finish_reason": "length"}],
        },
        what="message",
        limit="max_tokens",
    ),
    stream=Stream(
        write=write_events,
        cases=CHAT_CASES,
        errors=(
            (
                {"error": {"code": 429, "message": f"busy, {KEY}"}},
                "rate_limited: HTTP 200 OK: busy, [hidden]",
            ),
        ),
        speech=(
            *(
                (ServerEvent(json.dumps(data)), answer)
                for data, answer in (
                    (chunk({"role": "assistant", "content": ""}), False),
                    (chunk({"content": "a"}), True),
                    (chunk({"reasoning": "a"}), True),
                    (chunk({"tool_calls": [call(0, "")]}), True),
                    (chunk({"audio": {"id": "a1"}}), True),
                    (chunk(finish_reason="stop"), False),
                    (usage_chunk(), False),
                    ({"choices": [{"delta": "x"}]}, False),
                    ([1], False),
                )
            ),
            (ServerEvent(END), False),
        ),
    ),
)
