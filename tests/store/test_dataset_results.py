"""The results of datasets in the store of runs."""

import sqlite3
from pathlib import Path

import pytest
import trio

from trioeval.columns.files import GroupFile
from trioeval.columns.graph import RowGrouping
from trioeval.columns.result import DatasetResult, DroppedRow
from trioeval.errors import StoreError
from trioeval.report.columns import dataset_json
from trioeval.report.stored import RunStart
from trioeval.store.database import DatabaseKind, open_database
from trioeval.store.reader import read_store
from trioeval.store.runs import begin_run
from trioeval.store.schema import MIGRATIONS, RUNS
from trioeval.store.store import open_store

ENDED = DatasetResult(task="a", requested=5, written=2, error="half \ud800 of a pair")
NEVER_BEGUN = DatasetResult(task="b", requested=0, written=0)
START = RunStart(
    id="eval-1",
    utc_created="2026-01-01T00:00:00Z",
    heads=[{"task": "a"}, {"task": "b"}, {"task": "c"}],
    rows={"a": 0, "b": 0},
)


def store(path: Path, *, ends: bool = True) -> None:
    """A run with a dataset, and one that ended without a start; or its next execution."""

    async def main() -> None:
        async with open_store(path) as opened:
            run = opened.begin(START) if ends else await opened.resume("eval-1", START)
            dataset = run.dataset("a")
            dataset.on_start(RowGrouping(2, (5,)), {"seed": "x"})
            dataset.on_written(GroupFile(group=0, rows=2, file="f", digest="d"))
            dataset.on_dropped(
                DroppedRow(row=3, cause="failed", column="x", error="no", attempts=2)
            )
            dataset.on_dropped(DroppedRow(row=4, cause="filtered", column="x"))
            if ends:
                run.dataset_ended(ENDED)
                run.dataset_ended(NEVER_BEGUN)
            await run.durable()

    trio.run(main)


def test_results_of_datasets_are_found_again(tmp_path: Path) -> None:
    """They are found for started datasets, and for those that only ended; a task without one has none."""
    path = tmp_path / "r.db"
    store(path)
    with read_store(path) as reader:
        run = reader.run("latest")
        found = reader.datasets(run)
        assert list(found) == ["a", "b"]
        facts = found["a"]
        assert facts.result == dataset_json(ENDED)
        assert (facts.requested, facts.written, facts.dropped) == (5, 2, 2)
        assert facts.fingerprint == {"seed": "x"}
        assert (found["b"].requested, found["b"].result) == (None, dataset_json(NEVER_BEGUN))
        assert (run.dataset_rows, run.sizes) == (2, (0, 0, None))
        assert [row.row for row in reader.dropped_rows(run, "a")] == [3, 4]
        (lost,) = reader.dropped_rows(run, "a", row=3)
        assert lost == DroppedRow(row=3, cause="failed", column="x", error="no", attempts=2)
        assert len(reader.dropped_rows(run, "a", limit=1)) == 1
        assert list(reader.dropped_rows(run, "none")) == []


def test_a_continued_dataset_has_not_ended(tmp_path: Path) -> None:
    """A resumed dataset has no result, even if this execution is killed too."""
    path = tmp_path / "r.db"
    store(path)
    store(path, ends=False)
    with read_store(path) as reader:
        found = reader.datasets(reader.run("latest"))
        assert found["a"].result is None
        assert found["b"].result is not None


def test_a_deleted_run_has_no_results(tmp_path: Path) -> None:
    """No row of the table stays."""
    path = tmp_path / "r.db"
    store(path)
    with read_store(path) as reader:
        reader.delete(reader.run("latest"))
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM dataset_result").fetchone() == (0,)
    connection.close()


def test_a_store_without_datasets_can_be_read(tmp_path: Path) -> None:
    """A store of a version without datasets is read without changes."""
    path = tmp_path / "r.db"
    old = DatabaseKind(
        name=RUNS.name,
        application_id=RUNS.application_id,
        migrations=MIGRATIONS[:1],
        hint=RUNS.hint,
    )
    connection = open_database(path, old)
    connection.execute("BEGIN")
    begin_run(connection, START)
    connection.execute("COMMIT")
    connection.close()
    with read_store(path) as reader:
        run = reader.run("latest")
        assert run.dataset_rows is None
        assert reader.datasets(run) == {}
        assert list(reader.dropped_rows(run, "a")) == []
        assert list(reader.never_began(run, "a")) == []


@pytest.mark.parametrize("body", ["{", b"no zlib"])
def test_a_damaged_result_is_reported(tmp_path: Path, body: object) -> None:
    """A damaged result is reported as an error."""
    path = tmp_path / "r.db"
    store(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE dataset_result SET body = ?", (body,))
    connection.commit()
    connection.close()
    with read_store(path) as reader, pytest.raises(StoreError, match="contains unreadable data"):
        reader.datasets(reader.run("latest"))
