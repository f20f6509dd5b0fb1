"""Hypothesis strategies for scenarios.

All times are multiples of a quarter second, small, and often equal: ties are where schedulers err. Rates
are such that their periods are multiples of a quarter too, so that laws can be checked exactly.
"""

import math
from collections.abc import Mapping

import attrs
from hypothesis import strategies as st

from trioeval.faults import Fault
from trioeval.kernel import Adaptive, Backoff, Edge, LaneSpec
from trioeval.testing.scenario import (
    Action,
    Attempt,
    Call,
    Caps,
    Freedom,
    Pause,
    Retune,
    Scenario,
    Script,
    Shared,
    Together,
)

_NAMES = ("a", "b", "c")
_RATES = (None, 240.0, 120.0, 60.0, 30.0, 15.0)
_WHEN = st.sampled_from(("success", "success", "always"))
_ADAPTIVE: tuple[Adaptive, ...] = ("aimd", "aimd", "off", "latency")

durations = st.integers(0, 8).map(float) | st.integers(0, 16).map(lambda n: n / 4)
"""Seconds of a call or a pause."""

attempts = st.builds(
    Attempt,
    durations,
    st.sampled_from((None, *Fault, Fault.TRANSIENT, Fault.RATE_LIMITED, Fault.RATE_LIMITED)),
    st.sampled_from((None, None, 0.0, 1.25, 2.5, 5.0)),
    st.sampled_from((None, None, 0, 1)),
)
"""What one request does: it succeeds, or fails in any of the ways that a lane knows."""


_busy_attempts = st.builds(
    Attempt,
    st.integers(1, 16).map(lambda quarters: quarters / 4),
    st.sampled_from((None, None, Fault.TRANSIENT, *(Fault.RATE_LIMITED,) * 3, Fault.FATAL)),
    st.sampled_from((None, 1.25, 2.5)),
    st.sampled_from((None, 0)),
)


def lane_specs(name: str) -> st.SearchStrategy[LaneSpec]:
    """Lanes of small width, with or without a rate and a least gap, that do not adapt."""
    return st.builds(
        LaneSpec,
        st.just(name),
        st.integers(1, 4),
        rpm=st.sampled_from(_RATES),
        burst=st.integers(1, 3),
        min_gap=st.sampled_from((0.0, 0.0, 0.25, 1.0)),
    )


def learning_lane_specs(name: str) -> st.SearchStrategy[LaneSpec]:
    """Lanes with everything that a lane can have."""
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
        backoff=some((Backoff(), Backoff(base=0.0), Backoff(base=4.0))),
        busy_backoff=some((Backoff(), Backoff(base=0.5))),
        patience=some((300.0, 300.0, 8.0)),
        breaker_threshold=some((3, 3, 1)),
    )


_NEVER = (math.inf, math.inf)
_FREEDOMS = st.sampled_from(
    (
        None,
        Freedom(),
        Freedom(after=0.25),
        Freedom(after=2.5),
        Freedom(says=False),
        Freedom(says=False, after=1.0),
        Freedom(fails=True),
    )
)


def _calls(lanes: tuple[str, ...]) -> st.SearchStrategy[Call]:
    patience = st.sampled_from((math.inf, math.inf, 1.0, 2.5))
    fails = st.sampled_from((False, False, True))
    return st.builds(Call, st.sampled_from(lanes), durations, fails, patience)


def _actions(lanes: tuple[str, ...]) -> st.SearchStrategy[Action]:
    return st.one_of(
        _calls(lanes),
        st.builds(Pause, durations),
        st.builds(Together, st.lists(_calls(lanes), min_size=2, max_size=3).map(tuple)),
    )


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Several lanes, calls across them, timeouts, cuts, serial jobs; providers that never complain."""
    names = _NAMES[: draw(st.integers(1, 3))]
    own = st.sampled_from(names)
    first = st.builds(
        lambda lane, duration, fails: (lane, Call(lane, duration, fails)),
        own,
        durations,
        st.booleans(),
    )
    scripts = []
    for lane, call in draw(st.lists(first, max_size=14)):
        # Most jobs begin with a call on their own lane; the others surprise it.
        more = draw(st.lists(_actions(names), max_size=2))
        actions = (*more, call) if draw(st.integers(0, 4)) == 0 else (call, *more)
        scripts.append(Script(lane, actions, draw(st.sampled_from((math.inf, math.inf, 2.0, 5.0)))))
    some = st.sampled_from
    return Scenario(
        lanes=tuple(draw(lane_specs(name)) for name in names),
        scripts=tuple(scripts),
        serial_indices=tuple(
            sorted(draw(st.sets(st.integers(0, len(scripts) - 1), max_size=2))) if scripts else ()
        ),
        serial=draw(some((False,) * 7 + (True,))),
        deadline=draw(some((math.inf, math.inf, 6.0, 15.0, 2.25))),
        stop_at=draw(some((math.inf, math.inf, 4.0, 9.5))),
        cancel_at=draw(some((math.inf, math.inf, math.inf, 5.0, 12.25))),
        max_live_jobs=draw(some((256, 256, 1, 2, 3))),
    )


@st.composite
def faulty_scenarios(draw: st.DrawFn) -> Scenario:
    """Everything at once: providers that fail in every way, dependencies, keys, budgets, retuned lanes.

    Each part is drawn only sometimes, so that what is found is small.
    """
    plain = draw(scenarios())
    lanes = tuple(draw(learning_lane_specs(lane.name)) for lane in plain.lanes)
    scripts = tuple(
        attrs.evolve(
            script,
            actions=tuple(_with_faults(draw, action) for action in script.actions),
            key=draw(st.sampled_from((None, None, None, "k", "m"))),
        )
        for script in plain.scripts
    )
    some = st.sampled_from
    edges: Mapping[int, tuple[Edge, ...]] = {}
    if draw(st.booleans()):  # serial jobs would only depend on each other
        plain = attrs.evolve(plain, serial=False, serial_indices=())
        edges = _edges(draw, len(scripts))
    names = tuple(lane.name for lane in lanes)
    retune = st.builds(Retune, durations, some(names), some((1, 2, 6, "pause", "resume")))
    paused = draw(st.lists(retune, max_size=3)) if draw(st.integers(0, 4)) == 0 else []
    # What is paused is resumed at last: a run that waits for ever tells nothing.
    paused += [Retune(40.0, name, "resume") for name in names if paused]
    return attrs.evolve(
        plain,
        lanes=lanes,
        scripts=scripts,
        edges=edges,
        salvage_rounds=draw(some((0, 0, 1, 2))),
        reorder_window=draw(some((None, None, None, 1, 2, 5))),
        budget=draw(some((None, None, None, Caps(requests=7), Caps(tokens=9), Caps(12, 20)))),
        cap=draw(some((None, None, None, 1, 2, 4))),
        retunes=tuple(paused),
    )


@st.composite
def free_scenarios(draw: st.DrawFn) -> Scenario:
    """The same, with jobs that are asked whether they need their lane; half of them without an order."""
    scenario = draw(faulty_scenarios())
    scripts = [attrs.evolve(script, free=draw(_FREEDOMS)) for script in scenario.scripts]
    if draw(st.booleans()):
        scripts = [attrs.evolve(script, key=None) for script in scripts]
        scenario = attrs.evolve(scenario, edges={}, salvage_rounds=0)
    return attrs.evolve(scenario, scripts=tuple(scripts))


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


@st.composite
def shared_scenarios(draw: st.DrawFn) -> Scenario:
    """Limits that lanes share, under lanes that learn: much is asked for while a lane changes its mind."""
    some, names = st.sampled_from, _NAMES[: draw(st.sampled_from((1, 1, 2, 3)))]
    groups = [names[:2]] if draw(st.booleans()) else [(name,) for name in names]
    calls = st.builds(
        Call,
        some(names),
        durations,
        patience=some((math.inf,) * 5 + (2.5,)),
        attempts=st.lists(_busy_attempts, max_size=3).map(tuple),
        tokens=some((0, 0, 1, 2)),
    )
    # Most jobs begin with a call on their own lane; some come to it only after the stop.
    before = some(((),) * 4 + ((Pause(1.5),), (Pause(4.5),)))
    together = st.builds(Together, st.lists(calls, min_size=2, max_size=2).map(tuple))
    more = st.lists(st.one_of(calls, calls, calls, together), max_size=1)
    jobs = st.tuples(some(names), calls, before, more, some((math.inf,) * 3 + (5.0,)))
    retune = st.builds(Retune, durations, some(names), some((1, 6, "pause", "resume")))
    retunes = draw(st.lists(retune, max_size=2))
    retunes += [Retune(40.0, name, "resume") for name in names if retunes]
    return Scenario(
        lanes=tuple(draw(_wide_lanes(name)) for name in names),
        scripts=tuple(
            Script(lane, (*before, attrs.evolve(call, lane=lane), *more), timeout)
            for lane, call, before, more, timeout in draw(st.lists(jobs, min_size=3, max_size=9))
        ),
        deadline=draw(some((math.inf, math.inf, 5.0, 10.0))),
        stop_at=draw(some((math.inf, math.inf, 4.0))),
        cancel_at=draw(some((math.inf, math.inf, math.inf, 5.0))),
        max_live_jobs=draw(some((256, 256, 2))),
        salvage_rounds=draw(some((0, 1))),
        budget=draw(some((None, None, Caps(requests=5), Caps(tokens=4)))),
        cap=draw(some((None, None, 1, 2))),
        retunes=tuple(retunes),
        shared=tuple(
            Shared(
                lanes,
                room=draw(some((1, 2, 3, 9))),
                lasts=draw(some((0.0, 2.5, 8.0))),
                delay=draw(some((0.0, 0.25, 1.0, 2.5))),
                at_once=draw(st.booleans()),
                most=draw(some((None, None, None, 1))),
                silent=draw(some((_NEVER, _NEVER, _NEVER, (2.0, 4.0)))),
            )
            for lanes in groups
        ),
    )


def _with_faults(draw: st.DrawFn, action: Action) -> Action:
    if isinstance(action, Together):
        calls = tuple(_faulty_call(draw, call) for call in action.calls)
        return Together(calls)
    return _faulty_call(draw, action) if isinstance(action, Call) else action


def _faulty_call(draw: st.DrawFn, call: Call) -> Call:
    if draw(st.integers(0, 2)) == 0:
        return call
    tokens = draw(st.sampled_from((0, 1, 2, 6)))
    several = tuple(
        attrs.evolve(one, tokens=None if one.tokens is None else min(one.tokens, tokens))
        for one in draw(st.lists(attempts, max_size=4))
    )
    return attrs.evolve(call, attempts=several, tokens=tokens)


def _edges(draw: st.DrawFn, size: int) -> Mapping[int, tuple[Edge, ...]]:
    """Dependencies on earlier jobs."""
    edges = {}
    for index in range(1, size):
        on = draw(st.sets(st.integers(0, index - 1), max_size=2))
        if draw(st.booleans()) and on:
            edges[index] = tuple(draw(st.builds(Edge, st.just(one), _WHEN)) for one in sorted(on))
    return edges


@st.composite
def simple_scenarios(draw: st.DrawFn) -> Scenario:
    """One call a job on its own lane, nothing that cuts or gates: what EAGER and ISOLATION speak of."""
    names = _NAMES[: draw(st.integers(1, 3))]
    jobs = draw(st.lists(st.tuples(st.sampled_from(names), durations), max_size=20))
    return Scenario(
        lanes=tuple(draw(lane_specs(name)) for name in names),
        scripts=tuple(Script(lane, (Call(lane, duration),)) for lane, duration in jobs),
    )
