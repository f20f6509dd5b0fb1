"""What scripts that judge an output are told besides it."""

import json
from collections.abc import Mapping
from typing import Any

from trioeval.evaluation.prompt import Asked, kept
from trioeval.providers import Reply
from trioeval.providers.programs.workers import Encoded
from trioeval.suite.expand import Step
from trioeval.suite.model import ProviderEntry
from trioeval.suite.plain import plain_test
from trioeval.usage import Usage, tokens_json


def row_context(
    step: Step,
    asked: Asked,
    reply: Reply,
    output: Any,
    provider: ProviderEntry,
    *,
    latency_ms: float | None,
) -> Encoded:
    """What is the same for all assertions of a row, with promptfoo's names.

    Args:
        step: The row.
        asked: What it asked.
        reply: What came back.
        output: What became of that after all transforms.
        provider: Who was asked.
        latency_ms: How long that took.
    """
    sent = reply.output if reply.raw is None else reply.raw
    metadata = dict(reply.metadata)
    response = {
        "output": output,
        "cached": False,
        "cost": reply.cost,
        "tokenUsage": None if reply.usage == Usage() else tokens_json(reply.usage, 1),
        "finishReason": reply.finish_reason,
        "isRefusal": reply.is_refusal or None,
        "logProbs": reply.log_probs,
        "latencyMs": latency_ms,
        "raw": None if sent == output else sent,
        "metadata": metadata,
    }
    found = {
        "prompt": asked.prompt,
        "vars": kept(asked.vars),
        "test": {"options": {}, **plain_test(step.test), "vars": dict(step.vars)},
        "logProbs": reply.log_probs,
        "provider": _known({"id": provider.id, "label": provider.label}),
        "providerResponse": _known(response),
        "metadata": metadata,
    }
    return Encoded(_json_text(_known(found)).encode())


def with_more(row: Encoded, more: Mapping[str, Any]) -> Encoded:
    """What is told of a row, and something besides.

    Example:
        >>> with_more(Encoded.of({"prompt": "p"}), {"config": {"n": 1}}).json
        b'{"prompt": "p","config": {"n": 1}}'
    """
    if not more:
        return row
    return Encoded(b"%b,%b" % (row.json[:-1], _json_text(more).encode()[1:]))


def json_data(data: Any) -> Any:
    """Data of a suite as JSON: a date is its text, and a number that JSON does not know is nothing.

    Example:
        >>> import datetime
        >>> json_data({"on": datetime.date(2024, 5, 1), "x": float("nan")})
        {'on': '2024-05-01', 'x': None}
    """
    return json.loads(json.dumps(data, default=_plain), parse_constant=lambda _: None)


def _json_text(data: Mapping[str, Any]) -> str:
    try:
        return json.dumps(data, default=_plain, allow_nan=False)
    except ValueError:
        return json.dumps(json_data(data))


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact is not None}
