"""What a plan tells of the limits that its lanes share with others."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from trioeval.quota.limits import Limit
from trioeval.report import inert
from trioeval.suite.quota_checks import known_limits
from trioeval.suite.quota_models import QuotaKey, QuotaSettings

_KEY = 80  # characters of a key
_ONE_EACH = frozenset({"requests", "slots"})
_UNITS = {"requests": "requests", "tokens": "tokens", "cost_micro": "millionths of a US dollar"}
"""What a limit counts that holds nothing, by unit."""


def counted_against(keys: Sequence[QuotaKey]) -> str:
    """The limits that a lane counts against, in words; nothing where there are none.

    Example:
        >>> counted_against([QuotaKey(key="m:rpm", unit="requests")])
        ', counts against m:rpm'
    """
    return f", counts against {', '.join(inert(one.key, _KEY) for one in keys)}" if keys else ""


def limit_lines(settings: QuotaSettings, lanes: Mapping[str, Sequence[QuotaKey]]) -> Iterator[str]:
    """A line for each limit that some lane counts against.

    Args:
        settings: Where limits are kept.
        lanes: What each lane counts against.
    """
    uses = {use.key: use for keys in lanes.values() for use in keys}
    known = known_limits(settings) if settings.backend == "memory" else {}
    for key, use in uses.items():
        if settings.backend != "memory":
            told = f"kept by {'Redis' if settings.backend == 'redis' else 'a server'}"
        elif key in known:
            told = _words(known[key], use)
        else:
            told = "there is no such limit"
        yield f"  limit {inert(key, _KEY)}: {told}"


def limit_seconds(
    settings: QuotaSettings, lanes: Mapping[str, Sequence[QuotaKey]], calls: Mapping[str, int]
) -> Iterator[float]:
    """How long each limit in memory lets the calls of a run take at the least, by their number alone.

    Args:
        settings: Where limits are kept.
        lanes: What each lane counts against.
        calls: Of each lane.

    Example:
        >>> limit = Limit(key="m:rpm", kind="rolling", capacity=2, window=60.0)
        >>> settings = QuotaSettings(limits=(limit,))
        >>> use = QuotaKey(key="m:rpm", unit="requests")
        >>> list(limit_seconds(settings, {"a": [use], "b": [use]}, {"a": 3, "b": 2}))
        [120.0]
    """
    if settings.backend != "memory":
        return
    known, wanted = known_limits(settings), Counter[str]()
    for lane, keys in lanes.items():
        wanted.update({use.key: calls[lane] for use in keys if use.unit in _ONE_EACH})
    for key, count in wanted.items():
        limit = known.get(key)
        if count and limit is not None and limit.window is not None:
            yield math.floor((count - 1) / limit.capacity) * limit.window


def _words(limit: Limit, use: QuotaKey) -> str:
    if limit.kind == "concurrency":
        return f"{limit.capacity} at once"
    what = f"{limit.capacity} {_UNITS.get(use.unit, 'calls')}"
    if limit.window is not None:
        return f"{what} in any {limit.window:g} seconds"
    return what if limit.reset is None else f"{what} every {limit.reset:g} seconds"
