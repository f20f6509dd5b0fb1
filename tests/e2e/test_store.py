"""Stored runs: listed, shown, exported, imported, compared and deleted, as a user does it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from page_data import PageData
from server_process import fake_provider, stats_of
from test_command_line import ENV, http_suite, last_line, trioeval, write

from trioeval.cli import run_command_line

pytestmark = pytest.mark.slow


def suite_of(*words: str, expected: str = "w") -> dict[str, Any]:
    return {
        "description": "words",
        "providers": ["echo"],
        "prompts": ["say {{word}}"],
        "tests": [
            {"vars": {"word": word}, "assert": [{"type": "contains", "value": expected}]}
            for word in words
        ],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs: of a suite, of the suite with another text, and of an imported file."""
    folder = tmp_path_factory.mktemp("store")
    write(folder / "s.json", suite_of("w0", "w1", "x\x1b[35m"))
    assert trioeval("s.json", "-o", "a.json", "-o", "a.jsonl", cwd=folder).returncode == 100
    write(folder / "s.json", suite_of("w1", "w2", "x\x1b[35m", expected="1"))
    assert trioeval("s.json", "-o", "b.json", cwd=folder).returncode == 100
    document = json.loads((folder / "a.json").read_text())
    write(folder / "old.json", {**document, "evalId": "eval-old"})
    done = trioeval("import", "old.json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "imported old.json: 3 rows as eval-old\n")
    return folder


def runs_of(folder: Path, *flags: str) -> list[dict[str, Any]]:
    done = trioeval("runs", "--json", *flags, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_the_folder_of_runs_is_ignored_by_version_control(folder: Path) -> None:
    """No other file remains beside the databases."""
    assert (folder / ".trioeval" / ".gitignore").read_text() == "*\n"
    names = {path.name for path in (folder / ".trioeval").iterdir()}
    assert {".gitignore", "results.db"} <= names
    assert not {name for name in names if name.endswith(("-wal", "-shm"))}


def test_runs_are_listed_the_latest_first(folder: Path) -> None:
    """The list shows their states, and can be limited by suite, state and number."""
    found = runs_of(folder)
    assert found[0]["id"] == "eval-old"
    assert [(run["rows"], run["passed"], run["failed"], run["state"]) for run in found] == [
        (3, 2, 1, "finished"),
        (3, 1, 2, "finished"),
        (3, 2, 1, "finished"),
    ]
    assert len(runs_of(folder, "--suite", "s.json")) == 2
    assert len(runs_of(folder, "--limit", "1")) == 1
    assert runs_of(folder, "--state", "died") == []
    done = trioeval("runs", cwd=folder)
    assert "eval-old" in done.stdout
    assert "s.json" in done.stdout


def test_an_export_equals_the_files_of_the_run(folder: Path) -> None:
    """The document differs only in its export time, and the lines are its rows."""
    done = trioeval(
        "export", "latest~1", "-o", "c.json", "-o", "c.jsonl", "-o", "c.html", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("wrote c.json: 3 rows of eval-")
    written, exported = (json.loads((folder / name).read_text()) for name in ("b.json", "c.json"))
    for document in (written, exported):
        del document["metadata"]["exportedAt"]
    assert exported == written
    lines = (folder / "c.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == written["results"]["results"]
    text = (folder / "c.html").read_text()
    assert "\x1b" not in text
    ((lane,),) = (execution["lanes"] for execution in PageData(text).data["lanes"])
    assert {bucket[1] for bucket in lane["buckets"]} == {4}  # the limit, which nothing has changed


def test_a_run_is_shown_and_so_is_one_row(folder: Path) -> None:
    """All rows, only those that did not pass, or everything about one row; hostile text is harmless."""
    whole = trioeval("show", "latest~1", cwd=folder)
    assert whole.returncode == 0
    assert "PASS say w1" in whole.stdout
    assert "FAIL say w2" in whole.stdout
    failed = trioeval("show", "latest~1", "--failed", cwd=folder)
    assert "FAIL say w2" in failed.stdout
    assert "PASS" not in failed.stdout
    row = trioeval("show", "latest~1", "2", cwd=folder)
    assert row.returncode == 0
    assert 'does not contain "1"' in row.stdout
    for done in (whole, failed, row):
        assert "\x1b" not in done.stdout


def test_two_runs_are_compared_row_by_row(folder: Path) -> None:
    """Rows match at any position, in text and JSON."""
    oldest, newest = "latest~2", "latest~1"
    done = trioeval("compare", oldest, newest, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    kinds = {row["test"]: row["kind"] for row in json.loads(done.stdout)["rows"]}
    assert {name: kind for name, kind in kinds.items() if "\x1b" not in name} == {
        "word=w0": "gone",
        "word=w2": "new",
    }
    done = trioeval("compare", "eval-old", oldest, cwd=folder)
    assert done.stdout.splitlines()[-1] == "3 rows: 3 same"


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ("show eval-nothing", 2, ".trioeval/results.db: run 'eval-nothing' not found"),
        ("show latest~9", 2, ".trioeval/results.db: latest~9 does not exist: there are 3 runs"),
        ("show eval-old 3", 2, "eval-old has no row 3; 3 of 3 rows are stored, numbered from 0"),
        (
            "show eval-old 0 --task x",
            2,
            "--task x: eval-old has no such task; it has no named tasks",
        ),
        ("runs --db none.db", 2, "none.db: no database of runs"),
        ("runs --db s.json", 1, "s.json: "),
        ("runs prune", 2, "select the runs to delete: --older-than AGE, --keep N, or both"),
        (
            "runs prune --older-than soon",
            2,
            "--older-than must be a duration such as 90s, 12h or 30d",
        ),
        ("runs delete eval-old nothing", 2, ".trioeval/results.db: run 'nothing' not found"),
        ("export eval-old", 2, "name the files to write: trioeval export RUN -o FILE"),
        ("export eval-old -o x.xlsx", 2, "x.xlsx: the suffix must be one of"),
        (
            "import old.json",
            2,
            "old.json: its run eval-old is already stored in .trioeval/results.db",
        ),
        ("import none.json", 2, "none.json: cannot be read: No such file or directory"),
        ("import s.json", 2, "s.json: $.results: must be an object with the results of a run"),
        ("resume eval-old", 2, "eval-old cannot be continued: it was imported"),
        ("resume --db none.db", 2, "none.db: no database of runs: no suite has been run here"),
        ("s.json --reconcile", 2, "--reconcile needs --resume or --retry"),
        ("s.json --resume --no-write", 2, "--no-write applies to a whole run"),
        ("s.json --resume --tag a=b", 2, "--tag applies to a whole run"),
        ("s.json --resume --retry-errors", 2, "--retry-errors cannot be used with --resume"),
        ("resume --retry-errors", 2, "--retry-errors cannot be used with --resume"),
        ("s.json --retry 3-1", 2, "--retry: invalid rows to run again: '3-1'"),
        ("s.json --retry 0-9", 2, "--retry 0-9: no row 9; the last row is 2"),
        ("s.json --resume -n 1 --repeat 2", 2, "--filter-first-n 1: the run was started without"),
        ("other.json --resume", 2, ".trioeval/results.db contains no runs of "),
        ("s.json --db s.json", 2, ""),
    ],
)
def test_errors_are_reported_in_a_line(
    folder: Path,
    arguments: str,
    code: int,
    line: str,
    *,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The exit code is that of a usage error or of an unusable file; nothing runs or changes."""
    monkeypatch.chdir(folder)  # in this process: every argument is refused before a run starts
    assert run_command_line(arguments.split()) == code
    printed = capsys.readouterr()
    assert printed.err.startswith(line)
    assert printed.out == ""
    assert "Traceback" not in printed.err


def test_a_closed_stdout_is_not_an_error(folder: Path) -> None:
    """`| head` ends the output silently."""
    for command in ("runs --json", "show latest", "compare latest latest~1 --json --changed"):
        line = f"{sys.executable} -m trioeval {command} | true; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=ENV, capture_output=True, text=True, check=True
        )
        assert (done.stdout, done.stderr) == ("0\n", "")


def test_runs_are_deleted_by_name_or_age(tmp_path: Path) -> None:
    """Only these runs are deleted, permanently."""
    write(tmp_path / "s.json", suite_of("w"))
    for _ in range(3):
        assert trioeval("s.json", "--no-table", cwd=tmp_path).returncode == 0
    latest, *older = [run["id"] for run in runs_of(tmp_path)]
    done = trioeval("runs", "delete", older[0], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, f"deleted {older[0]}: 1 row\n")
    done = trioeval("runs", "prune", "--older-than", "1d", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "0 runs deleted\n")
    done = trioeval("runs", "prune", "--keep", "1", cwd=tmp_path)
    assert done.stderr == f"deleted {older[1]}: 1 row\n1 run deleted\n"
    assert [run["id"] for run in runs_of(tmp_path)] == [latest]


def test_a_run_that_is_not_stored_leaves_nothing(tmp_path: Path) -> None:
    """It writes only the requested files, with all rows."""
    write(tmp_path / "s.json", suite_of("w0", "w1"))
    env = {"TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    flags = ["--no-write", "--no-cache", "-o", "o.json", "-o", "o.jsonl"]
    done = trioeval("s.json", *flags, cwd=tmp_path, env=env)
    assert done.returncode == 0
    assert len(json.loads((tmp_path / "o.json").read_text())["results"]["results"]) == 2
    assert len((tmp_path / "o.jsonl").read_text().splitlines()) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "o.json",
        "o.jsonl",
        "s.json",
        "tmp",
    ]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_flag_environment_and_folder_determine_the_location_of_runs(tmp_path: Path) -> None:
    """They apply in this order; a suite's own `env` does not count."""
    suite = {**suite_of("w"), "env": {"TRIOEVAL_DB": "suite.db", "TRIOEVAL_CONFIG_DIR": "suite"}}
    write(tmp_path / "s.json", suite)
    places = [
        (["--db", "flag.db"], {"TRIOEVAL_DB": "env.db"}, "flag.db"),
        ([], {"TRIOEVAL_DB": "env.db", "PROMPTFOO_CONFIG_DIR": "conf"}, "env.db"),
        ([], {"PROMPTFOO_CONFIG_DIR": "conf"}, "conf/results.db"),
        ([], {}, ".trioeval/results.db"),
    ]
    for flags, env, place in places:
        assert not (tmp_path / place).exists()
        done = trioeval("s.json", "--no-table", "--no-cache", *flags, cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / place).is_file()
    assert not list(tmp_path.glob("suite*"))


def test_the_cache_serves_the_next_run_unless_a_flag_prevents_it(tmp_path: Path) -> None:
    """An HTTP provider is called once for equal requests; `--refresh` and `--record` call it again."""
    with fake_provider() as url:
        write(tmp_path / "s.json", http_suite(url, 3))
        counts = []
        for flags in ([], [], ["--refresh"], ["--no-cache"], ["--record", "r.jsonl"], []):
            done = trioeval("s.json", "--no-table", "-o", "o.jsonl", *flags, cwd=tmp_path)
            assert done.returncode == 0, last_line(done)
            counts.append(stats_of(url)["requests"])
        assert counts == [3, 3, 6, 9, 12, 12]
        rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
        assert [row["response"]["cached"] for row in rows] == [True] * 3
        assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 3


def test_the_last_line_names_no_command_for_a_damaged_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The run ends before any call: a small database is checked, a large one cannot be used."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "s.json", suite_of("w0", "w1"))
    run = ["s.json", "--db", "r.db", "--no-cache", "-o", "out.json"]
    assert run_command_line(run) == 0
    database, output, page = Path("r.db"), Path("out.json"), 8192
    whole = database.read_bytes()
    database.write_bytes(whole[:page] + b"\xff" * (len(whole) - page))
    output.unlink()
    capfd.readouterr()
    assert run_command_line(run) == 1
    assert "r.db: the store of runs is damaged" in capfd.readouterr().err
    assert not output.exists()
    monkeypatch.setattr("trioeval.store.database._LARGEST_CHECKED", 0)
    assert run_command_line(run) == 1
    stderr = capfd.readouterr().err
    assert "r.db: the store of runs is damaged" in stderr
    assert "name another file with --db" in stderr
    assert "continue with" not in stderr
    assert not output.exists()
