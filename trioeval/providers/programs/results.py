"""From what a Python function returned to a reply: every field is checked, and what is wrong is shown."""

import sys
from collections.abc import Mapping
from typing import Any

from trioeval.errors import ProviderError
from trioeval.providers.base import Guardrails, Reply
from trioeval.providers.config import (
    Key,
    is_flag,
    is_integer,
    is_json,
    is_json_object,
    is_number,
    is_text,
    show,
    to_snake,
)
from trioeval.usage import Usage

DEFAULT_FUNCTION = "call_api"
OUTPUT_BY_FUNCTION: Mapping[str, str] = {
    "call_embedding_api": "embedding",
    "call_classification_api": "classification",
}
"""Functions that return something else than `output`; they are called without the context."""


def _is_float(value: Any) -> bool:
    return is_number(value) and abs(value) <= sys.float_info.max


def _is_amount(value: Any) -> bool:
    return _is_float(value) and value >= 0


def _is_count(value: Any) -> bool:
    return is_integer(value) and value >= 0


def _is_usage(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        value.get(name) is None or _is_count(value[name]) for name in _USAGE
    )


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_float, value))


def _is_guardrails(value: Any) -> bool:
    return isinstance(value, Mapping) and is_flag(value.get("flagged"))


_SHOWN = 200
_USAGE = ("total", "prompt", "completion", "cached")
_OUTPUTS: Mapping[str, Key] = {
    key.name: key
    for key in (
        Key("output", "JSON", is_json),
        Key("embedding", "a list of numbers", _are_numbers),
        Key("classification", "an object", is_json_object),
    )
}
_FIELDS = (
    Key("tokenUsage", f"an object of whole numbers ({', '.join(_USAGE)})", _is_usage),
    Key("cost", "a number of at least 0", _is_amount),
    Key("cached", "true or false", is_flag),
    Key("logProbs", "a list of numbers", _are_numbers),
    Key("finishReason", "text", is_text),
    Key("isRefusal", "true or false", is_flag),
    Key("guardrails", 'an object with "flagged": true or false', _is_guardrails),
    Key("metadata", "an object", is_json_object),
)
"""What may stand beside the output; other keys are kept in `raw` alone."""


def read_result(value: Any, function: str, *, name: str) -> Reply:
    """The reply that a function's result means.

    Args:
        value: What it returned: an object with the output or an `error`, or text.
        function: The function's name, which says what its output is called.
        name: What messages call it.

    Raises:
        ProviderError: `unexpected`: it returned an error, or something else than that.

    Example:
        >>> result = {"output": "4", "tokenUsage": {"total": 9}}
        >>> read_result(result, "call_api", name="x.py").usage.total
        9
    """
    output = _OUTPUTS[OUTPUT_BY_FUNCTION.get(function, "output")]
    if isinstance(value, str) and output.name == "output":
        return Reply(output=value)
    given = {to_snake(str(key)): part for key, part in value.items()} if _is_object(value) else {}
    if given.get("error"):
        error = given["error"]
        text = error if isinstance(error, str) else show(error, _SHOWN)
        raise ProviderError("unexpected", f"{name}: {text}")
    if output.name not in given:
        or_text = ", or text" if output.name == "output" else ""
        right = f'must return an object with "{output.name}" or "error"{or_text}'
        raise _wrong(f"{name} {right}", value)
    for key in (output, *_FIELDS):
        part = given.get(to_snake(key.name))
        if part is not None and not key.check(part):
            raise _wrong(f'{name}: "{key.name}" of the result must be {key.right}', part)
    usage, guardrails = given.get("token_usage") or {}, given.get("guardrails")
    log_probs, metadata = given.get("log_probs"), given.get("metadata") or {}
    return Reply(
        output=given[output.name],
        usage=Usage(**{part: usage.get(part) for part in _USAGE}),
        cost=None if given.get("cost") is None else float(given["cost"]),
        finish_reason=given.get("finish_reason"),
        is_refusal=bool(given.get("is_refusal")),
        guardrails=None if guardrails is None else _read_guardrails(guardrails),
        log_probs=None if log_probs is None else tuple(map(float, log_probs)),
        raw=value,
        metadata=metadata
        if given.get("cached") is None
        else {**metadata, "cached": given["cached"]},
    )


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _read_guardrails(value: Mapping[str, Any]) -> Guardrails:
    given = {to_snake(str(name)): part for name, part in value.items()}
    reason = given.get("reason")
    return Guardrails(
        flagged=given["flagged"],
        flagged_input=given.get("flagged_input") is True,
        flagged_output=given.get("flagged_output") is True,
        reason=None if reason is None else str(reason),
    )


def _wrong(right: str, got: Any) -> ProviderError:
    what = "nothing" if got is None else f"{type(got).__name__}: {show(got, _SHOWN)}"
    return ProviderError("unexpected", f"{right}, got {what}")
