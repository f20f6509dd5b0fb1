"""Hypothesis strategies for scenarios.

All times are multiples of a quarter second, small, and often equal: schedulers fail at ties. Rates are such
that their periods are multiples of a quarter too, so that laws can be checked exactly.
"""

import math
from collections.abc import Collection, Mapping

import attrs
from hypothesis import strategies as st

from trioeval.errors import Fault
from trioeval.kernel import Adaptive, Edge, LaneSpec
from trioeval.rates import Allowance, RateHint
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

# Hypothesis strategies for the scenarios that the reference scheduler covers.
#
# A comparison start by start is only fair where the rules leave nothing open, and they leave open which of
# two events of one instant comes first. So every duration and timeout has its own fraction, far finer than
# the quarters on which rates and instants lie: two jobs that start together do not end together.


_GRAIN = 2**20  # small enough that sums of many fractions are exact
_MOST_ATTEMPTS = 4
_MOST_BUSY_JOBS = 48
_SPREAD = 95 / 256  # no back-off is a whole number of quarters
_some = st.sampled_from


# Created once: strategies are slow to create, and a scenario draws from dozens.
_ENDLESS = (math.inf,) * 3
_LANES = _some((("a",), ("a",), ("a", "b"), ("a", "b", "c")))
_KEYS = _some((None, None, None, "x", "y"))
_FAILS = _some((False,) * 5 + (True,))
_TIMEOUTS = _some((*_ENDLESS, 1.0, 3.0, 6.0))
_DEADLINES = _some((*_ENDLESS, 2.25, 9.5, 20.0))
_STOPS = _some((*_ENDLESS, 1.25, 8.0, 16.5))
_LIVE = _some((256, 256, 1, 2))
_SERIAL = _some((False,) * 7 + (True,))
_ROUNDS = st.integers(0, 2)
_TOKENS = st.integers(0, 8)
_USED = _some((None, None, 0, 2, 5, 8))
_SECONDS = st.integers(0, 6)
_HINTS = _some((None, None, 1.25, 2.5, 5.0))
_FAULTS = st.lists(
    _some((Fault.TRANSIENT,) * 2 + (Fault.RATE_LIMITED,) * 2 + (Fault.REFUSED,)),
    max_size=_MOST_ATTEMPTS,
)
_DEPENDS = _some((False, False, True))
_ASKED = _some((False, True))
_LOOKS: st.SearchStrategy[Known | None] = _some((None, "yes", "yes", "no", "fails"))
_LEAVES = _some((False, False, False, True))
_ALWAYS = _some((False, False, True))
_BUSY = st.lists(_some((None, Fault.RATE_LIMITED)), max_size=2)
_WILD: st.SearchStrategy[list[Fault | None]] = st.lists(
    _some((Fault.TRANSIENT, Fault.RATE_LIMITED, Fault.RATE_LIMITED, Fault.REFUSED, Fault.FATAL)),
    max_size=3,
)
_NO_WAIT = st.none()
_ASKS_FOR = _some((None, None, 0.0, 1.25, 2.5, 40.0))
_SHORT_WAIT = _some((None, 0.25, 0.5, 0.5, 1.25))
_FEW = st.integers(2, 6)
_SIZES = _some((2, 8, 16, 32, _MOST_BUSY_JOBS, _MOST_BUSY_JOBS))
_BRIEF = _some((0, 0, 0, 1, 2))
_LEFT = st.builds(
    Allowance,
    limit=_some((None, 500.0, 120.0, 60.0, 40.0)),
    remaining=_some((None, 0.0, 0.0, 1.0, 3.0, 40.0)),
    reset_after=_some((None, 2.0, 0.5, 10.0, 90.0)),
)
_REPLIES = st.none() | st.builds(RateHint, st.none() | _LEFT, st.none() | _LEFT)
_SILENT = st.none()
_CALM: st.SearchStrategy[list[Fault | None]] = st.just([])


def _fixed_lanes(name: str, *, failures: bool) -> st.SearchStrategy[LaneSpec]:
    return st.builds(
        LaneSpec,
        st.just(name),
        st.integers(1, 4),
        rpm=_some((None, None, None, 240.0, 60.0, 30.0)),
        burst=st.integers(1, 3),
        tpm=_some((None, None, None, 960.0, 240.0)),
        min_gap=_some((0.0, 0.0, 0.0, 0.25, 1.0)),
        adaptive=st.just("off"),
        retries=_some((0, 0, 0, 1, 3)) if failures else st.just(0),
        max_retries=_some((None, None, None, 0, 1, 3)) if failures else st.none(),
        patience=st.just(math.inf),
    )


_SPECS = {
    (name, failures): _fixed_lanes(name, failures=failures)
    for name in "abc"
    for failures in (False, True)
}


_PLAIN_ADAPTIVE = {
    name: st.builds(
        LaneSpec,
        st.just(name),
        st.integers(1, 6),
        rpm=_some((None, None, None, None, 240.0)),
        adaptive=_some(("aimd", "aimd", "aimd", "off")),
        slow_start=_some((False, False, True)),
        retries=_some((1, 3)),
        patience=_some((math.inf, math.inf, 60.0, 30.0, 6.0)),
        breaker_threshold=st.integers(1, 3),
    )
    for name in "ab"
}


@st.composite
def adaptive_scenarios(
    draw: st.DrawFn, *, hints: bool = True, wild: bool = True, tied: bool = False
) -> RunScenario:
    """Plain runs on lanes that adapt to refusals, that get hints, and that may be closed.

    Refusals are few and jobs many, so that a cut limit grows again.

    Args:
        draw: Passed by hypothesis.
        hints: With replies that report what is left.
        wild: With transient failures, permanent refusals and long waits, which close lanes.
        tied: With few calls that take whole seconds, so that many of them start and end at one instant.
    """
    lanes = tuple(draw(_PLAIN_ADAPTIVE[name]) for name in draw(_some((("a",), ("a",), ("a", "b")))))
    own = _some(lanes)
    size = draw(_FEW if tied else _SIZES)
    # Later calls mostly succeed, so that the limit grows again or a rate is found.
    busy = draw(st.integers(0, size // 3) | st.just(size))
    faults = _WILD if wild else _BUSY
    waits = _ASKS_FOR if wild else draw(_some((_NO_WAIT, _NO_WAIT, _SHORT_WAIT)))
    replies = _REPLIES if hints and draw(st.booleans()) else _SILENT
    return RunScenario(
        lanes=lanes,
        scripts=tuple(
            _busy_script(
                draw,
                None if tied else index,
                draw(own).name,
                fails=faults if index < busy else _CALM,
                waits=waits,
                replies=replies,
            )
            for index in range(size)
        ),
        deadline=math.inf if tied else draw(_some((*_ENDLESS, 20.0))),
        stop_at=math.inf if tied else draw(_some((*_ENDLESS, 8.0))),
        salvage_rounds=draw(_ROUNDS) if wild else 0,
        spread=0.5 if tied else _SPREAD,
    )


def _busy_script(
    draw: st.DrawFn,
    index: int | None,
    lane: str,
    *,
    fails: st.SearchStrategy[list[Fault | None]],
    waits: st.SearchStrategy[float | None],
    replies: st.SearchStrategy[RateHint | None],
) -> JobScript:
    """Draw a job that is served at last, unless it fails permanently; without an index its calls are tied."""
    faults = [fault for fault in draw(fails) if fault is not None]
    lasting = faults and faults[-1] is not Fault.RATE_LIMITED
    ends: tuple[Fault | None, ...] = tuple(faults)
    if not lasting or draw(st.booleans()):
        ends = (*faults, None)
    attempts = tuple(
        AttemptScript(
            draw(_BRIEF) + (1.0 if index is None else _fraction(index, number + 1)),
            fault,
            None if fault is None else draw(waits),
            hint=draw(replies),
        )
        for number, fault in enumerate(ends)
    )
    timeout = math.inf if index is None else draw(_TIMEOUTS) + 1
    return JobScript(lane, (CallScript(lane, 0.0, attempts=attempts),), timeout)


@st.composite
def plain_scenarios(
    draw: st.DrawFn, *, failures: bool = True, order: bool = True, max_size: int = 14
) -> RunScenario:
    """Runs whose every step is determined by the rules, except for rare ties.

    Args:
        draw: Passed by hypothesis.
        failures: With calls that fail and are retried, and with salvage rounds.
        order: With serial jobs, keys and edges.
        max_size: The largest number of jobs.
    """
    lanes = tuple(draw(_SPECS[name, failures]) for name in draw(_LANES))
    own = _some(lanes)
    size = draw(_some(range(max_size + 1)))
    scripts = tuple(
        _script(draw, index, draw(own), failures=failures, order=order) for index in range(size)
    )
    if draw(_ASKED):
        scripts = tuple(_looked_at(draw, index, script) for index, script in enumerate(scripts))
    serial = order and draw(_SERIAL)
    alone: tuple[int, ...] = ()
    if order and size and not serial:
        alone = tuple(sorted(draw(st.sets(st.integers(0, size - 1), max_size=2))))
    return RunScenario(
        lanes=lanes,
        scripts=scripts,
        serial_indices=alone,
        serial=serial,
        deadline=draw(_DEADLINES),
        stop_at=draw(_STOPS),
        max_live_jobs=draw(_LIVE),
        edges=_plain_edges(draw, size, alone) if order else {},
        salvage_rounds=draw(_ROUNDS) if failures and not alone and not serial else 0,
        spread=_SPREAD,
    )


def _script(
    draw: st.DrawFn, index: int, lane: LaneSpec, *, failures: bool, order: bool
) -> JobScript:
    faults: list[Fault | None] = [*draw(_FAULTS)] if failures else []
    endless = lane.max_retries is None and faults[-1:] == [Fault.RATE_LIMITED]
    if endless or not faults or (len(faults) < _MOST_ATTEMPTS and draw(st.booleans())):
        faults = [*faults[: _MOST_ATTEMPTS - 1], None]
    attempts = tuple(
        AttemptScript(
            draw(_SECONDS) + _fraction(index, number + 1),
            fault,
            None if fault is None else draw(_HINTS),
            draw(_USED),
        )
        for number, fault in enumerate(faults)
    )
    call = CallScript(lane.name, 0.0, draw(_FAILS), attempts=attempts, tokens=draw(_TOKENS))
    timeout = draw(_TIMEOUTS) + _fraction(index, 0)
    return JobScript(lane.name, (call,), timeout, draw(_KEYS) if order else None)


def _looked_at(draw: st.DrawFn, index: int, script: JobScript) -> JobScript:
    """Return the same job, on no lane or found to need none: such a job makes no call."""
    known, leaves = draw(_LOOKS), draw(_LEAVES)
    if not leaves and known != "yes":
        return attrs.evolve(script, known=known)
    pause: Action = Pause(draw(_SECONDS) + _fraction(index, 1))
    return attrs.evolve(script, lane=None if leaves else script.lane, known=known, actions=(pause,))


def _plain_edges(draw: st.DrawFn, size: int, alone: Collection[int]) -> dict[int, tuple[Edge, ...]]:
    """Draw dependencies on earlier jobs; serial jobs have none, as they may only depend on serial ones."""
    edges = {}
    for index in range(1, size):
        if index not in alone and draw(_DEPENDS):
            several = {draw(st.integers(0, index - 1)) for _ in range(2)}
            edges[index] = tuple(
                Edge(on, "always" if draw(_ALWAYS) else "success") for on in sorted(several)
            )
    return edges


def _fraction(index: int, number: int) -> float:
    """Return a fraction of a quarter for one property of a job. Cubes: no two of them sum up to a third."""
    place = index * (_MOST_ATTEMPTS + 1) + number + 1
    return (place**3 * 40_503 % (_GRAIN // 4) + 1) / _GRAIN


_NAMES = ("a", "b", "c")
_RATES = (None, 240.0, 120.0, 60.0, 30.0, 15.0)
_WHEN = st.sampled_from(("success", "success", "always"))
_ADAPTIVE: tuple[Adaptive, ...] = ("aimd", "aimd", "off", "latency")

durations = st.integers(0, 8).map(float) | st.integers(0, 16).map(lambda n: n / 4)
"""Seconds of a call or a pause."""

attempts = st.builds(
    AttemptScript,
    durations,
    st.sampled_from((None, *Fault, Fault.TRANSIENT, Fault.RATE_LIMITED, Fault.RATE_LIMITED)),
    st.sampled_from((None, None, 0.0, 1.25, 2.5, 5.0)),
    st.sampled_from((None, None, 0, 1)),
)
"""A request that succeeds, or fails in any of the ways that a lane distinguishes."""


_busy_attempts = st.builds(
    AttemptScript,
    st.integers(1, 16).map(lambda quarters: quarters / 4),
    st.sampled_from((None, None, Fault.TRANSIENT, *(Fault.RATE_LIMITED,) * 3, Fault.FATAL)),
    st.sampled_from((None, 1.25, 2.5)),
    st.sampled_from((None, 0)),
)


def lane_specs(name: str) -> st.SearchStrategy[LaneSpec]:
    """Lanes of small max concurrency, with or without a rate and a minimum gap, that do not adapt."""
    return st.builds(
        LaneSpec,
        st.just(name),
        st.integers(1, 4),
        rpm=st.sampled_from(_RATES),
        burst=st.integers(1, 3),
        min_gap=st.sampled_from((0.0, 0.0, 0.25, 1.0)),
    )


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


def _calls(lanes: tuple[str, ...]) -> st.SearchStrategy[CallScript]:
    patience = st.sampled_from((math.inf, math.inf, 1.0, 2.5))
    fails = st.sampled_from((False, False, True))
    return st.builds(CallScript, st.sampled_from(lanes), durations, fails, patience)


def _actions(lanes: tuple[str, ...]) -> st.SearchStrategy[Action]:
    return st.one_of(
        _calls(lanes),
        st.builds(Pause, durations),
        st.builds(Together, st.lists(_calls(lanes), min_size=2, max_size=3).map(tuple)),
    )


@st.composite
def scenarios(draw: st.DrawFn) -> RunScenario:
    """Several lanes, calls across them, timeouts, cuts, serial jobs; providers that never refuse."""
    names = _NAMES[: draw(st.integers(1, 3))]
    own = st.sampled_from(names)
    first = st.builds(
        lambda lane, duration, fails: (lane, CallScript(lane, duration, fails)),
        own,
        durations,
        st.booleans(),
    )
    scripts = []
    for lane, call in draw(st.lists(first, max_size=14)):
        # Most jobs begin with a call on their own lane; the others are unexpected there.
        more = draw(st.lists(_actions(names), max_size=2))
        actions = (*more, call) if draw(st.integers(0, 4)) == 0 else (call, *more)
        scripts.append(
            JobScript(lane, actions, draw(st.sampled_from((math.inf, math.inf, 2.0, 5.0))))
        )
    some = st.sampled_from
    return RunScenario(
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
            key=draw(st.sampled_from((None, None, None, "k", "m"))),
        )
        for script in plain.scripts
    )
    some = st.sampled_from
    edges: Mapping[int, tuple[Edge, ...]] = {}
    if draw(st.booleans()):  # serial jobs could only depend on each other
        plain = attrs.evolve(plain, serial=False, serial_indices=())
        edges = _edges(draw, len(scripts))
    names = tuple(lane.name for lane in lanes)
    retune = st.builds(Retune, durations, some(names), some((1, 2, 6, "pause", "resume")))
    paused = draw(st.lists(retune, max_size=3)) if draw(st.integers(0, 4)) == 0 else []
    # A paused lane is resumed at last: a run that never ends shows nothing.
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
def no_lane_scenarios(draw: st.DrawFn) -> RunScenario:
    """The same, with jobs on no lane, and others that turn out to need none; half without dependencies."""
    scenario = draw(faulty_scenarios())
    looks = draw(st.booleans())
    scripts = [
        attrs.evolve(
            script,
            lane=None if draw(_LEAVES) else script.lane,
            known=draw(_LOOKS) if looks else None,
        )
        for script in scenario.scripts
    ]
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
def shared_scenarios(draw: st.DrawFn) -> RunScenario:
    """Limits that lanes share, under lanes that learn: many permits are requested while a lane changes."""
    some, names = st.sampled_from, _NAMES[: draw(st.sampled_from((1, 1, 2, 3)))]
    groups = [names[:2]] if draw(st.booleans()) else [(name,) for name in names]
    calls = st.builds(
        CallScript,
        some(names),
        durations,
        patience=some((math.inf,) * 5 + (2.5,)),
        attempts=st.lists(_busy_attempts, max_size=3).map(tuple),
        tokens=some((0, 0, 1, 2)),
    )
    # Most jobs begin with a call on their own lane; some reach it only after the stop.
    before = some(((),) * 4 + ((Pause(1.5),), (Pause(4.5),)))
    together = st.builds(Together, st.lists(calls, min_size=2, max_size=2).map(tuple))
    more = st.lists(st.one_of(calls, calls, calls, together), max_size=1)
    jobs = st.tuples(some(names), calls, before, more, some((math.inf,) * 3 + (5.0,)))
    retune = st.builds(Retune, durations, some(names), some((1, 6, "pause", "resume")))
    retunes = draw(st.lists(retune, max_size=2))
    retunes += [Retune(40.0, name, "resume") for name in names if retunes]
    return RunScenario(
        lanes=tuple(draw(_wide_lanes(name)) for name in names),
        scripts=tuple(
            JobScript(lane, (*before, attrs.evolve(call, lane=lane), *more), timeout)
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
            SharedLimitScript(
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
    return _faulty_call(draw, action) if isinstance(action, CallScript) else action


def _faulty_call(draw: st.DrawFn, call: CallScript) -> CallScript:
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
def simple_scenarios(draw: st.DrawFn) -> RunScenario:
    """One call per job on its own lane, nothing that cuts or gates: the domain of EAGER and ISOLATION."""
    names = _NAMES[: draw(st.integers(1, 3))]
    jobs = draw(st.lists(st.tuples(st.sampled_from(names), durations), max_size=20))
    return RunScenario(
        lanes=tuple(draw(lane_specs(name)) for name in names),
        scripts=tuple(JobScript(lane, (CallScript(lane, duration),)) for lane, duration in jobs),
    )
