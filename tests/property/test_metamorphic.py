"""Metamorphic relations: the effect of a known change of a scenario on its run, whatever the run is."""

import math
from collections import defaultdict

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trioeval.errors import Fault
from trioeval.kernel import Edge, LaneSpec
from trioeval.testing import (
    AttemptScript,
    CallScript,
    JobScript,
    Pause,
    Retune,
    RunScenario,
    RunTrace,
    Together,
    run_scenario,
    simple_scenarios,
)
from trioeval.testing.metamorphic import (
    check_added_lane,
    check_permuted,
    check_scaling,
    check_wider,
    scaled,
)
from trioeval.testing.model import predict
from trioeval.testing.plain_strategies import plain_scenarios

pytestmark = pytest.mark.slow


@given(
    scenario=plain_scenarios(),
    factor=st.sampled_from((0.25, 0.5)),
    _schedule=st.random_module(),
)
def test_scaling_short_times_scales_the_run(
    scenario: RunScenario, factor: float, _schedule: object
) -> None:
    """This holds for any factor, with hints below five seconds."""
    assume(not predict(scenario).tied_at)
    check_scaling(scenario, factor)


@given(
    scenario=plain_scenarios(failures=False),
    factor=st.sampled_from((2.0, 64.0, 2.0**-10)),
    _schedule=st.random_module(),
)
def test_scaling_all_times_by_a_power_of_two_scales_the_run(
    scenario: RunScenario, factor: float, _schedule: object
) -> None:
    """This holds without hints."""
    assume(not predict(scenario).tied_at)
    check_scaling(scenario, factor)


@given(
    scenario=plain_scenarios(order=False, max_size=8),
    other=plain_scenarios(order=False, max_size=8),
    _schedule=st.random_module(),
)
def test_an_added_lane_changes_no_other(
    scenario: RunScenario, other: RunScenario, _schedule: object
) -> None:
    """ISOLATION: an added lane with jobs that fail and wait changes no other lane."""
    scenario = attrs.evolve(scenario, salvage_rounds=0)
    assume(not predict(scenario).tied_at)
    added = [_moved(script, "z") for script in other.scripts if script.lane == "a"]
    if scenario.max_live_jobs is not None:  # jobs that are known to need no lane share this bound
        added = [attrs.evolve(script, known=None) for script in added]
    check_added_lane(scenario, attrs.evolve(other.lanes[0], name="z"), added)


@given(scenario=simple_scenarios(), data=st.data(), _schedule=st.random_module())
def test_swapped_results_of_equal_duration_change_no_start(
    scenario: RunScenario, data: st.DataObject, _schedule: object
) -> None:
    """Starts do not depend on results."""
    alike: dict[tuple[str | None, float], list[int]] = defaultdict(list)
    scripts = []
    for index, script in enumerate(scenario.scripts):
        (call,) = script.actions
        assert isinstance(call, CallScript)
        alike[script.lane, call.duration].append(index)
        fails = data.draw(st.booleans())
        scripts.append(attrs.evolve(script, actions=(attrs.evolve(call, fails=fails),)))
    places: dict[int, int] = {}
    for group in alike.values():
        places.update(zip(group, data.draw(st.permutations(group)), strict=True))
    check_permuted(attrs.evolve(scenario, scripts=tuple(scripts)), places)


@given(
    scenario=simple_scenarios(),
    lane=st.sampled_from("abc"),
    more=st.integers(1, 3),
    _schedule=st.random_module(),
)
def test_a_wider_lane_makes_nothing_later(
    scenario: RunScenario, lane: str, more: int, _schedule: object
) -> None:
    """More slots delay no start, also with a pace and beside other lanes."""
    assume(any(spec.name == lane for spec in scenario.lanes))
    check_wider(scenario, lane, more)


_LANE = LaneSpec("a", 1, rpm=60, adaptive="off")
_SCRIPTS = tuple(JobScript("a", (CallScript("a", duration),)) for duration in (2.0, 0.5, 0.5, 1.0))
_SCENARIO = RunScenario((_LANE,), _SCRIPTS)


def test_a_scheduler_with_its_own_time_scale_is_found() -> None:
    """A scheduler that rounds starts to whole seconds fails the scaling check."""

    def rounding(scenario: RunScenario) -> RunTrace:
        trace = run_scenario(scenario)
        for span in trace.calls:
            span.started_at = math.ceil(span.started_at)
        return trace

    with pytest.raises(AssertionError, match=r"requests of a run that is 0\.25 times as slow"):
        check_scaling(_SCENARIO, 0.25, run=rounding)


def test_a_scheduler_that_shares_between_lanes_is_found() -> None:
    """A scheduler whose lanes share a slot fails the check of an added lane."""

    def shared(scenario: RunScenario) -> RunTrace:
        return run_scenario(attrs.evolve(scenario, cap=1))

    beside = [JobScript("b", (CallScript("b", 4.0),))]
    with pytest.raises(AssertionError, match="requests beside lane 'b'"):
        check_added_lane(_SCENARIO, LaneSpec("b"), beside, run=shared)


def test_a_scheduler_that_depends_on_results_is_found() -> None:
    """It fails the permutation check."""
    fails = tuple(
        attrs.evolve(script, actions=(CallScript("a", 0.5, fails=index == 0),))
        for index, script in enumerate(_SCRIPTS)
    )

    def learning(scenario: RunScenario) -> RunTrace:
        first = scenario.scripts[0].actions[0]
        assert isinstance(first, CallScript)
        return run_scenario(attrs.evolve(scenario, start_at=1.0 if first.fails else 0.0))

    with pytest.raises(AssertionError, match="requests after jobs swapped places"):
        check_permuted(attrs.evolve(_SCENARIO, scripts=fails), {0: 1, 1: 0}, run=learning)


def test_a_scheduler_that_slows_down_with_more_slots_is_found() -> None:
    """A scheduler that is slower with more slots fails the check of a wider lane."""

    def slowing(scenario: RunScenario) -> RunTrace:
        lanes = tuple(
            attrs.evolve(lane, min_gap=2.0 * lane.max_concurrency) for lane in scenario.lanes
        )
        return run_scenario(attrs.evolve(scenario, lanes=lanes))

    with pytest.raises(
        AssertionError, match="requests that start later on lane 'a' with more slots"
    ):
        check_wider(_SCENARIO, "a", run=slowing)


def test_a_wider_lane_can_make_dependent_jobs_later() -> None:
    """Graham's anomaly: nine dependent jobs take 12 s with 3 slots and 15 s with 4."""
    durations = (3.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0, 9.0)
    scenario = RunScenario(
        (LaneSpec("a", 3),),
        tuple(JobScript("a", (CallScript("a", duration),)) for duration in durations),
        edges={8: (Edge(0),), **{index: (Edge(3),) for index in range(4, 8)}},
    )
    assert run_scenario(scenario).ended_at == 12.0
    with pytest.raises(
        AssertionError, match="requests that start later on lane 'a' with more slots"
    ):
        check_wider(scenario, "a")


def test_a_wider_lane_can_make_retries_later() -> None:
    """With more slots an earlier failure's retry can delay a longer call."""
    mishap = Fault.TRANSIENT
    several = (
        (AttemptScript(0.375, mishap), AttemptScript(1.0625)),
        (AttemptScript(1.1875, mishap), AttemptScript(3.9375)),
        (AttemptScript(1.625),),
        (AttemptScript(2.125, mishap), AttemptScript(0.0625)),
        (AttemptScript(0.8125, mishap), AttemptScript(0.4375)),
    )
    scripts = tuple(
        JobScript("a", (CallScript("a", 0.0, attempts=attempts),)) for attempts in several
    )
    lane = LaneSpec("a", 2, adaptive="off", retry_delay=1.0)
    scenario = RunScenario((lane,), scripts)
    assert run_scenario(scenario).ended_at == 6.125
    with pytest.raises(
        AssertionError, match="requests that start later on lane 'a' with more slots"
    ):
        check_wider(scenario, "a")


def test_scaling_reaches_every_time_of_a_scenario() -> None:
    """Scaling changes every time of a scenario, and scaling back restores it."""
    call = CallScript("a", 1.0, patience=3.0, attempts=(AttemptScript(1.0, retry_after=2.0),))
    scenario = attrs.evolve(
        _SCENARIO,
        scripts=(JobScript("a", (Pause(1.0), call, Together((call, call))), timeout=8.0),),
        deadline=16.0,
        stop_at=12.0,
        cancel_at=14.0,
        start_at=1.0,
        retunes=(Retune(2.0, "a", 3),),
    )
    assert scaled(scaled(scenario, 4.0), 0.25) == scenario
    slow = scaled(scenario, 4.0)
    pause, slow_call, together = slow.scripts[0].actions
    assert pause == Pause(4.0)
    assert slow_call == CallScript(
        "a", 4.0, patience=12.0, attempts=(AttemptScript(4.0, retry_after=8.0),)
    )
    assert together == Together((slow_call, slow_call))
    instants = (slow.deadline, slow.stop_at, slow.cancel_at, slow.start_at, slow.retunes[0].at)
    assert instants == (64.0, 48.0, 56.0, 4.0, 8.0)
    assert slow.lanes[0].rpm == 15.0


def _moved(script: JobScript, lane: str) -> JobScript:
    (action,) = script.actions
    if isinstance(action, CallScript):
        action = attrs.evolve(action, lane=lane)
    return attrs.evolve(script, lane=lane, actions=(action,))
