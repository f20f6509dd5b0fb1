"""What the fields of a chat completion mean: output, usage, log probabilities, filters.

Pure. Services differ in where they put the same fact; each place is looked into, and none is trusted to
hold what it should.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from trioeval.providers.answers import (
    FILTERED,
    NOT_JSON,
    count,
    field,
    objects,
    read_json,
    read_number,
    text,
)
from trioeval.providers.base import Guardrails
from trioeval.usage import Usage

FINISH_REASONS: Mapping[str, str] = {
    "eos": "stop",
    "function_call": "tool_calls",
    "model_length": "length",
}
"""Words of single services for what others call differently."""

KEPT = ("provider", "service_tier", "system_fingerprint", "citations")
"""Fields beside the message that go into the metadata; `provider` is who served a router's call."""


def read_finish_reason(choice: Any) -> str | None:
    """Why the model stopped, in the words of `Reply.finish_reason`."""
    reason = (text(choice, "finish_reason") or "").lower()
    return FINISH_REASONS.get(reason, reason) or None


ANSWERS = (
    "content",
    "refusal",
    "tool_calls",
    "function_call",
    "reasoning",
    "reasoning_content",
    "audio",
)
"""Fields of a message one of which every answer has."""


def is_empty(message: Mapping[str, Any]) -> bool:
    """Whether a message says nothing at all; an empty text is something.

    Example:
        >>> is_empty({"role": "assistant", "content": None}), is_empty({"content": ""})
        (True, False)
    """
    return message.get("content") != "" and not any(message.get(name) for name in ANSWERS)


def read_output(
    message: Mapping[str, Any], finish_reason: str | None, *, as_json: bool, show_thinking: bool
) -> Any:
    """What the model answered.

    Args:
        message: Of the first choice.
        finish_reason: From `read_finish_reason`.
        as_json: Whether a text that is JSON is taken as its value.
        show_thinking: Whether its reasoning stands before the text.
    """
    refusal = text(message, "refusal")
    if refusal is not None:
        return refusal
    thinking, content = _read_content(message)
    if finish_reason == "content_filter":
        return content or FILTERED
    calls = message.get("tool_calls") or message.get("function_call")
    if calls:
        return dict(message) if content else calls
    content = content or text(message, "audio", "transcript") or ""
    if not isinstance(content, str):
        return content
    if as_json and (data := read_json(content)) is not NOT_JSON:
        return data
    return f"Thinking: {thinking}\n\n{content}" if show_thinking and thinking else content


def read_usage(data: Any) -> Usage:
    """The tokens that a completion reports."""
    usage = field(data, "usage")
    prompt, completion = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    total = count(usage, "total_tokens")
    details = "completion_tokens_details"
    reasoning = count(usage, details, "reasoning_tokens")
    cached = count(usage, "prompt_tokens_details", "cached_tokens")
    if completion is not None and reasoning and total == (prompt or 0) + completion + reasoning:
        # Some services report reasoning beside the completion, not within; their total tells.
        completion += reasoning
    return Usage(
        prompt=prompt,
        completion=completion,
        total=total,
        cached=count(usage, "prompt_cache_hit_tokens") if cached is None else cached,
        cache_creation=count(usage, "prompt_tokens_details", "cache_write_tokens"),
        reasoning=reasoning,
        accepted_prediction=count(usage, details, "accepted_prediction_tokens"),
        rejected_prediction=count(usage, details, "rejected_prediction_tokens"),
    )


def read_log_probs(choice: Any) -> tuple[float, ...] | None:
    """The log probability of each token; None where they were not asked for, or are not all there."""
    told = field(choice, "logprobs")
    values = [one.get("logprob") for one in objects(told, "content")]
    if not values:
        listed = field(told, "token_logprobs")
        values = listed if isinstance(listed, list) else []
    found = [number for number in map(read_number, values) if number is not None]
    return tuple(found) if found and len(found) == len(values) else None


def read_guardrails(data: Any, choice: Any, finish_reason: str | None) -> Guardrails | None:
    """What filters said of prompt and answer; None if they said nothing."""
    refusal = text(choice, "message", "refusal")
    inputs = [one.get("content_filter_results") for one in objects(data, "prompt_filter_results")]
    output = field(choice, "content_filter_results")
    hit_inputs = [name for one in inputs for name in _hits(one)]
    hit_output = list(_hits(output))
    flagged_output = bool(hit_output) or refusal is not None or finish_reason == "content_filter"
    if not (inputs or output or flagged_output):
        return None
    return Guardrails(
        flagged=bool(hit_inputs) or flagged_output,
        flagged_input=bool(hit_inputs),
        flagged_output=flagged_output,
        reason=refusal or ", ".join(dict.fromkeys([*hit_inputs, *hit_output])) or None,
    )


def read_extras(data: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """What goes into the metadata because nothing else holds it."""
    named = {name: data.get(name) for name in KEPT}
    named |= {name: message.get(name) for name in ("annotations", "audio")}
    return {name: value for name, value in named.items() if value}


def _read_content(message: Mapping[str, Any]) -> tuple[str | None, Any]:
    """Reasoning and content; a content in parts of text and reasoning is taken apart."""
    content = message.get("content")
    thinking = text(message, "reasoning") or text(message, "reasoning_content")
    if not isinstance(content, list) or not all(map(_is_readable, content)):
        return thinking, content
    thoughts = [one for part in content for one in objects(part, "thinking")]
    said = "".join(part["text"] for part in content if part["type"] == "text")
    return "".join(text(one, "text") or "" for one in thoughts) or thinking, said


def _is_readable(part: Any) -> bool:
    match part:
        case {"type": "text", "text": str()} | {"type": "thinking", "thinking": list()}:
            return True
        case _:
            return False


def _hits(results: Any) -> Iterator[str]:
    """The filters that found something."""
    for name, result in results.items() if isinstance(results, dict) else ():
        if field(result, "filtered") is True or field(result, "detected") is True:
            yield name
