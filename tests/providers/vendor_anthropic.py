"""The Messages API of Anthropic."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vendor_cases import (
    ENVIRON,
    KEY,
    Call,
    Mistake,
    Refusal,
    Stream,
    Streamed,
    Texts,
    Vendor,
    no_key,
)

from trioeval.errors import Problem
from trioeval.providers.base import Guardrails, Reply
from trioeval.providers.http.streams import ServerEvent
from trioeval.providers.vendors.anthropic import read
from trioeval.rates.throttle import Allowance, RateHint
from trioeval.usage import Usage

MODEL = "claude-haiku-4-5"
BASE = "https://api.anthropic.com/v1"
SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "schema": SCHEMA}
ADVICE_BY_KIND = {
    **dict.fromkeys(("auth", "permission"), "check ANTHROPIC_API_KEY; "),
    "not_found": "check apiBaseUrl and the model name; ",
}
THINKING = {"type": "enabled", "budget_tokens": 4000}

TEXT = {"type": "text", "text": "It is four."}
THOUGHT = {"type": "thinking", "thinking": "Two and two.", "signature": "c2ln"}
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "clock", "input": {"zone": "UTC"}}
SEARCH = {
    "type": "server_tool_use",
    "id": "srvtoolu_1",
    "name": "web_search",
    "input": {"query": "sums"},
}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "title": "Sums", "url": "https://sums.example"}],
}
CITED = {
    "type": "text",
    "text": "Four, they say.",
    "citations": [{"type": "web_search_result_location", "url": "https://sums.example"}],
}
USAGE = {
    "input_tokens": 20,
    "cache_creation_input_tokens": 300,
    "cache_read_input_tokens": 1000,
    "output_tokens": 60,
    "output_tokens_details": {"thinking_tokens": 25},
}


def message(*blocks: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-4-5-20251001",
        "content": list(blocks),
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": USAGE,
        **more,
    }


def text_reply(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def api_error(kind: str, text: str = "No.") -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": kind, "message": text},
        "request_id": "req_1",
    }


def grown(index: int, block: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a block, cut in the middle of its texts."""
    start = dict(block)
    deltas: list[dict[str, Any]] = []

    def cut(text: str, kind: str, name: str) -> None:
        for part in (text[: len(text) // 2], text[len(text) // 2 :]):
            deltas.append({"type": kind, name: part})

    for name in ("text", "thinking"):
        if name in block:
            start[name] = ""
            cut(block[name], f"{name}_delta", name)
    if "signature" in block:
        start["signature"] = ""
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    if "input" in block:
        start["input"] = {}
        cut(json.dumps(block["input"]), "input_json_delta", "partial_json")
    if "citations" in block:
        del start["citations"]
        deltas += [{"type": "citations_delta", "citation": one} for one in block["citations"]]
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def streamed(whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the events of a streamed message."""
    ends = {
        name: whole[name]
        for name in ("stop_reason", "stop_sequence", "stop_details")
        if name in whole
    }
    begins = {**whole, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    begins.pop("stop_details", None)
    return [
        {"type": "message_start", "message": begins},
        {"type": "ping"},
        *(event for index, block in enumerate(whole["content"]) for event in grown(index, block)),
        {"type": "message_delta", "delta": ends, "usage": {**USAGE, "input_tokens": None}},
        {"type": "message_stop"},
    ]


def written(events: Sequence[Any]) -> bytes:
    texts = []
    for event in events:
        name = event.get("type", "message") if isinstance(event, dict) else "message"
        texts.append(f"event: {name}\r\ndata: {json.dumps(event)}\r\n\r\n")
    return "".join(texts).encode()


def split_emoji() -> list[dict[str, Any]]:
    """Return a character that is cut into two events, between the halves of its surrogate pair."""
    events = streamed(message(text_reply("😀")))
    halves = ["\ud83d", "\ude00"]
    for event in events:
        if event["type"] == "content_block_delta":
            event["delta"]["text"] = halves.pop(0)
    return events


def delta(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "delta": {"type": kind, **more}}


WHOLES = (
    message(text_reply("Four")),
    message(TEXT),
    message(text_reply("")),
    message(TOOL_USE, stop_reason="tool_use"),
    message(THOUGHT, TEXT, TOOL_USE, stop_reason="tool_use"),
    message(THOUGHT, {"type": "redacted_thinking", "data": "eHg="}, TEXT),
    message(SEARCH, FOUND, CITED),
    message(TEXT, stop_reason="max_tokens"),
    message(text_reply('{"sum": 4}')),
    message(text_reply("Ein Gruß 😀")),
    message(stop_reason="refusal", stop_details={"type": "refusal", "category": "cyber"}),
)
NO_MESSAGE = "malformed_reply: HTTP 200 OK: the reply is not a message; check apiBaseUrl"
ONLY_SYSTEM = "it has only system messages"
KEEP_ONE = "keep one of them"


def mistake(key: str, fault: str, hint: str | None = None, /, **config: Any) -> Mistake:
    """Return a wrong config with one problem."""
    return Mistake(config, [Problem(f".config.{key}", fault, hint)])


MESSAGES = Vendor(
    name="messages",
    reader=read,
    entry=f"anthropic:messages:{MODEL}",
    url=f"{BASE}/messages",
    headers={"x-api-key": KEY, "anthropic-version": "2023-06-01"},
    asked={"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]},
    defaults={"max_tokens": 1024, "temperature": 0},
    good=message(text_reply("Four")),
    answer=Reply(
        output="Four",
        finish_reason="stop",
        usage=Usage(
            prompt=1320, completion=60, total=1380, cached=1000, cache_creation=300, reasoning=25
        ),
        cost=(20 + 300 * 1.25 + 1000 * 0.5 + 60 * 5) / 1_000_000,
        metadata={"id": "msg_1", "model": "claude-haiku-4-5-20251001"},
    ),
    lane=f"anthropic|{BASE}|88dc28d0f030|-|{MODEL}",
    missing=no_key("ANTHROPIC_API_KEY"),
    fail=lambda text: api_error("api_error", text),
    errors=(
        (400, api_error("invalid_request_error"), "bad_request"),
        (400, api_error("invalid_request_error", "prompt is too long: 9 > 8"), "context_window"),
        (
            400,
            api_error("invalid_request_error", "Your credit balance is too low"),
            "quota_exhausted",
        ),
        (401, api_error("authentication_error"), "auth"),
        (402, api_error("billing_error"), "quota_exhausted"),
        (403, api_error("permission_error"), "permission"),
        (404, api_error("not_found_error"), "not_found"),
        (413, api_error("request_too_large"), "context_window"),
        (429, api_error("rate_limit_error"), "rate_limited"),
        (500, api_error("api_error"), "server"),
        (504, api_error("timeout_error"), "server"),
        (529, api_error("overloaded_error"), "overloaded"),
        (200, api_error("overloaded_error"), "overloaded"),
    ),
    limits=(
        {
            "date": "Fri, 07 Aug 2026 20:59:30 GMT",
            "anthropic-ratelimit-requests-limit": "50",
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": "2026-08-07T21:00:00Z",
        },
        RateHint(Allowance(50, 0, 30)),
    ),
    usage=("usage", "input_tokens"),
    sends=(
        (
            {
                "maxTokens": 5,
                "temperature": 0.5,
                "top_k": 3,
                "stopSequences": ["END"],
                "metadata": {"user_id": "u"},
                "service_tier": "standard_only",
                "cacheControl": {"type": "ephemeral"},
                "output_config": {"effort": "low"},
                "extra_body": {"top_k": 4, "container": "c"},
                "passthrough": {"container": "d"},
            },
            {
                "max_tokens": 5,
                "temperature": 0.5,
                "top_k": 4,
                "stop_sequences": ["END"],
                "metadata": {"user_id": "u"},
                "service_tier": "standard_only",
                "cache_control": {"type": "ephemeral"},
                "output_config": {"effort": "low"},
                "container": "d",
            },
        ),
    ),
    calls=(
        Call(
            {"max_tokens": 50, "top_k": 5, "output_config": {"effort": "low", "format": FORMAT}},
            {"maxTokens": 9, "top_k": None, "system": "Be brief.", "effort": "high"},
            {
                "max_tokens": 9,
                "temperature": 0,
                "output_config": {"effort": "high", "format": FORMAT},
                "system": "Be brief.",
            },
            {"max_tokens": 50, "top_k": 5},
        ),
        Call(  # null removes an object as a whole; keys beside it still count
            {"output_config": {"effort": "low", "format": FORMAT}},
            {"output_config": None, "effort": "high"},
            {"max_tokens": 1024, "temperature": 0, "output_config": {"effort": "high"}},
        ),
    ),
    wrong_options=(
        (
            {"temprature": 1, "max_tokens": 0},
            (
                'temprature: "temprature" is not a key (did you mean "temperature"?); '
                "max_tokens: must be a whole number of at least 1, got 0"
            ),
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 2000},
            (
                "max_tokens: must be above the budget_tokens of thinking (2000), got 2000 "
                "(the rest is for the reply's text)"
            ),
        ),
    ),
    unsendable=(
        ('[{"role": "system", "content": "Be brief."}]', ONLY_SYSTEM),
        ("system: Be brief.", ONLY_SYSTEM),
        (
            '[{"role": "system", "content": {"a": 1}}, {"role": "user", "content": "Hi"}]',
            "the content of a system message must be text or a list",
        ),
    ),
    strangers=(({"id": "x"}, NO_MESSAGE), ({"content": {}}, NO_MESSAGE)),
    mistakes=(
        Mistake(
            {},
            [
                Problem(
                    ".id",
                    '"anthropic:messages:" has no model name',
                    "write anthropic:messages:<model>",
                )
            ],
            entry="anthropic:messages:",
        ),
        Mistake(
            {},
            [
                Problem(
                    ".config.max_tokens",
                    "the environment variable ANTHROPIC_MAX_TOKENS must be a whole number of at least "
                    '1, got "many"',
                )
            ],
            {**ENVIRON, "ANTHROPIC_MAX_TOKENS": "many"},
        ),
        mistake(
            "max_tokens",
            "must be above the budget_tokens of thinking (4000), got 4000",
            "the rest is for the reply's text",
            thinking=THINKING,
            max_tokens=4000,
        ),
        mistake(
            "output_format",
            "format is in output_config already",
            KEEP_ONE,
            output_format=FORMAT,
            output_config={"format": FORMAT},
        ),
        mistake(
            "response_format",
            "means the same as output_format",
            KEEP_ONE,
            output_format=FORMAT,
            response_format=FORMAT,
        ),
        mistake(
            "passthrough.stream",
            "streaming is decided by metrics",
            'leave it out; metrics: ["ttft"] streams, and measures the time to the first token',
            passthrough={"stream": True},
        ),
        mistake(
            "tool_choice",
            'must be auto, any, none, required or an object with a type, got "clock"',
            tool_choice="clock",
        ),
        mistake("metrics", 'must be "ttft", or a list of it, got ["latency"]', metrics=["latency"]),
        mistake(
            "thinking",
            'must be an object with a type, and budget_tokens of at least 1, got {"budget_tokens": 4000}',
            thinking={"budget_tokens": 4000},
        ),
        mistake(
            "stop_sequence",
            '"stop_sequence" is not a key',
            'did you mean "stop_sequences"?',
            stop_sequence=["x"],
        ),
    ),
    texts=Texts(
        say=lambda text: message(text_reply(text)),
        think=lambda thought, text: message({**THOUGHT, "thinking": thought}, text_reply(text)),
        called=(message(TOOL_USE, stop_reason="tool_use"), json.dumps(TOOL_USE)),
        schema={"output_format": FORMAT},
        stops=tuple(
            (message(TEXT, stop_reason=stop), reason)
            for stop, reason in (
                ("end_turn", "stop"),
                ("stop_sequence", "stop"),
                ("max_tokens", "length"),
                ("model_context_window_exceeded", "length"),
                ("tool_use", "tool_calls"),
                ("pause_turn", "pause_turn"),
                ("something_New", "something_new"),
                (None, None),
            )
        ),
        refusals=tuple(
            Refusal(
                message(*blocks, stop_reason="refusal", stop_details=details),
                output,
                Guardrails(flagged=True, reason=reason),
            )
            for blocks, details, reason, output in (
                ([], None, None, "[filtered by the provider]"),
                ([TEXT], None, None, "It is four."),
                ([], {"type": "refusal", "category": "bio", "explanation": None}, "bio", "bio"),
                (
                    [],
                    {"type": "refusal", "category": None, "explanation": "Not this."},
                    "Not this.",
                    "Not this.",
                ),
            )
        ),
        nothing=(
            message(),
            message({"type": "redacted_thinking", "data": "eHg="}),
            message({"type": "thinking", "thinking": "", "signature": "eHg="}),
        ),
        cut=lambda data: {**data, "stop_reason": "max_tokens"},
        what="message",
        limit="max_tokens",
    ),
    stream=Stream(
        write=written,
        cases=(
            *(Streamed(whole, streamed(whole), {"output_format": FORMAT}) for whole in WHOLES),
            Streamed(message(text_reply("😀")), split_emoji()),
        ),
        errors=tuple(
            (
                api_error(type_, f"Sorry {KEY}."),
                f"{kind}: HTTP 200 OK: {ADVICE_BY_KIND.get(kind, '')}Sorry [hidden].",
            )
            for type_, kind in (
                ("overloaded_error", "overloaded"),
                ("rate_limit_error", "rate_limited"),
                ("api_error", "server"),
                ("authentication_error", "auth"),
            )
        ),
        speech=tuple(
            (ServerEvent(json.dumps(event)), answer)
            for event, answer in (
                (delta("text_delta", text="a"), True),
                (delta("thinking_delta", thinking="a"), True),
                (delta("input_json_delta", partial_json="{"), True),
                (delta("text_delta", text=""), False),
                (delta("signature_delta", signature="a"), False),
                ({"type": "message_start", "message": {"content": []}}, False),
                ({"type": "ping"}, False),
                ("content_block_delta", False),
            )
        ),
    ),
)
