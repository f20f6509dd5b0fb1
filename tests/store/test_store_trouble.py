"""When the file cannot be written any more, stored rows stay and others are still available."""

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from stored_things import call_at, row_at, start_of

from trioeval.errors import StoreError
from trioeval.store.database import open_database
from trioeval.store.reader import read_store
from trioeval.store.schema import RUNS
from trioeval.store.store import open_store

pytestmark = pytest.mark.attack("damaged databases")

LONG = os.urandom(3000).hex()


async def opened(path: Path) -> None:
    async with open_store(path, patience_s=0):
        pass


def integrity(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    try:
        return [line for (line,) in connection.execute("PRAGMA integrity_check")]
    finally:
        connection.close()


@pytest.mark.parametrize("room", [1, 12, 60])
def test_a_full_disk_loses_no_written_row(tmp_path: Path, room: int) -> None:
    """On a full disk unsaved rows are read from memory, and no caller waits for ever."""
    path = tmp_path / "r.db"
    warnings: list[StoreError] = []

    async def main() -> None:
        async with open_store(path, on_error=warnings.append) as store:
            run = store.begin(start_of())
            await run.durable()
            pages = store._writer._connection.execute("PRAGMA page_count").fetchone()[0]
            store._writer._connection.execute(f"PRAGMA max_page_count = {pages + room}")
            safe = 0
            for index in range(100):
                row = row_at(index, LONG)
                run.call(call_at(index))
                run.row(row)
                await run.durable(row)
                safe += store.error is None
            assert 0 <= safe < 100
            assert store.error is run.error is not None
            assert "no room left on its disk; make room, or name another file" in str(store.error)
            assert [record["response"]["output"] for record in run.records(None)] == [LONG] * 100
            assert [record["response"]["output"] for record in run.records(None, 0)] == [LONG] * 100
            assert run.record(row_at(99, LONG)).output == LONG
            with read_store(path) as reader:
                assert reader.runs()[0].rows == safe
            run.finish("interrupted", duration_ms=1.0)
            run.tests(None, iter([1]))
            await run.durable()

    trio.run(main)
    assert len(warnings) == 1
    assert integrity(path) == ["ok"]
    with read_store(path) as reader:
        assert reader.run("latest").state == "died"


FULL = """
import resource, sys, trio
from pathlib import Path
from stored_things import row_at, start_of
from trioeval.store.store import open_store
path, limit = Path(sys.argv[1]), int(sys.argv[2])
async def main():
    async with open_store(path, on_error=lambda error: print(error)) as store:
        run = store.begin(start_of())
        await run.durable()
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        safe = 0
        for index in range(400):
            row = row_at(index, "x" * 5000)
            run.row(row)
            await run.durable(row)
            safe += store.error is None
        print(safe, sum(1 for _ in run.records(None)))
trio.run(main)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no such limit there")
def test_a_system_limit_during_a_commit_is_a_full_disk(tmp_path: Path) -> None:
    """A write error during a commit loses no durable row."""
    path = tmp_path / "r.db"
    done = subprocess.run(
        [sys.executable, "-c", FULL, path, "460000"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    message, figures = done.stdout.splitlines()
    assert message.startswith(f"{path}: the store of runs ")
    safe, known = map(int, figures.split())
    assert known == 400
    assert integrity(path) == ["ok"]
    with read_store(path) as reader:
        assert 0 < safe <= reader.run("latest").rows < 400


def test_all_waiters_for_a_row_wait_until_it_is_durable(tmp_path: Path) -> None:
    """The emission and the report of a row wait for it at the same time; a cancelled wait ends no other."""
    path = tmp_path / "r.db"

    async def main() -> None:
        async with open_store(path) as store:
            run, row = store.begin(start_of()), row_at(0)
            await run.durable()
            other = open_database(path, RUNS)
            other.execute("BEGIN IMMEDIATE")
            run.row(row)
            seen: list[int] = []

            async def wait() -> None:
                await run.durable(row)
                with read_store(path) as reader:
                    seen.append(reader.run("latest").rows)

            async with trio.open_nursery() as waiters:
                waiters.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                with trio.move_on_after(0.01) as scope:
                    await run.durable(row)
                assert scope.cancelled_caught
                waiters.start_soon(wait)
                await trio.testing.wait_all_tasks_blocked()
                assert seen == []
                other.execute("ROLLBACK")
            assert seen == [1, 1]
            other.close()

    trio.run(main)


def test_a_run_waits_for_a_locked_database(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A lock released in time loses nothing; a longer one is reported and ends the wait."""
    path = tmp_path / "r.db"
    warnings: list[StoreError] = []

    async def main() -> None:
        async with open_store(path, on_error=warnings.append) as store:
            run = store.begin(start_of())
            await run.durable()
            other = open_database(path, RUNS)
            other.execute("BEGIN IMMEDIATE")
            run.row(row_at(0))
            with trio.move_on_after(0.1) as scope:
                await run.durable()
            assert scope.cancelled_caught
            other.execute("COMMIT")
            await run.durable()
            assert store.error is None
            store._writer._patience = 0.1  # from now on: the first wait has to succeed
            other.execute("BEGIN IMMEDIATE")
            run.row(row_at(1))
            await run.durable()
            assert "is locked by another program; end that program, or" in str(store.error)
            assert len([*run.records(None)]) == 2
            other.execute("ROLLBACK")
            other.close()

    with caplog.at_level(logging.CRITICAL, "trioeval.store"):
        trio.run(main)
    assert len(warnings) == 1
    with read_store(path) as reader:
        assert reader.run("latest").rows == 1


@pytest.mark.slow
def test_a_long_wait_for_another_program_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long wait for a lock is reported once, also at the opening."""
    from trioeval.store import database as opening
    from trioeval.store import writer as writing

    path = tmp_path / "r.db"
    monkeypatch.setattr(opening, "_WARN_AFTER", 0.1)
    monkeypatch.setattr(writing, "_WARN_AFTER", 0.1)
    warnings: list[str] = []

    async def main() -> None:
        other = open_database(path, RUNS)
        other.execute("BEGIN IMMEDIATE")

        def record_text(text: str) -> None:
            warnings.append(text)
            other.execute("COMMIT")

        async with open_store(path, on_warning=record_text) as store:
            run = store.begin(start_of())
            await run.durable()
            other.execute("BEGIN IMMEDIATE")
            run.row(row_at(0))
            await run.durable()
            assert store.error is None
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="is locked by another program"):
            await opened(path)
        other.close()

    with caplog.at_level(logging.CRITICAL, "trioeval.store"):
        trio.run(main)
    assert (
        warnings
        == [f"{path}: the store of runs is locked by another program; waiting for it, at most 30 s"]
        * 2
    )


def test_a_store_is_closed_whatever_ends_its_block(tmp_path: Path) -> None:
    """A cancelled or failing block still writes all queued rows and removes the log."""
    path = tmp_path / "r.db"

    async def broken() -> None:
        async with open_store(path) as store:
            store.begin(start_of("eval-2")).row(row_at(0))
            1 / 0  # noqa: B018

    async def main() -> None:
        with trio.CancelScope() as scope:
            async with open_store(path) as store:
                run = store.begin(start_of())
                for index in range(300):
                    run.row(row_at(index))
                scope.cancel()
                await trio.sleep_forever()
        with pytest.raises(ZeroDivisionError):
            await broken()

    trio.run(main)
    assert [one.name for one in tmp_path.iterdir()] == ["r.db"]
    with read_store(path) as reader:
        assert [(run.rows, run.state) for run in reader.runs()] == [(1, "died"), (300, "died")]


def test_a_closed_store_is_one_file_even_while_others_read_it(tmp_path: Path) -> None:
    """A closed store is one complete file, even while others read it."""
    path = tmp_path / "r.db"
    trio.run(opened, path)

    async def main() -> None:
        async with open_store(path) as store:
            run = store.begin(start_of("eval-2"))
            run.row(row_at(0))
            await run.durable()

    log = Path(f"{path}-wal")
    with read_store(path) as reader:
        before = len(reader.runs())
        trio.run(main)
        assert log.stat().st_size == 0
        assert len(reader.runs()) == before + 1


def test_a_failed_commit_is_rolled_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed commit leaves no partial data in the file, and the running program has all rows."""
    monkeypatch.setattr("trioeval.store.writer.LONGEST", 60.0)  # queued data is one commit
    path = tmp_path / "r.db"
    is_writing, may_write = threading.Event(), threading.Event()

    def waits() -> Iterator[Any]:
        is_writing.set()
        may_write.wait(10)
        yield {}

    def breaks() -> Iterator[Any]:
        yield {}
        raise RuntimeError("boom")

    async def main() -> None:
        async with open_store(path) as store:
            run = store.begin(start_of())
            run.row(row_at(0))
            run.tests(None, waits())
            await trio.to_thread.run_sync(is_writing.wait, 10)
            for index in (0, 1):
                run.row(row_at(index, "new"))
            run.call(call_at(1))
            run.tests(None, breaks())  # of the same commit: the thread was busy meanwhile
            may_write.set()
            await run.durable()
            assert "RuntimeError: boom; this is a fault of trioeval" in str(store.error)
            outputs = [record["response"]["output"] for record in run.records(None)]
            assert outputs == ["new", "new"]

    trio.run(main)
    with read_store(path) as reader:
        (facts,) = reader.runs()
        outputs = [record["response"]["output"] for record in reader.records(facts)]
        assert outputs == ["say hello 0"]
        assert reader.calls(facts, None, 1) == []
        assert [*reader.tests(facts)] == [{}]


def cut_copies(folder: Path, path: Path, rows: int) -> list[tuple[Path, int]]:
    """Yield copies of a store after each of its commits, with the number of durable rows."""
    copies: list[tuple[Path, int]] = []
    safe = 0

    def copy() -> None:
        target = folder / f"{len(copies)}.db"
        shutil.copy(path, target)
        shutil.copy(f"{path}-wal", f"{target}-wal")
        copies.append((target, safe))

    async def main() -> None:
        nonlocal safe
        async with open_store(path, after_commit=copy) as store:
            run = store.begin(start_of())
            for index in range(rows):
                row = row_at(index, LONG[: 50 * index])
                run.call(call_at(index))
                run.row(row)
                if index % 3 == 0:
                    await run.durable(row)
                    safe = index + 1

    trio.run(main)
    return copies


@pytest.mark.slow
def test_a_loss_of_power_leaves_a_prefix_of_the_written_data(tmp_path: Path) -> None:
    """A loss of power at any byte leaves a complete prefix without gaps."""
    import random

    draw = random.Random(7)  # noqa: S311 - positions of cuts
    copies = cut_copies(tmp_path, tmp_path / "r.db", 60)
    assert len(copies) > 15
    seen = set()
    for path, safe in copies:
        log = Path(f"{path}-wal")
        for cut in (None, draw.random(), draw.random()):
            target = tmp_path / "cut.db"
            for old in tmp_path.glob("cut.db*"):
                old.unlink()
            shutil.copy(path, target)
            shutil.copy(log, f"{target}-wal")
            if cut is not None:
                os.truncate(f"{target}-wal", int(log.stat().st_size * cut))
            assert integrity(target) == ["ok"]
            try:
                with read_store(target) as reader:
                    runs = reader.runs()
                    indices = [one.index for run in runs for one in reader.identities(run)]
                    calls = [len(reader.calls(run, None, i)) for run in runs for i in indices]
            except StoreError as error:  # not even its tables were durable
                assert cut is not None
                assert "store of runs not found" in str(error)  # noqa: PT017
                continue
            assert indices == [*range(len(indices))]
            assert calls == [1] * len(indices)
            seen.add(len(indices))
            if cut is None:
                assert len(indices) >= safe
    assert len(seen) > 10


KILLED = """
import sys, trio
from pathlib import Path
from stored_things import call_at, row_at, start_of
from trioeval.store.store import open_store

path, run_id = Path(sys.argv[1]), sys.argv[2]
async def main():
    async with open_store(path) as store:
        run = store.begin(start_of(run_id))
        index = 0
        while True:
            for _ in range(7):
                row = row_at(index)
                run.call(call_at(index))
                run.row(row)
                index += 1
            await run.durable(row)
            assert store.error is None, store.error
            print(index, flush=True)
trio.run(main)
"""


@pytest.mark.slow
def test_kill_9_loses_no_row_that_was_reported_as_durable(tmp_path: Path) -> None:
    """Killing either of two writing processes at any instant loses no durable row."""
    path = tmp_path / "r.db"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    durable: dict[str, int] = {}
    for turn in range(3):
        names = [f"eval-{turn}-{one}" for one in "ab"]
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", KILLED, path, name],
                env=environ,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in names
        ]
        for name, writer in zip(names, writers, strict=True):
            assert writer.stdout is not None
            for _ in range(turn * 5 + 2):
                line = writer.stdout.readline()
            durable[name] = int(line)
        if turn == 1:
            with read_store(path) as reader:
                assert {run.state for run in reader.runs()} == {"running", "died"}
        for name, writer in zip(names, writers, strict=True):
            writer.kill()
            assert writer.stdout is not None
            rest = writer.stdout.read().splitlines()
            writer.stdout.close()
            writer.wait()
            # A truncated line is ignored.
            durable[name] = max([durable[name], *map(int, rest[:-1])])
    with read_store(path) as reader:
        runs = {run.id: run for run in reader.runs()}
        assert {run.state for run in runs.values()} == {"died"}
        for name, count in durable.items():
            indices = [one.index for one in reader.identities(runs[name])]
            assert indices == [*range(len(indices))]
            assert len(indices) >= count > 0
            assert reader.calls(runs[name], None, count - 1)

    async def go_on() -> None:
        async with open_store(path) as store:
            for name, count in durable.items():
                assert len((await store.resume(name, start_of(name))).reused_rows(None)) >= count

    trio.run(go_on)
    assert integrity(path) == ["ok"]
    assert [one.name for one in tmp_path.iterdir()] == ["r.db"]
