"""The counts and records of a dataset, over rounds and executions."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pytest
import trio
from dataset_scripted import (
    MemoryDatasetJournal,
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

from trioeval.columns.events import DatasetStarted
from trioeval.columns.files import GroupFile
from trioeval.columns.finish import MemoryOutput
from trioeval.columns.journal import MadeRecord
from trioeval.columns.makers.base import CellError, CellOrder, GroupOrder, Made, MakerFailure
from trioeval.columns.model import ErrorWindow
from trioeval.columns.spec import DatasetSpec, Processed, Rows, StageProcessor, Stages
from trioeval.errors import CallError, Fault, LaneClosedError
from trioeval.kernel import Calls, LaneSpec

SEED = whole("seed", seeds(), is_recorded=False)
P = LaneSpec("p", 4, adaptive="off", retries=0)


def records(journal: MemoryDatasetJournal) -> dict[tuple[str, int], MadeRecord]:
    """Return the records, by producer and unit."""
    return {(one.producer, one.unit): one for kind, one in journal.all if kind == "made"}


def test_a_record_contains_the_costs_of_all_rounds() -> None:
    """The next execution counts them too."""
    a = Provider("a", "p", says=lambda row, attempt: transient() if attempt < 2 * row else row)
    journal = MemoryDatasetJournal()
    spec = dataset(SEED, a.col("seed"), rows=2)
    first = built(spec, P, journal=journal)
    tallies = {unit: one.tally["calls"] for (_, unit), one in records(journal).items()}
    assert tallies == {0: 1, 1: 3}
    again = built(spec, P, journal=journal.cut(10**6), output=first.output)
    assert again.result.calls == first.result.calls == 4


@pytest.mark.parametrize("second", [transient(), refusal()])
def test_a_group_of_errors_is_transient_if_each_of_them_is(second: CallError) -> None:
    """Otherwise the job fails permanently, and is counted that way."""
    errors = [transient(), second]
    both = second.fault is Fault.TRANSIENT
    assert MakerFailure(ExceptionGroup("two", errors), 1).is_transient is both

    async def make(_order: CellOrder, calls: Calls[Any]) -> Values:
        async def send() -> None:
            await trio.sleep(1)

        await calls("p", send)
        raise ExceptionGroup("two", errors)

    shutdown = ErrorWindow(calls=1, error_rate=1.0)
    spec = dataset(SEED, cell("a", make, "seed", lane="p"), rows=3, size=1, shutdown=shutdown)
    assert built(spec, P).result.early_shutdown is not both


def test_co_64_transient_failures_do_not_separate_failures() -> None:
    """Two permanent failures in a row count as two in a row, whatever happens between them."""
    a = Provider("a", "p", says=lambda row, _: transient() if row % 2 else refusal())
    spec = dataset(SEED, a.col("seed"), rows=9, shutdown=ErrorWindow(calls=2, error_rate=1.0))
    found = built(spec, attrs.evolve(P, max_concurrency=1))
    assert found.result.early_shutdown
    assert a.rows[:3] == [0, 1, 2]
    assert max(a.rows) == 2


def test_an_observer_gets_the_existing_rows() -> None:
    """The event contains the written rows, and the missing ones of the same groups."""
    a = Provider("a", "p", says=lambda row, _: refusal() if row == 1 else row)
    spec = dataset(SEED, a.col("seed"), rows=5, size=2)
    first = built(spec, P)
    assert first.of(DatasetStarted) == [DatasetStarted(0.0, 0, 0)]
    files = {group: first.output.written[group] for group in (0, 1)}
    left = MemoryOutput(spec.grouping, files, {one: first.output.rows[one] for one in files})
    again = built(spec, P, output=left)
    assert again.of(DatasetStarted) == [DatasetStarted(0.0, 3, 1)]


def test_a_journal_records_a_dataset_before_its_folder() -> None:
    """The start is durable before a cell is made, and a group is recorded as written after its file."""
    events: list[str] = []

    @attrs.define(eq=False)
    class Watched(MemoryDatasetJournal):
        async def durable(self) -> None:
            events.extend(kind for kind, _ in self.writes)
            events.append("durable")
            self.writes.clear()

        def on_written(self, group: GroupFile) -> None:
            events.append(f"written {group.group}")

    @attrs.define(eq=False)
    class Files(MemoryOutput):
        async def write(self, group: int, rows: Rows, dropped: Mapping[str, int], /) -> GroupFile:
            events.append(f"file {group}")
            return await super().write(group, rows, dropped)

    a = Provider("a", "p", says=lambda row, _: events.append(f"cell {row}"))
    spec = dataset(SEED, a.col("seed"), rows=2, size=1)
    built(spec, attrs.evolve(P, max_concurrency=1), journal=Watched(), output=Files(spec.grouping))
    assert events == [
        *("begin", "durable"),
        *("cell 0", "file 0", "written 0"),
        *("cell 1", "file 1", "written 1"),
        *("made", "made", "durable"),
    ]


def test_only_made_values_of_a_group_are_recorded() -> None:
    """The next execution uses them, and detects the drop by itself."""
    requested: list[Sequence[int]] = []

    async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
        requested.append(tuple(order.rows))
        return [(row, CellError("no") if row == 1 else {"f": row}) for row in order.rows]

    def lost(row: int, _attempt: int) -> Any:
        return LaneClosedError("p", "no") if len(requested) == 1 and row == 2 else row

    a = Provider("a", "p", says=lost)
    journal = MemoryDatasetJournal()
    spec = dataset(SEED, whole("f", make, "seed"), a.col("f"), rows=3)
    assert built(spec, P, journal=journal).result.not_run == {"lane": 2}
    assert '"1"' not in records(journal)["f", 0].values[0]["json"]
    requested.append(())
    found = built(spec, P, journal=journal.cut(10**6))
    assert requested == [(0, 1, 2), ()]
    assert found.rows == {row: {"seed": 10 * row, "f": row, "a": row} for row in (0, 2)}
    assert found.result.dropped == {"failed": 1}
    assert [one.failed for one in found.result.columns] == [0, 1, 0]


def counted(calls: list[str]) -> DatasetSpec:
    """Return a cell, the number of cells in the group, and a cell that needs it."""

    async def count(order: GroupOrder, _calls: Calls[Any]) -> Made:
        calls.append(f"n{len(order.rows)}")
        return [(row, {"n": len(order.rows)}) for row in order.rows]

    async def see(order: CellOrder, _calls: Calls[Any]) -> Values:
        calls.append(f"s{order.row}")
        return {"s": f"{order.row} of {order.values['n']}"}

    a = Provider("a", "p", says=lambda row, _: refusal() if not calls and row == 2 else row)
    return dataset(SEED, a.col("seed"), whole("n", count, "a"), cell("s", see, "n"), rows=3)


def test_a_group_with_another_row_is_made_again() -> None:
    """The record for the other rows is ignored, and so are those that depend on it."""
    calls: list[str] = []
    journal = MemoryDatasetJournal()
    assert built(counted(calls), P, journal=journal).numbers == [0, 1]
    assert calls == ["n2", "s0", "s1"]
    kept = [one for one in journal.all if one[0] not in ("dropped", "written")]
    journal = MemoryDatasetJournal(kept)
    found = built(counted(calls), P, journal=journal)
    assert calls[3:] == ["n3", "s0", "s1", "s2"]
    assert [found.rows[row]["s"] for row in range(3)] == ["0 of 3", "1 of 3", "2 of 3"]
    del calls[4:]
    made = [place for place, one in enumerate(journal.all) if one[0] == "made"]
    [cut] = [place for place in made if '"n": 3' in journal.all[place][1].values[0]["json"]]
    third = built(counted(calls), P, journal=journal.cut(cut + 1))  # killed when only n was made
    assert calls[4:] == ["s0", "s1", "s2"]
    assert third.rows == found.rows


def test_an_early_end_keeps_rows_whose_calls_were_made() -> None:
    """The lacking jobs are recorded, although their turn has not come."""

    async def slow(order: CellOrder, _calls: Calls[Any]) -> Values:
        await trio.sleep(10)
        return {"x": order.row}

    def spec(b: Provider) -> DatasetSpec:
        return dataset(
            SEED,
            cell("x", slow, "seed", is_recorded=False),
            b.col("x"),
            Provider("c", "p", says=lambda row, _: refusal() if row == 0 else row).col("seed"),
            rows=3,
            shutdown=ErrorWindow(calls=1, error_rate=1.0),
        )

    journal = MemoryDatasetJournal()
    patient = dataset(SEED, rows=1).settings
    built(attrs.evolve(spec(Provider("b", "p")), settings=patient), P, journal=journal)
    known = [
        one
        for one in journal.all
        if one[0] == "made" and (one[1].producer, one[1].unit) in {("b", 1), ("c", 1), ("b", 2)}
    ]
    b = Provider("b", "p")
    found = built(spec(b), attrs.evolve(P, max_concurrency=1), journal=MemoryDatasetJournal(known))
    assert found.result.early_shutdown
    assert found.numbers == [1]
    assert found.result.dropped == {"early_shutdown": 1, "failed": 1}
    assert b.rows == []


def test_a_large_group_written_at_the_deadline_is_counted_once() -> None:
    """Its profile takes several steps, none of which is cut off."""
    writes: list[int] = []

    @attrs.define(eq=False)
    class Files(MemoryOutput):
        async def write(self, group: int, rows: Rows, dropped: Mapping[str, int], /) -> GroupFile:
            writes.append(len(rows))
            return await super().write(group, rows, dropped)

    async def stubborn(_group: int | None, rows: Rows) -> Processed:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)
        return Processed(rows)

    stages = Stages(after_batch=(StageProcessor(name="mine", run=stubborn),))
    spec = dataset(SEED, rows=450, stages=stages)
    found = built(spec, output=Files(spec.grouping), deadline=3.0)
    assert writes == [450]
    assert [one.values for one in found.result.columns] == [450]
