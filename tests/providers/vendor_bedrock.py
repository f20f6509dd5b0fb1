"""Converse, the API of Amazon Bedrock."""

import json
from typing import Any

from vendor_cases import Call, Refusal, Texts, Vendor

from trioeval.errors import Problem
from trioeval.providers.base import Guardrails, Reply
from trioeval.providers.sdk.bedrock import FINISH_BY_STOP, read
from trioeval.usage import Usage

BASE = "https://bedrock-runtime.us-east-1.amazonaws.com"
USAGE = {
    "inputTokens": 10,
    "outputTokens": 5,
    "totalTokens": 45,
    "cacheReadInputTokens": 20,
    "cacheWriteInputTokens": 10,
}
TOOL_USE = {"toolUse": {"toolUseId": "t", "name": "add", "input": {"a": 1}}}


def answer(*blocks: Any, stop: str | None = "end_turn", **fields: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": list(blocks)}
    return {"output": {"message": message}, "stopReason": stop, "usage": USAGE, **fields}


def thought_of(text: str) -> dict[str, Any]:
    return {"reasoningContent": {"reasoningText": {"text": text, "signature": "s"}}}


NOT_CONVERSE = (
    "malformed_reply: HTTP 200 OK: the reply is not a Converse reply; check region, endpointUrl"
)
FILTERS = ("content_filtered", "guardrail_intervened")

CONVERSE = Vendor(
    name="converse",
    reader=read,
    entry="bedrock:maker.m-1",
    url=f"{BASE}/model/maker.m-1/converse",
    headers={},
    asked={"messages": [{"role": "user", "content": [{"text": "Hi"}]}]},
    good=answer({"text": "Four"}),
    answer=Reply(
        output="Four",
        finish_reason="stop",
        usage=Usage(prompt=40, completion=5, total=45, cached=20, cache_creation=10),
        cost=(10 + 20 * 0.5 + 10 * 1.25 + 5 * 5) / 1_000_000,
    ),
    lane=f"bedrock|{BASE}|88dc28d0f030|-|maker.m-1",
    secrets=("aws-secret",),
    missing=Problem(
        ".config.region",
        "this provider needs a region",
        "set config.region, or AWS_REGION in the environment or in a file given with --env-file",
    ),
    fail=lambda text: {"message": text},
    usage=("usage", "inputTokens"),
    sends=(
        (
            {
                "max_tokens": 7,
                "temperature": None,
                "stopSequences": ["END"],
                "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
            },
            {
                "inferenceConfig": {"maxTokens": 7, "stopSequences": ["END"]},
                "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
            },
        ),
    ),
    calls=(
        Call(
            {"maxTokens": 5, "temperature": 0.1, "requestMetadata": {"a": "b"}},
            {"max_tokens": 7, "temperature": None, "performanceConfig": {"latency": "x"}},
            {
                "inferenceConfig": {"maxTokens": 7},
                "requestMetadata": {"a": "b"},
                "performanceConfig": {"latency": "x"},
            },
            {"inferenceConfig": {"maxTokens": 5, "temperature": 0.1}},
        ),
    ),
    wrong_options=(({"maxTokens": 0}, "maxTokens: must be a whole number of at least 1, got 0"),),
    unsendable=(("- role: user\n- content: Hi", "messages[1] is not an object with a role"),),
    strangers=(({}, NOT_CONVERSE), ({"output": 5}, NOT_CONVERSE)),
    texts=Texts(
        say=lambda text: answer({"text": text}),
        think=lambda thought, text: answer(thought_of(thought), {"text": text}),
        called=(answer(TOOL_USE, stop="tool_use"), json.dumps(TOOL_USE)),
        schema=None,
        stops=(
            *(
                (answer({"text": "Hi"}, stop=stop), reason)
                for stop, reason in FINISH_BY_STOP.items()
                if stop not in FILTERS
            ),
            (answer({"text": "Hi"}, stop="Malformed_Tool_Use"), "malformed_tool_use"),
            (answer({"text": "Hi"}, stop=None), None),
        ),
        refusals=(
            Refusal(
                answer(
                    stop="guardrail_intervened",
                    trace={"guardrail": {"actionReason": "topic denied"}},
                ),
                "[filtered by the provider]",
                Guardrails(flagged=True, reason="topic denied"),
            ),
            *(
                Refusal(
                    answer({"text": "Hi"}, stop=stop), "Hi", Guardrails(flagged=True, reason=stop)
                )
                for stop in FILTERS
            ),
        ),
        nothing=(answer(),),
        cut=lambda data: {**data, "stopReason": "max_tokens"},
        what="message",
        limit="maxTokens",
    ),
)
