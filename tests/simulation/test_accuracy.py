"""Simulations beside real runs of the same suites against the fake provider.

The real run has every part of the program: prompts, adapters' errors, lanes, judges, rows. Only the sockets
are missing, so that its clock can be virtual and the comparison exact to the microsecond.
"""

import statistics
from typing import Any

import pytest
from fake_world import RealRun, real_run, simulated_suite, suite_of

from trioeval.providers.fake import FakeSettings, ScriptedReplies
from trioeval.simulation.model import ServerLimits
from trioeval.simulation.run import Forecast, simulate

_VERDICT = ScriptedReplies(('{"pass": true, "score": 1, "reason": "kind"}',))


def provider(**limits: Any) -> FakeSettings:
    return FakeSettings(latency_s=0.8, jitter=0.4, **limits)


def middle(real: RealRun, **limits: ServerLimits) -> Forecast:
    """Return the simulation with the median makespan of three."""
    several = [
        simulate(simulated_suite(real.prepared, real.models, seed=seed, **limits))
        for seed in range(3)
    ]
    return sorted(several, key=lambda one: one.makespan)[1]


def assert_alike(real: RealRun, found: Forecast) -> None:
    """Compare makespan, requests and refusals: within 5 %, and single refusals more or less."""
    assert found.makespan == pytest.approx(real.makespan, rel=0.05)
    assert found.requests == pytest.approx(len(real.starts), rel=0.05)
    assert found.refused == pytest.approx(real.refused, rel=0.2, abs=2)


def test_an_unlimited_provider() -> None:
    """The makespan follows from latency and width alone."""
    real = real_run(suite_of(120, maxConcurrency=8), {"m": provider()})
    found = middle(real)
    assert_alike(real, found)
    assert found.done == 120


@pytest.mark.slow
@pytest.mark.parametrize("declared", [True, False])
def test_a_provider_with_a_rate(declared: bool) -> None:  # noqa: FBT001
    """A declared rate, and one that the lane learns from headers and refusals."""
    rate: dict[str, Any] = {"rpm": 120, "burst": 5} if declared else {}
    real = real_run(suite_of(200, maxConcurrency=8, **rate), {"m": provider(rpm=120, burst=5)})
    found = middle(real, m=ServerLimits(rpm=120, burst=5))
    assert_alike(real, found)
    assert bool(found.refused) is not declared


@pytest.mark.slow
def test_a_provider_with_a_rate_of_tokens() -> None:
    """The lane reserves by experience, as it does in a run."""
    real = real_run(suite_of(150, maxConcurrency=8, tpm=1500), {"m": provider(tpm=1500)})
    found = middle(real, m=ServerLimits(tpm=1500))
    assert_alike(real, found)
    assert max(found.waits, key=lambda why: found.waits[why]) == "tokens"


def test_a_server_that_refuses_without_hints() -> None:
    """The lane finds the width that the server allows, with as many refusals as in the run."""
    settings = {"m": provider(max_in_flight=8, hints="none")}
    real = real_run(suite_of(200, maxConcurrency=32), settings)
    found = middle(real, m=ServerLimits(max_in_flight=8, reports=False))
    assert_alike(real, found)
    assert found.refused > 0


@pytest.mark.slow
def test_two_lanes_with_judges() -> None:
    """Rows move from the lane of their provider to the slower lane of their judge."""
    judge = FakeSettings(latency_s=1.5, jitter=0.2, seed=3, replies=_VERDICT)
    real = real_run(suite_of(120, maxConcurrency=8, judge="j"), {"m": provider(), "j": judge})
    found = middle(real)
    assert_alike(real, found)
    assert [lane.requests for lane in found.lanes.values()] == [120, 120]


@pytest.mark.slow
def test_a_provider_that_fails_now_and_then() -> None:
    """The share of failures is observed, and failed requests are retried by the lane."""
    real = real_run(suite_of(200, maxConcurrency=8), {"m": provider(failure_rate=0.1)})
    found = middle(real)
    assert found.makespan == pytest.approx(real.makespan, rel=0.06)
    assert found.retried == pytest.approx(len(real.starts) - 200, abs=8)


@pytest.mark.slow
def test_starts_follow_the_same_course() -> None:
    """Not only the end agrees: each quarter of the requests has started at about the same time."""
    real = real_run(suite_of(200, maxConcurrency=8), {"m": provider(rpm=120, burst=5)})
    found = middle(real, m=ServerLimits(rpm=120, burst=5))
    (lane,) = found.lanes.values()
    starts = sorted(at for _, at in real.starts)
    quarters = statistics.quantiles(starts, n=4)
    counted = 0
    for number, bucket in enumerate(lane.buckets):
        counted += bucket[2]
        at = (number + 1) * lane.bucket_s
        share = sum(start <= at for start in starts)
        if at >= quarters[0]:
            assert counted == pytest.approx(share, abs=20)
