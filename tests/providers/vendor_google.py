"""The Gemini API: `generateContent`."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vendor_cases import KEY, Call, Mistake, Refusal, Stream, Streamed, Texts, Vendor, no_key

from trioeval.errors import Problem
from trioeval.providers.base import Guardrails, Reply
from trioeval.providers.http.streams import ServerEvent
from trioeval.providers.vendors.gemini import read
from trioeval.usage import Usage

MODEL = "gemini-2.5-flash"
BASE = "https://generativelanguage.googleapis.com"
SCHEMA = {"type": "object", "properties": {"sum": {"type": "integer"}}}
CHAT_FORMAT = {"type": "json_schema", "json_schema": {"name": "sums", "schema": SCHEMA}}
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


def api_error(code: int, status: str, message: str, *details: Mapping[str, Any]) -> dict[str, Any]:
    error = {"code": code, "message": message, "status": status, "details": list(details)}
    return {"error": error}


def pieces(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a part in pieces: texts in two halves, with the other fields at the end."""
    if "text" not in part:
        return [dict(part)]
    half = len(part["text"]) // 2
    common = {"thought": True} if part.get("thought") else {}
    return [{**common, "text": part["text"][:half]}, {**part, "text": part["text"][half:]}]


def streamed(whole: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the replies of a stream."""
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


def written(chunks: Sequence[Any]) -> bytes:
    return "".join(f"data: {json.dumps(one)}\r\n\r\n" for one in chunks).encode()


def split_emoji() -> list[dict[str, Any]]:
    """Return a character that is cut into two events, between the halves of its surrogate pair."""
    first, second, *rest = streamed(generated(candidate({"text": "😀"})))
    for chunk, half in ((first, "\ud83d"), (second, "\ude00")):
        chunk["candidates"][0]["content"]["parts"] = [{"text": half}]
    return [first, second, *rest]


def chat(role: str, *content: Any) -> str:
    return json.dumps([{"role": role, "content": list(content)}])


WHOLES = (
    generated(candidate({"text": "Four"})),
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
)
NO_CANDIDATE = "empty_reply: HTTP 200 OK: the reply has no candidate"
NOT_GENERATED = (
    "malformed_reply: HTTP 200 OK: the reply is not a generateContent reply; check apiBaseUrl"
)
NO_URI = "an image must be a data: URI; Gemini accepts others only as fileData"
FORMS = (
    "write google:<model>, google:embedding:<model>, google:image:<model> or google:video:<model>"
)
HI = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}


def no_model(entry: str) -> Mistake:
    """Return a mistake: an id without a model name."""
    return Mistake({}, [Problem(".id", f'"{entry}" is not a valid Gemini id', FORMS)], entry=entry)


def mistake(key: str, fault: str, hint: str | None = None, /, **config: Any) -> Mistake:
    """Return a wrong config with one problem."""
    return Mistake(config, [Problem(f".config.{key}", fault, hint)])


GENERATE = Vendor(
    name="generate",
    reader=read,
    entry=f"google:{MODEL}",
    url=f"{BASE}/v1beta/models/{MODEL}:generateContent",
    headers={"x-goog-api-key": KEY},
    asked=HI,
    good=generated(candidate({"text": "Four"})),
    answer=Reply(
        output="Four",
        finish_reason="stop",
        usage=Usage(prompt=25, completion=40, total=65, cached=8, reasoning=30),
        cost=(17 + 8 * 0.5 + 40 * 5) / 1_000_000,
        metadata={"id": "resp_1", "model": "gemini-2.5-flash-001"},
    ),
    lane=f"google|{BASE}/v1beta|88dc28d0f030|-|{MODEL}",
    missing=no_key("GEMINI_API_KEY or GOOGLE_API_KEY"),
    fail=lambda text: {"error": {"message": text, "details": []}},
    errors=tuple(
        (code, api_error(code, status, "No."), kind)
        for code, status, kind in (
            (400, "INVALID_ARGUMENT", "bad_request"),
            (401, "UNAUTHENTICATED", "auth"),
            (403, "PERMISSION_DENIED", "permission"),
            (404, "NOT_FOUND", "not_found"),
            (500, "INTERNAL", "server"),
            (503, "UNAVAILABLE", "server"),
            (504, "DEADLINE_EXCEEDED", "server"),
        )
    ),
    usage=("usageMetadata", "promptTokenCount"),
    sends=(
        (
            {
                "temperature": 0.5,
                "maxOutputTokens": 9,
                "stop_sequences": ["END"],
                "generationConfig": {
                    "top_k": 3,
                    "thinkingConfig": {"thinkingBudget": 0},
                    "newKey": 1,
                },
                "safety_settings": [{"category": "c", "threshold": "BLOCK_NONE"}],
                "tools": [{"googleSearch": {}}],
                "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
                "responseLogprobs": True,
                "logprobs": 3,
                "cachedContent": "cachedContents/1",
                "systemInstruction": "Be brief.",
                "passthrough": {"labels": {"run": "1"}},
            },
            {
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
            },
        ),
    ),
    calls=(
        Call(
            {
                "generationConfig": {"temperature": 0.5, "topK": 3, "responseSchema": SCHEMA},
                "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}},
            },
            {
                "temperature": 1,
                "top_k": None,
                "response_format": CHAT_FORMAT,
                "tool_choice": "none",
            },
            {
                "generationConfig": {
                    "temperature": 1,
                    "responseMimeType": "application/json",
                    "responseJsonSchema": SCHEMA,
                },
                "toolConfig": {"functionCallingConfig": {"mode": "NONE"}},
            },
            {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}},
        ),
        Call(  # null removes an object as a whole; keys beside it still count
            {"topK": 3, "responseSchema": SCHEMA},
            {"generationConfig": None, "seed": 1},
            {"generationConfig": {"seed": 1}},
        ),
        Call(
            {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}},
            {"tool_choice": None},
            {},
        ),
    ),
    wrong_options=(
        ({"top_k": 0}, "top_k: must be a whole number of at least 1, got 0"),
        (
            {"temperature": 1, "generationConfig": {"temperature": 0}},
            "temperature: is in generationConfig already (keep one of them)",
        ),
    ),
    unsendable=(
        (
            json.dumps([{"role": "system", "content": "Be brief."}]),
            "it has only system messages",
        ),
        (
            json.dumps([{"role": "user", "content": None}]),
            "a message has neither parts nor content that is text or a list",
        ),
        (chat("user", 1), "a content has a block that is neither text nor an object"),
        (chat("user", {"type": "image_url", "image_url": {"url": "https://a/b.png"}}), NO_URI),
        (chat("user", {"type": "image", "source": {"type": "url", "url": "https://a"}}), NO_URI),
    ),
    strangers=(
        ({"usageMetadata": USAGE}, NO_CANDIDATE),
        ({"candidates": []}, NO_CANDIDATE),
        ({"candidates": {}}, NO_CANDIDATE),
        ({"promptFeedback": {}}, NO_CANDIDATE),
        ({"candidates": [1]}, NOT_GENERATED),
        ({"id": "x"}, NOT_GENERATED),
    ),
    mistakes=(
        no_model("google:"),
        no_model("google:files:imagen"),
        no_model("google:a/../b?c"),
        mistake(
            "apiVersion",
            'must be letters and digits, such as v1beta, got "v1/x"',
            apiVersion="v1/x",
        ),
        mistake(
            "topP",
            "is in generationConfig already",
            "keep one of them",
            topP=1,
            generation_config={"top_p": 1},
        ),
        mistake(
            "tool_choice",
            "toolConfig sets it already",
            "keep one of them",
            toolConfig={"a": 1},
            tool_choice="auto",
        ),
        mistake(
            "passthrough.contents",
            "contents come from the prompt",
            "leave it out",
            passthrough={"contents": []},
        ),
        mistake(
            "systemInstruction",
            'must be text, or an object with a list of parts, got {"text": "Be brief."}',
            systemInstruction={"text": "Be brief."},
        ),
    ),
    texts=Texts(
        say=lambda text: generated(candidate({"text": text})),
        think=lambda thought, text: generated(
            candidate({"text": thought, "thought": True}, {"text": text})
        ),
        called=(generated(candidate(CALL)), [CALL]),
        schema={"responseSchema": SCHEMA},
        stops=tuple(
            (generated(candidate(TEXT, finishReason=word)), reason)
            for word, reason in (
                ("STOP", "stop"),
                ("MAX_TOKENS", "length"),
                ("MALFORMED_FUNCTION_CALL", "malformed_function_call"),
                ("LANGUAGE", "language"),
                (None, None),
            )
        ),
        refusals=(
            *(
                Refusal(
                    generated(candidate(TEXT, finishReason=word)),
                    "It is four.",
                    Guardrails(flagged=True, flagged_output=True, reason=word),
                )
                for word in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")
            ),
            Refusal(
                generated({"finishReason": "SAFETY", "finishMessage": "Not this.", "index": 0}),
                "[filtered by the provider]",
                Guardrails(flagged=True, flagged_output=True, reason="Not this."),
            ),
            *(
                Refusal(
                    {"promptFeedback": feedback, "usageMetadata": USAGE},
                    reason,
                    Guardrails(flagged=True, flagged_input=True, reason=reason),
                )
                for feedback, reason in (
                    ({"blockReason": "SAFETY", "safetyRatings": RATINGS}, "SAFETY"),
                    ({"blockReason": "OTHER", "blockReasonMessage": "Not this."}, "Not this."),
                )
            ),
        ),
        nothing=(
            generated({"content": None, "finishReason": "STOP"}),
            generated({"content": {}, "finishReason": "STOP"}),
            generated({"content": {"parts": []}, "finishReason": "STOP"}),
        ),
        cut=lambda data: {
            **data,
            "candidates": [{**data["candidates"][0], "finishReason": "MAX_TOKENS"}],
        },
        what="candidate",
        limit="maxOutputTokens",
    ),
    stream=Stream(
        write=written,
        cases=(
            *(Streamed(whole, streamed(whole), {"responseSchema": SCHEMA}) for whole in WHOLES),
            Streamed(generated(candidate({"text": "😀"})), split_emoji()),
        ),
        spare=1,
        errors=(
            (
                api_error(503, "UNAVAILABLE", f"Overloaded, {KEY}."),
                "server: HTTP 200 OK: Overloaded, [hidden].",
            ),
        ),
        speech=(
            *(
                (ServerEvent(json.dumps({"candidates": [{"content": {"parts": parts}}]})), answer)
                for parts, answer in (
                    ([THOUGHT], True),
                    ([TEXT], True),
                    ([CALL], True),
                    ([{"text": ""}], False),
                    ([{"text": "", "thoughtSignature": "c2ln"}], False),
                    ([], False),
                )
            ),
            (ServerEvent("[DONE]"), False),
        ),
    ),
)
