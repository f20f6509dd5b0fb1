"""Hypothesis strategies for scenarios.

All times are multiples of a quarter second, small, and often equal: ties are where schedulers err. Rates
are such that their periods are multiples of a quarter too, so that laws can be checked exactly.
"""

import math

from hypothesis import strategies as st

from trioeval.kernel import LaneSpec
from trioeval.testing.scenario import Action, Call, Pause, Scenario, Script, Together

_NAMES = ("a", "b", "c")
_RPMS = (None, 240.0, 120.0, 60.0, 30.0, 15.0)

durations = st.integers(0, 8).map(float) | st.integers(0, 16).map(lambda n: n / 4)
"""Seconds of a call or a pause."""


def lane_specs(name: str) -> st.SearchStrategy[LaneSpec]:
    """Lanes of small width, with or without a rate and a least gap."""
    return st.builds(
        LaneSpec,
        st.just(name),
        st.integers(1, 4),
        rpm=st.sampled_from(_RPMS),
        burst=st.integers(1, 3),
        min_gap=st.sampled_from((0.0, 0.0, 0.25, 1.0)),
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
    """Anything that can befall a run: several lanes, calls across them, timeouts, cuts, serial jobs."""
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
def simple_scenarios(draw: st.DrawFn) -> Scenario:
    """One call a job on its own lane, nothing that cuts or gates: what EAGER and ISOLATION speak of."""
    names = _NAMES[: draw(st.integers(1, 3))]
    jobs = draw(st.lists(st.tuples(st.sampled_from(names), durations), max_size=20))
    return Scenario(
        lanes=tuple(draw(lane_specs(name)) for name in names),
        scripts=tuple(Script(lane, (Call(lane, duration),)) for lane, duration in jobs),
    )
