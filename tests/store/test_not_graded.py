"""Rows that nothing graded: their status in the store, when it is written, migrated and resumed."""

import json
import sqlite3
from pathlib import Path

import attrs
import pytest
import trio
from stored_things import start_of

import trioeval
from trioeval.evaluation.reconcile import parse_retry
from trioeval.report.formats.json import compact
from trioeval.run import Status
from trioeval.store.database import open_database
from trioeval.store.reader import read_store
from trioeval.store.records import LONG, read_record, stored_json
from trioeval.store.schema import MIGRATIONS, RUNS
from trioeval.store.store import open_store

SUITE = {
    "providers": ["echo"],
    "prompts": ["say {{word}}"],
    "tests": [
        {"vars": {"word": "hi"}},
        {"vars": {"word": "hi"}, "assert": [{"type": "contains", "value": "hi"}]},
        {"vars": {"word": "x" * LONG}},
        {"vars": {"word": "hi"}, "assert": [{"type": "contains", "value": "ho"}]},
    ],
}
ROWS = tuple(trio.run(trioeval.collect, trioeval.parse_suite(SUITE)))
BEFORE = 5
"""The last version of the tables without the status of rows that nothing graded."""
STATUSES = [Status.NOT_GRADED, Status.PASS, Status.NOT_GRADED, Status.FAIL]


def write(path: Path) -> None:
    """Store a finished run of the suite."""

    async def main() -> None:
        async with open_store(path) as store:
            run = store.begin(attrs.evolve(start_of(), rows={None: len(ROWS)}))
            for row in ROWS:
                run.row(row)
            run.finish("finished", duration_ms=1)

    trio.run(main)


def make_older(connection: sqlite3.Connection) -> None:
    """Remove what later versions added besides statuses."""
    connection.execute("DROP TABLE part_totals")
    connection.execute("DROP INDEX result_failed")
    connection.execute(f"PRAGMA user_version = {BEFORE}")


def counts(path: Path) -> tuple[int, ...]:
    with read_store(path) as reader:
        run = reader.run("latest")
        assert [one.status for one in reader.outcomes(run)] == STATUSES
        assert [index for index, _ in reader.numbered(run, failed_only=True)] == [3]
        return run.passed, run.failed, run.errors, run.not_graded, run.not_run


def test_the_store_counts_them_apart(tmp_path: Path) -> None:
    """A row has exactly one status, and rows that nothing graded have no score in SQL."""
    write(tmp_path / "r.db")
    assert [row.status for row in ROWS] == STATUSES
    assert counts(tmp_path / "r.db") == (1, 1, 0, 2, 0)
    connection = sqlite3.connect(tmp_path / "r.db")
    (viewed,) = connection.execute("SELECT passed, failed, errors, not_graded, not_run FROM runs")
    assert viewed == (1, 1, 0, 2, 0)
    scores = connection.execute("SELECT status, score FROM results ORDER BY row").fetchall()
    assert scores == [("not_graded", None), ("pass", 1.0), ("not_graded", None), ("fail", 0.0)]
    connection.close()


def test_an_older_store_is_migrated(tmp_path: Path) -> None:
    """Its rows that nothing graded were recorded as passed; damaged records stay as they are."""
    path = tmp_path / "r.db"
    write(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE result SET status = 'pass', score = 1 WHERE status = 'not_graded'")
    totals = json.loads(connection.execute("SELECT totals FROM run").fetchone()[0])
    totals["statuses"] = {"pass": 3, "fail": 1}
    connection.execute("UPDATE run SET totals = ?", (compact(totals),))
    whole = [(read_record(body), key) for key, body in connection.execute("SELECT * FROM record")]
    connection.executemany(
        "UPDATE record SET body = ? WHERE key = ? AND typeof(body) = 'text'", whole
    )
    make_older(connection)
    blobs = connection.execute("SELECT count(*) FROM record WHERE typeof(body) = 'blob'").fetchone()
    assert blobs == (1,)
    connection.commit()
    connection.close()
    open_database(path, RUNS).close()
    assert counts(path) == (1, 1, 0, 2, 0)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    (viewed,) = connection.execute("SELECT rows, passed, failed, not_graded FROM runs")
    assert viewed == (4, 1, 1, 2)
    connection.close()


@pytest.mark.parametrize("damaged", ["[1", "3", stored_json("x" * LONG)[:-9]])
def test_damaged_records_of_an_older_store_stay_passed(
    tmp_path: Path, damaged: str | bytes
) -> None:
    """A resume finds them; the migration does not fail."""
    path = tmp_path / "r.db"
    write(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE result SET status = 'pass'")
    connection.execute("UPDATE record SET body = ?", (damaged,))
    make_older(connection)
    connection.commit()
    connection.close()
    open_database(path, RUNS).close()
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT DISTINCT status FROM result").fetchall() == [("pass",)]
    connection.close()


@pytest.mark.parametrize(("which", "kept"), [("failed", [0, 1, 2]), ("errors", [0, 1, 2, 3])])
def test_a_retry_of_failed_rows_keeps_them(tmp_path: Path, which: str, kept: list[int]) -> None:
    """They are successes: they are neither failed nor without a verdict."""
    path = tmp_path / "r.db"
    write(path)

    async def main() -> list[int]:
        async with open_store(path) as store:
            run = await store.resume("eval-1", start_of(), retry=parse_retry(which))
            return [index for index in range(len(ROWS)) if index in run.reused_rows(None)]

    assert trio.run(main) == kept
