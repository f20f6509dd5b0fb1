"""Token usage as result files tell it, of one reply or of many."""

from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.grading import Spent
from trioeval.grading.model import NOTHING_SPENT
from trioeval.usage import Usage, tokens_json

_NOTHING: Mapping[str, Any] = tokens_json(Usage(), 0)
_DETAILS = "completionDetails"


@attrs.define
class UsageSum:
    """What rows used together, or their judges.

    Example:
        >>> used = UsageSum()
        >>> used.add(usage_json(Usage(total=3)))
        >>> used.add(usage_json(Usage(prompt=1)))
        >>> used["total"], used.json()["numRequests"]
        (3, 2)
    """

    judges: "UsageSum | None" = None
    """What judges used, who are counted apart; None while there was none."""
    _tokens: dict[str, int] = attrs.field(
        factory=lambda: {name: 0 for name in _NOTHING if name != _DETAILS}
    )
    _details: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(_NOTHING[_DETAILS], 0))

    def add(self, used: Mapping[str, Any]) -> None:
        """Count what `usage_json` told of a row, but for its judges."""
        tokens, details, told = self._tokens, self._details, used[_DETAILS]
        for name in tokens:
            tokens[name] += used[name]
        for name in details:
            details[name] += told[name]

    def add_judges(self, used: Mapping[str, Any]) -> None:
        """Count what judges used, as `usage_json` told it of a row."""
        if was_judged(used):
            self.judges = self.judges or UsageSum()
            self.judges.add(used["assertions"])

    def __getitem__(self, field: str) -> int:
        return self._tokens[field]

    @property
    def requests(self) -> int:
        """How many there were."""
        return self["numRequests"]

    def json(self) -> dict[str, Any]:
        """All of it, ready for `json.dumps`."""
        judges = UsageSum() if self.judges is None else self.judges
        return {**self.own_json(), "assertions": judges.own_json()}

    def own_json(self) -> dict[str, Any]:
        """The same without what judges used."""
        return {**self._tokens, _DETAILS: {**self._details}}


def was_judged(used: Mapping[str, Any]) -> bool:
    """Whether judges were asked for a row, or their replies were there already, by its token usage."""
    judges = used["assertions"]
    return bool(judges["numRequests"] or judges["total"])


def usage_json(
    *usages: Usage, judges: Spent = NOTHING_SPENT, cached: bool = False
) -> dict[str, Any]:
    """What some replies used together, and what judges did.

    Args:
        *usages: Of each reply.
        judges: What was spent on judging.
        cached: Whether the replies came from the cache: no request was made for them, and what they saved
            is told apart from what the provider found in a cache of its own.
    """
    used = usages[0] if len(usages) == 1 else Usage.sum(usages)
    found = tokens_json(used, 0 if cached else len(usages))
    if cached:
        found[_DETAILS]["cacheReadInputTokens"] = 0
    return {**found, "assertions": spent_json(judges)}


def sum_json(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """What several parts told by `usage_json` used together, but for judges."""
    found = UsageSum()
    for part in parts:
        found.add(part)
    return found.own_json()


def spent_json(spent: Spent) -> Mapping[str, Any]:
    """What judges used for one verdict. To be looked at only: verdicts that used nothing share one."""
    return _NOTHING if spent is NOTHING_SPENT else tokens_json(spent.usage, spent.calls)
