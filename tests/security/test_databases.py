"""Databases that are damaged, are another kind of file, or belong to another user: one line with a remedy."""

import json
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from trioeval.cli import run_command_line
from trioeval.errors import StoreError
from trioeval.store.cache.entry import CacheEntry
from trioeval.store.cache.file import CACHE, keep_entry
from trioeval.store.database import open_database
from trioeval.store.planner.planner import open_planner
from trioeval.store.planner.queue import read_queue

pytestmark = pytest.mark.attack("damaged databases")

PAGE = 8192
QUIET = ("--no-progress", "--no-table")


def quietly(*words: str) -> int:
    return run_command_line([*words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Create a suite with a valid store of two runs and a valid cache of replies."""
    folder = tmp_path_factory.mktemp("databases")
    tests = [{"vars": {"i": number}} for number in range(40)]
    suite = {"providers": ["echo"], "prompts": ["{{i}}" + 2000 * "x"], "tests": tests}
    (folder / "s.json").write_text(json.dumps(suite))
    cache = open_database(folder / "cache.db", CACHE)
    for number in range(200):
        entry = CacheEntry(json.dumps({"output": "yes" * 100}), 5.0, 1_000_000_000.0 + number)
        keep_entry(cache, number.to_bytes(32, "big") + b"openai:m", entry)
    cache.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    cache.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for _ in range(2):
            assert quietly("run", "s.json", *QUIET, "--db", "good.db") == 0
        (folder / "bad").mkdir()
        patch.setenv("TRIOEVAL_CACHE_PATH", str(folder / "bad"))
        yield folder


def _zeroed(good: bytes, path: Path, pages: range) -> None:
    data = bytearray(good)
    for page in pages:
        data[page * PAGE : (page + 1) * PAGE] = bytes(PAGE)
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[bytes, Path], object]] = {
    "header": lambda good, path: path.write_bytes(b"\xde\xad" * 50 + good[100:]),
    "sizes of the header": lambda good, path: path.write_bytes(
        good[:16] + 40 * b"\xff" + good[56:]
    ),
    "first page": lambda good, path: path.write_bytes(
        good[:100] + (b"\x5a\x0d\xff\x00" * PAGE)[: PAGE - 100] + good[PAGE:]
    ),
    "half of it": lambda good, path: path.write_bytes(good[: len(good) // 2]),
    "cut in a page": lambda good, path: path.write_bytes(good[: 2 * PAGE + 1234]),
    "zeroed pages": lambda good, path: _zeroed(good, path, range(2, len(good) // PAGE - 1)),
    "nothing": lambda _good, path: path.write_bytes(b""),
    "zeros": lambda _good, path: path.write_bytes(bytes(100_000)),
    "text": lambda _good, path: path.write_text("notes\n" * 1000),
    "folder": lambda _good, path: path.mkdir(),
    "pipe": lambda _good, path: os.mkfifo(path),
    "endless device": lambda _good, path: path.symlink_to("/dev/zero"),
    "loop of links": lambda _good, path: path.symlink_to(path.name),
}
COMMANDS = (
    ("run", "s.json", *QUIET),
    ("show",),
    ("runs",),
    ("export", "latest", "-o", "rows.csv"),
    ("compare", "latest", "latest~1"),
    ("resume",),
    ("view", "--no-open"),
)
MAY_BEGIN_ANEW = "nothing"
"""An empty file becomes a database by the first write."""


def clear(path: Path) -> None:
    for each in path.parent.glob(f"{path.name}*"):
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: str(words[0]))
@pytest.mark.parametrize("damage", DAMAGES)
def test_an_unusable_store_is_reported_in_one_line(
    folder: Path, damage: str, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names it and contains a remedy, without a traceback; the file stays unchanged."""
    path = folder / "bad.db"
    clear(path)
    DAMAGES[damage]((folder / "good.db").read_bytes(), path)
    capsys.readouterr()
    before = path.lstat()
    code = quietly(*command, "--db", "bad.db")
    printed = capsys.readouterr()
    if damage == MAY_BEGIN_ANEW and command[0] == "run":
        assert code == 0
        return
    assert code in (1, 2)
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("bad.db: ")
    assert "; " in line
    assert "--db" in line
    after = path.lstat()
    assert (after.st_size, stat.S_IFMT(after.st_mode)) == (
        before.st_size,
        stat.S_IFMT(before.st_mode),
    )


CACHE_COMMANDS = (("cache", "stats"), ("cache", "clear"), ("cache", "export", "out.jsonl"))


@pytest.mark.parametrize("command", CACHE_COMMANDS, ids=lambda words: str(words[1]))
@pytest.mark.parametrize("damage", [one for one in DAMAGES if one != "nothing"])
def test_an_unusable_cache_is_reported_in_one_line(
    folder: Path, damage: str, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """This is as for a store."""
    path = folder / "bad" / "cache.db"
    clear(path)
    (folder / "out.jsonl").unlink(missing_ok=True)
    DAMAGES[damage]((folder / "cache.db").read_bytes(), path)
    capsys.readouterr()
    code = quietly(*command)
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert "cache.db: " in line
    if damage == "loop of links" and "no replies are cached" in line:
        return
    assert code == 1
    assert "; " in line


AS_IT_IS = 0o755
ONLY_READ = {"file": (0o444, AS_IT_IS), "folder": (0o644, 0o555), "neither": (0o000, 0o555)}


def _as_other_user(work: Callable[[], str]) -> str:
    """Return the message of a user without special rights, in a separate process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.write(write, work().encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        printed = pipe.read().decode()
    os.waitpid(child, 0)
    return printed


async def _submit(path: Path) -> str:
    try:
        async with open_planner(path, 1):
            return "opened"
    except StoreError as error:
        return str(error)


def _look(path: Path) -> str:
    try:
        return f"{len(read_queue(path))} entries"
    except StoreError as error:
        return str(error)


@pytest.mark.skipif(os.name == "nt", reason="rights are others there")
@pytest.mark.parametrize("rights", ONLY_READ)
def test_a_planner_on_the_database_of_another_user_names_the_owner(rights: str) -> None:
    """A user with read access can list the queue, and cannot join it."""
    with tempfile.TemporaryDirectory() as name:  # the test's own folder is closed to others
        folder = Path(name)
        path = folder / "results.db"
        assert trio.run(_submit, path) == "opened"
        assert _look(path) == "0 entries"
        of_file, of_folder = ONLY_READ[rights]
        path.chmod(of_file)
        folder.chmod(of_folder)
        try:
            submitted = _as_other_user(partial(trio.run, _submit, path))
            looked = _as_other_user(partial(_look, path))
        finally:
            folder.chmod(0o755)
        assert submitted.startswith(f"{path}: ")
        assert "the store of runs" in submitted
        assert "; " in submitted
        if rights == "neither":
            assert looked.startswith(f"{path}: the store of runs")
        else:
            assert looked == "0 entries"
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
        connection.close()
