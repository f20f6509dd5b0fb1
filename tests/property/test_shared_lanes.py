"""WIDTH, PACE, SERIAL and LEAK hold over several runs on the same lanes together.

Each run obeys TOTAL, ORDER, PROMPT, HONEST, LIMIT, DEADLINE and DRAIN by itself.
"""

from collections.abc import Sequence

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.kernel import LaneSpec
from trioeval.testing import (
    LAWS,
    CallScript,
    JobScript,
    RunScenario,
    RunTrace,
    check_retry_after,
    faulty_scenarios,
    run_side_by_side,
    scenarios,
)

pytestmark = pytest.mark.slow

OF_ONE_RUN = ("TOTAL", "ORDER", "PROMPT", "HONEST", "LIMIT", "DEADLINE", "DRAIN", "LEAK")

HALF = settings(max_examples=settings().max_examples // 2)
"""Two runs for each example."""


@st.composite
def neighbours(draw: st.DrawFn) -> list[RunScenario]:
    """Draw two scenarios that use the lanes of the first."""
    first, second = draw(scenarios()), draw(scenarios())
    names = {lane.name for lane in first.lanes}
    if not {lane.name for lane in second.lanes} <= names:
        first, second = second, first
    later = draw(st.sampled_from((0.0, 1.25, 2.0)))
    return [first, attrs.evolve(second, start_at=later)]


@settings(HALF)
@given(runs=neighbours(), _schedule=st.random_module())
def test_runs_that_share_lanes_keep_the_laws_together(
    runs: list[RunScenario], _schedule: object
) -> None:
    """The limits of a lane apply to all runs together, and a serial job is alone among all of them."""
    traces = run_side_by_side(runs)
    for trace in traces:
        for law in OF_ONE_RUN:
            LAWS[law](trace)
    for lane in traces[0].lanes:
        calls = [span for trace in traces for span in trace.calls if span.lane == lane.name]
        starts = sorted(span.started_at for span in calls)
        for first in range(len(starts)):
            for last in range(first + 1, len(starts)):
                gap = starts[last] - starts[first]
                assert gap >= (last - first + 1 - lane.burst) * (60 / lane.rpm if lane.rpm else 0)
                assert gap >= lane.min_gap
        steps = sorted(step for span in calls for step in ((span.started, 1), (span.last, -1)))
        in_flight = 0
        for _, change in steps:
            in_flight += change
            assert in_flight <= lane.max_concurrency
    assert_serial_jobs_were_alone(traces)


@st.composite
def faulty_neighbours(draw: st.DrawFn) -> list[RunScenario]:
    """Draw two runs on the same lanes, whose providers fail in every way."""
    first, second = draw(faulty_scenarios()), draw(faulty_scenarios())
    names = {lane.name for lane in first.lanes}
    if not {lane.name for lane in second.lanes} <= names:
        first, second = second, first
    later = draw(st.sampled_from((0.0, 1.25, 2.0)))
    lanes, cap, retunes = first.lanes, first.cap, first.retunes
    beside = attrs.evolve(second, start_at=later, lanes=lanes, cap=cap, retunes=retunes)
    return [first, beside]


@settings(HALF)
@given(runs=faulty_neighbours(), _schedule=st.random_module())
def test_runs_that_share_failing_lanes_keep_the_laws(
    runs: list[RunScenario], _schedule: object
) -> None:
    """Each run obeys its own laws, and a wait named to one of them applies to both."""
    traces = run_side_by_side(runs)
    for trace in traces:
        for law in (*OF_ONE_RUN, "BLOCK", "ATTEMPTS", "BUDGET"):
            LAWS[law](trace)
    together = [call for trace in traces for call in trace.calls]
    check_retry_after(attrs.evolve(traces[0], calls=together))


def assert_serial_jobs_were_alone(traces: Sequence[RunTrace]) -> None:
    bodies = [(span, span.index in trace.serial) for trace in traces for span in trace.bodies]
    for span, alone in bodies:
        for other, _ in bodies:
            if alone and other is not span:
                assert other.last < span.started or other.started > span.last, attrs.asdict(other)


def test_runs_that_share_a_lane_take_turns() -> None:
    """Of three runs on one lane none gets far ahead of the others."""
    lane = LaneSpec("a", max_concurrency=2)
    run = RunScenario((lane,), (JobScript("a", (CallScript("a", 1.0),)),) * 6)
    traces = run_side_by_side([run, run, run])
    for instant in range(9):
        begun = [sum(s.started_at <= instant for s in trace.calls) for trace in traces]
        assert max(begun) - min(begun) <= 3, begun  # the first run at the first instant is random
    assert max(span.ended_at for trace in traces for span in trace.calls) == 9.0
