"""Rows as samples of an Inspect log, in the words of its format: pure, one row at a time.

Nothing is made up: what a record does not know, such as the instants of a row, is left out, and the reader's
own defaults stand there.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import attrs

from trioeval.report.json_text import compact
from trioeval.report.records import own_of, shown_of, status_of
from trioeval.report.usage import was_judged
from trioeval.tasks import Status

Json: TypeAlias = dict[str, Any]

VERDICT = "verdict"
"""The scorer that says whether a row passed."""
SCORE = "score"
"""The scorer that says how well."""

UNBEGUN = frozenset({"not_run", "blocked"})
"""Outcomes of rows that were never begun: no samples."""

_CORRECT, _INCORRECT = "C", "I"  # as its metric `accuracy` reads them
_EXPECTED = frozenset(
    {
        "equals",
        "contains",
        "icontains",
        "contains-any",
        "contains-all",
        "icontains-any",
        "icontains-all",
        "starts-with",
        "similar",
        "factuality",
        "model-graded-factuality",
        "levenshtein",
        "rouge-n",
        "bleu",
        "gleu",
        "meteor",
    }
)
"""Assertions whose value is what should have been answered."""
_ROLES = frozenset({"system", "user", "assistant"})
_STOPS = {
    "stop": "stop",
    "length": "max_tokens",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
}
_BRIEF = 1024  # characters of a text in a summary
_INPUT = 5120  # characters of an input or target in a summary


@attrs.frozen(kw_only=True)
class Sample:
    """A row, as far as it is told of."""

    id: str | int
    epoch: int
    """From 1."""
    scores: Mapping[str, float]
    """By scorer, as numbers; empty where there is no verdict."""
    whole: Json
    summary: Json
    """The same without what may be large."""


def sample_of(record: Mapping[str, Any], sample_id: str | int, epoch: int) -> Sample:
    """The sample that a row is.

    Args:
        record: As `row_json` makes it.
        sample_id: What its repeats share.
        epoch: Which of them it is, from 1.
    """
    scores, numbers = _scores(record)
    asked = _messages(record["prompt"]["raw"])
    question = record.get("question", {})
    model = record["provider"]["id"]
    shared: Json = {
        "id": sample_id,
        "epoch": epoch,
        "input": question.get("question") or asked or "",
        "target": _target(record, question),
        "scores": scores or None,
        "metadata": _metadata(record),
        **_usages(record, model),
        "uuid": record["id"],
    }
    if "answers" in question:
        shared["choices"] = [_text(answer) for answer in question["answers"]]
    if description := record["testCase"]["description"]:
        shared["description"] = description
    if record["latencyMs"] is not None:
        shared["working_time"] = record["latencyMs"] / 1000
    messages = [*_as_messages(asked), *_answer(record, model)]
    error = record["error"] or "no reason is known"
    failed = not status_of(record).has_verdict
    whole = {
        **shared,
        "messages": messages,
        "output": _output(record, model),
        "error": {"message": error, "traceback": "", "traceback_ansi": ""} if failed else None,
    }
    summary = {
        **shared,
        "input": _cut(shared["input"], _INPUT),
        "target": _cut(shared["target"], _INPUT),
        "scores": {name: _thin(score) for name, score in scores.items()} or None,
        "metadata": _thin(shared["metadata"]),
        "error": _cut(error, _BRIEF) if failed else None,
        "completed": True,
        "message_count": len(messages),
    }
    return Sample(id=sample_id, epoch=epoch, scores=numbers, whole=whole, summary=summary)


def model_usage(usage: Mapping[str, Any], cost: float | None) -> Json:
    """What some calls used, from what `usage_json` told of them."""
    details = usage["completionDetails"]
    read, written = details["cacheReadInputTokens"], details["cacheCreationInputTokens"]
    found = {
        "input_tokens": max(0, usage["prompt"] - read - written),  # those at the full price
        "output_tokens": usage["completion"],
        "total_tokens": usage["total"],
        "input_tokens_cache_read": read or None,
        "input_tokens_cache_write": written or None,
        "reasoning_tokens": details["reasoning"] or None,
        "total_cost": cost,
    }
    return {name: value for name, value in found.items() if value is not None}


def _scores(record: Mapping[str, Any]) -> tuple[dict[str, Json], dict[str, float]]:
    """The scores of a row, and what they are as numbers."""
    verdict = record["gradingResult"]
    status = status_of(record)
    if not status.has_verdict:
        return {}, {}
    passed = status is Status.PASS
    told: Json = {"answer": _text(shown_of(record))}
    if verdict is not None:
        told["explanation"] = verdict["reason"]
    named = {f"metric:{name}": value for name, value in record["namedScores"].items()}
    numbers = {VERDICT: float(passed), SCORE: record["score"], **named}
    scores: dict[str, Json] = {VERDICT: {"value": _CORRECT if passed else _INCORRECT, **told}}
    scores |= {name: {"value": numbers[name]} for name in (SCORE, *named)}
    return scores, numbers


def _target(record: Mapping[str, Any], question: Mapping[str, Any]) -> str | list[str]:
    """What should have been answered, as far as that is said; otherwise an empty text."""
    found = [_text(answer) for answer in question.get("correctAnswers", ())]
    if not found:
        for assertion in record["testCase"]["assert"]:
            value = assertion.get("value")
            if assertion["type"] in _EXPECTED and value is not None:
                found += map(_text, value if isinstance(value, list) else [value])
    return found[0] if len(found) == 1 else found or ""


def _messages(prompt: str | None) -> str | list[Json] | None:
    """A prompt as the messages that it is, or as it stands."""
    if prompt is None or not prompt.lstrip().startswith("["):
        return prompt
    try:
        found = json.loads(prompt)
    except (ValueError, RecursionError):
        return prompt
    messages: list[Json] = []
    for one in found:
        match one:
            case {"role": str(role), "content": str(content)} if role in _ROLES:
                messages.append({"role": role, "content": content})
            case _:
                return prompt
    return messages or prompt


def _as_messages(asked: str | list[Json] | None) -> list[Json]:
    if isinstance(asked, list):
        return asked
    return [] if asked is None else [{"role": "user", "content": asked, "source": "input"}]


def _answer(record: Mapping[str, Any], model: str) -> Iterator[Json]:
    response = record["response"]
    if response is not None:
        content = _text(response["output"])
        yield {"role": "assistant", "content": content, "source": "generate", "model": model}


def _output(record: Mapping[str, Any], model: str) -> Json:
    response = record["response"]
    if response is None:
        return {"model": model}
    found: Json = {
        "model": model,
        "choices": [
            {"message": message, "stop_reason": _STOPS.get(response["finishReason"], "unknown")}
            for message in _answer(record, model)
        ],
        "completion": _text(response["output"]),
        "usage": model_usage(response["tokenUsage"], response["cost"]),
    }
    if record["latencyMs"] is not None:
        found["time"] = record["latencyMs"] / 1000
    return found


def _usages(record: Mapping[str, Any], model: str) -> Json:
    found = {}
    if record["response"] is not None or record["tokenUsage"]["numRequests"]:
        found["model_usage"] = {model: model_usage(record["tokenUsage"], record["cost"])}
    if was_judged(record["tokenUsage"]):
        used = model_usage(record["tokenUsage"]["assertions"], own_of(record).get("gradingCost"))
        found["role_usage"] = {"grader": used}
    return found


def _metadata(record: Mapping[str, Any]) -> Json:
    return {"vars": record["vars"], **record["metadata"]}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else compact(value)


def _cut(value: Any, most: int) -> Any:
    match value:
        case str():
            return value if len(value) <= most else value[:most] + "..."
        case list():
            return [_cut(part, most) for part in value]
        case {"content": str(content)}:
            return {**value, "content": _cut(content, most)}
        case _:
            return value


def _thin(found: Json) -> Json:
    """The same with short texts, and without what is large."""
    thin: Json = {}
    for name, value in found.items():
        if value is None or isinstance(value, str | int | float):
            thin[name] = _cut(value, _BRIEF)
        elif len(compact(value)) <= _BRIEF:
            thin[name] = value
    return thin
