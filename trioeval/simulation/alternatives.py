"""Other settings of the lanes of a suite, what they would give, and a recommendation.

Each alternative changes one setting of one lane and is simulated like the suite itself. If the suite has very
many rows, its first ones stand for all of them: the ratio of two simulations of them is applied to the
makespan of the whole.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import attrs

from trioeval.kernel import LaneSpec
from trioeval.report.activity import lane_names
from trioeval.simulation.model import ServerLimits
from trioeval.simulation.run import Forecast, LaneForecast, never, simulate
from trioeval.simulation.suite import SimulatedSuite
from trioeval.text import number_text

Run: TypeAlias = Callable[[SimulatedSuite], Forecast]
"""Simulates a suite."""

MOST_ROWS = 3000
"""Rows that stand for all others in the comparison of settings."""
_SEVERAL = 2000
"""Rows up to which a suite is simulated several times."""
_SEEDS = 3
_LANES = 3
"""Lanes whose settings are varied: the busiest ones."""
_ALIKE = 0.02
"""Share by which two makespans may differ by chance."""
_WORKERS = (2, 4)
"""Numbers of worker processes that are compared."""
_REQUEST_CPU = 0.001
"""CPU seconds of a request in the process that makes it: HTTP, grading and recording."""
_COORDINATOR_CPU = 0.00012
"""CPU seconds of a row in the process of a run whose rows are made by workers."""
_BUSY = 0.7
"""Share of the time that a process can compute before its calls are late."""
_WORTH = 0.05
"""Share of the makespan that a recommended change saves at least."""


@attrs.frozen
class Alternative:
    """One changed setting."""

    name: str
    """The change, for people, with the short name of its lane."""
    suite: SimulatedSuite
    is_setting: bool = attrs.field(kw_only=True)
    """True if the suite alone decides it; False if it needs another account."""
    cost: int = attrs.field(default=0, kw_only=True)
    """The rank among changes of equal effect: smaller ones are recommended first."""
    workers: int = attrs.field(default=1, kw_only=True)
    """The processes that share the rows."""


@attrs.frozen
class AlternativeEffect:
    """The effect of one alternative."""

    name: str
    is_setting: bool
    cost: int
    makespan: float
    """Seconds, of the whole suite."""
    ratio: float
    """Its makespan relative to that of the present settings."""
    money: float
    """US dollars, of the whole suite."""
    refused_share: float
    """Share of the requests that are refused."""
    workers: int = 1
    """The processes that share the rows."""


@attrs.frozen(kw_only=True)
class SuiteForecast:
    """The forecast of a suite, and its alternatives."""

    forecast: Forecast
    """Of several simulations, the one with the median makespan."""
    makespans: Sequence[float]
    """Of each simulation, ascending."""
    comparisons: Sequence[AlternativeEffect]
    recommendations: Sequence[str]
    """Sentences."""


def forecast_suite(
    suite: SimulatedSuite, *, compare: bool = True, is_stopped: Callable[[], bool] = never
) -> SuiteForecast:
    """Simulate a suite, and then with other settings.

    Args:
        suite: The suite.
        compare: False simulates the present settings only.
        is_stopped: As for `simulate`; the result is incomplete then.
    """
    run = functools.partial(simulate, is_stopped=is_stopped)
    found = _simulations(suite, run)
    forecast = _median(found)
    comparisons: Sequence[AlternativeEffect] = ()
    recommendations: Sequence[str] = ()
    if compare and forecast.makespan > 0:
        comparisons = _compare(suite, forecast, run)
        recommendations = recommend(forecast, comparisons)
    return SuiteForecast(
        forecast=forecast,
        makespans=[one.makespan for one in found],
        comparisons=comparisons,
        recommendations=recommendations,
    )


def alternatives(suite: SimulatedSuite, forecast: Forecast) -> Iterator[Alternative]:
    """Yield the alternatives to a suite whose present settings give a forecast."""
    names = lane_names(spec.name for spec in suite.specs if spec.name in forecast.lanes)
    busiest = sorted(suite.specs, key=lambda spec: -_busy(forecast.lanes.get(spec.name)))
    for spec in busiest[:_LANES]:
        if spec.name in forecast.lanes:
            yield from _of_lane(suite, spec, f"{names[spec.name]}: " if len(names) > 1 else "")
    for workers in _WORKERS:
        # Each worker has the width of every lane; the rates are those of all together.
        specs = [
            attrs.evolve(spec, max_concurrency=spec.max_concurrency * workers)
            for spec in suite.specs
        ]
        changed = attrs.evolve(suite, specs=specs)
        yield Alternative(f"{workers} workers", changed, is_setting=False, workers=workers)


def recommend(forecast: Forecast, comparisons: Sequence[AlternativeEffect]) -> Sequence[str]:
    """Return sentences about the settings that are worth changing.

    Args:
        forecast: With the present settings.
        comparisons: The effects of others.
    """
    found = []
    settings = [one for one in comparisons if one.is_setting]
    refused = forecast.refused / max(1, forecast.requests)
    best = min(settings, key=lambda one: one.ratio, default=None)
    if best is not None and best.ratio <= 1 - _WORTH:
        near = [one for one in settings if one.ratio <= best.ratio + _ALIKE]
        chosen = min(near, key=lambda one: (one.cost, one.ratio))
        found.append(f"set {chosen.name}: the run takes {_percent(1 - chosen.ratio)} less time")
    elif settings:
        found.append("no other setting of the lanes makes the run noticeably faster")
    calm = [
        one
        for one in settings
        if one.ratio <= 1 + _ALIKE and one.refused_share < refused / 2 and refused > 0
    ]
    if calm:
        chosen = min(calm, key=lambda one: (one.refused_share, one.cost))
        left = _percent(chosen.refused_share)
        found.append(
            f"set {chosen.name}: {left} of the requests are refused, now {_percent(refused)}"
        )
    smaller = [one for one in settings if one.cost < 0 and one.ratio <= 1 + _ALIKE / 2]
    if smaller and not (best is not None and best.ratio <= 1 - _WORTH):
        chosen = min(smaller, key=lambda one: one.cost)
        found.append(f"{chosen.name} suffices: the run takes as long")
    others = [
        one
        for one in comparisons
        if not one.is_setting and one.workers == 1 and one.ratio <= 1 - _WORTH
    ]
    if others:
        fastest = min(others, key=lambda one: one.ratio)
        found.append(
            f"with another account: {fastest.name} takes {_percent(1 - fastest.ratio)} less time"
        )
    if comparisons and forecast.makespan:
        found.append(_workers_sentence(forecast))
    return found


def computing_time(requests: int, rows: int, workers: int) -> float:
    """Return about how many seconds the busiest process of a run computes.

    Example:
        >>> computing_time(10_000, 10_000, 1), computing_time(10_000, 10_000, 4)
        (10.0, 2.5)
    """
    each = requests * _REQUEST_CPU / workers
    return each if workers == 1 else max(each, rows * _COORDINATOR_CPU)


def _workers_sentence(forecast: Forecast) -> str:
    """Return how many worker processes would pay."""
    share = computing_time(forecast.requests, forecast.rows, 1) / forecast.makespan
    if share <= _BUSY:
        return f"one process suffices: it computes about {_percent(share)} of the time"
    workers = max(2, math.ceil(share / _BUSY))
    return (
        f"run it on {workers} workers (--on local:{workers}): "
        f"one process would compute about {_percent(share)} of the time"
    )


def _percent(share: float) -> str:
    return f"{share:.1%}" if 0 < share < 0.01 else f"{share:.0%}"  # noqa: PLR2004 - 1 %


def _busy(lane: LaneForecast | None) -> float:
    """Return the time that a lane had calls in flight or waited."""
    if lane is None:
        return 0.0
    return sum(bool(bucket[0]) for bucket in lane.buckets) * lane.bucket_s


def _compare(suite: SimulatedSuite, forecast: Forecast, run: Run) -> Sequence[AlternativeEffect]:
    sample = suite.first(MOST_ROWS)
    base = forecast if sample is suite else _median(_simulations(sample, run))
    scale = 1.0 if base.rows == 0 else forecast.rows / base.rows
    found = []
    for one in alternatives(suite, forecast):
        other = _median(_simulations(one.suite.first(MOST_ROWS), run))
        least = 0.0
        if one.workers > 1:
            least = computing_time(other.requests, other.rows, one.workers)
        ratio = max(other.makespan, least) / base.makespan if base.makespan else 1.0
        found.append(
            AlternativeEffect(
                name=one.name,
                is_setting=one.is_setting,
                cost=one.cost,
                makespan=forecast.makespan * ratio,
                ratio=ratio,
                money=other.money * scale,
                refused_share=other.refused / max(1, other.requests),
                workers=one.workers,
            )
        )
    return found


def _simulations(suite: SimulatedSuite, run: Run) -> Sequence[Forecast]:
    """Return a few simulations by their makespans, ascending; a single one if the suite is large."""
    seeds = _SEEDS if suite.rows <= _SEVERAL else 1
    found = (run(attrs.evolve(suite, seed=suite.seed + nth)) for nth in range(seeds))
    return sorted(found, key=lambda forecast: forecast.makespan)


def _median(found: Sequence[Forecast]) -> Forecast:
    return found[len(found) // 2]


def _of_lane(suite: SimulatedSuite, spec: LaneSpec, of: str) -> Iterator[Alternative]:
    limits = suite.limits.get(spec.name, ServerLimits())
    width = spec.max_concurrency
    for other in dict.fromkeys((max(1, width // 2), width * 2, width * 4)):
        if other != width:
            changed = _with(suite, attrs.evolve(spec, max_concurrency=other))
            cost = -1 if other < width else other // width
            yield Alternative(f"{of}maxConcurrency {other}", changed, is_setting=True, cost=cost)
    yield from _rates(suite, spec, limits, of)
    if spec.rpm is not None and limits.rpm is not None:  # else it might be refused
        burst = min(width, limits.burst or limits.rpm)
        if burst > spec.burst:
            changed = _with(suite, attrs.evolve(spec, burst=burst))
            yield Alternative(f"{of}burst {burst}", changed, is_setting=True, cost=1)
    more = attrs.evolve(suite, keys={**suite.keys, spec.name: 2})
    yield Alternative(f"{of}2 keys", more, is_setting=False)


def _rates(
    suite: SimulatedSuite, spec: LaneSpec, limits: ServerLimits, of: str
) -> Iterator[Alternative]:
    """Yield declared rates, if the limits of the server are known, and twice its limits."""
    if limits.rpm is not None and spec.rpm is None:
        declared = attrs.evolve(spec, rpm=float(limits.rpm), burst=limits.burst or 1)
        yield Alternative(f"{of}rpm {limits.rpm}", _with(suite, declared), is_setting=True, cost=1)
    if limits.tpm is not None and spec.tpm is None:
        declared = attrs.evolve(spec, tpm=float(limits.tpm))
        yield Alternative(f"{of}tpm {limits.tpm}", _with(suite, declared), is_setting=True, cost=1)
    rpm = limits.rpm if limits.rpm is not None else spec.rpm
    if rpm is not None:
        higher = attrs.evolve(limits, rpm=None if limits.rpm is None else limits.rpm * 2)
        declared = attrs.evolve(spec, rpm=None if spec.rpm is None else spec.rpm * 2)
        name = f"{of}a tier of {number_text(rpm * 2)} rpm"
        yield Alternative(name, _with(suite, declared, higher), is_setting=False)
    tpm = limits.tpm if limits.tpm is not None else spec.tpm
    if tpm is not None:
        higher = attrs.evolve(limits, tpm=None if limits.tpm is None else limits.tpm * 2)
        declared = attrs.evolve(spec, tpm=None if spec.tpm is None else spec.tpm * 2)
        name = f"{of}a tier of {number_text(tpm * 2)} tpm"
        yield Alternative(name, _with(suite, declared, higher), is_setting=False)


def _with(
    suite: SimulatedSuite, spec: LaneSpec, limits: ServerLimits | None = None
) -> SimulatedSuite:
    """Return a suite with other settings of one lane, and other limits of its server."""
    specs = [spec if one.name == spec.name else one for one in suite.specs]
    known = suite.limits if limits is None else {**suite.limits, spec.name: limits}
    return attrs.evolve(suite, specs=specs, limits=known)
