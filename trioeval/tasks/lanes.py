"""Which lane each provider of a suite uses, and what that lane allows.

A lane is one real rate-limit scope, so providers with one key, endpoint and model share one, whatever
their labels. A provider may name an entry of the suite's `lanes` instead.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import attrs

from trioeval.errors import Problem, SuiteError
from trioeval.kernel import LaneSpec
from trioeval.providers import ProviderSpec
from trioeval.suite import LaneSettings, ProviderEntry, Suite

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
    settings: dict[str, LaneSettings] = {}
    problems: list[Problem] = []
    named = zip(lane_names(suite, specs), suite.providers, strict=True)
    for position, (name, entry) in enumerate(named):
        wanted = suite.lanes[entry.lane] if isinstance(entry.lane, str) else entry.lane
        if entry.delay is not None:
            wanted = attrs.evolve(wanted or LaneSettings(), delay=entry.delay)
        if wanted is None:
            continue
        if settings.setdefault(name, wanted) != wanted:
            problems.append(
                Problem(
                    f"$.providers[{position}].lane",
                    f"lane {name} has other settings from an earlier provider with the same key",
                    "settings belong to the lane: write them once, or give the lane a name in $.lanes",
                )
            )
    if problems:
        raise SuiteError(problems)
    return tuple(
        _lane_spec(name, _with_retries(settings.get(name, LaneSettings()), users), suite, cap)
        for name, users in _users(suite, specs).items()
    )


def merge_lane_specs(groups: Iterable[Sequence[LaneSpec]]) -> tuple[LaneSpec, ...]:
    """The lanes of several suites that are to share them; of two widths or rates the smaller one holds."""
    merged: dict[str, LaneSpec] = {}
    for spec in (spec for group in groups for spec in group):
        merged[spec.name] = _stricter(merged.get(spec.name, spec), spec)
    return tuple(merged.values())


def _lane_name(suite: Suite, entry: ProviderEntry, spec: ProviderSpec) -> str:
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
    width = settings.max_concurrency
    if width is None:
        width = options.max_concurrency if cap is None else cap
    elif cap is not None:
        width = min(width, cap)
    delay = options.delay if settings.delay is None else settings.delay
    return LaneSpec(
        name,
        width,
        rpm=settings.rpm,
        burst=settings.burst,
        tpm=settings.tpm,
        min_gap=delay / 1000,
        adaptive=settings.adaptive,
        retries=settings.retries,
        max_retries=settings.max_retries,
        patience=settings.lane_patience,
        breaker_threshold=settings.breaker_threshold,
    )


def _stricter(one: LaneSpec, other: LaneSpec) -> LaneSpec:
    return attrs.evolve(
        one,
        width=min(one.width, other.width),
        rpm=_smaller(one.rpm, other.rpm),
        burst=min(one.burst, other.burst),
        tpm=_smaller(one.tpm, other.tpm),
        min_gap=max(one.min_gap, other.min_gap),
        retries=min(one.retries, other.retries),
        max_retries=_smaller(one.max_retries, other.max_retries),
        patience=min(one.patience, other.patience),
        breaker_threshold=min(one.breaker_threshold, other.breaker_threshold),
    )


def _smaller(one: B | None, other: B | None) -> B | None:
    """The smaller of two bounds, of which None is none."""
    return min((bound for bound in (one, other) if bound is not None), default=None)
