"""Every kind of file at the path is reported plainly, and foreign files stay unchanged."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from stored_things import row_at, start_of

from trioeval.errors import StoreError, UsageError
from trioeval.report.stored import RunStart
from trioeval.store.database import (
    BusyError,
    DamagedError,
    DatabaseKind,
    Durability,
    open_database,
    open_reading,
)
from trioeval.store.reader import read_store
from trioeval.store.schema import MIGRATIONS, RUNS
from trioeval.store.store import open_store

HINT = "name another file with --db, or store nothing with --no-write"


async def fill(path: Path, rows: int = 3) -> None:
    """Fill a store with one run."""
    async with open_store(path) as store:
        run = store.begin(start_of())
        for index in range(rows):
            run.row(row_at(index))
        run.finish("finished", duration_ms=1.0)


async def opened(path: Path) -> None:
    async with open_store(path, patience_s=0):
        pass


def refusals(path: Path) -> set[str]:
    """Return the errors of writers and readers for a file."""
    with pytest.raises(StoreError) as writing:
        trio.run(opened, path)
    with pytest.raises(StoreError) as reading, read_store(path):
        pass
    return {str(writing.value), str(reading.value)}


def test_a_file_that_is_not_a_database_is_unchanged(tmp_path: Path) -> None:
    """A file that is not a database is refused and left unchanged."""
    for content in (b"# my notes\n" * 100, b"x"):
        path = tmp_path / "notes.db"
        path.write_bytes(content)
        assert refusals(path) == {
            (
                f"{path}: this is not an SQLite database, and is left unchanged; if it was one, restore it "
                f"from a copy, or {HINT}"
            )
        }
        assert path.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["notes.db"]


def test_a_database_of_another_program_is_unchanged(tmp_path: Path) -> None:
    """A database of another program is refused and left unchanged, with or without its id."""
    for owner in (0, 0x1234):
        path = tmp_path / f"{owner}.db"
        other = sqlite3.connect(path)
        other.execute("CREATE TABLE bookmarks (url)")
        other.execute(f"PRAGMA application_id = {owner}")
        other.close()
        content = path.read_bytes()
        assert refusals(path) == {
            f"{path}: this is an SQLite database of another program, and is left unchanged; {HINT}"
        }
        assert path.read_bytes() == content


def test_a_newer_database_is_unchanged(tmp_path: Path) -> None:
    """A database of a newer version is refused and left unchanged."""
    path = tmp_path / "r.db"
    trio.run(fill, path)
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 99")
    other.close()
    (message,) = refusals(path)
    assert message == (
        f"{path}: the store of runs was written by a newer trioeval (its tables have version 99, this one "
        f"supports {len(MIGRATIONS)}); upgrade trioeval, or {HINT}"
    )


def test_an_older_database_is_migrated_in_one_transaction(tmp_path: Path) -> None:
    """Migrations run once, in one transaction that fails completely."""
    path = tmp_path / "r.db"

    def kind(*migrations: list[str]) -> DatabaseKind:
        return DatabaseKind(
            name="thing", application_id=7, migrations=migrations, hint="look elsewhere"
        )

    first, second = (
        ["CREATE TABLE a (x)", "INSERT INTO a VALUES (1)"],
        ["ALTER TABLE a ADD COLUMN y"],
    )
    open_database(path, kind(first)).close()
    with pytest.raises(StoreError, match=r"the thing cannot be used \(near \"no\": syntax error\)"):
        open_database(path, kind(first, second, ["no statement"]))
    with pytest.raises(StoreError, match="newer"):
        open_reading(path, kind())
    connection = open_database(path, kind(first, second))
    assert connection.execute("SELECT x, y FROM a").fetchall() == [(1, None)]
    assert connection.execute("PRAGMA user_version").fetchone() == (2,)
    connection.close()


@pytest.mark.parametrize("moment", ["application_id", "user_version", "sqlite_master"])
def test_a_file_that_another_process_creates_meanwhile_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The owner and the tables of a file are read in one transaction."""
    path, real = tmp_path / "r.db", sqlite3.connect

    class Looking(sqlite3.Connection):
        """A connection that another process overtakes."""

        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            if moment in sql:
                monkeypatch.setattr(sqlite3, "connect", real)
                if self.is_first:
                    self.is_first = False
                    with contextlib.suppress(BusyError):
                        open_database(path, RUNS, busy_s=0).close()
            return super().execute(sql, *rest)

        is_first = True

    monkeypatch.setattr(sqlite3, "connect", partial(real, factory=Looking))
    connection = open_database(path, RUNS)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    connection.close()


@pytest.mark.parametrize(("durability", "level"), [("normal", 1), ("full", 2)])
def test_a_commit_waits_for_the_disk_as_configured(
    tmp_path: Path, durability: Durability, level: int
) -> None:
    """The synchronous level follows the durability setting."""

    async def main() -> tuple[Any, ...]:
        async with open_store(tmp_path / "r.db", durability=durability) as store:
            pragmas = ("journal_mode", "synchronous")
            return tuple(
                store._writer._connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in pragmas
            )

    assert trio.run(main) == ("wal", level)


def test_the_log_of_a_file_can_be_disabled(tmp_path: Path) -> None:
    """The write-ahead log can be disabled and enabled for a file, and the setting stays."""
    path, start = tmp_path / "r.db", RunStart(id="eval-1", utc_created="2026-01-01T00:00:00.000Z")

    async def main(*, wal: bool, resumes: bool) -> tuple[Any, ...]:
        async with open_store(path, wal=wal) as store:
            run = await store.resume("eval-1", start) if resumes else store.begin(start)
            await run.durable()
            beside = path.with_name("r.db-wal").exists()
            connection = store._writer._connection
            (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
            (level,) = connection.execute("PRAGMA synchronous").fetchone()
            return mode, level, beside

    assert trio.run(partial(main, wal=False, resumes=False)) == ("delete", 2, False)
    assert trio.run(partial(main, wal=False, resumes=True)) == ("delete", 2, False)
    with contextlib.closing(open_database(path, RUNS)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert trio.run(partial(main, wal=True, resumes=True)) == ("wal", 1, True)


def test_a_missing_file_can_be_written_and_not_read(tmp_path: Path) -> None:
    """A reader creates no file."""
    path = tmp_path / "none.db"
    with pytest.raises(StoreError, match="store of runs not found"), read_store(path):
        pass
    assert not path.exists()
    path.touch()
    with pytest.raises(StoreError, match="store of runs not found"), read_store(path):
        pass
    trio.run(fill, path)
    with read_store(path) as reader:
        assert reader.run("latest").rows == 3


def test_a_folder_is_not_accepted_as_a_file(tmp_path: Path) -> None:
    """A folder is refused at once."""
    assert refusals(tmp_path) == {f"{tmp_path}: this is a folder, not a store of runs; {HINT}"}
    if Path("/dev/null").exists():
        (message,) = refusals(Path("/dev/null"))
        assert "a special file" in message


def test_missing_folders_are_created(tmp_path: Path) -> None:
    """Missing folders are created; our own one is excluded from version control."""
    trio.run(fill, tmp_path / "a" / ".trioeval" / "results.db")
    assert (tmp_path / "a" / ".trioeval" / ".gitignore").read_text() == "*\n"
    assert not (tmp_path / "a" / ".gitignore").exists()
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"the folder .*file cannot be created: File exists"):
        trio.run(opened, tmp_path / "file" / "results.db")


@pytest.mark.skipif(os.name == "nt", reason="links need a right there")
def test_links_are_followed_for_files_and_locks(tmp_path: Path) -> None:
    """Two names of one file are one store with the same locks."""
    (tmp_path / "real").mkdir()
    real, link = tmp_path / "real" / "results.db", tmp_path / "link.db"
    link.symlink_to(real)

    async def main() -> None:
        async with open_store(link) as store:
            run = store.begin(start_of())
            run.row(row_at(0))
            await run.durable()
            names = sorted(one.name for one in real.parent.iterdir())
            assert names == [
                "results.db",
                *(f"results.db-{end}" for end in ("eval-1.lock", "shm", "wal")),
            ]
            with read_store(real) as reader:
                assert reader.run("latest").state == "running"
            async with open_store(real) as other:
                with pytest.raises(UsageError, match="being run by another process"):
                    await other.resume("eval-1", start_of())

    trio.run(main)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["link.db", "real"]
    loop = tmp_path / "loop.db"
    loop.symlink_to(loop)
    with pytest.raises(StoreError, match=r"loop\.db"):
        trio.run(opened, loop)


def test_a_damaged_database_is_reported_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage is reported at the opening, or when it is met, never as a traceback."""
    path = tmp_path / "r.db"
    trio.run(fill, path, 200)
    whole = path.read_bytes()
    page = 8192
    open_database(tmp_path / "empty.db", RUNS).close()
    tables = (tmp_path / "empty.db").stat().st_size  # bytes of the schema
    path.write_bytes(whole[:100] + b"\xff" * (page - 100) + whole[page:])
    with pytest.raises(StoreError, match="is damaged") as reported:
        trio.run(opened, path)
    assert str(reported.value).startswith(f"{path}: the store of runs is damaged (")
    assert "`sqlite3 FILE .recover`" in str(reported.value)
    with pytest.raises(StoreError, match="is damaged"), read_store(path) as reader:
        reader.runs()
    path.write_bytes(whole[:tables] + b"\xff" * (len(whole) - tables))
    with pytest.raises(StoreError, match="is damaged"), read_store(path) as reader:
        [*reader.records(reader.run("latest"))]
    with pytest.raises(DamagedError, match=r"^\S+: the store of runs is damaged \("):
        trio.run(opened, path)
    # One wrong page among intact ones, which opening would not read.
    path.write_bytes(whole[: -3 * page] + b"\xff" * page + whole[-2 * page :])
    with pytest.raises(DamagedError):
        trio.run(opened, path)
    path.write_bytes(whole[:tables] + b"\xff" * (len(whole) - tables))
    monkeypatch.setattr("trioeval.store.database._LARGEST_CHECKED", len(whole) - 1)

    async def main() -> None:
        reported: list[StoreError] = []
        async with open_store(path, on_error=reported.append) as store:
            run = store.begin(start_of("eval-2"))
            run.row(row_at(0))
            await run.durable()
            assert store.error is run.error is not None
            assert isinstance(store.error, DamagedError)
            assert run.record(row_at(0)).json["success"] is False
        assert reported == [store.error]

    trio.run(main)


def test_a_truncated_database_is_damaged(tmp_path: Path) -> None:
    """A truncated database is reported as damaged."""
    path = tmp_path / "r.db"
    trio.run(fill, path, 200)
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(StoreError, match="is damaged"), read_store(path) as reader:
        [*reader.records(reader.run("latest"))]


AS_NOBODY = """
import os, sys, trio
from pathlib import Path
from stored_things import row_at, start_of
from trioeval.errors import StoreError, UsageError
from trioeval.report.stored import RunStart
from trioeval.store.reader import read_store
from trioeval.store.store import open_store

async def fill(path):
    async with open_store(path) as store:
        store.begin(start_of()).row(row_at(0))
        print("opened")

trio.run(fill, None)  # whatever is imported late is imported now
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    trio.run(fill, Path(sys.argv[1]))
except StoreError as error:
    print(error)
try:
    with read_store(Path(sys.argv[1])) as reader:
        print([len(list(reader.records(run))) for run in reader.runs()])
except StoreError as error:
    print(error)
"""


def as_other_user(path: Path) -> list[str]:
    """Return the output of a process without special permissions."""
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[1:]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="rights are others there")
def test_a_read_only_file_or_folder_is_reported_and_can_be_read() -> None:
    """A read-only file or folder is refused for writing and can be read."""
    with tempfile.TemporaryDirectory() as folder:  # the test's own folder is closed to others
        shared = Path(os.path.realpath(folder))
        path = shared / "results.db"
        trio.run(fill, path)
        path.chmod(0o444)
        shared.chmod(0o777)
        assert as_other_user(path) == [
            f"{path}: the store of runs may not be written; change its permissions, or {HINT}",
            "[3]",
        ]
        path.chmod(0o666)
        shared.chmod(0o555)
        first, second = as_other_user(path)
        assert first.startswith(f"{path}: the store of runs ")
        assert first.endswith(HINT)
        assert second == "[3]"
        missing = shared / "new" / "results.db"
        assert "cannot be created: Permission denied" in as_other_user(missing)[0]
        connection = open_database(path, RUNS)  # like a process that is killed now
        connection.execute("DELETE FROM run")
        shutil.copy(path, shared / "copy.db")
        shutil.copy(f"{path}-wal", shared / "copy.db-wal")
        connection.close()
        assert "copy it together with copy.db-wal" in as_other_user(shared / "copy.db")[1]
        with read_store(shared / "copy.db") as reader:
            assert reader.runs() == []


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="a read-only medium")
def test_a_read_only_medium_is_reported() -> None:
    """A folder that cannot be created is reported."""
    for path in ("/sys/trioeval/results.db", "/sys/trioeval.db"):
        with pytest.raises(
            StoreError, match=r"/sys/trioeval.*(cannot be created|cannot be opened)"
        ):
            trio.run(opened, Path(path))
