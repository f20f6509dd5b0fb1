"""Token usage as in result files, of one reply or of many."""

from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.grading import JudgeUsage
from trioeval.grading.model import NOTHING_SPENT
from trioeval.usage import Usage, tokens_json

NO_COUNTS: Mapping[str, Any] = tokens_json(Usage(), 0)
"""The usage of judges that were not called."""
_DETAILS = "completionDetails"


@attrs.define
class UsageSum:
    """The token usage of rows, or of their judges.

    Example:
        >>> used = UsageSum()
        >>> used.add(usage_json(Usage(total=3)))
        >>> used.add(usage_json(Usage(prompt=1)))
        >>> used["total"], used.json()["numRequests"]
        (4, 2)
    """

    judges: "UsageSum | None" = None
    """The usage of judges, which is counted separately; None without judges."""
    _tokens: dict[str, int] = attrs.field(
        factory=lambda: {name: 0 for name in NO_COUNTS if name != _DETAILS}
    )
    _details: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(NO_COUNTS[_DETAILS], 0))

    def add(self, used: Mapping[str, Any]) -> None:
        """Count the usage of a row from `usage_json`, without its judges."""
        tokens, details, added = self._tokens, self._details, used[_DETAILS]
        for name in tokens:
            tokens[name] += used[name]
        for name in details:
            details[name] += added[name]

    def add_judges(self, used: Mapping[str, Any]) -> None:
        """Count the usage of the judges of a row from `usage_json`."""
        if was_judged(used):
            self.judges = self.judges or UsageSum()
            self.judges.add(used["assertions"])

    def __getitem__(self, field: str) -> int:
        return self._tokens[field]

    @property
    def requests(self) -> int:
        """The number of requests."""
        return self["numRequests"]

    def json(self) -> dict[str, Any]:
        """Return JSON data."""
        judges = UsageSum() if self.judges is None else self.judges
        return {**self.own_json(), "assertions": judges.own_json()}

    def own_json(self) -> dict[str, Any]:
        """Return the usage without that of judges."""
        return {**self._tokens, _DETAILS: {**self._details}}


def was_judged(used: Mapping[str, Any]) -> bool:
    """Return whether judges were called for a row, or their replies were reused, by its token usage."""
    judges = used["assertions"]
    return bool(judges["numRequests"] or judges["total"])


def usage_json(
    *usages: Usage, judges: JudgeUsage = NOTHING_SPENT, cached: bool = False
) -> dict[str, Any]:
    """Return the usage of several replies together, and of judges.

    Args:
        *usages: The usage of each reply.
        judges: The usage of judges.
        cached: Whether the replies came from the cache: no request was made, and the saved tokens are
            counted apart from those in the provider's own cache.
    """
    used = usages[0] if len(usages) == 1 else Usage.sum(usages)
    found = tokens_json(used, 0 if cached else len(usages))
    if cached:
        found[_DETAILS]["cacheReadInputTokens"] = 0
    return {**found, "assertions": spent_json(judges)}


def sum_json(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sum of several results of `usage_json`, without judges."""
    found = UsageSum()
    for part in parts:
        found.add(part)
    return found.own_json()


def spent_json(spent: JudgeUsage) -> Mapping[str, Any]:
    """Return the usage of judges for one verdict. Read-only: verdicts without usage share one object."""
    return NO_COUNTS if spent is NOTHING_SPENT else tokens_json(spent.usage, spent.calls)
