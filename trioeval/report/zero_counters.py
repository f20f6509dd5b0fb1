"""Rows and totals without the token counters that are zero, for smaller result files. Pure.

A `tokenUsage` stays an object, so that programs find one; a `tokensUsed` without any counter is left out.
"""

from collections.abc import Mapping
from typing import Any

_USED, _SPENT, _PARTS = "tokenUsage", "tokensUsed", "componentResults"


def without_zeros(counters: Mapping[str, Any]) -> dict[str, Any]:
    """Return counters without those that are zero, and without groups of them that are then empty.

    Example:
        >>> without_zeros({"total": 3, "cached": 0, "completionDetails": {"reasoning": 0}})
        {'total': 3}
    """
    left = {
        name: without_zeros(value) if isinstance(value, Mapping) else value
        for name, value in counters.items()
    }
    return {name: value for name, value in left.items() if value not in (0, {})}


def row_without_zeros(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a row without token counters that are zero: its own, and those of its judges.

    Example:
        >>> parts = [{"pass": True, "tokensUsed": {"total": 0}}]
        >>> row_without_zeros(
        ...     {"tokenUsage": {"total": 0}, "gradingResult": {"componentResults": parts}}
        ... )
        {'tokenUsage': {}, 'gradingResult': {'componentResults': [{'pass': True}]}}
    """
    found = _sparse(row)
    for name in ("response", "gradingResult"):
        if isinstance(part := row.get(name), Mapping):
            found[name] = _sparse(part)
    match row.get("metadata"):  # the verdicts of a row that then ended in an error
        case {"trioeval": Mapping() as own, **about} if _PARTS in own:
            found["metadata"] = {**about, "trioeval": _sparse(own)}
    return found


def _sparse(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of a row without zeros in its counters, and in those of its own parts."""
    found = dict(part)
    for name in (_USED, _SPENT):
        if isinstance(counters := part.get(name), Mapping):
            found[name] = without_zeros(counters)
    if found.get(_SPENT) == {}:
        del found[_SPENT]
    if isinstance(parts := part.get(_PARTS), list):
        found[_PARTS] = [_sparse(one) if isinstance(one, Mapping) else one for one in parts]
    return found
