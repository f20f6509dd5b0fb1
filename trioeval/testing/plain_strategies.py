"""Hypothesis strategies for the scenarios that the reference scheduler covers.

A comparison start by start is only fair where the rules leave nothing open, and they leave open which of two
events of one instant comes first. So every duration and timeout has its own fraction, far finer than the
quarters on which rates and instants lie: two jobs that start together do not end together.
"""

import math
from collections.abc import Collection
from functools import cache

import attrs
from hypothesis import strategies as st

from trioeval.errors import Fault
from trioeval.kernel import Edge, LaneSpec
from trioeval.rates import Allowance, RateHint
from trioeval.testing.scenario import (
    Action,
    AttemptScript,
    CallScript,
    JobScript,
    Pause,
    RunScenario,
)
from trioeval.testing.strategies import EITHER, LEAVES, LOOKS, SERIAL, places, some


@cache
def _place(size: int) -> st.SearchStrategy[int]:
    """A position in a sequence."""
    return some(range(size))


_GRAIN = 2**20  # small enough that sums of many fractions are exact
_MOST_ATTEMPTS = 4
_MOST_BUSY_JOBS = 48
_SPREAD = 95 / 256  # no back-off is a whole number of quarters


_ENDLESS = (math.inf,) * 3
_LANES = some((("a",), ("a",), ("a", "b"), ("a", "b", "c")))
_FEW_LANES = some((("a",), ("a",), ("a", "b")))
_KEYS = some((None, None, None, "x", "y"))
_FAILS = some((False,) * 5 + (True,))
_TIMEOUTS = some((*_ENDLESS, 1.0, 3.0, 6.0))
_DEADLINES = some((*_ENDLESS, 2.25, 9.5, 20.0))
_STOPS = some((*_ENDLESS, 1.25, 8.0, 16.5))
_LATE = some((*_ENDLESS, 20.0))
_LATE_STOPS = some((*_ENDLESS, 8.0))
_LIVE = some((256, 256, 1, 2))
_ROUNDS = st.integers(0, 2)
_TOKENS = st.integers(0, 8)
_USED = some((None, None, 0, 2, 5, 8))
_SECONDS = st.integers(0, 6)
_HINTS = some((None, None, 1.25, 2.5, 5.0))
_FAULTS = st.lists(
    some((Fault.TRANSIENT,) * 2 + (Fault.RATE_LIMITED,) * 2 + (Fault.REFUSED,)),
    max_size=_MOST_ATTEMPTS,
)
_DEPENDS = some((False, False, True))
_ASKED = some((False, True))
_ALWAYS = some((False, False, True))
_BUSY = st.lists(some((None, Fault.RATE_LIMITED)), max_size=2)
_WILD: st.SearchStrategy[list[Fault | None]] = st.lists(
    some((Fault.TRANSIENT, Fault.RATE_LIMITED, Fault.RATE_LIMITED, Fault.REFUSED, Fault.FATAL)),
    max_size=3,
)
_NO_WAIT = st.none()
_ASKS_FOR = some((None, None, 0.0, 1.25, 2.5, 40.0))
_SHORT_WAIT = some((None, 0.25, 0.5, 0.5, 1.25))
_BUSY_WAITS = some((_NO_WAIT, _NO_WAIT, _SHORT_WAIT))
_FEW = st.integers(2, 6)
_SIZES = some((2, 8, 16, 32, _MOST_BUSY_JOBS, _MOST_BUSY_JOBS))
_BRIEF = some((0, 0, 0, 1, 2))
_LEFT = st.builds(
    Allowance,
    limit=some((None, 500.0, 120.0, 60.0, 40.0)),
    remaining=some((None, 0.0, 0.0, 1.0, 3.0, 40.0)),
    reset_after=some((None, 2.0, 0.5, 10.0, 90.0)),
)
_REPLIES = st.none() | st.builds(RateHint, st.none() | _LEFT, st.none() | _LEFT)
_SILENT = st.none()
_CALM: st.SearchStrategy[list[Fault | None]] = st.just([])


def _fixed_lanes(name: str, *, failures: bool) -> st.SearchStrategy[LaneSpec]:
    return st.builds(
        LaneSpec,
        st.just(name),
        st.integers(1, 4),
        rpm=some((None, None, None, 240.0, 60.0, 30.0)),
        burst=st.integers(1, 3),
        tpm=some((None, None, None, 960.0, 240.0)),
        min_gap=some((0.0, 0.0, 0.0, 0.25, 1.0)),
        adaptive=st.just("off"),
        retries=some((0, 0, 0, 1, 3)) if failures else st.just(0),
        max_retries=some((None, None, None, 0, 1, 3)) if failures else st.none(),
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
        rpm=some((None, None, None, None, 240.0)),
        adaptive=some(("aimd", "aimd", "aimd", "off")),
        slow_start=some((False, False, True)),
        retries=some((1, 3)),
        patience=some((math.inf, math.inf, 60.0, 30.0, 6.0)),
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
    lanes = tuple(draw(_PLAIN_ADAPTIVE[name]) for name in draw(_FEW_LANES))
    own = _place(len(lanes))
    size = draw(_FEW if tied else _SIZES)
    # Later calls mostly succeed, so that the limit grows again or a rate is found.
    busy = draw(_busy_jobs(size))
    faults = _WILD if wild else _BUSY
    waits = _ASKS_FOR if wild else draw(_BUSY_WAITS)
    replies = _REPLIES if hints and draw(EITHER) else _SILENT
    return RunScenario(
        lanes=lanes,
        scripts=tuple(
            _busy_script(
                draw,
                None if tied else index,
                lanes[draw(own)].name,
                fails=faults if index < busy else _CALM,
                waits=waits,
                replies=replies,
            )
            for index in range(size)
        ),
        deadline=math.inf if tied else draw(_LATE),
        stop_at=math.inf if tied else draw(_LATE_STOPS),
        salvage_rounds=draw(_ROUNDS) if wild else 0,
        spread=0.5 if tied else _SPREAD,
    )


@cache
def _busy_jobs(size: int) -> st.SearchStrategy[int]:
    return st.integers(0, size // 3) | st.just(size)


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
    if not lasting or draw(EITHER):
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
    own = _place(len(lanes))
    size = draw(_place(max_size + 1))
    scripts = tuple(
        _script(draw, index, lanes[draw(own)], failures=failures, order=order)
        for index in range(size)
    )
    if draw(_ASKED):
        scripts = tuple(_looked_at(draw, index, script) for index, script in enumerate(scripts))
    serial = order and draw(SERIAL)
    alone: tuple[int, ...] = ()
    if order and size and not serial:
        alone = tuple(sorted(draw(places(size))))
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
    if endless or not faults or (len(faults) < _MOST_ATTEMPTS and draw(EITHER)):
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
    known, leaves = draw(LOOKS), draw(LEAVES)
    if not leaves and known != "yes":
        return attrs.evolve(script, known=known)
    pause: Action = Pause(draw(_SECONDS) + _fraction(index, 1))
    return attrs.evolve(script, lane=None if leaves else script.lane, known=known, actions=(pause,))


@cache
def _earlier(index: int) -> st.SearchStrategy[int]:
    return st.integers(0, index - 1)


def _plain_edges(draw: st.DrawFn, size: int, alone: Collection[int]) -> dict[int, tuple[Edge, ...]]:
    """Draw dependencies on earlier jobs; serial jobs have none, as they may only depend on serial ones."""
    edges = {}
    for index in range(1, size):
        if index not in alone and draw(_DEPENDS):
            several = {draw(_earlier(index)) for _ in range(2)}
            edges[index] = tuple(
                Edge(on, "always" if draw(_ALWAYS) else "success") for on in sorted(several)
            )
    return edges


def _fraction(index: int, number: int) -> float:
    """Return a fraction of a quarter for one property of a job. Cubes: no two of them sum up to a third."""
    place = index * (_MOST_ATTEMPTS + 1) + number + 1
    return (place**3 * 40_503 % (_GRAIN // 4) + 1) / _GRAIN
