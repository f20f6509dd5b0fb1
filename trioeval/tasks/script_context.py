"""What scripts that judge an output are told besides it."""

import json
from collections.abc import Mapping
from typing import Any

from trioeval.providers import Reply
from trioeval.providers.programs.workers import Encoded
from trioeval.suite import ProviderEntry, Step
from trioeval.suite.plain_form import plain_test
from trioeval.tasks.tools import Asked, kept


def row_context(
    step: Step, asked: Asked, reply: Reply, provider: ProviderEntry, latency_ms: float | None
) -> Encoded:
    """What is the same for all assertions of a row, with promptfoo's names.

    Args:
        step: The row.
        asked: What it asked.
        reply: What came back.
        provider: Who was asked.
        latency_ms: How long that took.
    """
    usage = reply.usage
    tokens = {"total": usage.total, "prompt": usage.prompt, "completion": usage.completion}
    response = {
        "output": reply.output,
        "cost": reply.cost,
        "tokenUsage": _known(tokens) or None,
        "finishReason": reply.finish_reason,
        "isRefusal": reply.is_refusal or None,
        "logProbs": reply.log_probs,
        "latencyMs": latency_ms,
        "raw": reply.raw,
        "metadata": reply.metadata or None,
    }
    found = {
        "prompt": asked.prompt,
        "vars": kept(asked.vars),
        "test": {**plain_test(step.test), "vars": dict(step.vars)},
        "logProbs": reply.log_probs,
        "provider": _known({"id": provider.id, "label": provider.label}),
        "providerResponse": _known(response),
        "metadata": reply.metadata or None,
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
