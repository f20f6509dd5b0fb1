"""The APIs that return numbers: embeddings of OpenAI and Gemini, moderations of OpenAI."""

import struct
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from vendor_cases import Call, Mistake, Vendor
from vendor_google import BASE as GOOGLE
from vendor_google import GENERATE
from vendor_openai import BASE, BEARER, DIGEST, MISSING

from trioeval.errors import Problem
from trioeval.providers.base import Guardrails, Reply
from trioeval.providers.vendors import gemini, openai
from trioeval.usage import Usage

VECTOR = [0.5, -0.25, 1.0]
PACKED = b64encode(struct.pack("<3f", *VECTOR)).decode()
NO_VECTOR = "malformed_reply: HTTP 200 OK: the reply has no vector; check apiBaseUrl"


def embedded(vector: object, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 4, "total_tokens": 4}
    data = [{"object": "embedding", "index": 0, "embedding": vector}]
    return {"object": "list", "data": data, "model": "embed-1", "usage": usage, **more}


NO_VECTORS: tuple[object, ...] = (
    None,
    [],
    "",
    {},
    [1, "2"],
    [True],
    [float("nan")],
    [10**400],
    "no base64",
    "ü",
    "AAA=",
    b64encode(struct.pack("<f", float("inf"))).decode(),
)

EMBEDDINGS = Vendor(
    name="embeddings",
    reader=openai.read,
    entry="openai:embeddings:embed-1",
    url=f"{BASE}/embeddings",
    headers=BEARER,
    asked={"model": "embed-1", "input": "Hi"},
    good=embedded(VECTOR),
    answer=Reply(
        output=VECTOR,
        usage=Usage(prompt=4, total=4),
        cost=4 / 1_000_000,
        metadata={"model": "embed-1"},
    ),
    lane=f"openai|{BASE}|{DIGEST}|-|embed-1",
    missing=MISSING,
    usage=("usage", "prompt_tokens"),
    sends=(
        (
            {
                "dimensions": 3,
                "encodingFormat": "base64",
                "user": "u",
                "passthrough": {"a": 1, "user": "v"},
            },
            {"dimensions": 3, "encoding_format": "base64", "user": "v", "a": 1},
        ),
    ),
    calls=(
        Call(
            {
                "dimensions": 3,
                "encodingFormat": "base64",
                "user": "u",
                "passthrough": {"a": 1, "user": "v"},
            },
            {"dimensions": 2, "encoding_format": None, "passthrough": None},
            {"dimensions": 2, "user": "u"},
            {"dimensions": 3, "user": "v"},
        ),
    ),
    wrong_options=(
        ({"dimensions": "many"}, 'dimensions: must be a whole number of at least 1, got "many"'),
    ),
    strangers=(
        (embedded(VECTOR, data=[]), "empty_reply: HTTP 200 OK: the reply has no vector"),
        (embedded(VECTOR, data={}), NO_VECTOR),
        ({}, NO_VECTOR),
        *((embedded(vector), NO_VECTOR) for vector in NO_VECTORS),
    ),
    mistakes=tuple(
        Mistake({key: value}, [Problem(f".config.{key}", fault)])
        for key, value, fault in (
            ("dimensions", 0, "must be a whole number of at least 1, got 0"),
            ("encoding_format", "int8", 'must be "float" or "base64", got "int8"'),
            ("passthrough", {"input": []}, 'must be an object without input, got {"input": []}'),
        )
    ),
    samples=(embedded(PACKED),),
)

EMBED_CONTENT = Vendor(
    name="embed-content",
    reader=gemini.read,
    entry="google:embedding:gemini-embedding-001",
    url=f"{GOOGLE}/v1beta/models/gemini-embedding-001:embedContent",
    headers=GENERATE.headers,
    asked={"content": {"parts": [{"text": "Hi"}]}},
    good={"embedding": {"values": [0.5, -1]}, "usageMetadata": {"promptTokenCount": 3}},
    answer=Reply(output=[0.5, -1.0], usage=Usage(prompt=3), cost=3 / 1_000_000),
    lane=f"google|{GOOGLE}/v1beta|{DIGEST}|-|gemini-embedding-001",
    missing=GENERATE.missing,
    fail=GENERATE.fail,
    usage=("usageMetadata", "promptTokenCount"),
    sends=(
        (
            {
                "task_type": "CLUSTERING",
                "outputDimensionality": 8,
                "passthrough": {"autoTruncate": True},
            },
            {"taskType": "CLUSTERING", "outputDimensionality": 8, "autoTruncate": True},
        ),
    ),
    calls=(
        Call(
            {
                "task_type": "CLUSTERING",
                "outputDimensionality": 8,
                "passthrough": {"autoTruncate": True},
            },
            {"taskType": None, "title": "T"},
            {"title": "T", "outputDimensionality": 8, "autoTruncate": True},
            {"taskType": "CLUSTERING"},
        ),
    ),
    wrong_options=(({"taskType": 1}, "taskType: must be text, got 1"),),
    strangers=tuple(
        ({"embedding": {"values": values}}, NO_VECTOR)
        for values in (None, [], [1, "2"], [1, 10**400])
    ),
    mistakes=(
        Mistake(
            {"temperature": 1},
            [Problem(".config.temperature", '"temperature" is not a key')],
        ),
    ),
)

FLAGGED = {
    "flagged": True,
    "categories": {"hate": True, "hate/threatening": True, "violence": False, "illicit": None},
    "category_scores": {"hate": 0.5, "hate/threatening": 0.75, "violence": 0.001},
}
NO_RESULT = "malformed_reply: HTTP 200 OK: the reply has no result; check apiBaseUrl"


def judged(*results: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": "modr-1", "model": "omni-moderation-x", "results": list(results)}


MODERATIONS = Vendor(
    name="moderations",
    reader=openai.read,
    entry="openai:moderation:omni-moderation-latest",
    url=f"{BASE}/moderations",
    headers=BEARER,
    asked={"model": "omni-moderation-latest", "input": "Hi"},
    good=judged(FLAGGED),
    answer=Reply(
        output={
            "flagged": True,
            "categories": {"hate": True, "hate/threatening": True, "violence": False},
            "category_scores": {"hate": 0.5, "hate/threatening": 0.75, "violence": 0.001},
        },
        guardrails=Guardrails(flagged=True, flagged_input=True, reason="hate/threatening, hate"),
        metadata={
            "id": "modr-1",
            "model": "omni-moderation-x",
            "flags": [
                {
                    "code": "hate/threatening",
                    "description": "hate: threatening",
                    "confidence": 0.75,
                },
                {"code": "hate", "description": "hate", "confidence": 0.5},
            ],
        },
    ),
    lane=f"openai|{BASE}|{DIGEST}|-|omni-moderation-latest",
    missing=MISSING,
    usage=None,
    sends=(({"passthrough": {"a": 1}}, {"a": 1}),),
    calls=(
        Call(
            {"passthrough": {"a": 1, "b": 1}},
            {"passthrough": {"b": 2}},
            {"a": 1, "b": 2},
            {"a": 1, "b": 1},
        ),
        Call({}, {"passthrough": None}, {}),
    ),
    strangers=(
        (judged(), "empty_reply: HTTP 200 OK: the reply has no result"),
        ({}, NO_RESULT),
        (judged({"flagged": 1}), NO_RESULT),
    ),
)
