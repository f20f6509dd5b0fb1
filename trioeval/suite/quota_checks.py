"""What is odd about the limits that a suite shares: nobody counts against one, or not what it is for."""

from collections.abc import Iterator, Mapping
from typing import TypeAlias, get_args

from trioeval.errors import SuiteError
from trioeval.grading import quote
from trioeval.quota.limits import Limit, Unit
from trioeval.quota.limits_file import read_limits
from trioeval.suite.mistakes import Mistake
from trioeval.suite.models import LaneSettings, Suite
from trioeval.suite.paths import DocumentPath
from trioeval.suite.quota_models import QuotaKey, QuotaSettings

_Use: TypeAlias = tuple[DocumentPath, QuotaKey]

_UNITS = get_args(Unit)
_ONE_EACH = frozenset({"requests", "slots"})


def quota_oddities(suite: Suite) -> Iterator[Mistake]:
    """Warnings of limits of a whole suite, its tasks included.

    Example:
        >>> from trioeval.suite import parse_suite
        >>> limit = {"key": "m:rpm", "kind": "rolling", "capacity": 60, "windowSeconds": 60}
        >>> suite = parse_suite({"providers": ["echo"], "quota": {"limits": [limit]}})
        >>> [warning.message for warning in quota_oddities(suite)]
        ['no lane counts against "m:rpm": it is without effect']
    """
    settings = suite.quota
    if settings is None:
        return
    uses = list(_uses(suite))
    yield from _idle(settings, uses)
    limits = known_limits(settings)
    for at, use in uses:
        if use.key in limits and (odd := _odd(use, limits[use.key])) is not None:
            message, hint = odd
            yield Mistake(message, hint, at=at)


def _uses(suite: Suite) -> Iterator[_Use]:
    """What lanes count, and where that stands; each place once."""
    lanes: list[tuple[DocumentPath, LaneSettings | str | None]] = []
    lanes += [(("lanes", name), lane) for name, lane in suite.lanes.items()]
    lanes += [(("providers", place, "lane"), one.lane) for place, one in enumerate(suite.providers)]
    for number, task in enumerate(suite.tasks):
        lanes += [
            (("tasks", number, "providers", place, "lane"), one.lane)
            for place, one in enumerate(task.suite.providers)
            if one not in suite.providers
        ]
    for at, lane in lanes:
        for place, use in enumerate(lane.quota if isinstance(lane, LaneSettings) else ()):
            yield (*at, "quota", place), use


def _idle(settings: QuotaSettings, uses: list[_Use]) -> Iterator[Mistake]:
    """Limits that no lane counts against; against those that others keep, or that a file has, others may."""
    used = {use.key for _, use in uses}
    if settings.backend == "memory" and settings.limits is not None:
        for place, limit in enumerate(settings.limits):
            if limit.key not in used:
                message = f"no lane counts against {quote(limit.key)}: it is without effect"
                hint = f"write quota: [{quote(limit.key)}] in a lane"
                yield Mistake(message, hint, at=("quota", "limits", place))
    elif not used:
        message = "no lane counts against a limit: nobody is asked, and no limit is made"
        yield Mistake(message, "write quota, with keys of limits, in a lane", at=("quota",))


def known_limits(settings: QuotaSettings) -> Mapping[str, Limit]:
    """The limits that a suite gives, by their keys; none where their file has gone wrong meanwhile."""
    limits = [*(settings.limits or ())]
    if settings.limits_file is not None:
        try:
            limits += (state.limit for state in read_limits(settings.limits_file))
        except SuiteError:  # it was right a moment ago; the run that opens it says what is wrong
            return {}
    return {limit.key: limit for limit in limits}


def _odd(use: QuotaKey, limit: Limit) -> tuple[str, str] | None:
    """What is odd about what is counted against a limit, and what would be right."""
    key, unit = quote(use.key), use.unit
    is_hold = limit.kind == "concurrency"
    if is_hold and unit not in _ONE_EACH:
        message = f"{key} limits how many calls there are at once: each takes one, not its {unit}"
        return message, _written(key, "slots")
    if limit.unit in _UNITS and unit != limit.unit and not {unit, limit.unit} <= _ONE_EACH:
        return f"counts {unit} against {key}, whose unit is {limit.unit}", _written(key, limit.unit)
    if not is_hold and unit == "slots":
        message = f"{key} is a {limit.kind} limit: it has no slots, and each call takes 1 of it"
        return message, f"{_written(key, 'requests')}, or tokens or cost_micro"
    return None


def _written(key: str, unit: str) -> str:
    return f'write {{"key": {key}, "unit": "{unit}"}}'
