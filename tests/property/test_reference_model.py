"""The kernel does what the reference scheduler predicts, start by start and outcome by outcome.

Compared are the instants, jobs, lanes and numbers of all requests, the kinds and ends of all outcomes, and
the end of the run, all exactly. Durations have fractions of their own (see `trioeval.testing.plain`), and
the few runs with ties that the rules leave open are left out.
"""

from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trioeval.testing import Scenario, run_scenario
from trioeval.testing.model import predict
from trioeval.testing.model_parts import PredictedCall
from trioeval.testing.plain import plain_scenarios

pytestmark = pytest.mark.slow


@given(scenario=plain_scenarios(failures=False, order=False), _schedule=st.random_module())
def test_lanes_start_and_end_calls_as_predicted(scenario: Scenario, _schedule: object) -> None:
    """Widths, paces, gaps, timeouts, deadline and stop."""
    _compare(scenario)


@given(scenario=plain_scenarios(order=False), _schedule=st.random_module())
def test_failures_are_answered_as_predicted(scenario: Scenario, _schedule: object) -> None:
    """Back-offs, blocks, recoveries, retries and salvage rounds as well."""
    _compare(scenario)


@given(scenario=plain_scenarios(failures=False), _schedule=st.random_module())
def test_jobs_wait_for_each_other_as_predicted(scenario: Scenario, _schedule: object) -> None:
    """Serial jobs, keys and edges as well."""
    _compare(scenario)


@given(scenario=plain_scenarios(), _schedule=st.random_module())
def test_everything_together_goes_as_predicted(scenario: Scenario, _schedule: object) -> None:
    """All that the reference scheduler knows."""
    _compare(scenario)


def test_hardly_any_drawn_scenario_is_left_out() -> None:
    """Ties are rare, and every kind of outcome and every kind of failure is drawn often."""
    seen: Counter[str] = Counter()

    @given(scenario=plain_scenarios())
    @settings(max_examples=300, derandomize=True, database=None)
    def draw(scenario: Scenario) -> None:
        prediction = predict(scenario)
        seen["runs"] += 1
        seen["tied"] += bool(prediction.tied_at)
        seen["made again"] += any(call.attempt for call in prediction.calls)
        seen["salvaged"] += len({(c.index, c.attempt) for c in prediction.calls}) < len(
            prediction.calls
        )
        seen.update({outcome.kind for outcome in prediction.outcomes})

    draw()
    assert seen["tied"] * 20 <= seen["runs"], seen
    for kind in ("Done", "Failed", "TimedOut", "Interrupted", "Blocked", "NotRun", "made again"):
        assert seen[kind] >= 30, (kind, seen)
    assert seen["salvaged"] >= 10, seen


def _compare(scenario: Scenario) -> None:
    prediction = predict(scenario)
    assume(not prediction.tied_at)
    trace = run_scenario(scenario)
    calls = sorted(
        PredictedCall(span.started_at, span.index, span.attempt, span.lane, span.ended_at)
        for span in trace.calls
    )
    assert calls == list(prediction.calls)
    outcomes = [emission.outcome for emission in trace.emissions]
    kinds = [type(outcome).__name__ for outcome in outcomes]
    assert kinds == [outcome.kind for outcome in prediction.outcomes]
    for outcome, predicted in zip(outcomes, prediction.outcomes, strict=True):
        assert getattr(outcome, "finished_at", predicted.finished_at) == predicted.finished_at
    assert trace.ended_at == prediction.ended_at
