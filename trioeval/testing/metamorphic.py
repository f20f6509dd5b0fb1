"""Relations between two runs: oracles that need no known right result.

A scenario that is changed in a known way must change the run in a known way. Each check runs both and
compares everything about the instants of one with that of the other; each raises a plain `AssertionError`
with the first difference.

The checks take any `run`, a function from a scenario to its trace; the default is the kernel's. Comparisons
are exact: use times in dyadic fractions, and factors that are powers of two.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import attrs

from trioeval.kernel import Edge, LaneSpec
from trioeval.testing.perform import run_scenario
from trioeval.testing.scenario import (
    Action,
    CallScript,
    JobScript,
    Known,
    Pause,
    RunScenario,
    SharedLimitScript,
    Together,
)
from trioeval.testing.trace import RunTrace

Run: TypeAlias = Callable[[RunScenario], RunTrace]
Step: TypeAlias = tuple[float, int, int, float]
"""A request: start, job, attempt, end."""


def scaled(scenario: RunScenario, factor: float) -> RunScenario:
    """Return the same scenario in which every second lasts `factor` (> 0) seconds.

    Durations, timeouts, periods, back-offs, hints and instants are scaled; numbers of jobs, calls and tokens
    stay the same.
    """
    return attrs.evolve(
        scenario,
        lanes=tuple(_scaled_lane(lane, factor) for lane in scenario.lanes),
        scripts=tuple(
            attrs.evolve(
                script,
                actions=tuple(_scaled_action(action, factor) for action in script.actions),
                timeout=script.timeout * factor,
            )
            for script in scenario.scripts
        ),
        deadline=scenario.deadline * factor,
        stop_at=scenario.stop_at * factor,
        cancel_at=scenario.cancel_at * factor,
        start_at=scenario.start_at * factor,
        retunes=tuple(attrs.evolve(one, at=one.at * factor) for one in scenario.retunes),
        shared=tuple(_scaled_shared(one, factor) for one in scenario.shared),
    )


def _scaled_shared(shared: SharedLimitScript, factor: float) -> SharedLimitScript:
    begin, end = shared.silent
    return attrs.evolve(
        shared,
        lasts=shared.lasts * factor,
        delay=shared.delay * factor,
        silent=(begin * factor, end * factor),
    )


def _scaled_action(action: Action, factor: float) -> Action:
    match action:
        case Pause(duration):
            return Pause(duration * factor)
        case CallScript():
            return _scaled_call(action, factor)
        case Together(calls):
            return Together(tuple(_scaled_call(call, factor) for call in calls))


def _scaled_call(call: CallScript, factor: float) -> CallScript:
    attempts = []
    for attempt in call.attempts:
        hint = None if attempt.retry_after is None else attempt.retry_after * factor
        attempts.append(attrs.evolve(attempt, duration=attempt.duration * factor, retry_after=hint))
    return attrs.evolve(
        call,
        duration=call.duration * factor,
        patience=call.patience * factor,
        attempts=tuple(attempts),
    )


def _scaled_lane(lane: LaneSpec, factor: float) -> LaneSpec:
    return attrs.evolve(
        lane,
        rpm=None if lane.rpm is None else lane.rpm / factor,
        tpm=None if lane.tpm is None else lane.tpm / factor,
        min_gap=lane.min_gap * factor,
        patience=lane.patience * factor,
        retry_delay=lane.retry_delay * factor,
        refusal_delay=lane.refusal_delay * factor,
        max_retry_delay=lane.max_retry_delay * factor,
    )


def check_scaling(scenario: RunScenario, factor: float, *, run: Run = run_scenario) -> None:
    """A run whose every second lasts `factor` seconds takes the same steps, `factor` times as late.

    The scheduler has no time of its own: no polling, no grace period, no unit. One rule does have a unit: the
    jitter added to a hint of more than five seconds is bounded by one second. Keep hints below that in both
    runs, or use a spread of 0.
    """
    plain, stretched = run(scenario), run(scaled(scenario, factor))
    expected = [
        (begin * factor, index, attempt, end * factor)
        for begin, index, attempt, end in _steps(plain)
    ]
    _require(_steps(stretched), expected, f"requests of a run that is {factor} times as slow")
    _require(
        [(at, index, kind) for at, index, kind in _emissions(stretched)],
        [(at * factor, index, kind) for at, index, kind in _emissions(plain)],
        f"outcomes of a run that is {factor} times as slow",
    )
    _require(stretched.ended_at, plain.ended_at * factor, "the end of the run")


def check_added_lane(
    scenario: RunScenario, lane: LaneSpec, scripts: Iterable[JobScript], *, run: Run = run_scenario
) -> None:
    """A lane with its own jobs, inserted before all others, changes nothing on the others (ISOLATION).

    Args:
        scenario: Without serial jobs, salvage rounds, cap, budget and window, which couple the lanes on
            purpose.
        lane: A lane that the scenario does not have.
        scripts: Its jobs; they get the first indices. If the scenario has `max_live_jobs`, none of them is
            known to need no lane: such jobs share that bound, whatever lanes others have.
        run: Runs a scenario.
    """
    added = tuple(scripts)
    shift = len(added)
    edges = {
        index + shift: tuple(Edge(edge.on + shift, edge.when) for edge in several)
        for index, several in scenario.edges.items()
    }
    alone = run(scenario)
    beside = run(
        attrs.evolve(
            scenario,
            lanes=(lane, *scenario.lanes),
            scripts=(*added, *scenario.scripts),
            edges=edges,
        )
    )
    _require(
        [
            (begin, index - shift, attempt, end)
            for begin, index, attempt, end in _steps(beside)
            if index >= shift
        ],
        _steps(alone),
        f"requests beside lane {lane.name!r}",
    )
    _require(
        [(index - shift, kind) for _, index, kind in _emissions(beside) if index >= shift],
        [(index, kind) for _, index, kind in _emissions(alone)],
        f"outcomes beside lane {lane.name!r}",
    )


def check_permuted(
    scenario: RunScenario, places: Mapping[int, int], *, run: Run = run_scenario
) -> None:
    """Jobs of equal scripts that swap places change nothing but their results.

    The result of a job does not affect when anything starts: the steps are the same, and the outcome of each
    job is that of the one whose place it took.

    Args:
        scenario: Its calls fail only by `fails`, and it has no edges.
        places: By index, the index that a job gets; a permutation of jobs whose scripts differ in nothing but
            `fails`.
        run: Runs a scenario.
    """
    scripts = list(scenario.scripts)
    for old, new in places.items():
        scripts[new] = scenario.scripts[old]
    before, after = run(scenario), run(attrs.evolve(scenario, scripts=tuple(scripts)))
    _require(_steps(after), _steps(before), f"requests after jobs swapped places as {dict(places)}")
    moved = sorted((places.get(index, index), kind) for _, index, kind in _emissions(before))
    _require(
        [(index, kind) for _, index, kind in _emissions(after)],
        moved,
        f"outcomes after jobs swapped places as {dict(places)}",
    )
    _require(
        [at for at, _, _ in _emissions(after)],
        [at for at, _, _ in _emissions(before)],
        f"instants of outcomes after jobs swapped places as {dict(places)}",
    )


def check_unknown(scenario: RunScenario, *, run: Run = run_scenario) -> None:
    """Jobs that are inspected and need their lanes run as if they were not inspected (EAGER, TURN).

    Args:
        scenario: Without ties: an inspection may change which of two events of one instant comes first.
        run: Runs a scenario.
    """

    def found(known: Known | None) -> RunScenario:
        scripts = (attrs.evolve(script, known=known) for script in scenario.scripts)
        return attrs.evolve(scenario, scripts=tuple(scripts))

    unseen = run(found(None))
    answers: tuple[Known, ...] = ("no", "fails")
    for known in answers:
        seen = run(found(known))
        _require(_steps(seen), _steps(unseen), f"requests of jobs whose inspection returns {known}")
        _require(_bodies(seen), _bodies(unseen), f"jobs whose inspection returns {known}")
        _require(
            _emissions(seen),
            _emissions(unseen),
            f"outcomes of jobs whose inspection returns {known}",
        )


def check_wider(
    scenario: RunScenario, lane: str, more: int = 1, *, run: Run = run_scenario
) -> None:
    """A lane with more slots starts no call later, so no outcome is emitted later.

    True for independent jobs in a fixed order, by induction over the starts. When the n-th call starts on the
    narrow lane, all calls before it have started on both, and those that are still in flight on the wide one
    are in flight on the narrow one too; so there is a slot. A pace of requests is open as well: it opens no
    later if the starts before are no later. Graham's anomalies (1969), where more processors make a schedule
    longer, need jobs that wait for each other. Retries cause such anomalies too, as they pass the queue; and
    so do tokens that are settled to more than was reserved.

    Args:
        scenario: Jobs of one call, without failures that are retried, tokens, edges, keys, serial jobs, and
            cuts.
        lane: The name of the lane.
        more: Slots to add, ≥ 1.
        run: Runs a scenario.
    """
    lanes = tuple(
        attrs.evolve(spec, max_concurrency=spec.max_concurrency + more)
        if spec.name == lane
        else spec
        for spec in scenario.lanes
    )
    narrow, wide = run(scenario), run(attrs.evolve(scenario, lanes=lanes))
    starts = {step[1]: step[0] for step in _steps(narrow)}
    late = [step for step in _steps(wide) if step[0] > starts[step[1]]]
    _require(late, [], f"requests that start later on lane {lane!r} with more slots")
    emitted = {index: at for at, index, _ in _emissions(narrow)}
    late_outcomes = [one for one in _emissions(wide) if one[0] > emitted[one[1]]]
    _require(late_outcomes, [], f"outcomes that come later with more slots of lane {lane!r}")


def check_generous(scenario: RunScenario, *, run: Run = run_scenario) -> None:
    """A shared limit that always has room changes nothing (LEASE).

    Args:
        scenario: Without ties: a request for a permit takes a step, which may change the order of one
            instant's events. And without a stop, after which first requests get no permit.
        run: Runs a scenario.
    """
    alone = run(scenario)
    names = tuple(lane.name for lane in scenario.lanes)
    for at_once in (True, False):
        limit = SharedLimitScript(names, room=10**9, at_once=at_once)
        beside = run(attrs.evolve(scenario, shared=(limit,)))
        circumstances = f"with room for all, {at_once=}"
        _require(_steps(beside), _steps(alone), f"requests {circumstances}")
        _require(_bodies(beside), _bodies(alone), f"jobs {circumstances}")
        _require(_emissions(beside), _emissions(alone), f"outcomes {circumstances}")


def check_narrowed(
    scenario: RunScenario, lane: str, room: int, *, at_once: bool, run: Run = run_scenario
) -> None:
    """A number of permits limits a lane as the same max concurrency does (LEASE).

    No wake-up is lost, and none comes early.

    Args:
        scenario: Jobs of one call without failures, edges, keys, serial jobs and cuts; live jobs unbounded.
        lane: The name of the lane, whose max concurrency is at least `room`.
        room: Number of permits, ≥ 1.
        at_once: Whether a permit can be granted without waiting.
        run: Runs a scenario.
    """
    lanes = tuple(
        attrs.evolve(spec, max_concurrency=room) if spec.name == lane else spec
        for spec in scenario.lanes
    )
    narrow = run(attrs.evolve(scenario, lanes=lanes))
    limit = SharedLimitScript((lane,), room=room, at_once=at_once)
    _require(
        _steps(run(attrs.evolve(scenario, shared=(limit,)))),
        _steps(narrow),
        f"requests with {room} permits for lane {lane!r}",
    )


def _steps(trace: RunTrace) -> list[Step]:
    return sorted((s.started_at, s.index, s.attempt, s.ended_at) for s in trace.calls)


def _bodies(trace: RunTrace) -> list[tuple[float, int, float]]:
    return sorted((span.started_at, span.index, span.ended_at) for span in trace.bodies)


def _emissions(trace: RunTrace) -> list[tuple[float, int, str]]:
    return [(e.at, e.outcome.index, type(e.outcome).__name__) for e in trace.emissions]


def _require(seen: object, right: object, circumstances: str) -> None:
    if seen != right:
        msg = f"{circumstances}: {_first_difference(seen, right)}"
        raise AssertionError(msg)


def _first_difference(seen: object, right: object) -> str:
    if isinstance(seen, list) and isinstance(right, list):
        for one, other in zip(seen, right, strict=False):
            if one != other:
                return f"{one} instead of {other}"
        return f"{len(seen)} instead of {len(right)}"
    return f"{seen} instead of {right}"
