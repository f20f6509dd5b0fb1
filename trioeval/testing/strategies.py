"""Hypothesis strategies for scenarios.

All times are multiples of a quarter second, small, and often equal: schedulers fail at ties. Rates are such
that their periods are multiples of a quarter too, so that laws can be checked exactly.
"""

import math
from collections.abc import Mapping
from functools import cache
from typing import Literal

import attrs
from hypothesis import strategies as st

from trioeval.errors import Fault
from trioeval.kernel import Adaptive, Edge, LaneSpec
from trioeval.testing.scenario import (
    Action,
    AttemptScript,
    CallScript,
    Caps,
    JobScript,
    Known,
    Pause,
    Retune,
    RunScenario,
    SharedLimitScript,
    Together,
)

some = st.sampled_from
"""One of several values."""

# Created once, or once for each set of names: to create and validate a strategy takes longer than to draw
# from it, and a scenario draws from dozens.
EITHER = st.booleans()
SERIAL = some((False,) * 7 + (True,))
LOOKS: st.SearchStrategy[Known | None] = some((None, "yes", "yes", "no", "fails"))
LEAVES = some((False, False, False, True))


@cache
def name_of(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    """One of several names."""
    return some(names)


@cache
def places(size: int) -> st.SearchStrategy[set[int]]:
    """At most two positions in a sequence."""
    return st.sets(st.integers(0, size - 1), max_size=2)


_NAMES = ("a", "b", "c")
_RATES = (None, 240.0, 120.0, 60.0, 30.0, 15.0)
_WHEN: st.SearchStrategy[Literal["success", "always"]] = some(("success", "success", "always"))
_ADAPTIVE: tuple[Adaptive, ...] = ("aimd", "aimd", "off", "latency")

durations = st.integers(0, 8).map(float) | st.integers(0, 16).map(lambda n: n / 4)
"""Seconds of a call or a pause."""

attempts = st.builds(
    AttemptScript,
    durations,
    some((None, *Fault, Fault.TRANSIENT, Fault.RATE_LIMITED, Fault.RATE_LIMITED)),
    some((None, None, 0.0, 1.25, 2.5, 5.0)),
    some((None, None, 0, 1)),
)
"""A request that succeeds, or fails in any of the ways that a lane distinguishes."""


_busy_attempts = st.builds(
    AttemptScript,
    st.integers(1, 16).map(lambda quarters: quarters / 4),
    some((None, None, Fault.TRANSIENT, *(Fault.RATE_LIMITED,) * 3, Fault.FATAL)),
    some((None, 1.25, 2.5)),
    some((None, 0)),
)


@cache
def lane_specs(name: str) -> st.SearchStrategy[LaneSpec]:
    """Lanes of small max concurrency, with or without a rate and a minimum gap, that do not adapt."""
    return st.builds(
        LaneSpec,
        st.just(name),
        st.integers(1, 4),
        rpm=some(_RATES),
        burst=st.integers(1, 3),
        min_gap=some((0.0, 0.0, 0.25, 1.0)),
    )


@cache
def learning_lane_specs(name: str) -> st.SearchStrategy[LaneSpec]:
    """Lanes with every setting that a lane can have."""
    some = st.sampled_from
    return st.builds(
        LaneSpec,
        st.just(name),
        st.integers(1, 8),
        rpm=some(_RATES),
        burst=st.integers(1, 3),
        tpm=some((None, None, 240.0, 60.0)),
        token_burst=some((0, 0, 4)),
        min_gap=some((0.0, 0.0, 0.25, 1.0)),
        adaptive=some(_ADAPTIVE),
        slow_start=st.booleans(),
        retries=st.integers(0, 3),
        max_retries=some((None, None, 0, 1, 4)),
        retry_delay=some((0.5, 0.0, 4.0)),
        refusal_delay=some((0.5, 0.5, 2.0)),
        max_retry_delay=some((60.0, 60.0, 3.0)),
        patience=some((300.0, 300.0, 8.0)),
        breaker_threshold=some((3, 3, 1)),
    )


_NEVER = (math.inf, math.inf)


@cache
def _calls(lanes: tuple[str, ...]) -> st.SearchStrategy[CallScript]:
    patience = some((math.inf, math.inf, 1.0, 2.5))
    fails = some((False, False, True))
    return st.builds(CallScript, some(lanes), durations, fails, patience)


@cache
def _more_actions(lanes: tuple[str, ...]) -> st.SearchStrategy[list[Action]]:
    action: st.SearchStrategy[Action] = st.one_of(
        _calls(lanes),
        st.builds(Pause, durations),
        st.builds(Together, st.lists(_calls(lanes), min_size=2, max_size=3).map(tuple)),
    )
    return st.lists(action, max_size=2)


@cache
def _first_calls(lanes: tuple[str, ...]) -> st.SearchStrategy[list[tuple[str, CallScript]]]:
    """The lanes of several jobs, each with a call on it."""
    return st.lists(
        st.builds(
            lambda lane, duration, fails: (lane, CallScript(lane, duration, fails)),
            name_of(lanes),
            durations,
            EITHER,
        ),
        max_size=14,
    )


_LANE_COUNT = st.integers(1, 3)
_ONE_OF_FIVE = st.integers(0, 4)
_JOB_TIMEOUTS = some((*_NEVER, 2.0, 5.0))
_RUN_DEADLINES = some((*_NEVER, 6.0, 15.0, 2.25))
_RUN_STOPS = some((*_NEVER, 4.0, 9.5))
_CANCELS = some((*_NEVER, math.inf, 5.0, 12.25))
_MOST_LIVE = some((256, 256, 1, 2, 3))


@st.composite
def scenarios(draw: st.DrawFn) -> RunScenario:
    """Several lanes, calls across them, timeouts, cuts, serial jobs; providers that never refuse."""
    names = _NAMES[: draw(_LANE_COUNT)]
    scripts = []
    for lane, call in draw(_first_calls(names)):
        # Most jobs begin with a call on their own lane; the others are unexpected there.
        more = draw(_more_actions(names))
        actions = (*more, call) if draw(_ONE_OF_FIVE) == 0 else (call, *more)
        scripts.append(JobScript(lane, actions, draw(_JOB_TIMEOUTS)))
    return RunScenario(
        lanes=tuple(draw(lane_specs(name)) for name in names),
        scripts=tuple(scripts),
        serial_indices=tuple(sorted(draw(places(len(scripts))))) if scripts else (),
        serial=draw(SERIAL),
        deadline=draw(_RUN_DEADLINES),
        stop_at=draw(_RUN_STOPS),
        cancel_at=draw(_CANCELS),
        max_live_jobs=draw(_MOST_LIVE),
    )


@cache
def _retunes(
    names: tuple[str, ...], changes: tuple[int | str, ...], most: int
) -> st.SearchStrategy[list[Retune]]:
    return st.lists(st.builds(Retune, durations, name_of(names), some(changes)), max_size=most)


_CASE_KEYS = some((None, None, None, "k", "m"))
_RARE_ROUNDS = some((0, 0, 1, 2))
_WINDOWS = some((None, None, None, 1, 2, 5))
_BUDGETS = some((None, None, None, Caps(requests=7), Caps(tokens=9), Caps(12, 20)))
_CAPS = some((None, None, None, 1, 2, 4))


@st.composite
def faulty_scenarios(draw: st.DrawFn) -> RunScenario:
    """Everything at once: providers that fail in every way, dependencies, keys, budgets, retuned lanes.

    Each part is drawn only sometimes, so that examples are small.
    """
    plain = draw(scenarios())
    lanes = tuple(draw(learning_lane_specs(lane.name)) for lane in plain.lanes)
    scripts = tuple(
        attrs.evolve(
            script,
            actions=tuple(_with_faults(draw, action) for action in script.actions),
            key=draw(_CASE_KEYS),
        )
        for script in plain.scripts
    )
    edges: Mapping[int, tuple[Edge, ...]] = {}
    if draw(EITHER):  # serial jobs could only depend on each other
        plain = attrs.evolve(plain, serial=False, serial_indices=())
        edges = _edges(draw, len(scripts))
    names = tuple(lane.name for lane in lanes)
    rarely = draw(_ONE_OF_FIVE) == 0
    paused = draw(_retunes(names, (1, 2, 6, "pause", "resume"), 3)) if rarely else []
    # A paused lane is resumed at last: a run that never ends shows nothing.
    paused += [Retune(40.0, name, "resume") for name in names if paused]
    return attrs.evolve(
        plain,
        lanes=lanes,
        scripts=scripts,
        edges=edges,
        salvage_rounds=draw(_RARE_ROUNDS),
        reorder_window=draw(_WINDOWS),
        budget=draw(_BUDGETS),
        cap=draw(_CAPS),
        retunes=tuple(paused),
    )


@st.composite
def no_lane_scenarios(draw: st.DrawFn) -> RunScenario:
    """The same, with jobs on no lane, and others that turn out to need none; half without dependencies."""
    scenario = draw(faulty_scenarios())
    looks = draw(EITHER)
    scripts = [
        attrs.evolve(
            script,
            lane=None if draw(LEAVES) else script.lane,
            known=draw(LOOKS) if looks else None,
        )
        for script in scenario.scripts
    ]
    if draw(EITHER):
        scripts = [attrs.evolve(script, key=None) for script in scripts]
        scenario = attrs.evolve(scenario, edges={}, salvage_rounds=0)
    return attrs.evolve(scenario, scripts=tuple(scripts))


@cache
def _wide_lanes(name: str) -> st.SearchStrategy[LaneSpec]:
    """Lanes on which several calls are in flight, and which learn."""
    some = st.sampled_from
    return st.builds(
        LaneSpec,
        st.just(name),
        st.integers(2, 6),
        rpm=some((None, None, None, 240.0)),
        tpm=some((None, None, 240.0)),
        adaptive=some(("aimd", "aimd", "off")),
        slow_start=some((False, False, True)),
        retries=st.integers(0, 2),
        max_retries=some((None, 1)),
        patience=some((300.0, 8.0)),
        breaker_threshold=some((3, 1)),
    )


@cache
def _jobs_of_shared_lanes(names: tuple[str, ...]) -> st.SearchStrategy[list[JobScript]]:
    calls = st.builds(
        CallScript,
        name_of(names),
        durations,
        patience=some((math.inf,) * 5 + (2.5,)),
        attempts=st.lists(_busy_attempts, max_size=3).map(tuple),
        tokens=some((0, 0, 1, 2)),
    )
    # Most jobs begin with a call on their own lane; some reach it only after the stop.
    before = some(((),) * 4 + ((Pause(1.5),), (Pause(4.5),)))
    together = st.builds(Together, st.lists(calls, min_size=2, max_size=2).map(tuple))
    more = st.lists(st.one_of(calls, calls, calls, together), max_size=1)
    jobs = st.builds(
        lambda lane, call, before, more, timeout: JobScript(
            lane, (*before, attrs.evolve(call, lane=lane), *more), timeout
        ),
        *(name_of(names), calls, before, more, some((math.inf,) * 3 + (5.0,))),
    )
    return st.lists(jobs, min_size=3, max_size=9)


@cache
def _shared_limits(names: tuple[str, ...]) -> st.SearchStrategy[SharedLimitScript]:
    return st.builds(
        SharedLimitScript,
        st.just(names),
        room=some((1, 2, 3, 9)),
        lasts=some((0.0, 2.5, 8.0)),
        delay=some((0.0, 0.25, 1.0, 2.5)),
        at_once=EITHER,
        most=some((None, None, None, 1)),
        silent=some((_NEVER, _NEVER, _NEVER, (2.0, 4.0))),
    )


_FEW_NAMES = some((1, 1, 2, 3))
_SHARED_DEADLINES = some((*_NEVER, 5.0, 10.0))
_SHARED_STOPS = some((*_NEVER, 4.0))
_SHARED_CANCELS = some((*_NEVER, math.inf, 5.0))
_SHARED_LIVE = some((256, 256, 2))
_SHARED_ROUNDS = some((0, 1))
_SHARED_BUDGETS = some((None, None, Caps(requests=5), Caps(tokens=4)))
_SHARED_CAPS = some((None, None, 1, 2))


@st.composite
def shared_scenarios(draw: st.DrawFn) -> RunScenario:
    """Limits that lanes share, under lanes that learn: many permits are requested while a lane changes."""
    names = _NAMES[: draw(_FEW_NAMES)]
    groups = [names[:2]] if draw(EITHER) else [(name,) for name in names]
    retunes = draw(_retunes(names, (1, 6, "pause", "resume"), 2))
    retunes += [Retune(40.0, name, "resume") for name in names if retunes]
    return RunScenario(
        lanes=tuple(draw(_wide_lanes(name)) for name in names),
        scripts=tuple(draw(_jobs_of_shared_lanes(names))),
        deadline=draw(_SHARED_DEADLINES),
        stop_at=draw(_SHARED_STOPS),
        cancel_at=draw(_SHARED_CANCELS),
        max_live_jobs=draw(_SHARED_LIVE),
        salvage_rounds=draw(_SHARED_ROUNDS),
        budget=draw(_SHARED_BUDGETS),
        cap=draw(_SHARED_CAPS),
        retunes=tuple(retunes),
        shared=tuple(draw(_shared_limits(lanes)) for lanes in groups),
    )


def _with_faults(draw: st.DrawFn, action: Action) -> Action:
    if isinstance(action, Together):
        calls = tuple(_faulty_call(draw, call) for call in action.calls)
        return Together(calls)
    return _faulty_call(draw, action) if isinstance(action, CallScript) else action


_ONE_OF_THREE = st.integers(0, 2)
_FAULTY_TOKENS = some((0, 1, 2, 6))
_FAULTY_ATTEMPTS = st.lists(attempts, max_size=4)


def _faulty_call(draw: st.DrawFn, call: CallScript) -> CallScript:
    if draw(_ONE_OF_THREE) == 0:
        return call
    tokens = draw(_FAULTY_TOKENS)
    several = tuple(
        attrs.evolve(one, tokens=None if one.tokens is None else min(one.tokens, tokens))
        for one in draw(_FAULTY_ATTEMPTS)
    )
    return attrs.evolve(call, attempts=several, tokens=tokens)


def _edges(draw: st.DrawFn, size: int) -> Mapping[int, tuple[Edge, ...]]:
    """Dependencies on earlier jobs."""
    edges = {}
    for index in range(1, size):
        on = draw(places(index))
        if draw(EITHER) and on:
            edges[index] = tuple(Edge(one, draw(_WHEN)) for one in sorted(on))
    return edges


@cache
def _simple_jobs(names: tuple[str, ...]) -> st.SearchStrategy[list[tuple[str, float]]]:
    return st.lists(st.tuples(name_of(names), durations), max_size=20)


@st.composite
def simple_scenarios(draw: st.DrawFn) -> RunScenario:
    """One call per job on its own lane, nothing that cuts or gates: the domain of EAGER and ISOLATION."""
    names = _NAMES[: draw(_LANE_COUNT)]
    jobs = draw(_simple_jobs(names))
    return RunScenario(
        lanes=tuple(draw(lane_specs(name)) for name in names),
        scripts=tuple(JobScript(lane, (CallScript(lane, duration),)) for lane, duration in jobs),
    )
