"""Hypothesis strategies for the scenarios that the reference scheduler covers.

A comparison start by start is only fair where the rules leave nothing open, and they leave open which of
two events of one instant comes first. So every duration and timeout has a fraction of its own, far finer
than the quarters on which rates and instants lie: two jobs that start together do not end together.
"""

import math
from collections.abc import Sequence

from hypothesis import strategies as st

from trioeval.errors import Fault
from trioeval.kernel import Edge, LaneSpec
from trioeval.testing.scenario import Attempt, Call, Scenario, Script

_NAMES = ("a", "b", "c")
_GRAIN = 2**20  # small enough that sums of many fractions are exact
_MOST_ATTEMPTS = 4
_SPREAD = 95 / 256  # no back-off is a whole number of quarters
_some = st.sampled_from


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
    names = _NAMES[: draw(st.integers(1, len(_NAMES)))]
    lanes = tuple(draw(_fixed_lanes(name, failures=failures)) for name in names)
    size = draw(st.integers(0, max_size))
    keys = _some((None, None, None, "x", "y") if order else (None,))
    scripts = []
    for index in range(size):
        lane = draw(_some(lanes))
        attempts = draw(_attempts(index, lane)) if failures else (_attempt(index, draw),)
        call = Call(
            lane.name,
            0.0,
            fails=draw(_some((False,) * 5 + (True,))),
            attempts=attempts,
            tokens=draw(st.integers(0, 8)),
        )
        timeout = draw(_some((math.inf, math.inf, 1.0, 3.0, 6.0))) + _fraction(index, 0)
        scripts.append(Script(lane.name, (call,), timeout, draw(keys)))
    serial = order and draw(_some((False,) * 7 + (True,)))
    alone: tuple[int, ...] = ()
    if order and size and not serial:
        alone = tuple(sorted(draw(st.sets(st.integers(0, size - 1), max_size=2))))
    return Scenario(
        lanes=lanes,
        scripts=tuple(scripts),
        serial_indices=alone,
        serial=serial,
        deadline=draw(_some((math.inf, math.inf, math.inf, 2.25, 9.5, 20.0))),
        stop_at=draw(_some((math.inf, math.inf, math.inf, 1.25, 8.0, 16.5))),
        max_live_jobs=draw(_some((256, 256, 1, 2))),
        edges=draw(_edges(size, alone)) if order else {},
        salvage_rounds=draw(st.integers(0, 2)) if failures and not alone and not serial else 0,
        spread=_SPREAD,
    )


def _fraction(index: int, number: int) -> float:
    """A fraction of a quarter for one thing of one job. Cubes, as no two of them sum up to a third."""
    place = index * (_MOST_ATTEMPTS + 1) + number + 1
    return (place**3 * 40_503 % (_GRAIN // 4) + 1) / _GRAIN


def _fixed_lanes(name: str, *, failures: bool) -> st.SearchStrategy[LaneSpec]:
    return st.builds(
        LaneSpec,
        st.just(name),
        st.integers(1, 4),
        rpm=_some((None, None, 240.0, 60.0, 30.0)),
        burst=st.integers(1, 3),
        tpm=_some((None, None, 960.0, 240.0)),
        min_gap=_some((0.0, 0.0, 0.25, 1.0)),
        adaptive=st.just("off"),
        retries=st.integers(0, 3) if failures else st.just(0),
        max_retries=_some((None, None, 0, 1, 3)) if failures else st.none(),
        patience=st.just(math.inf),
    )


def _attempt(index: int, draw: st.DrawFn, number: int = 0, fault: Fault | None = None) -> Attempt:
    hint = draw(_some((None, None, 1.25, 2.5, 5.0))) if fault is not None else None
    duration = draw(st.integers(0, 6)) + _fraction(index, number + 1)
    return Attempt(duration, fault, hint, draw(st.none() | st.integers(0, 8)))


@st.composite
def _attempts(draw: st.DrawFn, index: int, lane: LaneSpec) -> tuple[Attempt, ...]:
    faults: list[Fault | None] = draw(
        st.lists(
            _some((Fault.TRANSIENT, Fault.RATE_LIMITED, Fault.RATE_LIMITED, Fault.REFUSED)),
            max_size=_MOST_ATTEMPTS,
        )
    )
    endless = lane.max_retries is None and faults[-1:] == [Fault.RATE_LIMITED]
    served = len(faults) < _MOST_ATTEMPTS and (not faults or draw(st.booleans()))
    if endless or served:
        faults = [*faults[: _MOST_ATTEMPTS - 1], None]
    return tuple(_attempt(index, draw, number, fault) for number, fault in enumerate(faults))


@st.composite
def _edges(draw: st.DrawFn, size: int, alone: Sequence[int]) -> dict[int, tuple[Edge, ...]]:
    """Dependencies on earlier jobs; serial jobs have none, as they may have only serial ones."""
    edges = {}
    for index in range(1, size):
        if index in alone or not draw(_some((False, False, True))):
            continue
        several = draw(st.sets(st.integers(0, index - 1), min_size=1, max_size=2))
        edges[index] = tuple(
            Edge(on, draw(_some(("success", "success", "always")))) for on in sorted(several)
        )
    return edges
