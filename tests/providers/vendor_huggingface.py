"""The tasks of Hugging Face's inference API."""

from typing import Any

import attrs
from vendor_cases import KEY, Call, Mistake, Vendor, no_key
from vendor_openai import DIGEST

from trioeval.errors import Problem
from trioeval.providers.base import Reply
from trioeval.providers.vendors import huggingface
from trioeval.usage import Usage

BASE = "https://router.huggingface.co/hf-inference"
MODEL = "org/model-1"
BEARER = {"authorization": f"Bearer {KEY}"}
MISSING = no_key("HF_TOKEN or HF_API_TOKEN")
TASKS = "chat, text-generation, text-classification, token-classification, feature-extraction"


def wrong_id(entry: str) -> Mistake:
    hint = f"write huggingface:<task>:<model>, where the task is {TASKS}"
    problem = Problem(".id", f'"{entry}" is not a valid Hugging Face id', hint)
    return Mistake({}, [problem], entry=entry)


def stranger(what: str) -> str:
    return f"malformed_reply: HTTP 200 OK: {what}; check apiEndpoint, apiBaseUrl"


GENERATED = Vendor(
    name="text-generation",
    reader=huggingface.read,
    entry=f"huggingface:text-generation:{MODEL}",
    url=f"{BASE}/models/{MODEL}",
    headers=BEARER,
    asked={"inputs": "Hi"},
    defaults={"parameters": {"return_full_text": False}},
    good={"generated_text": "Four"},
    answer=Reply(output="Four"),
    lane=f"huggingface|{BASE}|{DIGEST}|-|{MODEL}",
    missing=MISSING,
    fail=lambda message: {"error": message},
    usage=None,
    sends=(
        (
            {"temperature": 0.5, "maxNewTokens": 9, "returnFullText": True, "use_cache": False},
            {
                "parameters": {
                    "temperature": 0.5,
                    "max_new_tokens": 9,
                    "return_full_text": True,
                    "use_cache": False,
                }
            },
        ),
        ({"chatCompletion": False}, {"parameters": {"return_full_text": False}}),
    ),
    calls=(
        Call(
            {"temperature": 0.5, "top_k": 3},
            {"topK": None, "temperature": 1},
            {"parameters": {"return_full_text": False, "temperature": 1}},
            {"parameters": {"return_full_text": False, "temperature": 0.5, "top_k": 3}},
        ),
    ),
    wrong_options=(
        ({"max_new_tokens": 0}, "max_new_tokens: must be a whole number of at least 1, got 0"),
    ),
    strangers=(
        ([], "empty_reply: HTTP 200 OK: the reply has no text"),
        ([{}], stranger("the reply has no generated_text")),
        ({"text": "Four"}, stranger("the reply has no generated_text")),
    ),
    errors=((503, {"error": "Model org/model-1 is currently loading"}, "server"),),
    mistakes=(
        Mistake(
            {"top_k": 0.5},
            [Problem(".config.top_k", "must be a whole number of at least 1, got 0.5")],
        ),
        wrong_id("huggingface:org/model-1"),
        wrong_id("huggingface:text-generation:"),
        wrong_id("huggingface:text-generation:a b"),
        wrong_id("huggingface:translation:m"),
        Mistake(
            {},
            [
                Problem(
                    ".id",
                    '"huggingface:sentence-similarity" is not supported',
                    "use huggingface:feature-extraction:m, and compare its vectors",
                )
            ],
            entry="huggingface:sentence-similarity:m",
        ),
        Mistake(
            {"apiEndpoint": "https://u:p@host/"},
            [
                Problem(
                    ".config.apiEndpoint",
                    "must not hold a user or a password; use apiKey or headers",
                )
            ],
        ),
    ),
    lists=True,
)

NOT_LABELS: tuple[Any, ...] = (
    {},
    [],
    [[]],
    [{"label": "joy"}],
    [{"label": 1, "score": 1}],
    [{"label": "joy", "score": "1"}],
    [{"label": "joy", "score": 1}, 5],
)
NOT_VECTORS: tuple[Any, ...] = ({}, [], [[]], [1, "2"], [True], [[1], [2]], [10**400])
NO_LABELS = stranger("the reply has no labels with scores")


def scored(*rows: Any) -> Any:
    return [list(rows)]


LABELS = attrs.evolve(
    GENERATED,
    name="text-classification",
    entry=f"hf:text-classification:{MODEL}",
    defaults={"parameters": {}},
    good=scored({"label": "joy", "score": 0.75}, {"label": "anger", "score": 1}),
    answer=Reply(output='{"joy":0.75,"anger":1}'),
    sends=(({}, {"parameters": {}}),),
    calls=(),
    wrong_options=(),
    strangers=tuple((data, NO_LABELS) for data in NOT_LABELS),
    errors=(),
    mistakes=(),
    samples=([{"label": "joy", "score": 0.75}],),
)

ENTITIES = attrs.evolve(
    LABELS,
    name="token-classification",
    entry=f"huggingface:token-classification:{MODEL}",
    defaults={
        "parameters": {"aggregation_strategy": "simple"},
        "options": {"use_cache": True, "wait_for_model": False},
    },
    good=[
        {"entity_group": "PER", "score": 0.5, "word": "Ada"},
        {"entity_group": "LOC", "score": 0.25, "word": "Bonn"},
        {"entity_group": "PER", "score": 0.75, "word": "Bo"},
    ],
    answer=Reply(output='{"PER":0.75,"LOC":0.25}'),
    sends=(
        (
            {"aggregationStrategy": "max", "waitForModel": True},
            {
                "parameters": {"aggregation_strategy": "max"},
                "options": {"use_cache": True, "wait_for_model": True},
            },
        ),
    ),
    strangers=(
        ({}, stranger("the reply is not a list of entities")),
        *(
            (data, stranger("the reply has an entity without entity_group and score"))
            for data in ([1], [{"entity_group": "PER"}], [{"score": 1}])
        ),
    ),
    samples=([],),
)

FEATURES = attrs.evolve(
    LABELS,
    name="feature-extraction",
    entry=f"huggingface:feature-extraction:{MODEL}",
    defaults={"options": {}},
    good=[0.5, -1, 0.25],
    answer=Reply(output=[0.5, -1.0, 0.25], usage=Usage()),
    sends=(({"use_cache": False}, {"options": {"use_cache": False}}),),
    strangers=tuple((data, stranger("the reply has no vector")) for data in NOT_VECTORS),
    samples=([[0.5, 1]],),
)
