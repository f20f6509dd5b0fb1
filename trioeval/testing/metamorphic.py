"""Relations between two runs: oracles that need to know no right answer.

Whatever a scheduler does with a scenario, it has to do something definite with a scenario that is changed in
a known way. Each check runs both and compares all that concerns the instants of one with that of the
other; each raises a plain `AssertionError` with the first difference.

The checks take any `run`, a function from a scenario to its trace; it is the kernel's by default.
Comparisons are exact: use times in dyadic fractions, and factors that are powers of two.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import attrs

from trioeval.kernel import Edge, LaneSpec
from trioeval.testing.perform import run_scenario
from trioeval.testing.scenario import Action, Call, Known, Pause, Scenario, Script, Shared, Together
from trioeval.testing.trace import Trace

Run: TypeAlias = Callable[[Scenario], Trace]
Step: TypeAlias = tuple[float, int, int, float]
"""Of a request: start, job, attempt, end."""


def scaled(scenario: Scenario, factor: float) -> Scenario:
    """The same scenario in which every second lasts `factor` (> 0) seconds.

    Durations, timeouts, periods, back-offs, hints and instants are longer; numbers of jobs, calls and tokens
    are the same.
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


def _scaled_shared(shared: Shared, factor: float) -> Shared:
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
        case Call():
            return _scaled_call(action, factor)
        case Together(calls):
            return Together(tuple(_scaled_call(call, factor) for call in calls))


def _scaled_call(call: Call, factor: float) -> Call:
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
        backoff=attrs.evolve(
            lane.backoff, base=lane.backoff.base * factor, cap=lane.backoff.cap * factor
        ),
        busy_backoff=attrs.evolve(
            lane.busy_backoff,
            base=lane.busy_backoff.base * factor,
            cap=lane.busy_backoff.cap * factor,
        ),
    )


def check_scaling(scenario: Scenario, factor: float, *, run: Run = run_scenario) -> None:
    """A run whose every second lasts `factor` seconds takes the same steps, `factor` times as late.

    The scheduler has no time of its own: no polling, no grace, no unit. One rule does have a unit: the
    chance that is added to a hint of more than five seconds is bounded by one second. Keep hints below
    that in both runs, or use a spread of 0.
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
    scenario: Scenario, lane: LaneSpec, scripts: Iterable[Script], *, run: Run = run_scenario
) -> None:
    """A lane with jobs of its own, put before all others, changes nothing on the others (ISOLATION).

    Args:
        scenario: Without serial jobs, salvage rounds, cap, budget and window, which join the lanes on
            purpose.
        lane: One that the scenario does not have.
        scripts: Its jobs; they get the first indices.
        run: What runs a scenario.
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
    scenario: Scenario, places: Mapping[int, int], *, run: Run = run_scenario
) -> None:
    """Jobs of equal scripts that swap places change nothing but their results.

    What a job returns plays no part in when anything starts: the steps are the same, and the outcome
    of each job is that of the one whose place it took.

    Args:
        scenario: Whose calls fail only by `fails`, without edges.
        places: By index, the index that a job gets; a permutation of jobs whose scripts differ in
            nothing but `fails`.
        run: What runs a scenario.
    """
    scripts = list(scenario.scripts)
    for old, new in places.items():
        scripts[new] = scenario.scripts[old]
    before, after = run(scenario), run(attrs.evolve(scenario, scripts=tuple(scripts)))
    _require(_steps(after), _steps(before), f"requests after jobs changed places as {dict(places)}")
    moved = sorted((places.get(index, index), kind) for _, index, kind in _emissions(before))
    _require(
        [(index, kind) for _, index, kind in _emissions(after)],
        moved,
        f"outcomes after jobs changed places as {dict(places)}",
    )
    _require(
        [at for at, _, _ in _emissions(after)],
        [at for at, _, _ in _emissions(before)],
        f"instants of outcomes after jobs changed places as {dict(places)}",
    )


def check_unknown(scenario: Scenario, *, run: Run = run_scenario) -> None:
    """Jobs that are looked at and need their lanes do what they do if nobody looks (EAGER, TURN).

    Args:
        scenario: Without ties: a look may change which of two events of one instant comes first.
        run: What runs a scenario.
    """

    def found(known: Known | None) -> Scenario:
        scripts = (attrs.evolve(script, known=known) for script in scenario.scripts)
        return attrs.evolve(scenario, scripts=tuple(scripts))

    unseen = run(found(None))
    answers: tuple[Known, ...] = ("no", "fails")
    for known in answers:
        seen = run(found(known))
        _require(_steps(seen), _steps(unseen), f"requests of jobs whose look says {known}")
        _require(_bodies(seen), _bodies(unseen), f"jobs whose look says {known}")
        _require(_emissions(seen), _emissions(unseen), f"outcomes of jobs whose look says {known}")


def check_wider(scenario: Scenario, lane: str, more: int = 1, *, run: Run = run_scenario) -> None:
    """A wider lane starts no call later, so no outcome is emitted later.

    True for independent jobs in a fixed order, by induction over the starts. When the n-th call starts on
    the narrow lane, all calls before it have started on both, and those that are still in flight on the
    wide one are in flight on the narrow one too; so there is a slot. A pace of requests is open as well:
    it opens no later if the starts before are no later. Graham's anomalies (1969), where more processors
    make a schedule longer, need jobs that wait for each other. Retries make such anomalies too, as they
    pass the line; and so do tokens that are settled to more than was reserved.

    Args:
        scenario: Jobs of one call, without failures that are made again, tokens, edges, keys, serial jobs,
            and cuts.
        lane: Which one.
        more: Slots to add, ≥ 1.
        run: What runs a scenario.
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
    _require(late, [], f"requests that start later on a wider lane {lane!r}")
    emitted = {index: at for at, index, _ in _emissions(narrow)}
    late_outcomes = [one for one in _emissions(wide) if one[0] > emitted[one[1]]]
    _require(late_outcomes, [], f"outcomes that come later with a wider lane {lane!r}")


def check_generous(scenario: Scenario, *, run: Run = run_scenario) -> None:
    """A shared limit that always has room changes nothing (LEASE).

    Args:
        scenario: Without ties: to be asked takes a step, which may change the order of one instant's events.
            And without a stop, after which first requests get no permit.
        run: What runs a scenario.
    """
    alone = run(scenario)
    names = tuple(lane.name for lane in scenario.lanes)
    for at_once in (True, False):
        limit = Shared(names, room=10**9, at_once=at_once)
        beside = run(attrs.evolve(scenario, shared=(limit,)))
        what = f"with room for all, {at_once=}"
        _require(_steps(beside), _steps(alone), f"requests {what}")
        _require(_bodies(beside), _bodies(alone), f"jobs {what}")
        _require(_emissions(beside), _emissions(alone), f"outcomes {what}")


def check_narrowed(
    scenario: Scenario, lane: str, room: int, *, at_once: bool, run: Run = run_scenario
) -> None:
    """So many permits at once limit a lane as a width does (LEASE): no wake-up is lost, none comes early.

    Args:
        scenario: Jobs of one call without failures, edges, keys, serial jobs and cuts; live jobs unbounded.
        lane: Which one, of a width of at least `room`.
        room: How many permits, ≥ 1.
        at_once: Whether one can be had without waiting.
        run: What runs a scenario.
    """
    lanes = tuple(
        attrs.evolve(spec, max_concurrency=room) if spec.name == lane else spec
        for spec in scenario.lanes
    )
    narrow = run(attrs.evolve(scenario, lanes=lanes))
    limit = Shared((lane,), room=room, at_once=at_once)
    _require(
        _steps(run(attrs.evolve(scenario, shared=(limit,)))),
        _steps(narrow),
        f"requests with {room} permits for lane {lane!r}",
    )


def _steps(trace: Trace) -> list[Step]:
    return sorted((s.started_at, s.index, s.attempt, s.ended_at) for s in trace.calls)


def _bodies(trace: Trace) -> list[tuple[float, int, float]]:
    return sorted((span.started_at, span.index, span.ended_at) for span in trace.bodies)


def _emissions(trace: Trace) -> list[tuple[float, int, str]]:
    return [(e.at, e.outcome.index, type(e.outcome).__name__) for e in trace.emissions]


def _require(seen: object, right: object, what: str) -> None:
    if seen != right:
        msg = f"{what}: {_first_difference(seen, right)}"
        raise AssertionError(msg)


def _first_difference(seen: object, right: object) -> str:
    if isinstance(seen, list) and isinstance(right, list):
        for one, other in zip(seen, right, strict=False):
            if one != other:
                return f"{one} instead of {other}"
        return f"{len(seen)} instead of {len(right)}"
    return f"{seen} instead of {right}"
