"""Datasets whose final processors are cut off: all rows are written, but the dataset is incomplete."""

import math
from typing import Any

import pytest
import trio
from dataset_scripted import MemoryDatasetJournal, built, dataset, lanes_of, seeds, whole

from trioeval.columns.finish import MemoryOutput
from trioeval.columns.result import DatasetResult
from trioeval.columns.run import CLOSE_GRACE, DatasetRun
from trioeval.columns.spec import DatasetSpec, Processed, Rows, StageProcessor, Stages
from trioeval.testing import run_virtual

SEED = whole("seed", seeds(1.0), is_recorded=False)


def processed(seconds: float) -> DatasetSpec:
    """Return four rows, made within a second, and a processor of all of them."""

    async def turn(_group: int | None, rows: Rows) -> Processed:
        await trio.sleep(seconds)
        return Processed([(row, {"seed": -values["seed"]}) for row, values in rows if row])

    stages = Stages(after_generation=(StageProcessor(name="turn", run=turn),))
    return dataset(SEED, rows=4, size=2, stages=stages)


def cut_at(
    spec: DatasetSpec, journal: MemoryDatasetJournal, output: MemoryOutput, how: str, at: float
) -> tuple[DatasetResult, float]:
    """Return the result, and its time."""

    async def main() -> Any:
        run = DatasetRun(spec, output, journal=journal)
        with trio.move_on_after(at if how == "cancel" else math.inf):
            await run.build(lanes_of(), deadline=at if how == "deadline" else math.inf)
        return run.result(trio.current_time()), trio.current_time()

    found: tuple[DatasetResult, float] = run_virtual(main)
    return found


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_co_78_a_dataset_with_an_interrupted_last_stage_is_incomplete(how: str) -> None:
    """It ends at once with the reason, and a resumed run processes the written rows."""
    journal = MemoryDatasetJournal()
    output = MemoryOutput(processed(0).grouping)
    result, ended_at = cut_at(processed(100), journal, output, how, 5)
    assert ended_at == pytest.approx(5)
    assert (result.written, result.not_run, result.error) == (4, {}, None)
    assert (result.outcome, result.unfinished) == ("incomplete", how)
    assert not output.is_processed
    again = built(processed(0), journal=journal.cut(10**6), output=output)
    assert (again.result.outcome, again.result.unfinished) == ("complete", None)
    assert again.numbers == [1, 2, 3]


def test_co_78_no_last_stage_starts_after_the_deadline() -> None:
    """Its rows exist, and no processor runs."""
    journal = MemoryDatasetJournal()
    spec = processed(100)
    output = MemoryOutput(spec.grouping)
    cut_at(spec, journal, output, "cancel", 5)
    result, ended_at = cut_at(spec, journal.cut(10**6), output, "deadline", 0)
    assert ended_at == 0
    assert (result.outcome, result.unfinished) == ("incomplete", "deadline")


def test_a_dataset_without_a_last_stage_is_complete_when_its_rows_are() -> None:
    """Nothing remains to be cut off."""
    spec = dataset(SEED, rows=4, size=2)
    found = built(spec, deadline=1.5)
    assert (found.result.outcome, found.result.unfinished) == ("complete", None)


def test_complete_rows_not_written_at_a_deadline_are_reported() -> None:
    """Both groups wait for a processor that is too slow, even after the end."""

    async def slow(_group: int | None, rows: Rows) -> Processed:
        await trio.sleep(40)
        return Processed(rows)

    stages = Stages(after_batch=(StageProcessor(name="slow", run=slow),))
    found = built(dataset(SEED, rows=4, size=2, stages=stages), deadline=5)
    assert found.ended_at == 5 + CLOSE_GRACE
    assert found.result.not_run == {"deadline": 4}
