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
from trioeval.testing.scenario import Action, Attempt, Call, Freedom, Pause, Scenario, Script

_GRAIN = 2**20  # small enough that sums of many fractions are exact
_MOST_ATTEMPTS = 4
_MOST_JOBS = 32
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
