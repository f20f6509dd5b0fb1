"""Which lane each provider of a suite uses, and what that lane allows.

A lane is one real rate-limit scope, so providers with one key, endpoint and model share one, whatever
their labels. A provider may name an entry of the suite's `lanes` instead.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import attrs

from trioeval.errors import Problem, SuiteError
from trioeval.kernel import Backoff, LaneSpec
from trioeval.limits.model import LimitKey
from trioeval.providers import ProviderSpec
from trioeval.providers.programs.entries import AGENT_RUNS
from trioeval.suite.model import WIDTH, LaneSettings, ProviderEntry, Suite

_UNBOUNDED = 1_000_000  # more runs than any machine has

B = TypeVar("B", int, float)


def lane_names(suite: Suite, specs: Sequence[ProviderSpec]) -> tuple[str, ...]:
    """The lane of each provider, in the order of `suite.providers`."""
    return tuple(
        _lane_name(suite, entry, spec) for entry, spec in zip(suite.providers, specs, strict=True)
    )


def lane_specs(
    suite: Suite, specs: Sequence[ProviderSpec], *, cap: int | None = None
) -> tuple[LaneSpec, ...]:
    """What each lane of a suite allows; one description a lane.

    Args:
        suite: The suite.
        specs: Its providers, in the order of `suite.providers`.
        cap: Calls in flight that no lane may exceed, ≥ 1; it is also the width of lanes without one
            of their own.

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
    """Questions that are to be under way at once on each lane whose width nobody says, ≥ 1.

    Those workers would be there for nothing if the lane were as narrow as it is for other tasks, where
    this is 0. Lanes whose width is said are left out.

    Args:
        suite: The suite, or one of its tasks.
        specs: Its providers, in the order of `suite.providers`.
        cap: As for `lane_specs`; with one, the width of every lane is said.
    """
    if cap is not None:
        return {}
    workers = suite.settings.rows_at_once(suite.limits)
    settings, _ = _lane_settings(suite, specs)
    return {name: workers for name, said in settings.items() if said.max_concurrency is None}


def _lane_settings(
    suite: Suite, specs: Sequence[ProviderSpec]
) -> tuple[dict[str, LaneSettings], list[Problem]]:
    """What the suite says of each lane, and where it says two things of one."""
    settings: dict[str, LaneSettings] = {}
    delays: dict[str, float] = {}
    problems: list[Problem] = []
    names = lane_names(suite, specs)
    for position, (name, entry) in enumerate(zip(names, suite.providers, strict=True)):
        wanted = suite.lanes[entry.lane] if isinstance(entry.lane, str) else entry.lane
        if wanted is None and entry.delay is None:
            continue
        if name == AGENT_RUNS:
            message = (
                "programs that are agents have no lane of their own: they run in the run slots"
            )
            hint = "write maxConcurrentRuns in $.agents: it holds for all of them together"
            problems.append(Problem(f"$.providers[{position}].lane", message, hint))
            continue
        delay = entry.delay if wanted is None or entry.delay is not None else wanted.delay
        if delay is not None:  # of several the largest: it keeps to all of them
            delays[name] = max(delays.get(name, 0), delay)
        if wanted is None:
            continue
        wanted = attrs.evolve(wanted, delay=None)
        if settings.setdefault(name, wanted) != wanted:
            problems.append(
                Problem(
                    f"$.providers[{position}].lane",
                    f"lane {name} has other settings from an earlier provider with the same key",
                    "settings belong to the lane: write them once, or give the lane a name in $.lanes",
                )
            )
    found = {name: settings.get(name, LaneSettings()) for name in names}
    for name, delay in delays.items():
        found[name] = attrs.evolve(found[name], delay=delay)
    return found, problems


def lane_limits(suite: Suite, specs: Sequence[ProviderSpec]) -> dict[str, tuple[LimitKey, ...]]:
    """The shared limits that the calls of lanes count against, by lane; of lanes without any, nothing."""
    found = {}
    for name, entry in zip(lane_names(suite, specs), suite.providers, strict=True):
        settings = suite.lanes[entry.lane] if isinstance(entry.lane, str) else entry.lane
        if settings is not None and settings.limits:
            found[name] = settings.limits
    return found


def merge_lane_limits(
    groups: Iterable[Mapping[str, Sequence[LimitKey]]],
) -> dict[str, tuple[LimitKey, ...]]:
    """Those of several suites that are to share their lanes: calls count against all of them.

    Raises:
        SuiteError: Two of them count something else of the calls of a lane against the same limit.
    """
    merged: dict[str, dict[str, LimitKey]] = {}
    problems: dict[Problem, None] = {}
    for lane, keys in (item for group in groups for item in group.items()):
        for key in keys:
            first = merged.setdefault(lane, {}).setdefault(key.key, key)
            if first.unit != key.unit:
                units = f"{first.unit} of its calls in one place and {key.unit} in another"
                message = f"lane {lane} counts {units} against {key.key}"
                hint = "a lane and a limit have one unit: write the same in both"
                problems[Problem("$.providers", message, hint)] = None
    if problems:
        raise SuiteError(problems)
    return {lane: tuple(keys.values()) for lane, keys in merged.items()}


def merge_lane_specs(groups: Iterable[Sequence[LaneSpec]]) -> tuple[LaneSpec, ...]:
    """The lanes of several suites that are to share them; of two widths or rates the smaller one holds."""
    merged: dict[str, LaneSpec] = {}
    for spec in (spec for group in groups for spec in group):
        merged[spec.name] = _stricter(merged.get(spec.name, spec), spec)
    return tuple(merged.values())


def merge_task_lanes(
    tasks: Sequence[tuple[Sequence[LaneSpec], Mapping[str, int]]],
) -> tuple[LaneSpec, ...]:
    """The lanes of the tasks of one suite; a width that none of them says leaves room for all workers.

    Args:
        tasks: Of each its lanes, and what `lane_rooms` says of them.
    """
    rooms: dict[str, int] = {}
    said: set[str] = set()
    for specs, own in tasks:
        said.update(spec.name for spec in specs if spec.name not in own)
        for name, room in own.items():
            rooms[name] = max(rooms.get(name, 0), room)
    unsaid = {name: room for name, room in rooms.items() if name not in said}
    return tuple(_with_room(spec, unsaid) for spec in merge_lane_specs(specs for specs, _ in tasks))


def _with_room(spec: LaneSpec, rooms: Mapping[str, int]) -> LaneSpec:
    return attrs.evolve(spec, max_concurrency=max(spec.max_concurrency, rooms.get(spec.name, 0)))


def _lane_name(suite: Suite, entry: ProviderEntry, spec: ProviderSpec) -> str:
    if spec.lane_key == AGENT_RUNS:
        return AGENT_RUNS  # which holds for all of them, and so is no lane of single providers
    if isinstance(entry.lane, str):
        return suite.lanes[entry.lane].key or entry.lane
    own = None if entry.lane is None else entry.lane.key
    return own or spec.lane_key


def _users(suite: Suite, specs: Sequence[ProviderSpec]) -> dict[str, list[ProviderSpec]]:
    """The providers of each lane, in the order in which lanes are first named."""
    users: dict[str, list[ProviderSpec]] = {}
    for name, spec in zip(lane_names(suite, specs), specs, strict=True):
        users.setdefault(name, []).append(spec)
    return users


def _with_retries(settings: LaneSettings, users: Sequence[ProviderSpec]) -> LaneSettings:
    """The settings of a lane, with the `maxRetries` of its providers where it has none itself."""
    if settings.max_retries is not None:
        return settings
    said = [spec.max_retries for spec in users if spec.max_retries is not None]
    return attrs.evolve(settings, max_retries=min(said, default=None))


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
    delay = options.delay if settings.delay is None else settings.delay
    return LaneSpec(
        name,
        max_concurrency,
        rpm=settings.rpm,
        burst=settings.burst,
        tpm=settings.tpm,
        min_gap=delay / 1000,
        adaptive=settings.adaptive,
        retries=settings.retries,
        max_retries=settings.max_retries,
        backoff=_backoff(settings.retry_delay),
        patience=settings.lane_patience,
        breaker_threshold=settings.breaker_threshold,
    )


def _stricter(one: LaneSpec, other: LaneSpec) -> LaneSpec:
    return attrs.evolve(
        one,
        max_concurrency=min(one.max_concurrency, other.max_concurrency),
        rpm=_smaller(one.rpm, other.rpm),
        burst=min(one.burst, other.burst),
        tpm=_smaller(one.tpm, other.tpm),
        min_gap=max(one.min_gap, other.min_gap),
        retries=min(one.retries, other.retries),
        max_retries=_smaller(one.max_retries, other.max_retries),
        backoff=max(one.backoff, other.backoff, key=lambda backoff: backoff.base),
        patience=min(one.patience, other.patience),
        breaker_threshold=min(one.breaker_threshold, other.breaker_threshold),
    )


def _backoff(delay: float) -> Backoff:
    """That of a lane whose first repetition waits for so many seconds at most."""
    usual = Backoff()
    return Backoff(base=delay, cap=max(usual.cap, delay))


def _smaller(one: B | None, other: B | None) -> B | None:
    """The smaller of two bounds, of which None is none."""
    return min((bound for bound in (one, other) if bound is not None), default=None)
