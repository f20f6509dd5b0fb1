"""Jobs on no lane, among jobs on lanes: declared, or found when they are next of their lane.

`test_reference_model.py` compares them with the reference scheduler, start by start.
"""

import math
from collections import Counter
from collections.abc import Collection

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trioeval.kernel import Finished, NotRun
from trioeval.testing import (
    Retune,
    RunScenario,
    RunTrace,
    check_all,
    check_unknown,
    no_lane_scenarios,
    plain_scenarios,
    predict,
    run_scenario,
)

pytestmark = pytest.mark.slow


@settings(max_examples=120)  # three runs each
@given(scenario=plain_scenarios(), _schedule=st.random_module())
def test_an_inspection_without_a_finding_changes_nothing(
    scenario: RunScenario, _schedule: object
) -> None:
    """The inspection returns false or fails, and the trace stays the same."""
    assume(not any(script.known == "yes" for script in scenario.scripts))
    assume(not predict(scenario).tied_at)
    check_unknown(scenario)


@given(scenario=no_lane_scenarios(), _schedule=st.random_module())
def test_every_law_holds_with_jobs_on_no_lane(scenario: RunScenario, _schedule: object) -> None:
    """All laws of `LAWS` hold with jobs on no lane, and `settled` gets what the observer gets."""
    trace = run_scenario(scenario)
    check_all(trace)
    finished = [event.outcome for event in trace.events if isinstance(event, Finished)]
    assert [one.outcome for one in trace.settled] == finished
    never = [e.outcome for e in trace.emissions if e.outcome not in finished]
    assert all(isinstance(outcome, NotRun) for outcome in never)


@settings(max_examples=120)  # three runs each
@given(
    scenario=plain_scenarios(order=False),
    blocked=st.booleans(),
    _schedule=st.random_module(),
)
def test_lanes_and_jobs_on_no_lane_do_not_delay_each_other(
    scenario: RunScenario,
    blocked: bool,  # noqa: FBT001 - drawn
    _schedule: object,
) -> None:
    """ISOLATION: jobs on lanes and on no lane start as they do without the other kind."""
    scripts = tuple(
        attrs.evolve(script, known=None if script.known is None else "no")
        for script in scenario.scripts
        if script.known != "yes"
    )
    paused = tuple(Retune(0.0, lane.name, "pause") for lane in scenario.lanes)
    resumed = tuple(Retune(40.0, lane.name, "resume") for lane in scenario.lanes)
    scenario = attrs.evolve(
        scenario,
        scripts=scripts,
        salvage_rounds=0,  # jobs on lanes are rerun when no other job is running
        retunes=(*paused, *resumed) if blocked else (),
    )
    on_lanes = [index for index, script in enumerate(scripts) if script.lane is not None]
    on_none = [index for index, script in enumerate(scripts) if script.lane is None]
    assume(on_lanes and on_none)
    assume(not predict(attrs.evolve(scenario, retunes=())).tied_at)
    together = run_scenario(scenario)
    for kind in (on_lanes, on_none):
        alone = attrs.evolve(scenario, scripts=tuple(scripts[index] for index in kind))
        assert _starts(together, kind) == _starts(run_scenario(alone), range(len(kind)))


def _starts(trace: RunTrace, indices: Collection[int]) -> list[list[float]]:
    return [[body.started_at for body in trace.bodies if body.index == i] for i in indices]


@given(scenario=no_lane_scenarios(), _schedule=st.random_module())
def test_jobs_on_no_lane_start_at_once_up_to_the_bound_of_live_jobs(
    scenario: RunScenario, _schedule: object
) -> None:
    """EAGER: they all start with the run, or by index if the number of live jobs is bounded."""
    scenario = attrs.evolve(
        scenario,
        scripts=tuple(attrs.evolve(one, key=None, known=None) for one in scenario.scripts),
        edges={},
        serial=False,
        serial_indices=(),
        reorder_window=None,
        salvage_rounds=0,
        budget=None,
        deadline=math.inf,
        stop_at=math.inf,
        cancel_at=math.inf,
    )
    trace = run_scenario(scenario)
    mine = [index for index, script in enumerate(scenario.scripts) if script.lane is None]
    started = [body for body in trace.bodies if body.lane is None]
    assert sorted(body.index for body in started) == mine
    assert all(body.started_at == 0.0 for body in started[: scenario.max_live_jobs])


def test_drawn_jobs_are_on_no_lane_in_every_way() -> None:
    """The drawn scenarios contain jobs that need no lane in every way."""
    seen: Counter[str] = Counter()
    ways = (
        "on a lane",
        "on no lane",
        "found to need none",
        "fails to say",
        "serial",
        "cut",
        "calls",
    )

    @given(scenario=no_lane_scenarios())
    @settings(max_examples=300, derandomize=True, database=None)
    def draw(scenario: RunScenario) -> None:
        if min(seen[way] for way in ways) >= 20:
            return
        trace = run_scenario(scenario)
        for body in trace.bodies:
            script = scenario.scripts[body.index]
            where = "on a lane" if body.lane is not None else "on no lane"
            found = body.lane is None and script.lane is not None
            seen["found to need none" if found else where] += 1
            seen["fails to say"] += script.known == "fails" and body.lane is not None
            seen["serial"] += body.lane is None and body.index in trace.serial
            seen["cut"] += body.lane is None and body.ending == "cut"
            seen["calls"] += body.lane is None and any(
                call.index == body.index for call in trace.calls
            )

    draw()
    assert min(seen[way] for way in ways) >= 20, seen
