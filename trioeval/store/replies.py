"""Replies as JSON data, so that what comes back is what was there.

All of a reply is kept but what it said of the provider's limits, which is over by then. What JSON cannot
hold is left out, and `left_out` says why.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.errors import ProviderError
from trioeval.providers import Guardrails, Reply
from trioeval.providers.local.writing import json_fault
from trioeval.usage import Usage

LEFT_OUT = "left_out"
"""The key under which reasons stand."""

_FREE = ("output", "raw", "metadata")
_SIMPLE = ("cost", "finish_reason", "first_token")
_USAGE = tuple(field.name for field in attrs.fields(Usage))


def reply_json(reply: Reply) -> dict[str, Any] | None:
    """A reply, ready for `json.dumps`; None if its output would not come back as what it is.

    Example:
        >>> reply_json(Reply(output="4", cost=0.5))
        {'output': '4', 'cost': 0.5}
        >>> reply_json(Reply(output={1}))
    """
    found = reply_facts(reply)
    return found if "output" in found else None


def reply_facts(reply: Reply) -> dict[str, Any]:
    """The same, whatever its output is.

    Example:
        >>> reply_facts(Reply(output={1}))
        {'left_out': {'output': 'a value of type set is not JSON data'}}
    """
    told: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name in _FREE:
        value = getattr(reply, name)
        if isinstance(value, Mapping):
            value = dict(value)
        fault = None if isinstance(value, str) else json_fault(value)
        if fault is not None:
            left_out[name] = fault
        elif value or name == "output" or (name == "raw" and value is not None):
            told[name] = value
    usage, rails, probs = reply.usage, reply.guardrails, reply.log_probs
    tokens = {name: count for name in _USAGE if (count := getattr(usage, name)) is not None}
    rest = {
        **{name: getattr(reply, name) for name in _SIMPLE},
        "usage": tokens or None,
        "is_refusal": bool(reply.is_refusal) or None,
        "guardrails": None if rails is None else attrs.asdict(rails),
        "log_probs": None if probs is None else list(map(float, probs)),
        LEFT_OUT: left_out or None,
    }
    return told | {name: value for name, value in rest.items() if value is not None}


def read_reply(data: Any) -> Reply:
    """The reply that data was made of.

    Raises:
        ValueError: It was made of none that is whole.

    Example:
        >>> read_reply({"output": "4", "usage": {"total": 2}}).usage.total
        2
    """
    try:
        told = {name: value for name, value in data.items() if name != LEFT_OUT}
        if "usage" in told:
            told["usage"] = Usage(**told["usage"])
        if "guardrails" in told:
            told["guardrails"] = Guardrails(**told["guardrails"])
        if "log_probs" in told:
            told["log_probs"] = tuple(told["log_probs"])
        return Reply(**told)
    except (AttributeError, TypeError) as error:
        raise ValueError(f"this is no reply: {error}") from error


def error_facts(error: ProviderError) -> dict[str, Any]:
    """A failure, ready for `json.dumps`.

    Example:
        >>> error_facts(ProviderError("server", "no", status=500))
        {'kind': 'server', 'message': 'no', 'status': 500}
    """
    told = {
        "kind": error.kind,
        "message": str(error.message),
        "status": error.status,
        "retry_after": error.retry_after,
        "body_excerpt": error.body_excerpt,
        "tokens": error.tokens,
        "money": error.money,
    }
    return {name: value for name, value in told.items() if value is not None}
