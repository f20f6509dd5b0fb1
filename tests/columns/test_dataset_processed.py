"""A dataset in files that is processed as a whole: once, from its written rows, with new statistics."""

from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from dataset_scripted import (
    MemoryDatasetJournal,
    Provider,
    dataset,
    lanes_of,
    refusal,
    seeds,
    whole,
)

from trioeval.columns.files import DatasetRows, Header, open_folder
from trioeval.columns.finish import FolderOutput
from trioeval.columns.result import DatasetResult
from trioeval.columns.run import DatasetRun
from trioeval.columns.spec import DatasetSpec, Processed, Rows, StageProcessor, Stages
from trioeval.kernel import LaneSpec

SEED = whole("seed", seeds(), types={"seed": "int"})


async def shout(_group: int | None, rows: Rows) -> Processed:
    """A processor that is not idempotent and removes a row."""
    return Processed([(row, {**one, "a": f"{one['a']}!"}) for row, one in rows if row != 3])


SHOUTING = Stages(after_generation=(StageProcessor(name="shout", run=shout),))


def spoken(rows: int = 5, **more: Any) -> DatasetSpec:
    """Return a text for each number, and an exclamation mark."""
    a = Provider("a", "p", seconds=0, says=lambda row, _: f"x{row}")
    return dataset(SEED, a.col("seed"), rows=rows, size=2, stages=SHOUTING, **more)


WANTED = [{"seed": 10 * row, "a": f"x{row}!"} for row in (0, 1, 2, 4)]


def build_in(
    path: Path, spec: DatasetSpec, journal: MemoryDatasetJournal | None = None
) -> DatasetResult:
    """Run one execution."""
    header = Header(
        columns={name: spec.types[name] for name in spec.columns},
        grouping=spec.grouping,
        fingerprint=spec.fingerprint,
    )

    async def main() -> DatasetResult:
        with open_folder(path, header, file_format="jsonl", existing="always") as folder:
            run = DatasetRun(spec, FolderOutput(folder), journal=journal)
            return await run.build(lanes_of(LaneSpec("p", 4)))

    return trio.run(main)


def summary_of(result: DatasetResult) -> Any:
    """Return the facts that do not depend on the split into executions."""
    columns = [
        attrs.evolve(one, calls=0, recalled=0, failed=0, seconds=0.0) for one in result.columns
    ]
    return result.outcome, result.error, result.written, result.dropped, columns


def test_a_dataset_is_processed_once_over_any_number_of_resumes(tmp_path: Path) -> None:
    """The fact is recorded only in its folder."""
    first = build_in(tmp_path, spoken())
    assert (first.outcome, first.written, first.dropped) == ("complete", 4, {"processor": 1})
    files = {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()}
    for _ in range(2):
        assert summary_of(build_in(tmp_path, spoken())) == summary_of(first)
        assert list(DatasetRows(tmp_path)) == WANTED
        assert {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()} == files


def test_a_kill_after_processing_does_not_repeat_it(tmp_path: Path) -> None:
    """A kill before that does: the written rows are processed, whatever the journal contains."""
    journal = MemoryDatasetJournal()
    first = build_in(tmp_path, spoken(), journal)
    states = [place for place, (kind, _) in enumerate(journal.all) if kind == "stage"]
    assert [journal.all[place][1][1] for place in states] == ["begun", "done"]
    for cut in (states[1], states[0], len(journal.all)):
        assert summary_of(build_in(tmp_path, spoken(), journal.cut(cut))) == summary_of(first)
        assert list(DatasetRows(tmp_path)) == WANTED
    for one in (tmp_path / "final").iterdir():
        one.unlink()
    (tmp_path / "final").rmdir()
    assert summary_of(build_in(tmp_path, spoken(), journal.cut(states[1]))) == summary_of(first)
    assert list(DatasetRows(tmp_path)) == WANTED


def test_a_remade_group_is_processed_with_the_others(tmp_path: Path) -> None:
    """Its file was damaged: the results for the whole dataset may differ now."""
    build_in(tmp_path, spoken())
    (tmp_path / "batch_00001.jsonl").write_text("")
    a = Provider("a", "p", seconds=0, says=lambda row, _: f"y{row}")
    spec = dataset(SEED, a.col("seed"), rows=5, size=2, stages=SHOUTING)
    assert build_in(tmp_path, spec).outcome == "complete"
    assert [row["a"] for row in DatasetRows(tmp_path)] == ["x0!", "x1!", "y2!", "x4!"]


def test_profiles_cover_the_final_rows(tmp_path: Path) -> None:
    """They cover the processed values, without removed columns; also if all cells were skipped."""

    async def change(_group: int | None, rows: Rows) -> Processed:
        left = [(row, {"seed": one["seed"], "a": one["a"] + 1}) for row, one in rows]
        return Processed(left, (), frozenset({"b"}))

    def spec() -> DatasetSpec:
        a = Provider("a", "p", seconds=0)
        b = Provider("b", "p", seconds=0)
        cols = [SEED, a.col("seed", skip_when=lambda row: row["seed"] == 10), b.col("seed")]
        cols[1] = attrs.evolve(cols[1], skip=attrs.evolve(cols[1].skip, value=-7))
        stages = Stages(after_generation=(StageProcessor(name="mine", run=change),))
        return dataset(*cols, rows=5, size=2, stages=stages)

    first = build_in(tmp_path, spec())
    columns = {one.name: one for one in first.columns}
    assert list(columns) == ["seed", "a"]
    assert (columns["a"].numbers["max"], columns["a"].skipped) == (5, 1)
    assert summary_of(build_in(tmp_path, spec())) == summary_of(first)


@pytest.mark.parametrize("when", ["made", "after_batch"])
def test_a_made_value_equals_the_one_that_is_read_later(tmp_path: Path, when: str) -> None:
    """Cases, also in profiles: whole numbers among floats, lone surrogates, numbers of subclasses."""

    class Score(float):
        pass

    values: list[dict[str, Any]] = [
        {"f": 2, "v": [1, 0.5], "j": {"x": Score(0.5)}, "t": "a\ud800"},
        {"f": 0.5, "v": [1.0], "j": ["\ud800"], "t": "b"},
    ]
    read = [
        {"f": 2.0, "v": [1.0, 0.5], "j": {"x": 0.5}, "t": r"a\ud800"},
        {"f": 0.5, "v": [1.0], "j": [r"\ud800"], "t": "b"},
    ]
    seen: list[Any] = []

    async def make(order: Any, _calls: Any) -> Any:
        return [(row, values[row] if when == "made" else values[1]) for row in order.rows]

    async def see(order: Any, _calls: Any) -> Any:
        seen.extend(order.values)
        return [
            (row, {"seen": repr(one)}) for row, one in zip(order.rows, order.values, strict=True)
        ]

    async def late(_group: int | None, rows: Rows) -> Processed:
        return Processed([(row, {**one, **values[row]}) for row, one in rows])

    types: Any = {"f": "float", "v": "vector", "j": "json", "t": "text"}
    stages = Stages(after_batch=(StageProcessor(name="late", run=late),))

    def spec() -> DatasetSpec:
        return dataset(
            whole("f", make, outputs=("v", "j", "t"), types=types),
            whole("seen", see, "f", "v", "j", "t"),
            rows=2,
            stages=stages if when == "after_batch" else None,
        )

    first = build_in(tmp_path, spec())
    if when == "made":
        assert repr(seen) == repr(read)
    assert [{name: row[name] for name in "fvjt"} for row in DatasetRows(tmp_path)] == read
    assert {one.name: one.type for one in first.columns}["f"] == "float"
    assert summary_of(build_in(tmp_path, spec())) == summary_of(first)


def test_a_dataset_without_rows_can_be_complete(tmp_path: Path) -> None:
    """It is recorded in its folder."""
    a = Provider("a", "p", seconds=0, says=lambda _row, _attempt: refusal())
    spec = dataset(SEED, a.col("seed"), rows=3, size=2)
    assert build_in(tmp_path, spec).outcome == "failed"
    assert DatasetRows(tmp_path).result == {
        "requested": 3,
        "written": 0,
        "dropped": {"failed": 3},
    }


@pytest.mark.parametrize("gone", [{0, 1}, {2, 3}, {0, 1, 2, 3, 4}])
@pytest.mark.parametrize("stages", [Stages(), SHOUTING])
def test_a_group_without_rows_is_resumed(tmp_path: Path, gone: set[int], stages: Stages) -> None:
    """An empty group differs from a complete one: it is read again as written, and never made again."""
    calls = Counter[int]()

    def spec() -> DatasetSpec:
        def says(row: int, _attempt: int) -> Any:
            calls[row] += 1
            return refusal() if row in gone else f"x{row}"

        a = Provider("a", "p", seconds=0, says=says)
        return dataset(SEED, a.col("seed"), rows=5, size=2, stages=stages)

    first = build_in(tmp_path, spec())
    rows = list(DatasetRows(tmp_path))
    assert first.dropped["failed"] == len(gone)
    assert (first.groups, first.error, len(rows)) == (3, None, first.written)
    files = {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()}
    for _ in range(2):
        assert summary_of(build_in(tmp_path, spec())) == summary_of(first)
        assert list(DatasetRows(tmp_path)) == rows
        assert {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()} == files
    assert calls == dict.fromkeys(range(5), 1)


def test_groups_are_read_by_their_numbers(tmp_path: Path) -> None:
    """This includes groups after an empty one, and groups with missing rows."""
    a = Provider("a", "p", seconds=0, says=lambda row, _: refusal() if row in {2, 3, 5} else row)
    spec = dataset(SEED, a.col("seed"), rows=7, size=2)
    build_in(tmp_path, spec)
    header = Header(columns={"seed": "int", "a": "json"}, grouping=spec.grouping, fingerprint={})

    async def main() -> list[list[int]]:
        with open_folder(tmp_path, header, file_format="jsonl", existing="always") as folder:
            output = FolderOutput(folder)
            groups = [await output.read(group) for group in range(4)]
            assert [row for group in groups for row in group] == [*await output.read()]
        return [[row for row, _ in group] for group in groups]

    assert trio.run(main) == [[0, 1], [], [4], [6]]
