"""The delays of calls that failed transiently, as configured in a suite."""

from trioeval.kernel import Backoff
from trioeval.loading.load import parse_suite
from trioeval.run import make_lanes, prepare


def lane_of(*delays: float | None) -> Backoff:
    suites = []
    for delay in delays:
        lane = {} if delay is None else {"retryDelay": delay}
        suites.append(
            prepare(parse_suite({"providers": [{"id": "echo", "lane": lane}], "prompts": ["x"]}))
        )
    return make_lanes(*suites)["echo"].spec.backoff


def test_a_lane_waits_as_configured() -> None:
    assert lane_of(None) == Backoff()
    assert lane_of(0.25) == Backoff(base=0.25)
    assert lane_of(90) == Backoff(base=90, cap=90)


def test_the_longer_delay_of_two_suites_applies() -> None:
    assert lane_of(0.25, 1, 0.5).base == 1
