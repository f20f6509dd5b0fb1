"""FREE: jobs that need nothing of their lane, beside those that do.

Start by start they are held against the reference scheduler in `test_reference_model.py`.
"""

from collections import Counter

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trioeval.kernel import Finished, NotRun
from trioeval.testing import (
    Scenario,
    check_all,
    check_unfree,
    free_scenarios,
    plain_scenarios,
    predict,
    run_scenario,
)

pytestmark = pytest.mark.slow


@settings(max_examples=120)  # three runs each
@given(scenario=plain_scenarios(), _schedule=st.random_module())
def test_jobs_that_are_not_free_do_what_they_do_unasked(
    scenario: Scenario, _schedule: object
) -> None:
    """Metamorphic: a plan whose jobs all say no, or fail to say, has the trace of a plan that asks nobody."""
    assume(not any(script.is_free for script in scenario.scripts))
    assume(not predict(scenario).tied_at)
    check_unfree(scenario)


@given(scenario=free_scenarios(), _schedule=st.random_module())
def test_every_law_holds_with_free_jobs(scenario: Scenario, _schedule: object) -> None:
    """All laws of `LAWS`, and who is told of settled outcomes hears of all that the observer hears of."""
    trace = run_scenario(scenario)
    check_all(trace)
    heard = [event.outcome for event in trace.events if isinstance(event, Finished)]
    assert [one.outcome for one in trace.settled] == heard
    never = [e.outcome for e in trace.emissions if e.outcome not in heard]
    assert all(isinstance(outcome, NotRun) for outcome in never)


def test_drawn_jobs_are_asked_in_every_way() -> None:
    """A law over runs in which nobody is free says nothing."""
    seen: Counter[str] = Counter()

    @given(scenario=free_scenarios())
    @settings(max_examples=300, derandomize=True, database=None)
    def draw(scenario: Scenario) -> None:
        trace = run_scenario(scenario)
        started = {span.index for span in trace.bodies}
        for question in trace.questions:
            free = scenario.scripts[question.index].is_free
            seen[question.ending] += 1
            seen["free"] += free and question.index in started
            seen["asked for nothing"] += question.index not in started
            seen["serial"] += question.index in trace.serial

    draw()
    for what in ("returned", "failed", "cut", "free", "asked for nothing", "serial"):
        assert seen[what] >= 20, (what, seen)
