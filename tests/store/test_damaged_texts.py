"""A damaged text of the store affects one row or one call, which is reported by name."""

import json
import os
import sqlite3
import tracemalloc
from pathlib import Path

import pytest
import trio
import trio.lowlevel
from stored_things import call_at, row_at, start_of

from trioeval.errors import StoreError
from trioeval.store.reader import read_store
from trioeval.store.records import RecordSource, record_texts, stored_json
from trioeval.store.schema import INDEX_BITS
from trioeval.store.store import open_store
from trioeval.store.writes import RowWrite, RunPlace

pytestmark = pytest.mark.attack("damaged databases")

CUT = "'{\"outp'"
NO_TEXT = "CAST(x'7B22FF7D' AS TEXT)"
NO_ZLIB = "x'00112233'"


def store_of(path: Path, size: int = 4) -> None:
    """Rows and calls of a run that was interrupted."""

    async def main() -> None:
        async with open_store(path) as store:
            run = store.begin(start_of())
            for index in range(size):
                run.call(call_at(index))
                run.row(row_at(index, "x" * 20_000 if index == 1 else None))
            run.finish("interrupted", duration_ms=1.0)
            await run.durable()

    trio.run(main)


def damage(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("stored", [CUT, NO_TEXT, NO_ZLIB])
def test_a_damaged_reply_is_requested_again(tmp_path: Path, stored: str) -> None:
    """The first damaged reply is reported, and intact ones are reused."""
    path = tmp_path / "r.db"
    store_of(path)
    damage(path, f"UPDATE call SET reply = {stored} WHERE key & 2147483647 < 2")  # noqa: S608
    warnings: list[str] = []

    async def main() -> None:
        async with open_store(path, on_warning=warnings.append) as store:
            run = await store.resume("eval-1", start_of())
            assert [run.recorded_reply(call_at(index).key) is None for index in range(4)] == [
                True,
                True,
                False,
                False,
            ]
            await trio.lowlevel.checkpoint()

    trio.run(main)
    assert len(warnings) == 1
    assert warnings[0].startswith(f"{path}: a reply to row 0 cannot be read (")
    with read_store(path) as reader:
        run = reader.run("latest")
        with pytest.raises(StoreError, match="damaged"):
            reader.calls(run, None, 0)
        assert len(reader.calls(run, None, 2)) == 1


@pytest.mark.parametrize("stored", [CUT, "'[1]'", NO_TEXT, NO_ZLIB])
def test_a_damaged_record_is_reported_by_its_row(tmp_path: Path, stored: str) -> None:
    """Every reader of a damaged record gets an error with its row; earlier rows are read."""
    path = tmp_path / "r.db"
    store_of(path)
    damage(path, f"UPDATE record SET body = {stored} WHERE key & 2147483647 = 2")  # noqa: S608
    with read_store(path) as reader:
        run = reader.run("latest")
        records = reader.records(run)
        assert [next(records)["testIdx"] for _ in range(2)] == [0, 1]
        with pytest.raises(StoreError, match="the record of row 2 is damaged"):
            next(records)
        with pytest.raises(StoreError, match="the record of row 2 is damaged"):
            reader.record(run, None, 2)
        assert reader.record(run, None, 3) is not None


@pytest.mark.parametrize("stored", [CUT, NO_TEXT, NO_ZLIB, None])
def test_a_row_with_a_damaged_record_is_run_again(tmp_path: Path, stored: str | None) -> None:
    """A row with a damaged record is reported and run again."""
    path = tmp_path / "r.db"
    store_of(path)
    gone = "DELETE FROM record" if stored is None else f"UPDATE record SET body = {stored}"  # noqa: S608
    damage(path, f"{gone} WHERE key & 2147483647 = 2")
    warnings: list[str] = []

    async def main() -> None:
        async with open_store(path, on_warning=warnings.append) as store:
            run = await store.resume("eval-1", start_of())
            kept = run.reused_rows(None)
            assert [index for index in range(4) if index in kept] == [0, 1, 3]
            assert kept.record(1)["response"]["output"] == "x" * 20_000
            run.row(row_at(2))
            await run.durable()
            assert len([*run.records(None)]) == 4

    trio.run(main)
    assert warnings == [f"{path}: the records of some rows are damaged (2); they are run again"]


def test_a_failing_database_raises_only_errors_of_the_store(tmp_path: Path) -> None:
    """No reply is recalled."""
    path = tmp_path / "r.db"
    store_of(path)

    async def main() -> None:
        async with open_store(path) as store:
            run = await store.resume("eval-1", start_of())
            store._reading.close()
            assert run.recorded_reply(call_at(0).key) is None
            for read in (lambda: run.reused_rows(None).record(1), lambda: [*run.records(None)]):
                with pytest.raises(StoreError, match="closed database"):
                    read()
            assert json.loads(run.record(row_at(1)).text) == run.record(row_at(1)).json

    trio.run(main)


def test_other_tasks_continue_while_a_run_waits_to_be_resumed(tmp_path: Path) -> None:
    """Another program locks the database and takes time to finish; the wait can be cancelled."""
    path = tmp_path / "r.db"
    store_of(path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    async def main() -> None:
        async with open_store(path) as store, trio.open_nursery() as nursery:
            other.execute("BEGIN IMMEDIATE")
            with trio.move_on_after(0.1) as scope:
                await store.resume("eval-1", start_of())
            assert scope.cancelled_caught

            async def go_on() -> None:
                for _ in range(5):
                    await trio.sleep(0.01)
                other.execute("ROLLBACK")  # before that, no run can be resumed

            nursery.start_soon(go_on)
            run = await store.resume("eval-1", start_of())  # its lock was released
            assert len(run.reused_rows(None)) == 4

    trio.run(main)
    other.close()


def test_large_rows_are_read_one_by_one(tmp_path: Path) -> None:
    """For any number of rows, one text is in memory."""
    path = tmp_path / "r.db"
    store_of(path, 1)
    body = stored_json(json.dumps(os.urandom(250_000).hex()))
    connection = sqlite3.connect(path)
    (part,) = connection.execute("SELECT part FROM part").fetchone()
    connection.executemany(
        "INSERT OR REPLACE INTO record (key, body) VALUES (?, ?)",
        [(part << INDEX_BITS | index, body) for index in range(20)],
    )
    tracemalloc.start()
    try:
        rows = sum(1 for _ in record_texts(connection, part, RecordSource(path, None)))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        connection.close()
    assert rows == 20
    assert most < 3_000_000  # bytes; all of them are 5,000,000 as they are stored


def test_an_unserializable_row_is_not_among_the_unsaved_ones() -> None:
    """A row whose text could not be made is not among the unsaved rows."""
    place = RunPlace(eval_id="eval-1")
    work = RowWrite(place, None, 0, row_at(0))
    work.lose()
    assert place.unsaved == {}
    work.make()
    work.lose()
    assert [*place.unsaved] == [(None, 0)]
