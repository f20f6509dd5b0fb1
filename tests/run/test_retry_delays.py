"""The delays of calls that failed, as configured in a suite."""

from typing import Any

import pytest

from trioeval.loading.load import parse_suite
from trioeval.rates import Backoff
from trioeval.run import make_lanes, prepare


def backoffs_of(*lanes: dict[str, Any]) -> tuple[Backoff, Backoff]:
    """Return the back-offs of a lane that suites configure together: of failures, and of refusals."""
    suites = [
        prepare(parse_suite({"providers": [{"id": "echo", "lane": lane}], "prompts": ["x"]}))
        for lane in lanes
    ]
    throttle = make_lanes(*suites)["echo"].spec.make_throttle()
    return throttle.backoff, throttle.busy_backoff


@pytest.mark.parametrize(
    ("lane", "failures", "refusals"),
    [
        ({}, Backoff(), Backoff()),
        ({"retryDelay": 0.25}, Backoff(base=0.25), Backoff()),
        ({"retryDelay": 90}, Backoff(base=90, cap=90), Backoff()),
        ({"refusalDelay": 2}, Backoff(), Backoff(base=2)),
        ({"maxRetryDelay": 3}, Backoff(cap=3), Backoff(cap=3)),
        ({"maxRetryDelay": 0}, Backoff(cap=0.5), Backoff(cap=0.5)),
    ],
)
def test_a_lane_waits_as_configured(
    lane: dict[str, Any], failures: Backoff, refusals: Backoff
) -> None:
    """The delays grow up to their maximum, which is never less than the first one."""
    assert backoffs_of(lane) == (failures, refusals)


def test_the_longer_delay_of_two_suites_applies() -> None:
    """This holds for each of them separately."""
    lanes = ({"retryDelay": 0.25}, {"retryDelay": 1}, {"refusalDelay": 4, "maxRetryDelay": 70})
    assert backoffs_of(*lanes) == (Backoff(base=1, cap=70), Backoff(base=4, cap=70))
