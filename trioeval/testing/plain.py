"""Hypothesis strategies for the scenarios that the reference scheduler covers.

A comparison start by start is only fair where the rules leave nothing open, and they leave open which of
two events of one instant comes first. So every duration and timeout has a fraction of its own, far finer
than the quarters on which rates and instants lie: two jobs that start together do not end together.
"""

import math
from collections.abc import Collection

import attrs
from hypothesis import strategies as st

from trioeval.faults import Fault
from trioeval.kernel import Edge, LaneSpec
from trioeval.rates import Allowance, RateHint
from trioeval.testing.scenario import Action, Attempt, Call, Freedom, Pause, Scenario, Script

_GRAIN = 2**20  # small enough that sums of many fractions are exact
_MOST_ATTEMPTS = 4
_MOST_JOBS = 32
_MOST_BUSY_JOBS = 48
_SPREAD = 95 / 256  # no back-off is a whole number of quarters
_some = st.sampled_from


# Made once: strategies are slow to make, and a scenario draws from dozens.
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
_ANSWERS = _some((None, "no", "fails", "later no", "yes", "later yes"))
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


_ADAPTIVE = {
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
) -> Scenario:
    """Plain runs on lanes that adapt to refusals, that are told what is left, and that may be closed.

    Refusals are few and jobs many, so that what was cut grows again.

    Args:
        draw: Given by hypothesis.
        hints: With replies that say what is left.
        wild: With mishaps, refusals for good and long waits, which close lanes.
        tied: With few calls that take whole seconds, so that many of them start and end at one instant.
    """
    lanes = tuple(draw(_ADAPTIVE[name]) for name in draw(_some((("a",), ("a",), ("a", "b")))))
    own = _some(lanes)
    size = draw(_FEW if tied else _SIZES)
    # Later calls are served, as a rule, so that the limit grows again; or a rate is found.
    busy = draw(st.integers(0, size // 3) | st.just(size))
    faults = _WILD if wild else _BUSY
    waits = _ASKS_FOR if wild else draw(_some((_NO_WAIT, _NO_WAIT, _SHORT_WAIT)))
    replies = _REPLIES if hints and draw(st.booleans()) else _SILENT
    return Scenario(
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
) -> Script:
    """A job that is served at last, unless it fails for good; without an index its calls are tied."""
    faults = [fault for fault in draw(fails) if fault is not None]
    lasting = faults and faults[-1] is not Fault.RATE_LIMITED
    ends: tuple[Fault | None, ...] = tuple(faults)
    if not lasting or draw(st.booleans()):
        ends = (*faults, None)
    attempts = tuple(
        Attempt(
            draw(_BRIEF) + (1.0 if index is None else _fraction(index, number + 1)),
            fault,
            None if fault is None else draw(waits),
            hint=draw(replies),
        )
        for number, fault in enumerate(ends)
    )
    timeout = math.inf if index is None else draw(_TIMEOUTS) + 1
    return Script(lane, (Call(lane, 0.0, attempts=attempts),), timeout)


@st.composite
def plain_scenarios(
    draw: st.DrawFn, *, failures: bool = True, order: bool = True, max_size: int = 14
) -> Scenario:
    """Runs whose every step the rules decide, but for rare ties.

    Args:
        draw: Given by hypothesis.
        failures: With calls that fail and are made again, and with salvage rounds.
        order: With serial jobs, keys and edges.
        max_size: Jobs at most.
    """
    lanes = tuple(draw(_SPECS[name, failures]) for name in draw(_LANES))
    own = _some(lanes)
    size = draw(_some(range(max_size + 1)))
    scripts = tuple(
        _script(draw, index, draw(own), failures=failures, order=order) for index in range(size)
    )
    if draw(_ASKED):
        scripts = tuple(_answering(draw, index, script) for index, script in enumerate(scripts))
    serial = order and draw(_SERIAL)
    alone: tuple[int, ...] = ()
    if order and size and not serial:
        alone = tuple(sorted(draw(st.sets(st.integers(0, size - 1), max_size=2))))
    return Scenario(
        lanes=lanes,
        scripts=scripts,
        serial_indices=alone,
        serial=serial,
        deadline=draw(_DEADLINES),
        stop_at=draw(_STOPS),
        max_live_jobs=draw(_LIVE),
        edges=_edges(draw, size, alone) if order else {},
        salvage_rounds=draw(_ROUNDS) if failures and not alone and not serial else 0,
        spread=_SPREAD,
    )


def _script(draw: st.DrawFn, index: int, lane: LaneSpec, *, failures: bool, order: bool) -> Script:
    faults: list[Fault | None] = [*draw(_FAULTS)] if failures else []
    endless = lane.max_retries is None and faults[-1:] == [Fault.RATE_LIMITED]
    if endless or not faults or (len(faults) < _MOST_ATTEMPTS and draw(st.booleans())):
        faults = [*faults[: _MOST_ATTEMPTS - 1], None]
    attempts = tuple(
        Attempt(
            draw(_SECONDS) + _fraction(index, number + 1),
            fault,
            None if fault is None else draw(_HINTS),
            draw(_USED),
        )
        for number, fault in enumerate(faults)
    )
    call = Call(lane.name, 0.0, draw(_FAILS), attempts=attempts, tokens=draw(_TOKENS))
    timeout = draw(_TIMEOUTS) + _fraction(index, 0)
    return Script(lane.name, (call,), timeout, draw(_KEYS) if order else None)


def _answering(draw: st.DrawFn, index: int, script: Script) -> Script:
    """The same job, with an answer to whether it is free; one that is makes no call."""
    answer = draw(_ANSWERS)
    if answer is None:
        return script
    after = draw(_SECONDS) + _fraction(index + _MOST_JOBS, 0) if "later" in answer else 0.0
    free = Freedom("yes" in answer, after, answer == "fails")
    script = attrs.evolve(script, free=free)
    action: Action = Pause(draw(_SECONDS) + _fraction(index, 1))
    return attrs.evolve(script, actions=(action,)) if script.is_free else script


def _edges(draw: st.DrawFn, size: int, alone: Collection[int]) -> dict[int, tuple[Edge, ...]]:
    """Dependencies on earlier jobs; serial jobs have none, as they may have only serial ones."""
    edges = {}
    for index in range(1, size):
        if index not in alone and draw(_DEPENDS):
            several = {draw(st.integers(0, index - 1)) for _ in range(2)}
            edges[index] = tuple(
                Edge(on, "always" if draw(_ALWAYS) else "success") for on in sorted(several)
            )
    return edges


def _fraction(index: int, number: int) -> float:
    """A fraction of a quarter for one thing of one job. Cubes, as no two of them sum up to a third."""
    place = index * (_MOST_ATTEMPTS + 1) + number + 1
    return (place**3 * 40_503 % (_GRAIN // 4) + 1) / _GRAIN
