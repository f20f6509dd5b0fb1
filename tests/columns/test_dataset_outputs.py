"""Datasets in real files, and their digests."""

import json
from pathlib import Path
from typing import Any

import attrs
import trio
from dataset_scripted import Provider, dataset, lanes_of, refusal, seeds, whole

from trioeval.columns.files import DatasetRows, Header, open_folder
from trioeval.columns.fingerprints import fingerprint, producer_digests
from trioeval.columns.finish import FolderOutput
from trioeval.columns.graph import ColumnGraph, Producer
from trioeval.columns.model import (
    CategorySampler,
    Column,
    ColumnsSettings,
    ExpressionColumn,
    LlmColumn,
    Processor,
    PythonColumn,
    SamplerColumn,
    UuidSampler,
)
from trioeval.columns.model import ModelCallSettings as AskingModel
from trioeval.columns.result import DatasetResult
from trioeval.columns.run import DatasetRun
from trioeval.columns.spec import DatasetSpec, Processed, Rows, StageProcessor, Stages
from trioeval.kernel import LaneSpec

SEED = whole("seed", seeds(), types={"seed": "int"})


def build_in(path: Path, spec: DatasetSpec) -> DatasetResult:
    """Build a dataset in a folder."""
    header = Header(
        columns={name: spec.types[name] for name in spec.columns},
        grouping=spec.grouping,
        fingerprint=spec.fingerprint,
    )

    async def main() -> DatasetResult:
        with open_folder(path, header, file_format="jsonl", existing="always") as folder:
            run = DatasetRun(spec, FolderOutput(folder))
            return await run.build(lanes_of(LaneSpec("p", 4)))

    return trio.run(main)


def test_rows_are_written_by_group_and_found_again(tmp_path: Path) -> None:
    """Dropped rows are counted by cause in the next execution too, which makes nothing."""
    a = Provider("a", "p", seconds=0, says=lambda row, _: refusal() if row == 3 else row)
    spec = dataset(SEED, a.col("seed"), rows=7, size=2)
    first = build_in(tmp_path, spec)
    assert (first.written, first.dropped, first.groups) == (6, {"failed": 1}, 4)
    assert [row["seed"] for row in DatasetRows(tmp_path)] == [0, 10, 20, 40, 50, 60]
    files = {file.name: file.read_bytes() for file in tmp_path.glob("batch*")}
    again = build_in(tmp_path, spec)
    assert len(a.rows) == 7
    assert (again.written, again.dropped, again.outcome) == (6, {"failed": 1}, "complete")
    assert [(one.name, one.values, one.distinct) for one in again.columns] == [
        ("seed", 6, 6),
        ("a", 6, 6),
    ]
    assert {file.name: file.read_bytes() for file in tmp_path.glob("batch*")} == files


def test_processors_after_generation_may_remove_a_column(tmp_path: Path) -> None:
    """It is written aside, and the dataset does not contain it."""

    async def run(_group: int | None, rows: Rows) -> Processed:
        left = [(row, {"seed": values["seed"]}) for row, values in rows]
        aside = [(row, {"a": values["a"]}) for row, values in rows]
        return Processed(left, aside, frozenset({"a"}))

    a = Provider("a", "p", seconds=0)
    stages = Stages(after_generation=(StageProcessor(name="mine", run=run),))
    result = build_in(tmp_path, dataset(SEED, a.col("seed"), rows=3, size=2, stages=stages))
    assert result.outcome == "complete"
    assert list(DatasetRows(tmp_path)) == [{"seed": 0}, {"seed": 10}, {"seed": 20}]
    assert (tmp_path / "aside" / "final" / "batch_00001.jsonl").is_file()


ID = SamplerColumn(name="id", sampler=UuidSampler())
TOPIC = SamplerColumn(name="topic", sampler=CategorySampler(values=("a", "b")), seed=3)
TEXT = ExpressionColumn(name="text", template="{{ topic }}", requires=("topic",))
ASKED = LlmColumn(
    name="asked", asking=AskingModel(provider=0, prompt="{{ text }}"), requires=("text",)
)
OWN = PythonColumn(name="own", target="file:///home/one/gen.py:make")
COLUMNS: tuple[Column, ...] = (ID, TOPIC, TEXT, ASKED, OWN)


def digests(*columns: Column, marks: Any = None, **settings: Any) -> dict[str, str]:
    """Return the digests of producers, by name."""
    graph = ColumnGraph.of(
        [
            Producer(name=one.name, outputs=(one.name,), requires=one.requires, scope="cell")
            for one in columns
        ]
    )
    found = producer_digests(graph, ColumnsSettings(columns=columns, **settings), marks or {})
    return {one.name: digest for one, digest in zip(graph.producers, found, strict=True)}


def changed(*columns: Column, **more: Any) -> set[str]:
    """Return the columns whose digests differ from those of `COLUMNS`."""
    before, after = digests(*COLUMNS), digests(*columns, **more)
    return {name for name in before if before[name] != after[name]}


def test_a_digest_covers_the_dependencies_of_values() -> None:
    """It covers the column and all that it needs; not the conditions that drop values, nor locations."""
    id_, topic, text, model_column, own = COLUMNS
    assert isinstance(topic, SamplerColumn)
    assert isinstance(model_column, LlmColumn)
    assert isinstance(own, PythonColumn)
    other = attrs.evolve(topic, sampler=CategorySampler(values=("a", "c")))
    assert changed(id_, other, text, model_column, own) == {"topic", "text", "asked"}
    assert changed(*COLUMNS, seed=8) == {"id"}  # the others have no seed, or their own
    assert changed(*COLUMNS, marks={"asked": "another model"}) == {"asked"}
    elsewhere = attrs.evolve(own, target="file:///srv/gen.py:make")
    kept = attrs.evolve(text, keep=False, drop_when="text == 'a'")
    placed = attrs.evolve(model_column, asking=attrs.evolve(model_column.asking, provider=4))
    assert changed(id_, topic, kept, placed, elsewhere) == set()
    assert changed(*COLUMNS[::-1]) == set()


def test_a_fingerprint_names_the_changed_parts() -> None:
    """A column has changed if its own settings have, not those of its dependencies."""
    processors = (Processor(stage="after_batch", drop_columns=("x",)),)
    settings = ColumnsSettings(columns=COLUMNS, processors=processors)
    before = fingerprint(settings, {})
    assert list(before) == [*(f"columns.{one.name}" for one in COLUMNS), "seed", "processors[0]"]
    dropping = attrs.evolve(TOPIC, drop_when="topic == 'a'")
    after = fingerprint(
        attrs.evolve(settings, columns=(ID, dropping, TEXT, ASKED, OWN), seed=1), {}, ["code"]
    )
    assert {name for name in before if before[name] != after[name]} == {
        "columns.id",
        "columns.topic",
        "seed",
        "processors[0]",
    }


def test_columns_removed_from_the_whole_do_not_replace_those_removed_from_groups(
    tmp_path: Path,
) -> None:
    def leaves_out(name: str) -> StageProcessor:
        async def run(_group: int | None, rows: Rows) -> Processed:
            left = [(row, {k: v for k, v in one.items() if k != name}) for row, one in rows]
            return Processed(
                left, [(row, {name: one[name]}) for row, one in rows], frozenset({name})
            )

        return StageProcessor(name=name, run=run)

    a, b = Provider("a", "p", seconds=0), Provider("b", "p", seconds=0)
    stages = Stages(after_batch=(leaves_out("a"),), after_generation=(leaves_out("b"),))
    spec = dataset(SEED, a.col("seed"), b.col("seed"), rows=2, size=2, stages=stages)
    columns = [name for name in spec.columns if name != "a"]
    result = build_in(tmp_path, attrs.evolve(spec, columns=columns))
    assert result.outcome == "complete"
    for place, name in (("aside", "a"), ("aside/final", "b")):
        text = (tmp_path / place / "batch_00000.jsonl").read_text()
        assert [json.loads(line)["columns"] for line in text.splitlines()] == [{name: 0}, {name: 1}]
