"""Responses, the API of OpenAI's own models."""

import json
from collections.abc import Mapping
from typing import Any

from vendor_cases import KEY, Call, Mistake, Refusal, Stream, Streamed, Texts, Vendor
from vendor_openai import (
    BASE,
    BEARER,
    CHAT_FORMAT,
    DIGEST,
    FILTERED_OUTPUT,
    MISSING,
    SCHEMA,
    write_events,
)

from trioeval.errors import Problem
from trioeval.providers.base import Guardrails, Reply
from trioeval.providers.http.streams import ServerEvent
from trioeval.providers.vendors.openai import read
from trioeval.usage import Usage

FORMAT = {"type": "json_schema", "name": "sums", "schema": SCHEMA, "strict": True}
RESPONSES_USAGE = {
    "input_tokens": 30,
    "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 2},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 42,
}
REASONING = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Two and two."}],
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "clock",
    "arguments": '{"zone": "UTC"}',
}
REFUSAL = {"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]}
LOG_PROBS = [{"token": "4", "logprob": -0.25, "top_logprobs": []}, {"token": "!", "logprob": -1.5}]
SEARCH = {"type": "web_search_call", "action": {"type": "search", "query": "sum of 2\nand 2"}}


def message(text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], **more}
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]}


def response(*items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    whole = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-4.1-x",
        "output": list(items),
        "usage": RESPONSES_USAGE,
    }
    return {**whole, **more}


def event(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, **data}


def itemised(whole: Mapping[str, Any], end: str = "response.completed") -> Streamed:
    """Return a response, and its events."""
    early = {**whole, "status": "in_progress", "output": [], "usage": None}
    items = enumerate(whole["output"])
    events = [
        event("response.created", response=early),
        event("response.output_text.delta", delta="4"),
        *(event("response.output_item.done", output_index=n, item=item) for n, item in items),
        event(end, response=whole),
    ]
    return Streamed(whole, events)


def thought_of(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def failed(code: str, text: str) -> dict[str, Any]:
    return response(status="failed", error={"code": code, "message": text})


NO_RESPONSE = "malformed_reply: HTTP 200 OK: the reply is not a response; check apiBaseUrl"
SLOW = {"code": "rate_limit_exceeded", "message": f"Slow down {KEY}"}
SLOW_DOWN = "rate_limited: HTTP 200 OK: Slow down [hidden]"
NOT_ALLOWED = Guardrails(flagged=True, flagged_input=True, reason="Not allowed for [hidden].")
NO_ROOM = "must be an object without input, stream or background"

RESPONSES = Vendor(
    name="responses",
    reader=read,
    entry="openai:responses:gpt-4.1",
    url=f"{BASE}/responses",
    headers=BEARER,
    asked={"model": "gpt-4.1", "input": "Hi"},
    defaults={"temperature": 0, "max_output_tokens": 1024},
    good=response(message("Four")),
    answer=Reply(
        output="Four",
        finish_reason="stop",
        usage=Usage(prompt=30, completion=12, total=42, cached=8, cache_creation=2, reasoning=5),
        cost=(20 + 8 * 0.5 + 2 * 1.25 + 12 * 5) / 1_000_000,
        metadata={"id": "resp_1", "model": "gpt-4.1-x"},
    ),
    lane=f"openai|{BASE}|{DIGEST}|-|gpt-4.1",
    missing=MISSING,
    usage=("usage", "input_tokens"),
    sends=(
        (
            {
                "instructions": "Be brief",
                "max_output_tokens": 7,
                "temperature": 1,
                "topP": 0.5,
                "parallelToolCalls": False,
                "maxToolCalls": 2,
                "include": ["reasoning.encrypted_content"],
                "topLogprobs": 3,
                "previousResponseId": "resp_0",
                "truncation": "auto",
                "metadata": {"run": "1"},
                "store": False,
                "serviceTier": "flex",
                "user": "u",
                "promptCacheKey": "k",
            },
            {
                "instructions": "Be brief",
                "max_output_tokens": 7,
                "temperature": 1,
                "top_p": 0.5,
                "parallel_tool_calls": False,
                "max_tool_calls": 2,
                "include": ["reasoning.encrypted_content"],
                "top_logprobs": 3,
                "previous_response_id": "resp_0",
                "truncation": "auto",
                "metadata": {"run": "1"},
                "store": False,
                "service_tier": "flex",
                "user": "u",
                "prompt_cache_key": "k",
            },
        ),
        (
            {"passthrough": {"model": "other", "temperature": 1, "x": {"y": 1}}},
            {"model": "other", "temperature": 1, "max_output_tokens": 1024, "x": {"y": 1}},
        ),
        ({"omitDefaults": True}, {}),
    ),
    calls=(
        Call(
            {
                "max_output_tokens": 7,
                "text": {"format": FORMAT, "verbosity": "low"},
                "passthrough": {"a": 1, "b": 1},
                "user": "u",
                "logprobs": True,
                "include": ["x"],
            },
            {
                "maxTokens": 5,
                "verbosity": "high",
                "passthrough": {"b": 2},
                "user": None,
                "logprobs": False,
            },
            {
                "temperature": 0,
                "max_output_tokens": 5,
                "text": {"format": FORMAT, "verbosity": "high"},
                "include": ["x"],
                "a": 1,
                "b": 2,
            },
            {"max_output_tokens": 7},
        ),
    ),
    wrong_options=(
        (
            {"temprature": 1, "top_p": "high", "passthrough": {"stream": 1}},
            (
                'temprature: "temprature" is not a key (did you mean "temperature"?); '
                'top_p: must be a number, got "high"; '
                f'passthrough: {NO_ROOM}, got {{"stream": 1}}'
            ),
        ),
    ),
    unsendable=(
        ('[{"role": "user"}, {"a": 1}]', "messages[1] is not an object with a role"),
        (
            '[{"type": "x", "a": NaN}]',
            "it starts like JSON but is not valid: NaN is not a valid JSON value",
        ),
    ),
    strangers=(
        ({"id": "x"}, NO_RESPONSE),
        ({"output": {}}, NO_RESPONSE),
        (
            response(status="queued"),
            "malformed_reply: HTTP 200 OK: the response is still queued",
        ),
        (response(status="cancelled"), "server: HTTP 200 OK: the response ended as cancelled"),
        (response(status="failed"), "server: HTTP 200 OK: the response ended as failed"),
        (failed("server_error", f"Oops {KEY}"), "server: HTTP 200 OK: Oops [hidden]"),
        (failed("rate_limit_exceeded", "Slow"), "rate_limited: HTTP 200 OK: Slow"),
        ({"error": "gone"}, "server: HTTP 200 OK: gone"),
    ),
    mistakes=(
        Mistake(
            {"passthrough": {"input": "Ho"}},
            [Problem(".config.passthrough", f'{NO_ROOM}, got {{"input": "Ho"}}')],
        ),
        Mistake(
            {"passthrough": {"background": True}},
            [Problem(".config.passthrough", f'{NO_ROOM}, got {{"background": true}}')],
        ),
        Mistake({"instructions": ""}, [Problem(".config.instructions", 'must be text, got ""')]),
        Mistake({"include": [1]}, [Problem(".config.include", "must be a list of texts, got [1]")]),
        Mistake(
            {"maxToolCalls": 0},
            [Problem(".config.maxToolCalls", "must be a whole number of at least 1, got 0")],
        ),
        Mistake(
            {"background": True, "metrics": ["ttft"]},
            [
                Problem(
                    ".config.metrics",
                    "a response in the background has no time to the first token",
                    "leave metrics or background out",
                )
            ],
        ),
        Mistake(
            {"apiBaseUrl": "nowhere"},
            [Problem(".config.apiBaseUrl", "must be an http or https URL with a host")],
        ),
    ),
    samples=(
        response(
            REASONING,
            message('{"sum": 4}', logprobs=LOG_PROBS),
            CALL,
            SEARCH,
            text={"format": FORMAT},
        ),
        response(REFUSAL, status="incomplete", incomplete_details={"reason": "content_filter"}),
        failed("server_error", "Oops"),
        response(
            {"type": "mcp_call", "name": "add", "error": {"code": 1}},
            {"type": "mcp_list_tools", "tools": [{"name": "a"}]},
            {"type": "code_interpreter_call", "code": "1"},
        ),
    ),
    texts=Texts(
        say=lambda text: response(message(text)),
        think=lambda thought, text: response(thought_of(thought), message(text)),
        gap="\n",
        called=(response(CALL), json.dumps(CALL)),
        schema={"response_format": CHAT_FORMAT},
        stops=(
            (response(message("4")), "stop"),
            (response(message("4"), status=None), "stop"),
            (response(message("4"), CALL), "tool_calls"),
            (response(CALL, message("4")), "stop"),
            (response({"type": "custom_tool_call"}), "tool_calls"),
            *(
                (
                    response(
                        message("4"), status="incomplete", incomplete_details={"reason": word}
                    ),
                    reason,
                )
                for word, reason in (("max_output_tokens", "length"), ("Odd", "odd"))
            ),
            (response(message("4"), status="incomplete"), "length"),
        ),
        refusals=(
            Refusal(
                response(REFUSAL),
                "I will not.",
                Guardrails(flagged=True, flagged_output=True, reason="I will not."),
                "stop",
            ),
            *(
                Refusal(
                    response(
                        *items,
                        status="incomplete",
                        incomplete_details={"reason": "content_filter"},
                    ),
                    output,
                    FILTERED_OUTPUT,
                )
                for items, output in (
                    ([message("So far")], "So far"),
                    ([], "[filtered by the provider]"),
                )
            ),
            *(
                Refusal(data, "Not allowed for [hidden].", NOT_ALLOWED, status=status)
                for data, status in (
                    (failed("invalid_prompt", f"Not allowed for {KEY}."), 200),
                    (
                        {"error": {"code": "invalid_prompt", "message": f"Not allowed for {KEY}."}},
                        400,
                    ),
                )
            ),
        ),
        nothing=(
            response(),
            response({"type": "reasoning", "summary": [], "encrypted_content": "eA=="}),
            response({"type": "reasoning"}, {"type": "message", "content": []}),
        ),
        cut=lambda data: {**data, "status": "incomplete"},
        what="response",
        limit="max_output_tokens",
    ),
    stream=Stream(
        write=lambda events: b"".join(
            f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode()
            if isinstance(one, dict) and "type" in one
            else write_events([one])
            for one in events
        ),
        cases=(
            itemised(response(message("Four"))),
            itemised(response(REASONING, message("4", logprobs=LOG_PROBS))),
            itemised(response(CALL)),
            itemised(response(REFUSAL)),
            itemised(response(message("So"), status="incomplete"), "response.incomplete"),
            itemised(failed("invalid_prompt", "No"), "response.failed"),
        ),
        errors=(
            (event("error", param=None, **SLOW), SLOW_DOWN),
            (event("error", error=SLOW), SLOW_DOWN),
            ({"error": SLOW}, SLOW_DOWN),
        ),
        speech=(
            (ServerEvent("{}", "response.output_text.delta"), True),
            (ServerEvent("{}", "response.reasoning_summary_text.delta"), True),
            (ServerEvent('{"type": "response.output_text.delta"}'), True),
            (ServerEvent("{}", "response.created"), False),
            (ServerEvent('{"type": "response.created"}'), False),
            (ServerEvent("[DONE]"), False),
        ),
    ),
)
