"""Datasets that are resumed, and processors of groups and of the whole dataset."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pytest
import trio
from dataset_scripted import (
    Built,
    MemoryDatasetJournal,
    Provider,
    built,
    dataset,
    refusal,
    seeds,
    transient,
    whole,
)

from trioeval.columns.events import GroupWritten, ProcessorEnded
from trioeval.columns.files import GroupFile
from trioeval.columns.finish import MemoryOutput
from trioeval.columns.graph import MakeJob
from trioeval.columns.makers.base import GroupOrder, JobCosts, JobOrder, Made
from trioeval.columns.spec import DatasetSpec, Processed, Rows, StageProcessor, Stages
from trioeval.kernel import Calls, LaneSpec
from trioeval.usage import Usage

SEED = whole("seed", seeds(), is_recorded=False)
P = LaneSpec("p", 4, adaptive="off")


def processor(
    change: Callable[[int | None, Rows], Rows], name: str = "mine", **more: Any
) -> StageProcessor:
    """Return a processor that returns the result of `change`."""

    async def run(group: int | None, rows: Rows) -> Processed:
        await trio.lowlevel.checkpoint()
        return Processed(change(group, rows))

    return StageProcessor(name=name, run=run, **more)


def without(*gone: int) -> Callable[[int | None, Rows], Rows]:
    return lambda _group, rows: [(row, values) for row, values in rows if row not in gone]


def fails(_group: int | None, _rows: Rows) -> Rows:
    raise ValueError("broken")


def test_co_60_a_processor_before_the_batch_removes_a_row() -> None:
    """The row is dropped without a call, and the others are unchanged."""
    a = Provider("a", "p")
    stages = Stages(before_batch=(processor(without(2)),))
    found = built(dataset(SEED, a.col("seed"), rows=5, size=5, stages=stages), P)
    assert found.numbers == sorted(a.rows) == [0, 1, 3, 4]
    assert found.result.dropped == {"processor": 1}
    assert found.rows[3] == {"seed": 30, "a": 3}


def test_co_60_a_processor_before_the_batch_changes_seeds() -> None:
    """Columns made from them see the new values; nothing else is made before."""
    a = Provider("a", "p")

    def double(_group: int | None, rows: Rows) -> Rows:
        return [(row, {"seed": 2 * values["seed"]}) for row, values in rows]

    stages = Stages(before_batch=(processor(double), processor(double)))
    found = built(dataset(SEED, a.col("seed"), rows=2, stages=stages), P)
    assert a.seen == {0: {"seed": 0}, 1: {"seed": 40}}
    assert found.rows[1] == {"seed": 40, "a": 1}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda _g, rows: [*rows, (7, {"seed": 1})], "it added row 7"),
        (lambda _g, rows: [*rows, rows[-1]], "it returned row 1 twice"),
        (lambda _g, rows: rows[::-1], "it changed the order of rows: row 0 comes after row 1"),
        (lambda _g, rows: [(row, {"x": 1}) for row, _ in rows], "it added column 'x' to row 0"),
        (
            lambda _g, rows: [(row, {"seed": {1}}) for row, _ in rows],
            "column 'seed' of row 0 is now {1}, which is not a valid json",
        ),
    ],
)
def test_co_61_forbidden_changes_of_a_processor_are_errors(change: Any, why: str) -> None:
    """Cases: added rows or columns, a row twice, another order, or a value of another type."""
    stages = Stages(before_batch=(processor(change),))
    found = built(dataset(SEED, rows=2, stages=stages))
    assert found.result.outcome == "failed"
    assert found.result.error is not None
    assert found.result.error.startswith("mine")
    assert found.result.error.endswith(why)


@pytest.mark.parametrize("stage", ["before_batch", "after_batch"])
def test_co_62_a_failing_processor_ends_the_run_or_drops_its_group(stage: str) -> None:
    """Finished groups are kept in either case."""

    def second(group: int | None, rows: Rows) -> Rows:
        return fails(group, rows) if group == 1 else rows

    a = Provider("a", "p")
    seed = whole("seed", seeds(2), ordered=True)
    for on_error in ("abort", "drop_group"):
        stages = Stages(**{stage: (processor(second, on_error=on_error),)})
        found = built(dataset(seed, a.col("seed"), rows=6, size=2, stages=stages), P)
        errors = [event.error for event in found.of(ProcessorEnded) if event.group == 1]
        assert errors == ["ValueError: broken"]
        if on_error == "abort":
            assert found.result.error == "mine (group 1): ValueError: broken"
            assert found.result.outcome == "failed"
            assert found.numbers == [0, 1]  # written a second before the other fails
        else:
            assert found.numbers == [0, 1, 4, 5]
            assert found.result.dropped == {"failed": 2}
            assert found.result.first_error == "row 2: mine (group 1): ValueError: broken"
            assert found.result.error is None


def test_co_62_a_group_in_processing_is_written_although_another_ends_the_run() -> None:
    """It lacks nothing else: its processor runs again after the plan."""
    starts: list[float] = []

    async def run(group: int | None, rows: Rows) -> Processed:
        if group == 1:
            raise ValueError("broken")
        starts.append(trio.current_time())
        await trio.sleep(10)
        return Processed(rows)

    stages = Stages(after_batch=(StageProcessor(name="mine", run=run),))
    a = Provider("a", "p")
    seed = whole("seed", seeds(2), ordered=True)
    found = built(dataset(seed, a.col("seed"), rows=6, size=2, stages=stages), P)
    assert starts == [3, 5]
    assert found.numbers == [0, 1]
    assert found.result.error == "mine (group 1): ValueError: broken"
    assert found.result.not_run == {"fault": 4}


def test_a_processor_after_the_batch_changes_the_written_rows() -> None:
    """It gets the number of the group, and all columns; rows that it removes are dropped."""
    a = Provider("a", "p")

    def mark(group: int | None, rows: Rows) -> Rows:
        return [(row, {**values, "a": [group, values["a"]]}) for row, values in rows if row != 1]

    stages = Stages(after_batch=(processor(mark),))
    found = built(dataset(SEED, a.col("seed"), rows=4, size=2, stages=stages), P)
    assert found.rows == {row: {"seed": 10 * row, "a": [row // 2, row]} for row in (0, 2, 3)}
    assert found.output.written[0] == GroupFile(
        group=0, rows=(0,), file=None, digest=None, dropped={"processor": 1}
    )


def test_a_column_lost_by_a_processor_is_an_error() -> None:
    """Every written row has every column."""
    stages = Stages(after_batch=(processor(lambda _g, rows: [(row, {}) for row, _ in rows]),))
    found = built(dataset(SEED, rows=2, stages=stages))
    assert found.result.error == "mine (group 0): it lost column 'seed' of row 0"


def test_columns_stored_aside_are_written_beside_the_dataset() -> None:
    """They are written group by group."""

    async def run(_group: int | None, rows: Rows) -> Processed:
        return Processed(
            [(row, {"seed": values["seed"]}) for row, values in rows],
            [(row, {"a": values["a"]}) for row, values in rows],
            frozenset({"a"}),
        )

    a = Provider("a", "p")
    stages = Stages(after_batch=(StageProcessor(name="mine", run=run),))
    spec = attrs.evolve(
        dataset(SEED, a.col("seed"), rows=3, size=2, stages=stages), columns=["seed"]
    )
    found = built(spec, P)
    assert found.rows[2] == {"seed": 20}
    assert found.output.aside == {0: [(0, {"a": 0}), (1, {"a": 1})], 1: [(2, {"a": 2})]}


def test_processors_after_generation_see_all_rows_once() -> None:
    """Their result replaces the written rows; another execution does not run them again."""
    seen: list[int] = []

    def take(_group: int | None, rows: Rows) -> Rows:
        seen.append(len(rows))
        return [(row, {"seed": -values["seed"]}) for row, values in rows if row != 3]

    journal = MemoryDatasetJournal()
    stages = Stages(after_generation=(processor(take),))
    spec = dataset(SEED, rows=5, size=2, stages=stages)
    found = built(spec, journal=journal)
    assert {row: values["seed"] for row, values in found.rows.items()} == {
        0: 0,
        1: -10,
        2: -20,
        4: -40,
    }
    assert found.result.dropped == {"processor": 1}
    again = built(spec, journal=journal.cut(10**6), output=found.output)
    assert seen == [5]
    assert again.numbers == [0, 1, 2, 4]


def test_co_78_interrupted_processors_after_generation_run_again() -> None:
    """The dataset is as it was before them."""
    seen: list[int] = []

    def take(_group: int | None, rows: Rows) -> Rows:
        seen.append(len(rows))
        if len(seen) == 1:
            raise ValueError("no")
        return rows

    journal = MemoryDatasetJournal()
    stages = Stages(after_generation=(processor(take),))
    spec = dataset(SEED, rows=2, stages=stages)
    first = built(spec, journal=journal)
    assert (first.result.error, first.result.outcome) == ("mine: ValueError: no", "failed")
    assert first.numbers == [0, 1]
    second = built(spec, journal=journal.cut(10**6), output=first.output)
    assert seen == [2, 2]
    assert second.numbers == [0, 1]


def scenario(log: list[tuple[str, int]]) -> tuple[DatasetSpec, Sequence[Provider]]:
    """Return columns of every kind, with failures, a refusal, a filter, a skip and a column of groups."""
    a = Provider("a", "p", says=lambda row, n: transient() if row == 2 and not n else f"a{row}")
    b = Provider("b", "p", says=lambda row, _: refusal() if row == 4 else f"b{row}")
    c = Provider("c", "p", says=lambda row, _: {"c": [row]})

    async def make(order: GroupOrder, _calls: Calls[Any]) -> Made:
        log.append(("f", order.group))
        return [(row, {"f": len(order.rows)}) for row in order.rows]

    cols = [
        SEED,
        a.col("seed"),
        b.col("a", drops=[("filtered", lambda row: row["b"] == "b5")]),
        c.col("seed", skip_when=lambda row: row["seed"] == 30),
        whole("f", make, "b"),
    ]
    return dataset(*cols, rows=7, size=3), (a, b, c)


def test_co_70_a_run_killed_anywhere_ends_with_the_same_rows() -> None:
    """After each record the rows are the same, and no recorded cell is made again."""
    log: list[tuple[str, int]] = []
    spec, _ = scenario(log)
    whole_journal = MemoryDatasetJournal()
    reference = built(spec, LaneSpec("p", 2), journal=whole_journal)
    assert reference.numbers == [0, 1, 2, 3, 6]
    assert len(whole_journal.all) > 20
    for cut in range(1, len(whole_journal.all) + 1):
        journal = whole_journal.cut(cut)
        output = left_by(reference, journal)
        log.clear()
        spec, providers = scenario(log)
        again = built(spec, LaneSpec("p", 2), journal=journal, output=output)
        assert again.rows == reference.rows, cut
        assert again.result.dropped == reference.result.dropped, cut
        recorded = {(what.producer, what.unit) for kind, what in journal.earlier if kind == "made"}
        made = {(one.name, row) for one in providers for row in one.rows} | set(log)
        assert not recorded & made, cut
        assert len(again.recorded_once) == len(set(again.recorded_once)), cut
        assert profiles(again) == profiles(reference), cut
        assert again.result.calls == sum(one.attempts.total() for one in providers) + sum(
            what.tally.get("calls", 0) for kind, what in journal.earlier if kind == "made"
        ), cut


def profiles(found: Built) -> Sequence[Any]:
    """Return the statistics of the values of columns."""
    return [
        (one.name, one.type, one.values, one.skipped, one.failed, one.distinct, one.common)
        for one in found.result.columns
    ]


def left_by(reference: Built, journal: MemoryDatasetJournal) -> MemoryOutput:
    """Return the files that match the rest of a journal."""
    files = {file.group: file for file in journal.groups()}
    rows: Mapping[int, Rows] = {group: reference.output.rows[group] for group in files}
    return MemoryOutput(reference.run.spec.grouping, files, dict(rows))


@pytest.mark.parametrize("refused", [{0}, {0, 1, 2}])
def test_co_70_repeated_processors_see_the_same_rows(refused: set[int]) -> None:
    """A mean over a group includes all its rows, also those that were dropped later."""

    def centred(_group: int | None, rows: Rows) -> Rows:
        mean = sum(values["seed"] for _, values in rows) / len(rows)
        return [(row, {"seed": values["seed"] - mean}) for row, values in rows if row != 3]

    def spec() -> DatasetSpec:
        a = Provider("a", "p", says=lambda row, _: refusal() if row in refused else row)
        stages = Stages(before_batch=(processor(centred),))
        return dataset(SEED, a.col("seed"), rows=4, stages=stages)

    whole_journal = MemoryDatasetJournal()
    reference = built(spec(), LaneSpec("p", 1), journal=whole_journal)
    assert {row: one["seed"] for row, one in reference.rows.items()} == {
        row: 10 * row - 15 for row in {0, 1, 2} - refused
    }
    for cut in range(1, len(whole_journal.all) + 1):
        journal = whole_journal.cut(cut)
        output = left_by(reference, journal)
        again = built(spec(), LaneSpec("p", 1), journal=journal, output=output)
        assert again.rows == reference.rows, cut
        assert again.result.dropped == {"failed": len(refused), "processor": 1}, cut


def test_co_77_a_complete_dataset_needs_no_call() -> None:
    """It succeeds, with the same numbers."""
    log: list[tuple[str, int]] = []
    spec, _ = scenario(log)
    journal = MemoryDatasetJournal()
    first = built(spec, P, journal=journal)
    spec, providers = scenario(log)
    again = built(spec, P, journal=journal.cut(10**6), output=first.output)
    assert not any(one.rows for one in providers)
    assert (again.result.written, again.result.outcome) == (5, "complete")
    assert again.result.dropped == first.result.dropped
    # The costs of a dropped row are not recorded.
    assert again.result.calls == first.result.calls - 1
    assert again.of(GroupWritten) == []


def test_lost_rows_are_made_by_the_next_execution() -> None:
    """After a stop in the middle, the rest is made, and nothing twice."""
    spec, providers = scenario([])
    journal = MemoryDatasetJournal()
    output = MemoryOutput(spec.grouping)
    first = built(spec, LaneSpec("p", 2), journal=journal, output=output, deadline=4.5)
    assert first.result.outcome == "incomplete"
    before = sum(len(one.ends) for one in providers)
    second = built(spec, LaneSpec("p", 2), journal=journal.cut(10**6), output=output)
    assert second.numbers == [0, 1, 2, 3, 6]
    assert before > 4
    recorded = second.recorded_once
    assert len(recorded) == len(set(recorded))


def test_a_record_of_another_configuration_does_not_count() -> None:
    """Its digest differs: the cell is made again."""
    a = Provider("a", "p")
    journal = MemoryDatasetJournal()
    spec = dataset(SEED, a.col("seed"), rows=3)
    built(spec, P, journal=journal)
    a.attempts.clear()
    makings = [attrs.evolve(making, digest="other") for making in spec.makings]
    cut = MemoryDatasetJournal([one for one in journal.all if one[0] == "made"])
    built(attrs.evolve(spec, makings=makings), P, journal=cut)
    assert a.attempts == {0: 1, 1: 1, 2: 1}


def test_co_73_a_larger_target_adds_groups() -> None:
    """With 5 rows of size 2, extended to 7 and to 6, the old groups stay as they are."""
    for target, sizes in ((7, [2, 2, 1, 2]), (6, [2, 2, 1, 1])):
        a = Provider("a", "p")
        first = built(dataset(SEED, a.col("seed"), rows=5, size=2), P)
        a.attempts.clear()
        grouping = first.run.spec.grouping.extended(target)
        spec = dataset(SEED, a.col("seed"), rows=target, grouping=grouping)
        output = MemoryOutput(grouping, first.output.written, first.output.rows)
        found = built(spec, P, output=output)
        assert [len(found.output.rows[group]) for group in range(4)] == sizes
        assert sorted(a.attempts) == list(range(5, target))
        assert found.result.written == target


def test_call_counts_are_restored() -> None:
    """The costs of a cell are in its record."""
    tally = JobCosts(
        calls=2, recalled=1, usages=[Usage(prompt=1), Usage(total=4)], cost=0.5, seconds=2
    )
    assert JobCosts.read(tally.json()).json() == tally.json()
    assert JobCosts().json() == {}
    assert tally.plus(tally).json()["calls"] == 4
    order = JobOrder(MakeJob(0, 0))
    order.tally = tally
    assert order.used is tally
    assert JobCosts().plus(JobCosts()).cost is None


def test_profiles_contain_values_and_costs_of_columns() -> None:
    """They cover the written rows; calls belong to the first column of a maker."""
    spec, _ = scenario([])
    columns = {one.name: one for one in built(spec, P).result.columns}
    assert list(columns) == list(spec.columns)
    assert (columns["a"].type, columns["a"].values, columns["a"].distinct) == ("text", 5, 5)
    assert (columns["c"].skipped, columns["c"].type) == (1, "object")
    assert [columns[name].calls for name in "abc"] == [8, 7, 6]
    assert (columns["b"].failed, columns["f"].numbers["max"]) == (1, 3)


def test_the_caller_is_warned_of_missing_rows() -> None:
    """There is one warning with the numbers; intended drops are not included."""
    for says, expected in ((refusal(), ["1 of 2 rows is written; 1 missing"]), (1, [])):
        a = Provider("a", "p", says=lambda row, _, says=says: says if row else 0)  # type: ignore[misc]
        warnings: list[str] = []
        built(dataset(SEED, a.col("seed"), rows=2), P, warn=warnings.append)
        assert warnings == expected
