"""Token usage as result files tell it, of one reply or of many."""

from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.providers import Usage

_FIELDS = (
    "prompt",
    "completion",
    "cached",
    "cache_creation",
    "total",
    "reasoning",
    "accepted_prediction",
    "rejected_prediction",
)


@attrs.define
class UsageSum:
    """What replies used together; what a reply does not tell counts as nothing.

    Example:
        >>> used = UsageSum()
        >>> used.add(Usage(total=3))
        >>> used.add(Usage(prompt=1))
        >>> used["total"], used.json()["numRequests"]
        (3, 2)
    """

    requests: int = 0
    _tokens: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(_FIELDS, 0))

    def add(self, usage: Usage) -> None:
        """Count one more reply."""
        self.requests += 1
        for field in _FIELDS:
            if told := getattr(usage, field):
                self._tokens[field] += told

    def __getitem__(self, field: str) -> int:
        return self._tokens[field]

    def json(self) -> dict[str, Any]:
        """All of it, ready for `json.dumps`.

        No assertion asks a model yet, so what assertions used is nothing.
        """
        nothing = dict.fromkeys(_FIELDS, 0)
        return {
            **_json(self._tokens, self.requests),
            "assertions": _json(nothing, 0),
        }


def _json(tokens: Mapping[str, int], requests: int) -> dict[str, Any]:
    return {
        "prompt": tokens["prompt"],
        "completion": tokens["completion"],
        "cached": tokens["cached"],
        "total": tokens["total"],
        "numRequests": requests,
        "completionDetails": {
            "reasoning": tokens["reasoning"],
            "acceptedPrediction": tokens["accepted_prediction"],
            "rejectedPrediction": tokens["rejected_prediction"],
            "cacheReadInputTokens": tokens["cached"],
            "cacheCreationInputTokens": tokens["cache_creation"],
        },
    }


def usage_json(*usages: Usage) -> dict[str, Any]:
    """What some replies used together."""
    found = UsageSum()
    for usage in usages:
        found.add(usage)
    return found.json()
