"""Files that a command line names, by any path or link."""

import contextlib
import json
import os
import sqlite3
from pathlib import Path

import pytest

from trioeval.cli.app import run_command_line
from trioeval.cli.inputs import check_files, check_not_suite_files
from trioeval.errors import UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file with a hard link and a symbolic link, and a symbolic link to a missing file."""
    (tmp_path / "a.json").write_text("paid for")
    (tmp_path / "hard.json").hardlink_to(tmp_path / "a.json")
    (tmp_path / "soft.json").symlink_to("a.json")
    (tmp_path / "later.json").symlink_to("new.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "x").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a.json", "a.json"),
        ("a.json", "x/../a.json"),
        ("a.json", "hard.json"),
        ("hard.json", "soft.json"),
        ("new.json", "x/../new.json"),
        ("later.json", "new.json"),
        ("loop.json", "loop.json"),
    ],
)
def test_a_file_must_not_be_named_twice(folder: Path, one: str, other: str) -> None:
    """This holds for existing and missing files, in either order."""
    for first, second in ((folder / one, folder / other), (folder / other, folder / one)):
        with pytest.raises(UsageError) as caught:
            check_files(
                [("--replay", first)], written=[("-o", folder / "else.json"), ("-o", second)]
            )
        assert str(caught.value) == f"-o {second} is the same file as --replay {first}"


def test_run_takes_the_suite_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first of the names that promptfoo knows, and only if no suite is named; its name is shown."""
    monkeypatch.chdir(tmp_path)
    assert run_command_line(["run", "--plan"]) == 2
    assert "no suite file: write trioeval SUITE" in capsys.readouterr().err
    suite = {"providers": ["echo"], "prompts": ["from JSON"], "tests": [{"vars": {"a": 1}}]}
    Path("promptfooconfig.json").write_text(json.dumps(suite))
    assert run_command_line(["run", "--plan"]) == 0
    printed = capsys.readouterr()
    assert "suite: promptfooconfig.json\n" in printed.err
    assert "echo | from JSON" in printed.out
    Path("promptfooconfig.yaml").write_text(json.dumps(suite | {"prompts": ["from YAML"]}))
    assert run_command_line(["--plan"]) == 0
    assert "echo | from YAML" in capsys.readouterr().out
    assert run_command_line(["run", "promptfooconfig.json", "--plan"]) == 0
    printed = capsys.readouterr()
    assert "echo | from JSON" in printed.out
    assert "suite: " not in printed.err


def test_files_of_a_suite_are_not_overwritten(folder: Path) -> None:
    """They are recognised by any path; a suite may read a file twice."""
    sources = [folder / "a.json", folder / "soft.json", folder / "b.csv"]
    check_not_suite_files([("-o", folder / "new.json")], sources)
    with pytest.raises(
        UsageError, match=r"^--record .*/hard.json is the same file as the suite's "
    ):
        check_not_suite_files(
            [("-o", folder / "c.csv"), ("--record", folder / "hard.json")], sources
        )


def test_a_database_and_its_files_are_not_overwritten(folder: Path) -> None:
    """Any path to them is recognised, existing or not; two databases must be different files."""
    database = folder / "later.json"  # a link to new.json
    (folder / "new.json-eval-1.lock").touch()
    (folder / "soft.lock").symlink_to("new.json-eval-1.lock")
    for name in ("new.json", "later.json", "new.json-wal", "x/../new.json-shm", "soft.lock"):
        with pytest.raises(UsageError, match=r"^-o .* is the same file as the runs .*later.json$"):
            check_files(databases=[("the runs", database)], written=[("-o", folder / name)])
    with pytest.raises(UsageError, match=r"^the cache .* is the same file as the runs "):
        check_files(databases=[("the runs", database), ("the cache", folder / "new.json")])
    with contextlib.closing(sqlite3.connect(folder / "other.db")) as other:
        other.execute("CREATE TABLE bookmarks (url)")
    with pytest.raises(
        UsageError, match=r"^-o .*other.db is a database and will not be overwritten"
    ):
        check_files(written=[("-o", folder / "other.db")])
    check_files(databases=[("the runs", database), ("the cache", None)])


SUITE = {"providers": ["echo"], "prompts": ["{{w}}"], "tests": [{"vars": {"w": "file://in.txt"}}]}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("s.json -o out.json", "-o out.json is the same file as the database of runs .trioeval/"),
        ("s.json -o hard.json", "-o hard.json is the same file as the database of runs .trioeval/"),
        ("s.json --no-write -o out.json", "-o out.json is the same file as the database of runs"),
        ("s.json -o cached.json", "-o cached.json is the same file as the cache .trioeval/"),
        ("s.json --db s.json", "the database of runs s.json is the same file as the suite s.json"),
        (
            "s.json --db x.json -o x.json",
            "-o x.json is the same file as the database of runs x.json",
        ),
        ("s.json --db x.db --record x.db", "--record x.db is the same file as the database of"),
        (
            "s.json --db x.db --record x.db-wal",
            "--record x.db-wal is the same file as the database",
        ),
        ("s.json --db .trioeval/cache.db", "the cache .trioeval/cache.db is the same file as the "),
        ("s.json --filter-failing r.json -o r.json", "-o r.json is the same file as the earlier "),
        ("s.json --db x.db -o out.json", "-o out.json is a database and will not be overwritten"),
        ("resume -o s.json", "s.json is the same file as the suite's "),
        ("resume -o out.json", "out.json is the same file as the database of runs "),
        ("export latest -o s.json", "s.json is the same file as the suite's "),
        ("export latest -o out.json", "-o out.json is the same file as the database of runs "),
        ("export latest -o cached.json", "-o cached.json is the same file as the cache "),
        ("cache export .trioeval/results.db", ".trioeval/results.db: the suffix must be .jsonl"),
        ("cache export s.json", "s.json: the suffix must be .jsonl, got '.json'"),
        ("cache export out.jsonl", "the export out.jsonl is the same file as the database of runs"),
        ("import out.json", "the database of runs .trioeval/results.db is the same file as the "),
        (
            "import r.json --db .trioeval/cache.db",
            "the cache .trioeval/cache.db is the same file as",
        ),
    ],
)
def test_no_command_overwrites_its_inputs_or_databases(
    kept: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    command: str,
    message: str,
) -> None:
    """The exit code is 2, and every file is unchanged."""
    monkeypatch.chdir(kept)
    before = contents(kept)
    assert run_command_line(command.split()) == 2
    assert message in capfd.readouterr().err
    assert contents(kept) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, a cache, and other names for both."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "s.json").write_text(json.dumps(SUITE))
    (folder / "in.txt").write_text("word")
    with contextlib.chdir(folder):
        assert run_command_line(["s.json", "-o", "r.json", "--no-progress"]) == 0
        Path("hard.json").hardlink_to(".trioeval/results.db")
        for link, target in (("out", "results"), ("cached", "cache")):
            Path(f"{link}.json").symlink_to(f".trioeval/{target}.db")
        Path("out.jsonl").symlink_to(".trioeval/results.db")
    return folder


def test_different_files_are_accepted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This includes a relative path, an inaccessible path, and no path."""
    monkeypatch.chdir(folder)
    names = ["a.json", "new.json", "loop.json", "x", os.devnull, "no/such/folder.json"]
    check_files(("-o", Path(name)) for name in names)
    check_files([])
