"""The formula of the capacity plan against runs of the real coordinator on virtual time."""

import attrs
import pytest
from virtual_cluster import Capacity, UnitCosts, VirtualRun, run_virtually

from trioeval.scaleout.shards import MOST_ROWS

FAST = UnitCosts(
    coordinator_row=1e-5,
    scheduler_message=1e-5,
    scheduler_shard=1e-4,
    worker_row=1e-4,
    latency=0.05,
    width=4,
)
"""Costs with which only the workers are busy."""

SATURATED = {
    "workers": attrs.evolve(FAST, latency=1.0),
    "coordinator": attrs.evolve(FAST, coordinator_row=3e-3, store_row=1e-3),
    "scheduler": attrs.evolve(FAST, scheduler_byte=5e-6, row_bytes=800),
    "Redis": attrs.evolve(FAST, redis_row=4e-3),
}


def in_order(run: VirtualRun, rows: int) -> bool:
    """Return whether each row was emitted once, by its index."""
    return [*run.indices] == [*range(rows)] and not run.failed


@pytest.mark.slow
@pytest.mark.parametrize("part", SATURATED)
def test_the_formula_names_the_part_that_saturates_and_the_duration(part: str) -> None:
    """Shards, messages and the end of a run cost less than a tenth of the duration."""
    workers, rows = 20, 3000
    capacity = Capacity(SATURATED[part], workers)
    run = run_virtually(SATURATED[part], workers=workers, rows=rows)
    assert in_order(run, rows)
    assert capacity.slowest == part
    assert run.seconds == pytest.approx(capacity.seconds(rows), rel=0.1)
    if part != "workers":  # their cores wait for calls
        assert max(run.busy, key=lambda name: run.busy[name]) == part
        assert run.busy[part] > 0.9


@pytest.mark.slow
def test_more_workers_do_not_pay_beyond_the_number_of_the_formula() -> None:
    costs, rows = attrs.evolve(FAST, coordinator_row=4e-3), 2000
    number = Capacity(costs, 1).workers_that_pay
    fewer, enough, more = (
        run_virtually(costs, workers=count, rows=rows).seconds
        for count in (number // 4, 2 * number, 4 * number)
    )
    assert fewer > 2.5 * enough
    assert more > 0.95 * enough


@pytest.mark.slow
def test_a_thousand_workers_run_every_row_once_while_some_are_lost() -> None:
    """Laws TOTAL, ORDER and ONCE, with few shards for each worker."""
    losses = [(0.2 + number / 50, f"worker {number}") for number in range(25)]
    run = run_virtually(attrs.evolve(FAST, latency=1.0), workers=1000, rows=8000, losses=losses)
    assert in_order(run, 8000)
    assert run.seconds < 10


@pytest.mark.slow
def test_equal_runs_are_equal() -> None:
    costs = attrs.evolve(FAST, coordinator_row=2e-3)
    first, second = (run_virtually(costs, workers=7, rows=1000) for _ in range(2))
    assert first == second


def test_rows_of_a_limited_lane_are_as_fast_as_one_worker() -> None:
    """The owner of a lane makes all of its calls, however many workers there are."""
    costs = attrs.evolve(FAST, latency=1.0)
    run = run_virtually(costs, workers=5, rows=100, limits={"rpm": 60_000})
    assert in_order(run, 100)
    assert run.seconds == pytest.approx(Capacity(costs, 1).seconds(100), rel=0.1)


def test_small_messages_and_shards_lower_the_capacity() -> None:
    costs = attrs.evolve(FAST, scheduler_message=1e-3, scheduler_shard=1e-2)
    few, many = Capacity(costs, 10), Capacity(costs, 1000)
    assert few.slowest == "workers"
    assert many.slowest == "scheduler"
    assert many.rows_a_message(1000.0) == pytest.approx(1.01)
    assert many.rows_a_shard(1e9) == MOST_ROWS
    assert many.live_bytes == 0
