"""LEASE over drawn runs: lanes with permits of shared limits."""

import math
from collections import Counter

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trioeval.errors import LimitError
from trioeval.kernel import Failed, Interrupted, Reserving, StopReason, Waiting, WaitReason
from trioeval.testing import (
    CallScript,
    JobScript,
    RunScenario,
    SharedLimitScript,
    check_all,
    check_generous,
    check_isolation,
    check_narrowed,
    plain_scenarios,
    predict,
    run_scenario,
    shared_scenarios,
    simple_scenarios,
)

pytestmark = pytest.mark.slow


@given(scenario=shared_scenarios(), _schedule=st.random_module())
def test_every_law_holds_with_shared_limits(scenario: RunScenario, _schedule: object) -> None:
    """All laws of `LAWS`, including LEASE, hold when permits come late or never."""
    check_all(run_scenario(scenario))


@settings(max_examples=120)  # three runs each
@given(scenario=plain_scenarios(), _schedule=st.random_module())
def test_a_limit_with_room_for_all_changes_nothing(
    scenario: RunScenario, _schedule: object
) -> None:
    """LEASE: with permits for all, every start and end is as without permits."""
    scenario = attrs.evolve(scenario, stop_at=math.inf)
    assume(not predict(scenario).tied_at)
    check_generous(scenario)


@given(
    scenario=plain_scenarios(failures=False, order=False),
    room=st.integers(1, 4),
    at_once=st.booleans(),
    _schedule=st.random_module(),
)
def test_immediate_permits_limit_a_lane_like_its_max_concurrency(
    scenario: RunScenario, room: int, *, at_once: bool, _schedule: object
) -> None:
    """LEASE: a number of permits gives the same starts as the same max concurrency."""
    calling = (
        attrs.evolve(one, known=None)
        for one in scenario.scripts
        if one.known != "yes" and one.lane is not None
    )
    scenario = attrs.evolve(
        scenario,
        scripts=tuple(one for one in calling if one.timeout == math.inf),
        deadline=math.inf,
        stop_at=math.inf,
        max_live_jobs=256,
    )
    lane = scenario.lanes[0]
    assume(room <= lane.max_concurrency and not predict(scenario).tied_at)
    check_narrowed(scenario, lane.name, room, at_once=at_once)


@settings(max_examples=120)
@given(
    scenario=shared_scenarios(),
    stop_at=st.sampled_from((0.0, 1.0, 2.5, 4.0, 5.0)),
    lasts=st.sampled_from((2.5, 86400.0)),
    _schedule=st.random_module(),
)
def test_the_end_of_a_stopped_run_does_not_depend_on_the_backend_of_its_limits(
    scenario: RunScenario, stop_at: float, lasts: float, _schedule: object
) -> None:
    """DRAIN: after a stop only requests in flight are left, with every backend of the limits."""
    single = (
        attrs.evolve(call, attempts=call.attempts[:1], patience=math.inf)
        for script in scenario.scripts
        for call in script.actions
        if isinstance(call, CallScript) and call.lane == script.lane
    )
    lanes = (attrs.evolve(lane, retries=0, max_retries=0) for lane in scenario.lanes)
    scenario = attrs.evolve(
        scenario,
        lanes=tuple(lanes),
        scripts=tuple(JobScript(call.lane, (call,)) for call in single),
        shared=tuple(attrs.evolve(limit, lasts=lasts) for limit in scenario.shared),
        stop_at=stop_at,
        salvage_rounds=0,
    )
    trace = run_scenario(scenario)
    check_all(trace)
    shared = {name for limit in scenario.shared for name in limit.lanes}
    assert all(call.started_at <= stop_at for call in trace.calls if call.lane in shared)
    ends = [call.ended_at for call in trace.calls]
    cut_at = min(scenario.deadline, scenario.cancel_at)
    assert trace.ended_at <= min(cut_at, max(stop_at, *ends, 0.0))


@settings(max_examples=120)  # up to four runs each
@given(
    scenario=simple_scenarios(),
    room=st.integers(1, 3),
    delay=st.sampled_from((0.0, 0.25, 8.0)),
    _schedule=st.random_module(),
)
def test_lanes_without_a_shared_limit_are_not_affected_by_it(
    scenario: RunScenario, room: int, delay: float, _schedule: object
) -> None:
    """ISOLATION: lanes without permits, or with permits of another limit, start as they do alone."""
    assume(len(scenario.lanes) > 1)
    first, *others = [lane.name for lane in scenario.lanes]
    mine, theirs = (SharedLimitScript((name,), room, 2.5, delay) for name in (first, others[0]))
    limited = attrs.evolve(scenario, shared=(mine, theirs))
    beside = run_scenario(limited)
    for name in (first, *others):
        scripts = tuple(script for script in scenario.scripts if script.lane == name)
        check_isolation(run_scenario(attrs.evolve(limited, scripts=scripts)), beside, name)


def test_drawn_limits_reach_every_event() -> None:
    """The drawn runs contain permits that are waited for, refused and returned."""
    reached: Counter[str] = Counter()
    refusals = {"exceeds_capacity", "limiter_unavailable"}
    wanted = refusals | {"given back", "settled", "waited for", "asked for", "withdrawn"}

    @given(scenario=shared_scenarios())
    @settings(max_examples=150, derandomize=True, database=None)
    def draw(scenario: RunScenario) -> None:
        if min(reached[what] for what in wanted) >= 3:
            return
        trace = run_scenario(scenario)
        outcomes = [emission.outcome for emission in trace.emissions]
        reached["withdrawn"] += any(
            isinstance(one, Interrupted) and one.cut is StopReason.STOP for one in outcomes
        )
        failed = [one.error for one in outcomes if isinstance(one, Failed)]
        reached.update(error.reason for error in failed if isinstance(error, LimitError))
        ends = [end.used is None for lent in trace.permits for end in lent.ends]
        reached["given back"] += any(ends)
        reached["settled"] += not all(ends)
        waits = [event for event in trace.events if isinstance(event, Waiting)]
        reached["waited for"] += any(event.why is WaitReason.SHARED_LIMIT for event in waits)
        reached["asked for"] += any(isinstance(event, Reserving) for event in trace.events)

    draw()
    assert {*reached} == wanted
    assert min(reached.values()) >= 3, reached
