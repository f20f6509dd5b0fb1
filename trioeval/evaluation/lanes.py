"""The lane of each provider of a suite, and the settings of that lane.

A lane is one real rate-limit scope, so providers with the same key, endpoint and model share one, whatever
their labels. A provider may name an entry of the suite's `lanes` instead.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import attrs

from trioeval.errors import Problem, SuiteError
from trioeval.kernel import LaneSpec
from trioeval.limits.model import LimitKey
from trioeval.providers import ProviderSpec
from trioeval.providers.programs import AGENT_RUNS
from trioeval.suite.model import WIDTH, LaneSettings, ProviderEntry, Suite

_UNBOUNDED = 1_000_000  # more runs than any machine has

_ONE_LANE = "settings belong to the lane: write them once, or give the lane a name in $.lanes"
_OWN_LANE = "settings belong to the lane: pass one LaneSpec to all own providers of a name"

B = TypeVar("B", int, float)


def lane_names(suite: Suite, specs: Sequence[ProviderSpec]) -> tuple[str, ...]:
    """Return the lane of each provider, in the order of `suite.providers`."""
    return tuple(
        _lane_name(suite, entry, spec) for entry, spec in zip(suite.providers, specs, strict=True)
    )


def lane_specs(
    suite: Suite, specs: Sequence[ProviderSpec], *, cap: int | None = None
) -> tuple[LaneSpec, ...]:
    """Return the specification of each lane of a suite.

    Args:
        suite: The suite.
        specs: Its providers, in the order of `suite.providers`.
        cap: Maximum number of calls in flight for every lane, ≥ 1; also the max concurrency of lanes
            without their own.

    Raises:
        SuiteError: Providers that share a lane give it different settings.
    """
    settings, problems = _lane_settings(suite, specs)
    if problems:
        raise SuiteError(problems)
    rooms = lane_rooms(suite, specs, cap=cap)
    return tuple(
        _with_room(_lane_spec(name, _with_retries(settings[name], users), suite, cap), rooms)
        for name, users in _users(suite, specs).items()
    )


def lane_rooms(
    suite: Suite, specs: Sequence[ProviderSpec], *, cap: int | None = None
) -> dict[str, int]:
    """Return the rows that should be in flight at once on each lane without a max concurrency, ≥ 1.

    These workers would be idle if the lane had the default max concurrency of other tasks, for which this
    is 0. Lanes with a max concurrency are left out.

    Args:
        suite: The suite, or one of its tasks.
        specs: Its providers, in the order of `suite.providers`.
        cap: As for `lane_specs`; with a cap, every lane has a max concurrency.
    """
    if cap is not None:
        return {}
    workers = suite.settings.rows_at_once(suite.limits)
    settings, _ = _lane_settings(suite, specs)
    return {name: workers for name, lane in settings.items() if lane.max_concurrency is None}


def _lane_settings(
    suite: Suite, specs: Sequence[ProviderSpec]
) -> tuple[dict[str, LaneSettings], list[Problem]]:
    """Return the settings of each lane, and the problems of lanes with contradictory settings."""
    settings: dict[str, LaneSettings] = {}
    own_lanes: dict[str, LaneSpec] = {}
    gaps: dict[str, float] = {}
    problems: list[Problem] = []
    names = lane_names(suite, specs)
    for position, (name, entry, spec) in enumerate(zip(names, suite.providers, specs, strict=True)):
        configured = _configured(suite, entry, spec)
        if configured is None and entry.delay is None:
            continue
        if name == AGENT_RUNS:
            message = "agent programs have no lanes of their own: they run in the run slots"
            hint = "set maxConcurrentRuns in $.agents: it applies to all of them together"
            problems.append(Problem(f"$.providers[{position}].lane", message, hint))
            continue
        for gap in _gaps(entry, configured):  # the largest one satisfies all of them
            gaps[name] = max(gaps.get(name, 0), gap)
        if configured is None:
            continue
        own = spec.settings.lane if entry.lane is None else None
        is_other = own is not None and own_lanes.setdefault(name, own) != own
        configured = attrs.evolve(configured, key=None, min_gap=None, delay=None)
        if settings.setdefault(name, configured) != configured or is_other:
            message = f"lane {name} has other settings from an earlier provider with the same key"
            problems.append(
                Problem(f"$.providers[{position}]", message, _OWN_LANE)
                if entry.lane is None
                else Problem(f"$.providers[{position}].lane", message, _ONE_LANE)
            )
    found = {name: settings.get(name, LaneSettings()) for name in names}
    for name, gap in gaps.items():
        found[name] = attrs.evolve(found[name], min_gap=gap)
    return found, problems


def _configured(suite: Suite, entry: ProviderEntry, spec: ProviderSpec) -> LaneSettings | None:
    """Return the settings of the lane of an entry, from the suite or else from the program."""
    if isinstance(entry.lane, str):
        return suite.lanes[entry.lane]
    own = spec.settings.lane
    if entry.lane is not None or own is None:
        return entry.lane
    values = attrs.asdict(own, recurse=False)
    return LaneSettings(key=values.pop("name"), **values)


def _gaps(entry: ProviderEntry, lane: LaneSettings | None) -> Iterator[float]:
    """Yield the minimum gaps, in seconds, that an entry sets for its lane."""
    if lane is not None and lane.min_gap is not None:
        yield lane.min_gap
    for delay in (entry.delay, None if lane is None else lane.delay):
        if delay is not None:
            yield delay / 1000


def lane_limits(suite: Suite, specs: Sequence[ProviderSpec]) -> dict[str, tuple[LimitKey, ...]]:
    """Return the shared limits that calls count against, by lane; lanes without any are left out."""
    found = {}
    for name, entry in zip(lane_names(suite, specs), suite.providers, strict=True):
        settings = suite.lanes[entry.lane] if isinstance(entry.lane, str) else entry.lane
        if settings is not None and settings.limits:
            found[name] = settings.limits
    return found


def merge_lane_limits(
    groups: Iterable[Mapping[str, Sequence[LimitKey]]],
) -> dict[str, tuple[LimitKey, ...]]:
    """Merge the shared limits of several suites with shared lanes: calls count against all of them.

    Raises:
        SuiteError: Two suites count different units of a lane's calls against the same limit.
    """
    merged: dict[str, dict[str, LimitKey]] = {}
    problems: dict[Problem, None] = {}
    for lane, keys in (item for group in groups for item in group.items()):
        for key in keys:
            first = merged.setdefault(lane, {}).setdefault(key.key, key)
            if first.unit != key.unit:
                units = f"{first.unit} of its calls in one place and {key.unit} in another"
                message = f"lane {lane} counts {units} against {key.key}"
                hint = "a lane and a limit have one unit: use the same unit in both places"
                problems[Problem("$.providers", message, hint)] = None
    if problems:
        raise SuiteError(problems)
    return {lane: tuple(keys.values()) for lane, keys in merged.items()}


def merge_lane_specs(groups: Iterable[Sequence[LaneSpec]]) -> tuple[LaneSpec, ...]:
    """Merge the lanes of several suites; the smaller of two widths or rates applies."""
    merged: dict[str, LaneSpec] = {}
    for spec in (spec for group in groups for spec in group):
        merged[spec.name] = _stricter(merged.get(spec.name, spec), spec)
    return tuple(merged.values())


def merge_task_lanes(
    tasks: Sequence[tuple[Sequence[LaneSpec], Mapping[str, int]]],
) -> tuple[LaneSpec, ...]:
    """Merge the lanes of a suite's tasks; a lane without a max concurrency gets room for all workers.

    Args:
        tasks: The lanes of each task, and its `lane_rooms`.
    """
    rooms: dict[str, int] = {}
    configured: set[str] = set()
    for specs, own in tasks:
        configured.update(spec.name for spec in specs if spec.name not in own)
        for name, room in own.items():
            rooms[name] = max(rooms.get(name, 0), room)
    unsaid = {name: room for name, room in rooms.items() if name not in configured}
    return tuple(_with_room(spec, unsaid) for spec in merge_lane_specs(specs for specs, _ in tasks))


def _with_room(spec: LaneSpec, rooms: Mapping[str, int]) -> LaneSpec:
    return attrs.evolve(spec, max_concurrency=max(spec.max_concurrency, rooms.get(spec.name, 0)))


def _lane_name(suite: Suite, entry: ProviderEntry, spec: ProviderSpec) -> str:
    if spec.lane_key == AGENT_RUNS:
        return AGENT_RUNS  # one lane for all of them, so single providers cannot have another
    if isinstance(entry.lane, str):
        return suite.lanes[entry.lane].key or entry.lane
    configured = _configured(suite, entry, spec)
    own = None if configured is None else configured.key
    return own or spec.lane_key


def _users(suite: Suite, specs: Sequence[ProviderSpec]) -> dict[str, list[ProviderSpec]]:
    """Return the providers of each lane, in the order in which lanes are first named."""
    users: dict[str, list[ProviderSpec]] = {}
    for name, spec in zip(lane_names(suite, specs), specs, strict=True):
        users.setdefault(name, []).append(spec)
    return users


def _with_retries(settings: LaneSettings, users: Sequence[ProviderSpec]) -> LaneSettings:
    """Return the settings of a lane, with the `maxRetries` of its providers if it has none itself."""
    if settings.max_retries is not None:
        return settings
    configured = [spec.max_retries for spec in users if spec.max_retries is not None]
    return attrs.evolve(settings, max_retries=min(configured, default=None))


def _lane_spec(name: str, settings: LaneSettings, suite: Suite, cap: int | None) -> LaneSpec:
    options = suite.evaluate_options
    max_concurrency = settings.max_concurrency
    if name == AGENT_RUNS:
        max_concurrency = suite.run_limits.max_concurrent_runs
        max_concurrency = _UNBOUNDED if max_concurrency == 0 else max_concurrency
    if max_concurrency is None:
        max_concurrency = (options.max_concurrency or WIDTH) if cap is None else cap
    elif cap is not None:
        max_concurrency = min(max_concurrency, cap)
    return LaneSpec(
        name,
        max_concurrency,
        rpm=settings.rpm,
        burst=settings.burst,
        tpm=settings.tpm,
        token_burst=settings.token_burst,
        min_gap=options.delay / 1000 if settings.min_gap is None else settings.min_gap,
        adaptive=settings.adaptive,
        slow_start=settings.slow_start,
        retries=settings.retries,
        max_retries=settings.max_retries,
        retry_delay=settings.retry_delay,
        refusal_delay=settings.refusal_delay,
        max_retry_delay=settings.max_retry_delay,
        patience=settings.patience,
        breaker_threshold=settings.breaker_threshold,
        oversize=settings.oversize,
    )


def _stricter(one: LaneSpec, other: LaneSpec) -> LaneSpec:
    return attrs.evolve(
        one,
        max_concurrency=min(one.max_concurrency, other.max_concurrency),
        rpm=_smaller(one.rpm, other.rpm),
        burst=min(one.burst, other.burst),
        tpm=_smaller(one.tpm, other.tpm),
        token_burst=min(one.token_burst, other.token_burst),
        min_gap=max(one.min_gap, other.min_gap),
        slow_start=one.slow_start or other.slow_start,
        retries=min(one.retries, other.retries),
        max_retries=_smaller(one.max_retries, other.max_retries),
        retry_delay=max(one.retry_delay, other.retry_delay),
        refusal_delay=max(one.refusal_delay, other.refusal_delay),
        max_retry_delay=max(one.max_retry_delay, other.max_retry_delay),
        patience=min(one.patience, other.patience),
        breaker_threshold=min(one.breaker_threshold, other.breaker_threshold),
        oversize="refuse" if "refuse" in {one.oversize, other.oversize} else "alone",
    )


def _smaller(one: B | None, other: B | None) -> B | None:
    """Return the smaller of two bounds; None means unbounded."""
    return min((bound for bound in (one, other) if bound is not None), default=None)
