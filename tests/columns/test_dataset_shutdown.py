"""Datasets with an early shutdown because too many calls fail permanently."""

from collections import Counter
from typing import Any

from dataset_scripted import (
    Provider,
    Values,
    built,
    cell,
    dataset,
    refusal,
    seeds,
    transient,
    whole,
)

from trioeval.columns.makers.base import CellOrder
from trioeval.columns.model import ErrorWindow
from trioeval.errors import LaneClosedError
from trioeval.kernel import Calls, LaneSpec

SEED = whole("seed", seeds())


def test_co_63_a_round_of_another_group_runs_after_the_shutdown() -> None:
    """The failures are in group 0; jobs of group 1 that were set aside are still retried."""
    tries = Counter[int]()

    async def make(order: CellOrder, _calls: Calls[Any]) -> Values:
        tries[order.row] += 1
        if order.row == 2 and tries[2] < 2:
            raise transient("the worker crashed")
        return {"z": 1}

    a = Provider("a", "p", seconds=5, says=lambda row, _: refusal() if row < 2 else row)
    found = built(
        dataset(
            SEED,
            a.col("seed", skip_when=lambda row: row["seed"] == 20),
            cell("z", make, "seed"),
            rows=4,
            size=2,
            shutdown=ErrorWindow(calls=2, error_rate=1.0),
        ),
        LaneSpec("p", 2, adaptive="off"),
    )
    assert found.result.early_shutdown
    assert found.numbers == [2]
    assert tries[2] == 2
    assert found.result.dropped == {"early_shutdown": 1, "failed": 2}


def test_co_63_a_job_that_was_set_aside_has_its_round() -> None:
    """A 503 just before the end is not a permanent failure: its row is retried once more."""
    a = Provider(
        "a",
        "p",
        seconds=lambda row: 1.0 + row,
        says=lambda row, attempt: (
            refusal() if row in {1, 2} else transient() if not attempt else row
        ),
    )
    found = built(
        dataset(
            SEED,
            a.col("seed"),
            rows=4,
            shutdown=ErrorWindow(calls=2, error_rate=1.0),
        ),
        LaneSpec("p", 3, adaptive="off", retries=0),
    )
    assert found.numbers == [0, 3]
    assert found.result.dropped == {"failed": 2}


def test_a_job_withdrawn_with_its_group_leaves_nothing() -> None:
    """Row 2 is lost, and the shutdown comes when column b of row 1 is reported: the group is closed."""

    async def make(order: CellOrder, _calls: Calls[Any]) -> Values:
        if order.row == 2:
            raise LaneClosedError("p", "over")
        return {"z": 1}

    a = Provider("a", "p", seconds=5, says=lambda row, _: row or refusal())
    b = Provider("b", "p")
    found = built(
        dataset(
            SEED,
            a.col("seed", skip_when=lambda row: row["seed"] == 20),
            b.col("a"),
            cell("z", make, "seed"),
            rows=3,
            shutdown=ErrorWindow(calls=2, error_rate=0.5),
        ),
        LaneSpec("p", 2, adaptive="off"),
    )
    assert (found.result.not_run, b.rows) == ({"lane": 1}, [])
    lines = found.run.progress._lines.values()
    assert [dict(line._groups) for line in lines] == [{}]
