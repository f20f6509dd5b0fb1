"""OpenAI responses: from the config of an entry to the body of a request.

Configs are written for chat completions as often as for responses, so the names and forms of the former
are understood too. Each layer (defaults, config, options of a call) is first brought into the form of
the body by itself, and only then merged over the one before: a `max_tokens` of a call replaces a
`max_output_tokens` of the config.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from trioeval.providers.config import Key, is_count, is_json_object, is_text, is_texts
from trioeval.providers.vendors.chat_keys import (
    CALL_KEYS,
    DEFAULTS,
    REASONING_DEFAULTS,
    drop_sampling,
)

LOG_PROBS = "message.output_text.logprobs"
"""What `include` must name for log probabilities to come."""

LIMITS = ("max_output_tokens", "max_completion_tokens", "max_tokens")
"""Names of the same limit; the first one that is there counts."""


def _is_passthrough(value: Any) -> bool:
    if not is_json_object(value) or "input" in value:
        return False
    return not (value.get("stream") or value.get("background"))


CHAT = {key.name: key for key in CALL_KEYS}
"""Keys of chat completions, by name."""

PARAMETERS = (
    Key("instructions", "text", is_text),
    Key("max_output_tokens", "a whole number of at least 1", is_count),
    CHAT["max_completion_tokens"],
    CHAT["max_tokens"],
    CHAT["temperature"],
    CHAT["top_p"],
    Key("reasoning", "an object", is_json_object),
    CHAT["reasoning_effort"],
    Key("text", "an object", is_json_object),
    CHAT["response_format"],
    CHAT["verbosity"],
    CHAT["tools"],
    CHAT["tool_choice"],
    CHAT["parallel_tool_calls"],
    Key("max_tool_calls", "a whole number of at least 1", is_count),
    Key("include", "a list of texts", is_texts),
    CHAT["logprobs"],
    CHAT["top_logprobs"],
    Key("previous_response_id", "text", is_text),
    Key("truncation", "text", is_text),
    CHAT["metadata"],
    CHAT["store"],
    CHAT["service_tier"],
    CHAT["user"],
    CHAT["prompt_cache_key"],
    Key("passthrough", "an object without input, stream or background", _is_passthrough),
)
"""Keys that say what the body holds; they may be different for one call."""

_NAMES = frozenset(key.name for key in PARAMETERS)

_IN_PARTS = ("reasoning", "text")
"""Fields whose members are merged one by one."""

_TRANSLATED = frozenset(
    {*LIMITS, *_IN_PARTS, "reasoning_effort", "response_format", "verbosity"}
    | {"tools", "tool_choice", "passthrough"}
)


def pick_defaults(variables: Mapping[str, Any], *, reasons: bool, omit: bool) -> dict[str, Any]:
    """What is sent if the config says nothing of it.

    Args:
        variables: What the environment says.
        reasons: Whether the model thinks before it answers; its limit has a variable of its own, and
            other defaults are not for it.
        omit: Whether only the environment gives defaults.
    """
    values = {**({} if omit else DEFAULTS), **variables}
    return {
        name: value
        for name, value in values.items()
        if name in _NAMES and (name in REASONING_DEFAULTS) == reasons
    }


def to_body(values: Mapping[str, Any]) -> dict[str, Any]:
    """One layer by the names of the body, with `logprobs`; None takes away what an earlier one says.

    Example:
        >>> to_body({"max_tokens": 5, "reasoning_effort": "low", "user": None})
        {'user': None, 'max_output_tokens': 5, 'reasoning': {'effort': 'low'}}
    """
    body = {name: value for name, value in values.items() if name not in _TRANSLATED}
    for name in LIMITS:
        if name in values:
            body["max_output_tokens"] = values[name]
            break
    _gather(body, values, "reasoning", effort="reasoning_effort")
    _gather(body, values, "text", format="response_format", verbosity="verbosity")
    form = (body.get("text") or {}).get("format")
    if form is not None:
        body["text"]["format"] = _unwrapped(form, "json_schema")
    if "tools" in values:
        tools = values["tools"]
        body["tools"] = tools and [_unwrapped(tool, "function") for tool in tools]
    if "tool_choice" in values:
        body["tool_choice"] = _unwrapped(values["tool_choice"], "function")
    return body


def merge(layers: Iterable[Mapping[str, Any]], *, reasons: bool) -> dict[str, Any]:
    """What the body holds after all layers, without what was taken away.

    Args:
        layers: From `to_body`, the strongest last.
        reasons: Whether the model thinks before it answers; unless it is told not to, it takes neither
            a temperature nor `top_p`.

    Example:
        >>> merge([{"temperature": 0, "user": "a"}, {"user": None}], reasons=False)
        {'temperature': 0}
    """
    body: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            old = body.get(name)
            if name in _IN_PARTS and isinstance(old, dict) and isinstance(value, Mapping):
                body[name] = {**old, **value}
            else:
                body[name] = value
    for name in _IN_PARTS:
        if isinstance(body.get(name), dict):
            body[name] = {k: v for k, v in body[name].items() if v is not None} or None
    if body.pop("logprobs", None):
        included = body.get("include") or ()
        body["include"] = [*included, *({LOG_PROBS} - {*included})]
    if reasons:
        body = drop_sampling(body, (body.get("reasoning") or {}).get("effort"))
    return {name: value for name, value in body.items() if value is not None}


def _gather(body: dict[str, Any], values: Mapping[str, Any], name: str, **spellings: str) -> None:
    """A field whose members may also be keys of their own, which win over it."""
    members = {member: values[key] for member, key in spellings.items() if key in values}
    whole = values.get(name)
    if members or whole is not None:
        body[name] = {**(whole or {}), **members}
    elif name in values:
        body[name] = None


def _unwrapped(value: Any, kind: str) -> Any:
    """`{"type": kind, kind: {…}}` of chat completions, with what is inside beside the type."""
    inner = value.get(kind) if isinstance(value, Mapping) else None
    if not isinstance(inner, Mapping) or value.get("type") != kind:
        return value
    return {**{name: one for name, one in value.items() if name != kind}, **inner, "type": kind}
