"""Datasets whose columns run code of the suite: local jobs do not wait for it."""

from typing import Any

import pytest
import trio
from dataset_scripted import (
    Built,
    Col,
    Provider,
    Values,
    built,
    cell,
    dataset,
    refusal,
    seeds,
    whole,
)

from trioeval.columns.events import GroupOpened
from trioeval.columns.finish import MemoryOutput
from trioeval.columns.graph import FINISH, MakeJob
from trioeval.columns.lanes import CODE, LOCAL
from trioeval.columns.makers.base import CellOrder, GroupOrder, JobOrder, Made
from trioeval.columns.model import ErrorWindow, Skip
from trioeval.columns.run import DatasetRun
from trioeval.columns.spec import Processed, Rows, StageProcessor, Stages
from trioeval.errors import CallError, Fault
from trioeval.kernel import Calls, LaneSpec

SEED = whole("seed", seeds())
OPEN = LaneSpec("open", 10)


def slow(*needs: str) -> Col:
    """Return a function of the suite that eight processes run, a second each."""
    processes = trio.CapacityLimiter(8)

    async def make(_order: CellOrder, _calls: Calls[Any]) -> Values:
        async with processes:
            await trio.sleep(1)
        return {"x": 1}

    return cell("x", make, *needs, lane=CODE)


async def summary(order: GroupOrder, _calls: Calls[Any]) -> Made:
    return [(row, {"e": 1}) for row in order.rows]


def beside(*cols: Col, rows: int, size: int) -> Built:
    return built(dataset(SEED, slow("seed"), *cols, rows=rows, size=size), OPEN)


def test_co_50_seeds_do_not_wait_for_slow_functions() -> None:
    """The model finishes all groups long before the functions do."""
    a = Provider("a", "open", seconds=0.05)
    found = beside(a.col("seed"), rows=600, size=50)
    assert a.ends[-1][0] == pytest.approx(600 / 10 * 0.05)
    assert found.ended_at == pytest.approx(600 / 8)


def test_co_50_a_batch_does_not_wait_for_slow_functions() -> None:
    """The model that needs it does not wait either."""
    a = Provider("a", "open", seconds=0.05)
    beside(whole("e", summary, "seed"), a.col("e"), rows=400, size=400)
    assert a.starts[0][0] == 0
    assert a.ends[-1][0] == pytest.approx(400 / 10 * 0.05)


def test_co_50_cells_that_are_skipped_do_not_wait_for_slow_functions() -> None:
    """They make no calls, and the next column may start at once."""
    a, b = Provider("a", "open", seconds=0.05), Provider("b", "open", seconds=0.05)
    beside(
        a.col("seed", skip_when=lambda row: row["seed"] % 20 == 0),
        b.col("a", skip=Skip(propagate=False)),
        rows=400,
        size=400,
    )
    assert b.ends[-1][0] <= (200 + 400) / 10 * 0.05 + 0.05


def test_co_50_processors_do_not_keep_out_later_groups() -> None:
    """Six hundred groups wait for eight processes; the model has all its rows before that."""
    processes = trio.CapacityLimiter(8)

    async def check(_group: int | None, rows: Rows) -> Processed:
        async with processes:
            await trio.sleep(1)
        return Processed(rows)

    stages = Stages(after_batch=(StageProcessor(name="check", run=check),))
    a = Provider("a", "open", seconds=0.05)
    b = Provider("b", "open", seconds=0.05)
    cols = [SEED, a.col("seed"), whole("e", summary, "a"), b.col("e")]
    found = built(dataset(*cols, rows=600, size=1, stages=stages), OPEN)
    assert b.ends[-1][0] == pytest.approx(2 * 600 / 10 * 0.05, abs=0.1)
    assert found.result.written == 600


def test_co_63_permanently_failing_code_ends_the_dataset() -> None:
    """Rows without it are not made; complete ones are written."""
    requested: list[int] = []

    async def make(order: CellOrder, _calls: Calls[Any]) -> Values:
        requested.append(order.row)
        await trio.sleep(1)
        if order.row >= 2:
            raise ValueError("no")
        return {"x": 1}

    spec = dataset(
        SEED,
        cell("x", make, "seed", lane=CODE),
        rows=60,
        size=20,
        shutdown=ErrorWindow(calls=4, error_rate=0.5),
    )
    found = built(spec, max_live_jobs=8)
    assert found.result.early_shutdown
    assert found.numbers == [0, 1]
    assert len(requested) <= 16


def test_failing_calls_let_local_code_finish() -> None:
    """Rows that were paid for are finished if they only lack local work."""

    async def make(order: CellOrder, _calls: Calls[Any]) -> Values:
        await trio.sleep(5)
        return {"x": 1}

    a = Provider("a", "p", says=lambda row, _: row if row < 3 else refusal())
    spec = dataset(
        SEED,
        a.col("seed"),
        cell("x", make, "a", lane=CODE),
        rows=40,
        size=40,
        shutdown=ErrorWindow(calls=4, error_rate=0.75),
    )
    found = built(spec, LaneSpec("p", 2, adaptive="off"))
    assert found.result.early_shutdown
    assert found.numbers == [0, 1, 2]


def test_a_wide_lane_stays_full_while_calls_back_off() -> None:
    """A hundred refused calls wait for their turn beside five hundred in flight."""
    error = CallError(Fault.TRANSIENT, "503")
    a = Provider("a", "p", seconds=1.0, says=lambda row, n: error if row < 100 and not n else row)
    spec = dataset(SEED, a.col("seed"), rows=1200, size=1200)
    found = built(spec, LaneSpec("p", 500, adaptive="off", retry_delay=60.0))
    assert a.most == 500
    assert sum(at == 1.0 for at, _ in a.starts) == 500
    assert found.result.written == 1200


def test_jobs_of_a_whole_group_precede_its_cells() -> None:
    """This holds on the local lane; jobs of older groups come first."""
    spec = dataset(SEED, rows=1)
    progress = DatasetRun(spec, MemoryOutput(spec.grouping)).progress
    jobs = [MakeJob(1, 2, 9), MakeJob(2, 2), MakeJob(0, 1, 3), MakeJob(FINISH, 1)]
    progress.orders = {place: JobOrder(job, LOCAL) for place, job in enumerate(jobs)}
    assert sorted(progress.orders, key=progress.rank) == [3, 2, 1, 0]


def test_several_groups_are_opened_at_once() -> None:
    """Opening makes no checkpoint between rows; all groups are open at the same instant."""
    a = Provider("a", "open")
    spec = dataset(SEED, a.col("seed", skip_when=lambda _row: False), rows=2400, size=300)
    run = DatasetRun(spec, MemoryOutput(spec.grouping))
    run.progress.begin()
    assert len(run.progress.groups) == 4
    found = built(spec, LaneSpec("open", 2400), max_live_jobs=2400)
    assert {event.at for event in found.of(GroupOpened)} == {0.0}
    assert {at for at, _ in a.starts} == {0.0}


def test_a_group_is_a_continuation_only_after_a_group_that_was_made() -> None:
    """Skipped groups leave no state; a resumed run knows nothing about them."""
    requested: list[tuple[int, bool]] = []

    async def made(order: GroupOrder, _calls: Calls[Any]) -> Made:
        requested.append((order.group, order.follows))
        return await summary(order, _calls)

    late = whole("e", made, "seed", ordered=True, skip_when=lambda row: row["seed"] < 20)
    spec = dataset(SEED, late, rows=8, size=2)
    output = built(spec, OPEN).output
    assert requested == [(1, False), (2, True), (3, True)]
    requested.clear()
    for group in (1, 2, 3):
        del output.written[group]
    built(spec, OPEN, output=output)
    assert requested == [(1, True), (2, True), (3, True)]
