"""Whole runs on servers that fail: the time against that of a clairvoyant scheduler, and the recovery."""

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from server_shapes import Server, run_on

from trioeval.kernel import LaneSpec

pytestmark = pytest.mark.slow

seeds = st.integers(0, 10_000)


@settings(max_examples=15)
@given(st.integers(2, 24), seeds)
def test_a_full_server_is_filled_and_rarely_overfilled(cap: int, seed: int) -> None:
    """A server that refuses without hints costs a quarter more than the ideal, and few refusals."""
    server = Server(0.2, cap=cap, seed=seed)
    seen = run_on(server, LaneSpec("lane", 32), 25 * cap)
    assert seen.done == 25 * cap
    assert seen.seconds <= 1.25 * server.ideal(25 * cap, 32)
    assert seen.refusals <= 3 * 32


def test_a_server_of_eight_in_flight_refuses_25_requests() -> None:
    """The first 24 that are too many, and one trial."""
    server = Server(0.2, cap=8)
    seen = run_on(server, LaneSpec("lane", 32), 200)
    assert seen.refusals <= 25
    assert seen.seconds <= 1.26 * 5.0


@pytest.mark.parametrize("share", [0.05, 0.1])
@pytest.mark.parametrize("width", [8, 32])
def test_refusals_at_random_do_not_collapse_a_lane(share: float, width: int) -> None:
    """The median run takes 1.35 times the ideal for that share, and none twice as long."""
    ratios = []
    for seed in range(7):
        server = Server(0.2, refused_share=share, seed=seed)
        seen = run_on(server, LaneSpec("lane", width), 600)
        assert seen.done == 600
        ratios.append(seen.seconds / server.ideal(600, width))
    assert statistics.median(ratios) <= 1.35
    assert max(ratios) <= 2


def test_failures_at_random_cost_short_rests() -> None:
    """With 10 % of replies 500, 200 calls of 50 ms at width 20 take 1.1 s, each failure one request."""
    runs = [
        run_on(Server(0.05, failed_share=0.1, seed=seed), LaneSpec("lane", 20), 200)
        for seed in range(7)
    ]
    assert statistics.median(run.seconds for run in runs) <= 1.1
    assert all(run.requests <= 1.3 * 200 for run in runs)


def test_waits_of_milliseconds_are_no_outage() -> None:
    """10 % refusals that ask for 1 ms and 10 % failures: 1.5 times the ideal."""
    ratios = []
    for seed in range(3):
        server = Server(0.05, refused_share=0.1, refused_wait=0.001, failed_share=0.1, seed=seed)
        seen = run_on(server, LaneSpec("lane", 32), 1000, cells=3)
        ratios.append(seen.seconds / server.ideal(3000, 32))
    assert statistics.median(ratios) <= 1.5


@pytest.mark.parametrize("names_wait", [True, False])
def test_a_token_bucket_is_followed(*, names_wait: bool) -> None:
    """A bucket whose rate is unknown is used to two thirds at least."""
    server = Server(0.1, rate=20, burst=20, names_wait=names_wait)
    seen = run_on(server, LaneSpec("lane", 16), 200)
    assert seen.seconds <= 1.5 * server.ideal(200, 16)


def test_a_latency_cliff_is_not_passed() -> None:
    """A lane that learns from latency stays near the best number of calls in flight."""
    server = Server(0.1, cliff=8)
    seen = run_on(server, LaneSpec("lane", 32, adaptive="latency"), 400)
    assert seen.seconds <= 1.3 * server.ideal(400, 32)


@settings(max_examples=15)
@given(
    width=st.integers(2, 16),
    rpm=st.sampled_from((None, 60_000.0)),
    by_chance=st.booleans(),
    seed=seeds,
)
def test_the_limit_returns_to_the_max_concurrency_after_refusals_end(
    *,
    width: int,
    rpm: float | None,
    by_chance: bool,
    seed: int,
) -> None:
    """RECOVERY: within 2 · max concurrency + 30 rounds of completions, with a rate or not."""
    server = Server(0.2, seed=seed, trouble_ends=2.0)
    if by_chance:
        server.refused_share = 0.3
    else:
        server.cap = max(1, width // 3)
    rounds = 2 * width + 30
    seen = run_on(server, LaneSpec("lane", width, rpm=rpm), 12 * width + rounds * max(4, width))
    assert not seen.limits or seen.limits[-1][1] == width
