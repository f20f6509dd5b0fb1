"""Token usage as result files tell it, of one reply or of many."""

from typing import Any

import attrs

from trioeval.grading import Spent
from trioeval.grading.model import NOTHING_SPENT
from trioeval.usage import Usage, tokens_json

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
_NOTHING = dict.fromkeys(_FIELDS, 0)


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
    judges: "UsageSum | None" = None
    """What judges used, who are counted apart; None while there was none."""
    _tokens: dict[str, int] = attrs.field(factory=_NOTHING.copy)

    def add(self, usage: Usage, requests: int = 1) -> None:
        """Count one more reply, or what several used together."""
        self.requests += requests
        for field in _FIELDS:
            if told := getattr(usage, field):
                self._tokens[field] += told

    def __getitem__(self, field: str) -> int:
        return self._tokens[field]

    def add_judges(self, spent: Spent) -> None:
        """Count what judges used."""
        if spent.calls:
            self.judges = self.judges or UsageSum()
            self.judges.add(spent.usage, spent.calls)

    def json(self) -> dict[str, Any]:
        """All of it, ready for `json.dumps`."""
        judges = tokens_json(Usage(), 0) if self.judges is None else self.judges.own_json()
        return {**self.own_json(), "assertions": judges}

    def own_json(self) -> dict[str, Any]:
        """The same without what judges used."""
        return tokens_json(Usage(**self._tokens), self.requests)


def usage_json(*usages: Usage, judges: Spent = NOTHING_SPENT) -> dict[str, Any]:
    """What some replies used together, and what judges did."""
    found = UsageSum()
    for usage in usages:
        found.add(usage)
    found.add_judges(judges)
    return found.json()


def spent_json(spent: Spent) -> dict[str, Any]:
    """What judges used for one verdict."""
    if not spent.calls:
        return tokens_json(Usage(), 0)
    found = UsageSum()
    found.add(spent.usage, spent.calls)
    return found.own_json()
