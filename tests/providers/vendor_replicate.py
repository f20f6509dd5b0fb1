"""Predictions of Replicate that have already ended."""

from typing import Any

from vendor_cases import KEY, Call, Mistake, Vendor, no_key
from vendor_openai import DIGEST

from trioeval.errors import Problem
from trioeval.providers.base import Reply
from trioeval.providers.vendors import replicate
from trioeval.usage import Usage

BASE = "https://api.replicate.com/v1"
MODEL = "meta/llama-4"
METRICS = {"input_token_count": 3, "output_token_count": 2, "predict_time": 0.5}
IDS = "write replicate:<owner>/<model> or replicate:<owner>/<model>:<version>"


def prediction(output: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": "p1",
        "model": MODEL,
        "status": "succeeded",
        "error": None,
        "output": output,
        "metrics": METRICS,
        **more,
    }


def error(kind: str, what: str) -> str:
    return f"{kind}: HTTP 200 OK: {what}"


PREDICTIONS = Vendor(
    name="predictions",
    reader=replicate.read,
    entry=f"replicate:{MODEL}",
    url=f"{BASE}/models/{MODEL}/predictions",
    headers={"authorization": f"Bearer {KEY}", "prefer": "wait=60"},
    asked={"input": {"prompt": "Hi"}},
    good=prediction(["Fo", "ur"]),
    answer=Reply(
        output="Four",
        finish_reason="stop",
        usage=Usage(prompt=3, completion=2, total=5),
        cost=(3 + 2 * 5) / 1_000_000,
        metadata={"id": "p1", "model": MODEL},
    ),
    lane=f"replicate|{BASE}|{DIGEST}|-",
    missing=no_key("REPLICATE_API_TOKEN or REPLICATE_API_KEY"),
    fail=lambda message: {"title": "Error", "detail": message},
    usage=("metrics", "input_token_count"),
    sends=(
        (
            {"temperature": 0.5, "maxNewTokens": 9, "stopSequences": "END", "num_outputs": 2},
            {
                "input": {
                    "num_outputs": 2,
                    "max_new_tokens": 9,
                    "temperature": 0.5,
                    "stop_sequences": "END",
                    "prompt": "Hi",
                }
            },
        ),
        (
            {"prompt": {"prefix": "<", "suffix": ">"}, "system_prompt": "Be brief."},
            {"input": {"system_prompt": "Be brief.", "prompt": "<Hi>"}},
        ),
    ),
    calls=(
        Call(
            {"temperature": 0.5, "top_k": 3},
            {"topK": None, "temperature": 1},
            {"input": {"temperature": 1, "prompt": "Hi"}},
            {"input": {"temperature": 0.5, "top_k": 3, "prompt": "Hi"}},
        ),
    ),
    wrong_options=(({"top_k": "x"}, 'top_k: must be a number, got "x"'),),
    strangers=(
        ({}, error("malformed_reply", "the reply is not a prediction; check apiBaseUrl")),
        (prediction(None), error("empty_reply", "the output is empty (finish reason stop)")),
        (prediction({"a": 1}), error("unexpected", 'the output is not text: {"a": 1}')),
        (prediction(["a", 1]), error("unexpected", 'the output is not text: ["a", 1]')),
        (
            prediction(None, status="failed", error="The input has no image"),
            error("unexpected", "the prediction failed: The input has no image"),
        ),
        (
            prediction(None, status="failed", error="Prediction interrupted; please retry"),
            error("server", "the prediction failed: Prediction interrupted; please retry"),
        ),
        (
            prediction(None, status="canceled"),
            error("unexpected", "the prediction ended as canceled"),
        ),
    ),
    mistakes=(
        *(
            Mistake(
                {}, [Problem(".id", f'"{entry}" is not a valid Replicate id', IDS)], entry=entry
            )
            for entry in ("replicate:", "replicate:llama", "replicate:a/b/c", "replicate:a/b:c?d")
        ),
        Mistake(
            {"prompt": {"before": "x"}},
            [
                Problem(
                    ".config.prompt",
                    'must be an object of texts: prefix, suffix, got {"before": "x"}',
                )
            ],
        ),
        Mistake({"mask": float("nan")}, [Problem(".config.mask", "must be JSON, got NaN")]),
    ),
    samples=(prediction("Four"),),
)
