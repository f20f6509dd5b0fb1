"""Laws of simulations: they are runs of the real kernel, equal if their arguments are, and monotonic."""

import math
from collections.abc import Sequence
from typing import Any

import attrs
import hypothesis
import pytest
import trio
from fake_world import FakeServer, prepared_suite, simulated_suite, suite_of
from hypothesis import strategies as st

from trioeval.errors import UsageError
from trioeval.providers.fake import FakeSettings
from trioeval.simulation.clock import VirtualClock
from trioeval.simulation.model import (
    ProviderModel,
    SampledCall,
    ServerLimits,
    ServerModel,
    Spread,
    draw,
)
from trioeval.simulation.run import simulate
from trioeval.simulation.suite import SimulatedSuite
from trioeval.suite.model import BudgetSettings


def model(mean: float = 0.8, deviation: float = 0.3, **more: Any) -> ProviderModel:
    calls = tuple(SampledCall(at, 10, 20, 0.001) for at in Spread(mean, deviation).sample(200))
    return ProviderModel(calls=calls, **more)


def simulated(size: int, provider: ProviderModel | None = None, **lane: Any) -> SimulatedSuite:
    servers = {"m": FakeServer(FakeSettings(), "m")}
    prepared = prepared_suite(suite_of(size, **lane), servers)
    return simulated_suite(prepared, {"m": model() if provider is None else provider})


def limited(suite: SimulatedSuite, limits: ServerLimits) -> SimulatedSuite:
    return attrs.evolve(suite, limits={suite.specs[0].name: limits})


def test_equal_simulations_are_equal() -> None:
    """Every figure repeats, with refusals, failures and back-offs as well; another seed differs."""
    suite = limited(
        simulated(80, model(failure_share=0.1), maxConcurrency=8), ServerLimits(max_in_flight=4)
    )
    first = simulate(suite)
    assert simulate(suite) == first
    assert simulate(attrs.evolve(suite, seed=1)) != first


def test_a_single_lane_takes_the_latencies_one_after_another() -> None:
    """With width 1 the makespan is the sum of all latencies."""
    suite = simulated(10, model(2, 0), maxConcurrency=1)
    found = simulate(suite)
    assert found.makespan == pytest.approx(20)
    assert found.money == pytest.approx(0.01)
    assert found.tokens == 300


@pytest.mark.slow
@hypothesis.given(st.integers(1, 12), st.integers(0, 3))
@hypothesis.settings(max_examples=12, deadline=None)
def test_a_wider_lane_is_never_slower_without_limits(width: int, seed: int) -> None:
    """Rows have the same calls whatever the width: the earliest free slot is never later."""
    narrow = attrs.evolve(simulated(40, maxConcurrency=width), seed=seed)
    wide = attrs.evolve(simulated(40, maxConcurrency=width + 1), seed=seed)
    assert simulate(wide).makespan <= simulate(narrow).makespan + 1e-9


def test_width_and_pace_hold() -> None:
    """WIDTH, PACE: the lanes are those of a run."""
    found = simulate(simulated(60, maxConcurrency=4, rpm=60, burst=2))
    (lane,) = found.lanes.values()
    assert max(bucket[0] for bucket in lane.buckets) <= 4
    starts = [bucket[2] for bucket in lane.buckets]
    a_minute = math.ceil(60 / lane.bucket_s)
    assert max(sum(starts[at : at + a_minute]) for at in range(len(starts))) <= 62 + lane.bucket_s
    assert found.makespan >= 58


def test_a_budget_and_a_deadline_cut_the_run() -> None:
    """BUDGET, DEADLINE: rows that do not fit are not run."""
    suite = simulated(50, maxConcurrency=5)
    assert simulate(attrs.evolve(suite, budget=BudgetSettings(requests=20))).done == 20
    cut = simulate(attrs.evolve(suite, deadline=2.0))
    assert cut.makespan == pytest.approx(2.0)
    assert 0 < cut.done < 20
    assert cut.done + cut.not_run == 50


def test_two_keys_halve_the_work_of_a_lane() -> None:
    """Each key has a lane and limits of its own."""
    suite = limited(simulated(120, maxConcurrency=8, rpm=60), ServerLimits(rpm=60))
    single = simulate(suite)
    double = simulate(attrs.evolve(suite, keys={suite.specs[0].name: 2}))
    assert len(double.lanes) == 2
    assert double.makespan == pytest.approx(single.makespan / 2, rel=0.05)


def test_rows_of_a_conversation_wait_for_each_other() -> None:
    """The order of rows is that of the suite."""
    suite = suite_of(6, maxConcurrency=6)
    suite["prompts"] = ["{{ _conversation | length }} {{word}}"]
    servers = {"m": FakeServer(FakeSettings(), "m")}
    ordered = simulated_suite(prepared_suite(suite, servers), {"m": model(1, 0)})
    assert simulate(ordered).makespan == pytest.approx(6)


def test_the_first_rows_of_a_suite_stand_for_all() -> None:
    """A part is as a run of so many rows; rows that depend on each other are not divided."""
    suite = simulated(50, maxConcurrency=5)
    assert simulate(suite.first(20)).rows == 20
    assert suite.first(100) is suite


def draws(provider: ProviderModel, rows: range, seed: int = 0) -> Sequence[float]:
    return [draw(provider, seed, row, 1).call.latency for row in rows]


def test_a_short_run_has_the_mean_of_the_sample() -> None:
    """Each block of rows covers the whole sample; the order differs from block to block."""
    provider = model()
    for block in range(4):
        found = draws(provider, range(64 * block, 64 * (block + 1)))
        assert sum(found) / 64 == pytest.approx(provider.mean_latency, rel=0.02)
    assert draws(provider, range(64)) != draws(provider, range(64, 128))


def test_shares_of_failures_and_refusals_are_kept() -> None:
    """They exclude each other."""
    provider = model(failure_share=0.2, refusal_share=0.1)
    found = [draw(provider, 0, row, 1) for row in range(5000)]
    assert sum(one.fails for one in found) / 5000 == pytest.approx(0.2, abs=0.02)
    assert sum(one.is_refused for one in found) / 5000 == pytest.approx(0.1, abs=0.02)
    assert not any(one.fails and one.is_refused for one in found)


@pytest.mark.parametrize("limits", [{"rpm": 0}, {"tpm": -1}, {"max_in_flight": 0}, {"burst": 3}])
def test_impossible_limits_are_refused(limits: dict[str, Any]) -> None:
    """A limit is at least 1, and a burst needs a rate."""
    with pytest.raises(UsageError, match=f"the provider's {next(iter(limits))}"):
        ServerLimits(**limits)


def test_a_bare_refusal_names_no_wait() -> None:
    """Other refusals name the wait, after which the request is admitted."""
    server = ServerModel(ServerLimits(rpm=1))
    assert server.refuse(0.0, 5) is None
    refusal = server.refuse(10.0, 5)
    assert refusal is not None
    assert refusal.retry_after == 50
    assert server.refuse(60.0, 5) is None
    bare = ServerModel(ServerLimits(rpm=1, reports=False))
    assert bare.refuse(0.0, 5) is None
    refusal = bare.refuse(10.0, 5)
    assert refusal is not None
    assert refusal.retry_after is None
    assert bare.hint(0.0) is None


def test_the_clock_wakes_equal_sleepers_in_their_order() -> None:
    """Cancelled sleepers are forgotten, and other timeouts of Trio hold as well."""
    clock = VirtualClock()
    woken: list[tuple[int, float]] = []

    async def sleep(number: int, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await clock.sleep(1.0)
        woken.append((number, trio.current_time()))

    async def main() -> None:
        with trio.move_on_after(2):
            await clock.sleep(3)
        async with trio.open_nursery() as nursery:
            for number in range(3):
                await nursery.start(sleep, number)

    trio.run(main, clock=clock)
    assert woken == [(0, 3.0), (1, 3.0), (2, 3.0)]


def test_a_stopped_simulation_ends_at_once() -> None:
    """The rows so far are its result; nothing is simulated for the others."""
    rows = 0

    def is_stopped() -> bool:
        nonlocal rows
        rows += 1
        return rows >= 10

    found = simulate(simulated(2000, maxConcurrency=5), is_stopped=is_stopped)
    assert 10 <= found.requests < 40
    assert found.makespan < 10
