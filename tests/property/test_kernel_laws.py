"""The laws of the kernel over drawn scenarios, each in a separate Trio run on a virtual clock.

Laws: TOTAL ORDER PROMPT HONEST WIDTH PACE TURN RETRY_AFTER SERIAL LIMIT DEADLINE DRAIN BLOCK AIMD ATTEMPTS
BUDGET SLOT LEAK (here, together), EAGER, ISOLATION (below, on special traces).
"""

from collections import Counter

import attrs
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from trioeval.errors import Fault
from trioeval.kernel import Done, LaneSpec, LimitChanged
from trioeval.testing import (
    AttemptScript,
    CallScript,
    JobScript,
    RunScenario,
    check_aimd,
    check_all,
    check_eager,
    check_isolation,
    faulty_scenarios,
    run_scenario,
    scenarios,
    simple_scenarios,
)


@given(scenario=scenarios(), _schedule=st.random_module())
def test_every_law_holds_under_faults_of_a_run(scenario: RunScenario, _schedule: object) -> None:
    """All laws of `LAWS` hold under errors, timeouts, stop, deadline, cancellation and every schedule."""
    trace = run_scenario(scenario)
    check_all(trace)
    outcomes = [emission.outcome for emission in trace.emissions]
    # The scripts return the index of their job.
    assert all(o.value == o.index for o in outcomes if isinstance(o, Done))


_REFUSED = CallScript("a", 0.0, attempts=(AttemptScript(6.0, Fault.RATE_LIMITED, 1.25),))


@given(scenario=faulty_scenarios(), _schedule=st.random_module())
@example(  # the walk ends at the window, and a final retry round is due
    scenario=RunScenario(
        (LaneSpec("a", 3, max_retries=1),),
        (JobScript("a", (_REFUSED,)), *[JobScript("a", ())] * 3),
        salvage_rounds=2,
        reorder_window=2,
    ),
    _schedule=None,
)
def test_every_law_holds_with_faulty_providers_dependencies_and_budgets(
    scenario: RunScenario, _schedule: object
) -> None:
    """All laws of `LAWS` hold with retries, breakers, final rounds, edges, keys, budgets, caps, retunes."""
    check_all(run_scenario(scenario))


@given(scenario=simple_scenarios(), _schedule=st.random_module())
def test_eager(scenario: RunScenario, _schedule: object) -> None:
    """EAGER: a lane with an eligible call, a free slot and an open pace starts it at that instant."""
    check_eager(run_scenario(scenario))


@given(scenario=simple_scenarios(), _schedule=st.random_module())
def test_isolation(scenario: RunScenario, _schedule: object) -> None:
    """ISOLATION: the starts on a lane stay the same when the jobs of all other lanes are removed."""
    assume(len(scenario.lanes) > 1)
    beside = run_scenario(scenario)
    for lane in scenario.lanes:
        scripts = tuple(script for script in scenario.scripts if script.lane == lane.name)
        alone = run_scenario(RunScenario(scenario.lanes, scripts))
        check_isolation(alone, beside, lane.name)


@given(
    st.integers(2, 5),
    st.sampled_from((None, 480.0)),
    st.lists(st.sampled_from((None, None, 1.25)), min_size=2, max_size=5),
    st.random_module(),
)
@settings(max_examples=10)
def test_the_limit_returns_to_the_max_concurrency(
    width: int, rpm: float | None, waits: list[float | None], _schedule: object
) -> None:
    """AIMD: after some refusals and hundreds of successes the limit is the max concurrency again.

    Calls of two seconds fill the lane, with a rate or without.
    """
    refused = [
        CallScript(
            "a", 0.0, attempts=(AttemptScript(0.25, Fault.RATE_LIMITED, wait), AttemptScript(2.0))
        )
        for wait in waits
    ]
    good = [CallScript("a", 2.0)] * (60 * max(4, width))
    scripts = tuple(JobScript("a", (call,)) for call in [*refused, *good])
    trace = run_scenario(RunScenario((LaneSpec("a", width, rpm=rpm, burst=3),), scripts))
    check_aimd(trace)
    limits = [event.adaptive for event in trace.events if isinstance(event, LimitChanged)]
    assert min(limits) < width  # otherwise the limit was never cut
    assert limits[-1] == width


def test_a_wave_that_ends_without_calls_in_flight_makes_the_usual_cut() -> None:
    """AIMD: 4 calls are refused one by one, so 3, 2 and 1 are left; then seven tenths of 4 are a limit."""
    waits = (1.25, None, None, 1.25)
    scripts = tuple(
        JobScript("a", (CallScript("a", 0.0, attempts=(refused, AttemptScript(2.0))),))
        for refused in (
            AttemptScript(0.25 * (place + 1), Fault.RATE_LIMITED, wait)
            for place, wait in enumerate(waits)
        )
    )
    trace = run_scenario(RunScenario((LaneSpec("a", 4),), scripts))
    check_aimd(trace)
    limits = [event.adaptive for event in trace.events if isinstance(event, LimitChanged)]
    assert limits[:4] == [3, 2, 1, 2]
    claimed = [
        attrs.evolve(event, adaptive=1)
        if isinstance(event, LimitChanged) and event.at == 0.5
        else event
        for event in trace.events
    ]
    with pytest.raises(AssertionError, match="cut twice for refusals of one epoch"):
        check_aimd(attrs.evolve(trace, events=claimed))


@given(st.integers(0, 3), st.sampled_from((1.0, 2.0)), st.integers(0, 5), st.random_module())
def test_a_serial_job_does_not_start_in_the_step_of_the_stop_or_after_it(
    ended: int, duration: float, steps: int, _schedule: object
) -> None:
    """DRAIN: no serial job starts at the instant of a stop at which another one ends."""
    trace = run_scenario(
        RunScenario(
            (LaneSpec("a", 2),),
            (JobScript("a", (CallScript("a", duration),)),) * 5,
            serial=True,
            stop_at=(ended + 1) * duration,
            stop_steps=steps,
        )
    )
    check_all(trace)
    assert len(trace.bodies) in (ended + 1, ended + 2)


@pytest.mark.slow
def test_drawn_scenarios_reach_every_outcome() -> None:
    """The drawn scenarios contain every kind of outcome, so that the laws are not vacuous."""
    reached: Counter[str] = Counter()
    kinds = {"Done", "Failed", "TimedOut", "Interrupted", "NotRun", "Blocked"}

    @given(scenario=scenarios() | faulty_scenarios())
    @settings(max_examples=300, derandomize=True, database=None)
    def draw(scenario: RunScenario) -> None:
        if min(reached[kind] for kind in kinds) < 10:
            emissions = run_scenario(scenario).emissions
            reached.update({type(emission.outcome).__name__ for emission in emissions})

    draw()
    assert {*reached} == kinds
    assert min(reached.values()) >= 10, reached
