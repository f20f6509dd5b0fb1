"""Replies as JSON, so that they come back as they were; what would not come back is not kept.

Whoever wrote a provider may have put anything into its replies. An output that is not data of JSON makes
the reply one that cannot be kept. Around it, what is not JSON is left out, and nothing else suffers.
"""

from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.providers import Guardrails, Reply, Usage
from trioeval.providers.local.writing import json_fault

_PLAIN = ("cost", "finish_reason", "is_refusal", "first_token")
"""Fields that are single values."""

_USAGE = frozenset(field.name for field in attrs.fields(Usage))
_GUARDRAILS = frozenset(field.name for field in attrs.fields(Guardrails))


def reply_json(reply: Reply) -> dict[str, Any] | None:
    """A reply as data of JSON, without what it said of rate limits; None if its output is none.

    Example:
        >>> reply_json(Reply(output="4", usage=Usage(total=8)))
        {'output': '4', 'usage': {'total': 8}}
    """
    if json_fault(reply.output) is not None:
        return None
    told: dict[str, Any] = {
        "usage": _known(attrs.asdict(reply.usage)),
        "guardrails": None if reply.guardrails is None else _known(attrs.asdict(reply.guardrails)),
        "log_probs": None if reply.log_probs is None else list(reply.log_probs),
        "raw": reply.raw,
        "metadata": dict(reply.metadata),
        **{name: getattr(reply, name) for name in _PLAIN},
    }
    kept = {
        name: value
        for name, value in told.items()
        if value is not None and value is not False and value != {} and json_fault(value) is None
    }
    return {"output": reply.output, **kept}


def read_reply(data: Any) -> Reply:
    """The reply that some data is.

    Raises:
        ValueError: It is none.

    Example:
        >>> read_reply({"output": "4", "usage": {"total": 8}}).usage.total
        8
    """
    if not isinstance(data, Mapping) or "output" not in data:
        raise ValueError("this is no reply")
    usage, guardrails = data.get("usage", {}), data.get("guardrails")
    log_probs = data.get("log_probs")
    try:
        return Reply(
            output=data["output"],
            usage=Usage(**{name: usage[name] for name in _USAGE & usage.keys()}),
            guardrails=None
            if guardrails is None
            else Guardrails(**{name: guardrails[name] for name in _GUARDRAILS & guardrails.keys()}),
            log_probs=None if log_probs is None else tuple(log_probs),
            raw=data.get("raw"),
            metadata=data.get("metadata", {}),
            **{name: data[name] for name in _PLAIN if name in data},
        )
    except (TypeError, AttributeError) as error:
        raise ValueError(f"this is no reply: {error}") from error


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
