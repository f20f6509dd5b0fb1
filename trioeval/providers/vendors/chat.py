"""The config of chat completions, and the part of the body that follows from it.

Pure. A default is sent if neither config nor environment sets a value; a null in the config removes it.
Reasoning models get none of the defaults, and no parameter that they would refuse.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.base import Guardrails, Reply, ToolCall
from trioeval.providers.config import (
    Key,
    config_path,
    is_count,
    is_flag,
    is_integer,
    is_json_list,
    is_json_object,
    is_number,
    is_text,
    is_texts,
)
from trioeval.providers.http.adapter import METRICS
from trioeval.providers.http.endpoint import Service
from trioeval.providers.http.replies import (
    FILTERED,
    NOT_JSON,
    count,
    field,
    objects,
    read_call,
    read_json,
    read_number,
    text,
)
from trioeval.providers.vendors.openai_models import is_reasoning
from trioeval.usage import Usage

# Tools, tool choices and schemas, which chat completions and other services write differently.
#
# A suite with several vendors defines these once, in the form of chat completions. Values in a vendor's own
# form are passed on unchanged.


@attrs.frozen(kw_only=True)
class ToolFunction:
    """A function that a model can call."""

    name: str
    description: Any = None
    parameters: Any = None
    """JSON schema of the parameters."""


def read_function(tool: Any) -> ToolFunction | None:
    """Return the function of a tool in the form of chat completions; None for any other tool.

    Example:
        >>> read_function({"type": "function", "function": {"name": "clock"}}).name
        'clock'
    """
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not is_text(function.get("name")):
        return None
    return ToolFunction(
        name=function["name"],
        description=function.get("description"),
        parameters=function.get("parameters"),
    )


def read_schema(form: Any) -> Mapping[str, Any] | None:
    """Return the schema of a `json_schema` format, beside the type or nested as in chat completions.

    Example:
        >>> read_schema({"type": "json_schema", "json_schema": {"schema": {"type": "object"}}})
        {'type': 'object'}
    """
    if not is_json_object(form) or form.get("type") != "json_schema":
        return None
    inner = form.get("json_schema")
    schema = (inner if isinstance(inner, Mapping) else form).get("schema")
    return schema if isinstance(schema, Mapping) else None


def is_schema_format(value: Any) -> bool:
    """Return whether a value is a format with a schema."""
    return read_schema(value) is not None


# The fields of a chat completion: output, usage, log probabilities, filters.
#
# Pure. Services put the same fact into different places; each place is checked, and no field is assumed to
# have its type.


FINISH_REASONS: Mapping[str, str] = {
    "eos": "stop",
    "function_call": "tool_calls",
    "model_length": "length",
}
"""Finish reasons that single services use for a common one."""

KEPT = ("provider", "service_tier", "system_fingerprint", "citations")
"""Fields beside the message that go into the metadata; `provider` is the service behind a router."""


def read_finish_reason(choice: Any) -> str | None:
    """Return the reason why the model stopped, as in `Reply.finish_reason`."""
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
"""Fields of a message; every reply has at least one of them."""


REASONING = ("reasoning", "reasoning_content", "reasoning_details")
"""Fields of a message with the model's reasoning."""


def is_empty(message: Mapping[str, Any]) -> bool:
    """Return whether a message has no content at all; an empty text is content.

    Example:
        >>> is_empty({"role": "assistant", "content": None}), is_empty({"content": ""})
        (True, False)
    """
    return message.get("content") != "" and not any(message.get(name) for name in ANSWERS)


def read_message(
    message: Mapping[str, Any], finish_reason: str | None, *, as_json: bool, show_thinking: bool
) -> Reply:
    """Return the reply in a message: its parts, and the output.

    Args:
        message: The message of the first choice.
        finish_reason: From `read_finish_reason`.
        as_json: Whether a text that is JSON is replaced by its value.
        show_thinking: Whether its reasoning is part of the output.
    """
    thinking, content = _read_content(message)
    refusal = text(message, "refusal")
    if refusal is not None:
        return Reply(text=refusal, refusal=refusal, reasoning=thinking)
    if not content and finish_reason == "content_filter":
        content = FILTERED
    calls = message.get("tool_calls") or message.get("function_call")
    output: Any = calls
    if not calls:
        spoken = text(message, "audio", "transcript") or text(message, "audio", "data")
        content = content or spoken or ""
        output = _shown(content, thinking if show_thinking else None, as_json=as_json)
    elif content:
        hidden = () if show_thinking else REASONING
        output = {name: value for name, value in message.items() if name not in hidden}
    return Reply(
        output=output,
        text=content if isinstance(content, str) else "",
        tool_calls=read_tool_calls(message),
        reasoning=thinking,
        refusal=FILTERED if finish_reason == "content_filter" else None,
    )


def read_tool_calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the tool calls of a message; a service's own tools may be texts instead of functions."""
    found = []
    for call in objects(message, "tool_calls"):
        match call:
            case {"function": {"name": str(name)} as function}:
                found.append(read_call(name, function.get("arguments"), text(call, "id")))
            case {"custom": {"name": str(name)} as custom}:
                found.append(read_call(name, custom.get("input"), text(call, "id")))
            case _:
                pass
    legacy = message.get("function_call")
    if not found and (called := text(legacy, "name")) is not None:
        found.append(read_call(called, field(legacy, "arguments"), None))
    return tuple(found)


def _shown(content: Any, thinking: str | None, *, as_json: bool) -> Any:
    """Return the output for a content without tool calls."""
    if not isinstance(content, str):
        return content
    if as_json and (data := read_json(content)) is not NOT_JSON:
        return data
    return f"Thinking: {thinking}\n\n{content}" if thinking else content


def read_usage(data: Any) -> Usage:
    """Return the token counts of a completion."""
    usage = field(data, "usage")
    prompt, completion = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    total = count(usage, "total_tokens")
    details = "completion_tokens_details"
    reasoning = count(usage, details, "reasoning_tokens")
    cached = count(usage, "prompt_tokens_details", "cached_tokens")
    if completion is not None and reasoning and total == (prompt or 0) + completion + reasoning:
        # Some services report reasoning beside the completion, not within; their total shows which.
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
    """Return the log probability of each token; None if not requested, or if any is missing."""
    reported = field(choice, "logprobs")
    values = [one.get("logprob") for one in objects(reported, "content")]
    if not values:
        listed = field(reported, "token_logprobs")
        values = listed if isinstance(listed, list) else []
    found = [number for number in map(read_number, values) if number is not None]
    return tuple(found) if found and len(found) == len(values) else None


def read_guardrails(data: Any, choice: Any, finish_reason: str | None) -> Guardrails | None:
    """Return the filters' results for prompt and reply; None if there are none."""
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
    """Return the metadata that no other field contains."""
    named = {name: data.get(name) for name in KEPT}
    named |= {name: message.get(name) for name in ("annotations", "audio")}
    return {name: value for name, value in named.items() if value}


def _read_content(message: Mapping[str, Any]) -> tuple[str | None, Any]:
    """Return reasoning and content; a content with parts of text and reasoning is split."""
    content = message.get("content")
    thinking = text(message, "reasoning") or text(message, "reasoning_content")
    if not isinstance(content, list) or not all(map(_is_readable, content)):
        return thinking, content
    thoughts = [one for part in content for one in objects(part, "thinking")]
    answer = "".join(part["text"] for part in content if part["type"] == "text")
    return "".join(text(one, "text") or "" for one in thoughts) or thinking, answer


def _is_readable(part: Any) -> bool:
    match part:
        case {"type": "text", "text": str()} | {"type": "thinking", "thinking": list()}:
            return True
        case _:
            return False


def _hits(results: Any) -> Iterator[str]:
    """Yield the filters that matched."""
    for name, result in results.items() if isinstance(results, dict) else ():
        if field(result, "filtered") is True or field(result, "detected") is True:
            yield name


DEFAULTS: Mapping[str, float] = {"temperature": 0, "max_tokens": 1024}
"""Default parameters for models without reasoning."""

MOST_LOG_PROBS = 20
"""Maximum number of alternatives for a token."""

REASONING_DEFAULTS = frozenset({"max_completion_tokens"})
"""Keys whose defaults are for reasoning models; other defaults are for models without reasoning."""

SAMPLING = ("temperature", "top_p")
"""Parameters that reasoning models refuse, unless reasoning is switched off."""


def _is_alternatives(value: Any) -> bool:
    return is_integer(value) and 0 <= value <= MOST_LOG_PROBS


def _is_stop(value: Any) -> bool:
    return isinstance(value, str) or is_texts(value)


def _is_choice(value: Any) -> bool:
    return is_text(value) or is_json_object(value)


PARAMETERS = (
    Key("temperature", "a number", is_number),
    Key("max_tokens", "a whole number of at least 1", is_count),
    Key("max_completion_tokens", "a whole number of at least 1", is_count),
    Key("top_p", "a number", is_number),
    Key("presence_penalty", "a number", is_number),
    Key("frequency_penalty", "a number", is_number),
    Key("seed", "a whole number", is_integer),
    Key("stop", "text or a list of texts", _is_stop),
    Key("n", "a whole number of at least 1", is_count),
    Key("logprobs", "true or false", is_flag),
    Key("top_logprobs", f"a whole number from 0 to {MOST_LOG_PROBS}", _is_alternatives),
    Key("response_format", "an object", is_json_object),
    Key("tools", "a list", is_json_list),
    Key("tool_choice", "text or an object", _is_choice),
    Key("parallel_tool_calls", "true or false", is_flag),
    Key("functions", "a list", is_json_list),
    Key("function_call", "text or an object", _is_choice),
    Key("reasoning_effort", "text", is_text),
    Key("verbosity", "text", is_text),
    Key("modalities", "a list of texts", is_texts),
    Key("audio", "an object", is_json_object),
    Key("prediction", "an object", is_json_object),
    Key("service_tier", "text", is_text),
    Key("user", "text", is_text),
    Key("metadata", "an object", is_json_object),
    Key("store", "true or false", is_flag),
    Key("prompt_cache_key", "text", is_text),
)
"""Keys that go into the body under their own names."""

CALL_KEYS = (
    *PARAMETERS,
    Key("passthrough", "an object", is_json_object),
    Key("omitDefaults", "true or false", is_flag),
    Key("showThinking", "true or false", is_flag),
)
"""Keys that may differ for one call."""

ENTRY_KEYS = (
    Key("isReasoningModel", "true or false", is_flag),
    METRICS,
)
"""Keys that are the same for all calls of an entry."""


def check_body(service: Service, values: Mapping[str, Any]) -> list[Problem]:
    """Return problems of values that are valid on their own but cannot be sent."""
    problems = [
        Problem(config_path(name), f"not supported by {service.family}", "leave it out")
        for name, value in values.items()
        if name in service.rejects and value is not None
    ]
    passthrough = values.get("passthrough") or {}
    if passthrough.get("stream"):
        fault = "streaming is decided by metrics"
        hint = 'leave it out; metrics: ["ttft"] streams, and measures the time to the first token'
        problems.append(Problem(".config.passthrough.stream", fault, hint))
    if "messages" in passthrough:
        fault = "messages come from the prompt"
        problems.append(Problem(".config.passthrough.messages", fault, "leave it out"))
    return problems


def body_parameters(
    service: Service, model: str, values: Mapping[str, Any], variables: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameters of the body besides model, messages and passthrough.

    Args:
        service: The description of the service.
        model: The model's name at the service.
        values: The entry's config, by snake_case key; None removes a default.
        variables: The defaults from the environment.
    """
    reasons = values.get("is_reasoning_model")
    if reasons is None:
        reasons = is_reasoning(model)
    defaults = {**({} if values.get("omit_defaults") else DEFAULTS), **variables}
    if service.plain_models and re.search(service.plain_models, model, re.IGNORECASE):
        defaults = {name: value for name, value in defaults.items() if name not in SAMPLING}
    body = {
        name: value for name, value in defaults.items() if (name in REASONING_DEFAULTS) == reasons
    }
    if values.get("max_completion_tokens") is not None:
        body.pop("max_tokens", None)
    body |= {key.name: values[key.name] for key in PARAMETERS if key.name in values}
    if reasons:
        body = _for_reasoning(body)
    return {
        service.renames.get(name, name): value
        for name, value in body.items()
        if value is not None and name not in service.headers
    }


def drop_sampling(body: Mapping[str, Any], effort: Any) -> dict[str, Any]:
    """Return a body without the parameters that a reasoning model refuses.

    Args:
        body: The body of a request.
        effort: The reasoning effort; with "none" the model accepts everything.

    Example:
        >>> drop_sampling({"temperature": 0, "seed": 1}, "low")
        {'seed': 1}
    """
    dropped = SAMPLING if effort != "none" else ()
    return {name: value for name, value in body.items() if name not in dropped}


def _for_reasoning(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a reasoning model accepts, with the token limit under its own name."""
    taken = drop_sampling(body, body.get("reasoning_effort"))
    limit = taken.pop("max_tokens", None)
    if limit is not None and taken.get("max_completion_tokens") is None:
        taken["max_completion_tokens"] = limit
    return taken
