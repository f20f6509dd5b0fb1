"""Columns that are made in the order of the groups, also over several executions."""

from typing import Any

import pytest
import trio
from dataset_scripted import (
    Built,
    MemoryDatasetJournal,
    Provider,
    building,
    built,
    dataset,
    lanes_of,
    refusal,
    seeds,
    whole,
)

from trioeval.columns.events import GroupAbandoned
from trioeval.columns.journal import RestoredGroup
from trioeval.columns.makers.base import GroupOrder, Made
from trioeval.columns.spec import DatasetSpec
from trioeval.errors import LaneClosedError
from trioeval.kernel import Calls, LaneSpec
from trioeval.testing import run_virtual

SEED = whole("seed", seeds(), is_recorded=False)
P = LaneSpec("p", 4, adaptive="off")


def chained(made: list[int], lost: int | None, **more: Any) -> tuple[DatasetSpec, Provider]:
    """Return a cell, one of which is not made in this run; and a number that grows from group to group."""

    async def number(order: GroupOrder, _calls: Calls[Any]) -> Made:
        made.append(order.group)
        return [(row, {"n": len(made)}) for row in order.rows]

    a = Provider("a", "p", says=lambda row, _: LaneClosedError("p", "no") if row == lost else row)
    return dataset(SEED, a.col("seed"), whole("n", number, "a", ordered=True), **more), a


@pytest.mark.parametrize("lost", [0, 3, 4, 9])
@pytest.mark.parametrize("max_open", [1, 9, 10**6])
def test_an_ordered_column_makes_no_group_before_an_incomplete_one(
    lost: int, max_open: int
) -> None:
    """The next execution makes it, and then the later ones: as in one run."""
    made: list[int] = []
    journal = MemoryDatasetJournal()
    spec, a = chained(made, lost, rows=10, size=2, max_open_cells=max_open)
    first = built(spec, P, journal=journal)
    group = lost // 2
    assert made == list(range(group))
    assert first.numbers == list(range(2 * group))
    assert first.result.not_run == {"lane": 10 - 2 * group}
    assert first.result.outcome == "incomplete"
    assert [event.reason for event in first.of(GroupAbandoned)] == ["lane"] * len(
        first.of(GroupAbandoned)
    )
    requested = [row for _, row in a.ends if row != lost]
    spec, a = chained(made, None, rows=10, size=2, max_open_cells=max_open)
    second = built(spec, P, journal=journal.cut(10**6), output=first.output)
    assert made == list(range(5))
    assert {row: values["n"] for row, values in second.rows.items()} == {
        row: 1 + row // 2 for row in range(10)
    }
    assert not {*requested} & {*a.rows}


def test_a_group_with_a_lost_ordered_column_keeps_the_turn() -> None:
    """Its own maker cannot continue; results of other columns for later groups are kept."""
    made: list[int] = []

    async def number(order: GroupOrder, _calls: Calls[Any]) -> Made:
        if order.group == 1 and not made.count(1):
            made.append(1)
            raise LaneClosedError("p", "no")
        made.append(order.group)
        return [(row, {"n": order.group}) for row in order.rows]

    a = Provider("a", "p", seconds=lambda row: 1.0 + row)
    spec = dataset(SEED, a.col("seed"), whole("n", number, ordered=True), rows=8, size=2)
    journal = MemoryDatasetJournal()
    first = built(spec, P, journal=journal)
    assert made == [0, 1]
    assert first.numbers == [0, 1]
    assert first.result.not_run == {"lane": 6}
    assert sorted(a.attempts) == list(range(8))
    second = built(spec, P, journal=journal.cut(10**6), output=first.output)
    assert made == [0, 1, 1, 2, 3]
    assert set(a.attempts.values()) == {1}
    assert second.result.outcome == "complete"


def test_a_fully_dropped_group_does_not_keep_the_turn() -> None:
    """Later groups cannot depend on it."""
    made: list[int] = []
    spec, a = chained(made, None, rows=6, size=1)
    a.says = lambda row, _: refusal() if row == 2 else row
    found = built(spec, P)
    assert made == [0, 1, 3, 4, 5]
    assert found.result.outcome == "complete"


def test_costs_of_earlier_executions_are_counted_group_by_group() -> None:
    """Between two groups there is a checkpoint, however many there are."""
    journal = MemoryDatasetJournal()
    a = Provider("a", "p")
    spec = dataset(SEED, a.col("seed"), rows=8, size=2)
    first = built(spec, P, journal=journal)
    ticks = 0
    seen: list[int] = []

    class Watched(MemoryDatasetJournal):
        def restored(self, group: int, rows: range) -> RestoredGroup:
            seen.append(ticks)
            return super().restored(group, rows)

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await trio.lowlevel.checkpoint()

    async def main() -> Built:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            later = Watched(journal.all)
            found = await building(spec, lanes_of(P), journal=later, output=first.output)
            nursery.cancel_scope.cancel()
        return found

    again = run_virtual(main)
    # The order of two tasks in a step is random: two groups may see the same tick, three do not.
    assert len(seen) == 4
    assert seen[2] > seen[0]
    assert seen[3] > seen[1]
    assert again.result.calls == first.result.calls == 8
    assert [one.recalled for one in again.result.columns] == [0, 8]
