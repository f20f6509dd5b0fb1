"""The kernel's runs equal the predictions of the reference scheduler, start by start.

Compared are the instants, jobs, lanes and numbers of all requests, the kinds and ends of all outcomes, and
the end of the run, all exactly. Durations have their own fractions (see `trioeval.testing.plain_strategies`),
and the few runs with ties that the rules leave open are left out.
"""

import itertools
import math
from collections import Counter

import attrs
import pytest
from hypothesis import assume, given, seed, settings
from hypothesis import strategies as st

from trioeval.errors import Fault, UsageError
from trioeval.kernel import Edge, LaneClosed, LaneSpec, LimitChanged
from trioeval.testing import AttemptScript, CallScript, JobScript, Pause, RunScenario, run_scenario
from trioeval.testing.model import predict, predictions
from trioeval.testing.model_parts import Prediction
from trioeval.testing.plain_strategies import adaptive_scenarios, plain_scenarios
from trioeval.testing.trace import RunTrace

_MOST_WAYS = 12
_LANE = LaneSpec("a", adaptive="off")


@given(scenario=plain_scenarios(failures=False, order=False), _schedule=st.random_module())
def test_lanes_start_and_end_calls_as_predicted(scenario: RunScenario, _schedule: object) -> None:
    """Calls start and end as predicted under max concurrency, paces, gaps, timeouts, deadline and stop."""
    _compare(scenario, tied=False)


@given(scenario=plain_scenarios(order=False), _schedule=st.random_module())
def test_failures_are_handled_as_predicted(scenario: RunScenario, _schedule: object) -> None:
    """Back-offs, blocks, recoveries, retries and final retry rounds happen as predicted."""
    _compare(scenario, tied=False)


@given(scenario=plain_scenarios(failures=False), _schedule=st.random_module())
def test_jobs_wait_for_each_other_as_predicted(scenario: RunScenario, _schedule: object) -> None:
    """Serial jobs, keys and edges delay jobs as predicted."""
    _compare(scenario, tied=False)


@given(scenario=plain_scenarios(), _schedule=st.random_module())
def test_all_features_together_go_as_predicted(scenario: RunScenario, _schedule: object) -> None:
    """Runs with every feature that the reference scheduler supports go as predicted."""
    _compare(scenario, tied=False)


@pytest.mark.slow
@given(scenario=adaptive_scenarios(hints=False, wild=False), _schedule=st.random_module())
def test_limits_adapt_as_predicted(scenario: RunScenario, _schedule: object) -> None:
    """Rounds, cuts, the ceiling and its trials follow bare refusals as predicted."""
    _compare_ways(scenario)


@pytest.mark.slow
@given(scenario=adaptive_scenarios(hints=False), _schedule=st.random_module())
def test_lanes_are_closed_as_predicted(scenario: RunScenario, _schedule: object) -> None:
    """Named waits, measured rates, patience and permanent refusals act as predicted."""
    _compare_ways(scenario)


@pytest.mark.slow
@given(scenario=adaptive_scenarios(), _schedule=st.random_module())
def test_hints_take_effect_as_predicted(scenario: RunScenario, _schedule: object) -> None:
    """The hints are those of successful replies."""
    _compare_ways(scenario)


@given(scenario=adaptive_scenarios(tied=True), _schedule=st.random_module())
def test_ties_are_broken_in_one_of_the_allowed_ways(
    scenario: RunScenario, _schedule: object
) -> None:
    """With ties at one instant, the run is one of the predicted alternatives."""
    _compare_ways(scenario, 300)


@pytest.mark.slow
def test_few_drawn_scenarios_are_left_out() -> None:
    """Ties are rare, and every kind of outcome and failure is drawn often."""
    seen: Counter[str] = Counter()

    # A fixed seed: `derandomize` draws other scenarios whenever a name in this function changes, and of 300
    # scenarios 22 to 41 are tied.
    @seed(1)
    @given(scenario=plain_scenarios())
    @settings(max_examples=300, database=None)
    def draw(scenario: RunScenario) -> None:
        prediction = predict(scenario)
        seen["runs"] += 1
        seen["tied"] += bool(prediction.tied_at)
        seen["made again"] += any(call.attempt for call in prediction.calls)
        without = predict(attrs.evolve(scenario, salvage_rounds=0))
        seen["salvaged"] += len(without.calls) < len(prediction.calls)
        seen.update({outcome.kind for outcome in prediction.outcomes})

    draw()
    assert seen["tied"] * 12 <= seen["runs"], seen
    for kind in ("Done", "Failed", "TimedOut", "Interrupted", "Blocked", "NotRun", "made again"):
        assert seen[kind] >= 30, (kind, seen)
    assert seen["salvaged"] >= 5, seen


@pytest.mark.slow
def test_lanes_adapt_in_drawn_scenarios() -> None:
    """Cuts, trials, recoveries, rates of both kinds and closed lanes are drawn often, ties less so."""
    seen: Counter[str] = Counter()

    @settings(max_examples=300, derandomize=True, database=None)
    @given(tame=adaptive_scenarios(hints=False, wild=False), scenario=adaptive_scenarios())
    def draw(tame: RunScenario, scenario: RunScenario) -> None:
        for prediction in (predict(tame), predict(scenario)):
            seen["runs"] += 1
            seen["tied"] += bool(prediction.tied_at)
            seen["cut"] += any(lane.cuts for lane in prediction.lanes)
            seen["tried"] += any(lane.trials for lane in prediction.lanes)
            seen["recovered"] += any(lane.recoveries for lane in prediction.lanes)
            seen["closed"] += any(lane.closed_at < math.inf for lane in prediction.lanes)
            seen.update({rate for lane in prediction.lanes for rate in lane.rates})

    draw()
    assert seen["tied"] * 3 <= seen["runs"], seen
    for what in ("cut", "recovered", "closed", "declared"):
        assert seen[what] >= 50, (what, seen)
    assert seen["measured"] >= 15, seen
    assert seen["tried"] >= 10, seen


def test_a_block_is_followed_by_one_probe_and_then_by_twice_as_many() -> None:
    """After a block one call probes, then two run: a worked example of four calls."""
    told = CallScript(
        "a", 0.0, attempts=(AttemptScript(1.0, Fault.RATE_LIMITED, 5.0), AttemptScript(0.25))
    )
    longer = (CallScript("a", 2.0 + index / 64) for index in range(1, 8))
    scripts = tuple(JobScript("a", (call,)) for call in (told, *longer))
    scenario = RunScenario((LaneSpec("a", 4, adaptive="off"),), scripts)
    prediction = predict(scenario)
    assert [(call.index, call.started_at) for call in prediction.calls] == [
        *((index, 0.0) for index in range(4)),
        (4, 6.0),  # the block of 1 + 5 is over, and half a second of jitter is not
        (0, 8.0625),  # the probe is served: before new calls, in one of two slots
        (5, 8.0625),
        (6, 8.3125),  # so is the next one, and the lane has its full max concurrency
        (7, 8.3125),
    ]
    assert not prediction.tied_at
    _compare(scenario)


def test_a_failed_job_is_rerun_when_no_other_can_continue() -> None:
    """The final retry round waits for job 1, and job 2 for the result of job 0: a worked example."""
    mishap = CallScript("a", 0.0, attempts=(AttemptScript(1.0, Fault.TRANSIENT),))
    scripts = tuple(
        JobScript("a", (call,)) for call in (mishap, CallScript("a", 4.0), CallScript("a", 1.0))
    )
    lane = LaneSpec("a", 2, adaptive="off", retries=0)
    prediction = predict(RunScenario((lane,), scripts, edges={2: (Edge(0),)}, salvage_rounds=1))
    assert [(call.index, call.started_at) for call in prediction.calls] == [(0, 0), (1, 0), (0, 4)]
    assert [(end.kind, end.finished_at) for end in prediction.outcomes] == [
        ("Failed", 5.0),
        ("Done", 4.0),
        ("Blocked", 5.0),
    ]


def test_a_blocked_job_leaves_its_key_to_a_blocked_job() -> None:
    """A failure blocks two jobs of one key that depend on it, and neither starts."""
    refused = CallScript("a", 0.0, attempts=(AttemptScript(1.0, Fault.REFUSED),))
    scripts = (
        JobScript("a", (refused,)),
        JobScript("a", (CallScript("a", 0.25),), key="x"),
        JobScript("a", (CallScript("a", 0.5),), key="x"),
        JobScript("a", (CallScript("a", 0.75),), key="x"),
    )
    scenario = RunScenario((_LANE,), scripts, edges={1: (Edge(0),), 2: (Edge(0),)})
    kinds = [outcome.kind for outcome in predict(scenario).outcomes]
    assert kinds == ["Failed", "Blocked", "Blocked", "Done"]
    _compare(scenario)


def test_a_tie_is_reported() -> None:
    """Two calls of one lane that end together are reported as a tie."""
    scripts = (JobScript("a", (CallScript("a", 1.0),)),) * 3
    assert predict(RunScenario((LaneSpec("a", 2, adaptive="off"),), scripts)).tied_at == {1.0}
    assert not predict(RunScenario((LaneSpec("a", 1, adaptive="off"),), scripts)).tied_at


def _with_refusals(
    width: int, *jobs: tuple[float | tuple[float, float | None], ...]
) -> RunScenario:
    """Return calls from the durations of their requests; a pair means a refusal, with a wait or None."""
    scripts = []
    for requests in jobs:
        attempts = tuple(
            AttemptScript(request)
            if isinstance(request, float)
            else AttemptScript(request[0], Fault.RATE_LIMITED, request[1])
            for request in requests
        )
        scripts.append(JobScript("a", (CallScript("a", 0.0, attempts=attempts),)))
    return RunScenario((LaneSpec("a", width),), tuple(scripts), spread=95 / 256)


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(
            _with_refusals(
                2,
                ((1.0, None), 1.125),
                ((1.0625, None), 1.25),
                *((1.0 + index / 256,) for index in range(2, 30)),
                ((1.0, None), 1.0625),
                *((1.0 + index / 256,) for index in range(31, 48)),
            ),
            id="a trial that is served at full width is forgotten",
        ),
        pytest.param(
            _with_refusals(
                1,
                ((0.453125, 0.25), 0.2431640625),
                (0.767578125,),
                ((0.46875, None), 0.4482421875),
                (0.54296875,),
                ((0.140625, 0.25), 0.4892578125),
                (0.5615234375,),
                (0.7578125,),
                (0.2119140625,),
                ((0.015625, 0.25), 0.158203125),
                ((0.0625, 0.5), 0.0810546875),
                (0.1640625,),
            ),
            id="calls that a calm lane served count as served after a wait",
        ),
        pytest.param(
            _with_refusals(
                3,
                ((0.59375, 0.25), 0.751953125),
                ((0.40625, 0.5), 0.1591796875),
                (0.45703125,),
                (0.7470703125,),
                (0.498046875,),
                ((0.25, None), 0.4365234375),
                ((0.71875, 0.25), 0.375),
                (0.6806640625,),
                ((0.140625, 0.5), 0.02734375),
                (0.248046875,),
                (0.484375,),
            ),
            id="a wave that starts without a wait gives a rate too",
        ),
    ],
)
def test_runs_of_earlier_errors_go_as_predicted(scenario: RunScenario) -> None:
    """In these runs the kernel once violated the rules."""
    assert not predict(scenario).tied_at
    _compare(scenario)


def test_a_lane_closed_by_unanswered_calls_is_predicted() -> None:
    """A lane whose probe times out is closed as predicted."""
    refused = CallScript(
        "a", 0.0, attempts=(AttemptScript(1.0, Fault.RATE_LIMITED, 1.0), AttemptScript(20.0))
    )
    scenario = RunScenario(
        (LaneSpec("a", patience=6.0),), (JobScript("a", (refused,), timeout=9.0),)
    )
    (lane,) = predict(scenario).lanes
    assert lane.closed_at > 9.0
    _check(scenario, run_scenario(scenario), predict(scenario))
    told = [event.at for event in run_scenario(scenario).events if type(event) is LaneClosed]
    assert told == [pytest.approx(lane.closed_at)]


_ONE = JobScript("a", (CallScript("a", 1.0),))


@pytest.mark.parametrize(
    ("scenario", "why"),
    [
        (RunScenario((LaneSpec("a", adaptive="latency"),), (_ONE,)), "a lane adapts to latency"),
        (RunScenario((_LANE,), (_ONE,), cancel_at=1.0), "its caller cancels it"),
        (RunScenario((_LANE,), (_ONE,), cap=1), "it has a budget or a cap"),
        (RunScenario((_LANE,), (_ONE,), reorder_window=1), "it has a window"),
        (
            RunScenario((_LANE,), (_ONE,), serial=True, salvage_rounds=1),
            "serial jobs are salvaged",
        ),
        (
            RunScenario((_LANE,), (JobScript("a", (Pause(1.0),)),)),
            "job 0 is not one patient call on its lane",
        ),
        (RunScenario((_LANE,), (JobScript("a", ()),)), "job 0 is not one patient call on its lane"),
        (
            RunScenario((_LANE,), (_ONE,), edges={0: (Edge(0),)}),
            "its jobs wait for each other",
        ),
    ],
)
def test_a_scenario_that_is_not_plain_is_rejected(scenario: RunScenario, why: str) -> None:
    """The message has the reason."""
    with pytest.raises(UsageError) as caught:
        predict(scenario)
    assert str(caught.value) == f"the scenario is not plain: {why}"


def _compare(scenario: RunScenario, *, tied: bool = True) -> None:
    """Compare with a run of the kernel: exactly, except for reported or measured rates."""
    prediction = predict(scenario)
    if not tied:  # only drawn scenarios may be left out
        assume(not prediction.tied_at)
    _check(scenario, run_scenario(scenario), prediction)


def _compare_ways(scenario: RunScenario, most: int = _MOST_WAYS) -> None:
    """Check that the run is one of the predicted ones; leave out scenarios with too many."""
    trace = run_scenario(scenario)
    ways = itertools.islice(predictions(scenario), most)
    first, *others = itertools.islice(ways, 2)
    if not others:
        _check(scenario, trace, first)  # raises with the difference
        return
    tried = 0
    for way in itertools.chain((first, *others), ways):
        tried += 1
        if _is_as_predicted(scenario, trace, way):
            return
    assume(tried < most)
    pytest.fail(f"none of {tried} ways; one of them: {first}")


def _is_as_predicted(scenario: RunScenario, trace: RunTrace, prediction: Prediction) -> bool:
    try:
        _check(scenario, trace, prediction)
    except AssertionError:
        return False
    return True


def _check(scenario: RunScenario, trace: RunTrace, prediction: Prediction) -> None:
    calls = sorted(
        (span.index, span.attempt, span.lane, span.started_at, span.ended_at)
        for span in trace.calls
    )
    predicted = sorted(
        (call.index, call.attempt, call.lane, call.started_at, call.ended_at)
        for call in prediction.calls
    )
    assert [call[:3] for call in calls] == [call[:3] for call in predicted]
    slack = 1e-9 if any(_learns_rates(spec, scenario) for spec in scenario.lanes) else 0.0
    for seen, right in zip(calls, predicted, strict=True):
        assert seen[3:] == pytest.approx(right[3:], rel=0, abs=slack), (seen, right)
    outcomes = [emission.outcome for emission in trace.emissions]
    kinds = [type(outcome).__name__ for outcome in outcomes]
    assert kinds == [outcome.kind for outcome in prediction.outcomes]
    for outcome, end in zip(outcomes, prediction.outcomes, strict=True):
        finished_at = getattr(outcome, "finished_at", end.finished_at)
        assert finished_at == pytest.approx(end.finished_at, rel=0, abs=slack)
    for lane in prediction.lanes:
        if lane.closed_at < prediction.ended_at:
            closings = [e.at for e in trace.events if type(e) is LaneClosed and e.lane == lane.name]
            assert closings == pytest.approx([lane.closed_at], rel=0, abs=slack)
        limits = [
            e.adaptive for e in trace.events if type(e) is LimitChanged and e.lane == lane.name
        ]
        assert not limits or limits[-1] == lane.limit
    assert trace.ended_at == pytest.approx(prediction.ended_at, rel=0, abs=slack)


def _learns_rates(spec: LaneSpec, scenario: RunScenario) -> bool:
    calls = [action for script in scenario.scripts for action in script.actions]
    hears = any(
        attempt.hint for call in calls if type(call) is CallScript for attempt in call.attempts
    )
    return spec.adaptive != "off" or hears
