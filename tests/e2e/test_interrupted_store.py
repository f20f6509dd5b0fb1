"""Runs that end early keep everything that was recorded, and can be continued."""

import json
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from held_server import HeldServer, held_server
from server_process import fake_provider, stats_of
from test_command_line import ENV, http_suite, last_line, trioeval, write

pytestmark = pytest.mark.slow

ROWS = 12


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def command_of(done: str) -> list[str]:
    """The continuing command of the last line of a run."""
    found = re.search(r"; continue with: trioeval (resume eval-\S+)$", done.strip())
    assert found is not None, done
    return found[1].split()


def interrupted(
    folder: Path, server: HeldServer, signals: Sequence[signal.Signals]
) -> tuple[int, str]:
    """Exit code and stderr of a run that gets signals when its first calls are in flight."""
    command = [sys.executable, "-m", "trioeval", "s.json", "-o", "o.jsonl", "-o", "o.json"]
    with subprocess.Popen(
        [*command, "--no-table", "--no-progress", "--no-cache"],
        cwd=folder,
        env=ENV,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        server.wait_held(4)
        assert process.stderr is not None
        stderr = ""
        for number in signals:
            process.send_signal(number)
            # Signals may overtake each other: the next one is sent when this one was handled.
            while "stopping: " not in stderr and (line := process.stderr.readline()):
                stderr += line
        if len(signals) == 1:
            server.release()
        stderr += process.stderr.read()
    server.forget_held()
    return process.returncode, stderr


@pytest.mark.parametrize(
    ("signals", "code"),
    [
        ([signal.SIGINT], 130),
        ([signal.SIGTERM], 143),
        ([signal.SIGINT, signal.SIGTERM], 130),
    ],
)
def test_an_interrupted_run_names_a_command_that_continues_it(
    tmp_path: Path, signals: list[signal.Signals], code: int
) -> None:
    """Files hold the finished rows; recorded replies are not requested again; in the end all rows exist."""
    with held_server() as server:
        server.hold_after(0)
        write(tmp_path / "s.json", http_suite(server.url, ROWS))
        found, stderr = interrupted(tmp_path, server, signals)
        assert found == code
        assert len(rows_of(tmp_path / "o.jsonl")) == ROWS
        before = len(server.prompts)
        done = trioeval(*command_of(stderr), "-j", "12", "--no-table", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        paid = before if len(signals) == 1 else 0
        assert len(server.prompts) == before + ROWS - paid
    rows = rows_of(tmp_path / "o.jsonl")
    assert [row["testIdx"] for row in rows] == list(range(ROWS))
    assert {row["metadata"]["trioeval"]["outcome"] for row in rows} == {"done"}
    assert json.loads((tmp_path / "o.json").read_text())["results"]["results"] == rows


def test_a_run_at_its_deadline_names_a_command_that_continues_it(tmp_path: Path) -> None:
    """The exit code is that of rows without a verdict; the limit may change for the continuation."""
    suite = {
        "providers": ["exec:sh -c 'test -e quick || sleep 60; echo done'"],
        "tests": [{"vars": {"n": n}} for n in range(3)],
        "prompts": ["{{n}}"],
    }
    write(tmp_path / "s.json", suite)
    done = trioeval("s.json", "--max-time", "1", "--no-table", cwd=tmp_path)
    assert done.returncode == 100
    command = command_of(last_line(done))
    (tmp_path / "quick").touch()
    done = trioeval(*command, "--max-time", "60", "-o", "o.csv", "--no-table", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o.csv").read_text().count("done,NOT GRADED") == 3


def test_a_full_disk_loses_no_row(tmp_path: Path) -> None:
    """Rows in memory are in the files that could be written; the run continues when there is room.

    Rows that were not run are counted beyond the first hundred, and are not in the files.
    """
    tests = [{"vars": {"word": "x" * 350}} for _ in range(300)]
    write(tmp_path / "s.json", {"providers": ["echo"], "prompts": ["say {{word}}"], "tests": tests})
    command = [sys.executable, "-m", "trioeval", "s.json", "-o", "a.json", "-o", "b.csv"]
    done = subprocess.run(
        ["sh", "-c", 'ulimit -f 860 && exec "$@"', "sh", *command, "--no-table", "--no-cache"],
        cwd=tmp_path,
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    first, second, *_ = done.stderr.splitlines()
    assert first.startswith(".trioeval/results.db: the store of runs cannot be read or written")
    assert second == "stopping: running rows may finish"
    if (document := tmp_path / "a.json").exists():  # it fits if few rows were run before
        assert json.loads(document.read_text())["evalId"]
    match = re.search(
        r"^-o: (\d+) rows not run: counted, and not listed in the files$", done.stderr, re.MULTILINE
    )
    unlisted = 0 if match is None else int(match[1])
    assert len((tmp_path / "b.csv").read_text().splitlines()) == 301 - unlisted
    done = trioeval(*command_of(done.stderr), "--no-table", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(json.loads((tmp_path / "a.json").read_text())["results"]["results"]) == 300
    with sqlite3.connect(tmp_path / ".trioeval" / "results.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_an_unusable_store_ends_a_run_before_any_call(tmp_path: Path) -> None:
    """The line names the file and both remedies, which work."""
    with fake_provider() as url:
        write(tmp_path / "s.json", http_suite(url, 2))
        (tmp_path / "foreign.db").write_text("not a database, but long enough to look like one" * 9)
        (tmp_path / "file").touch()
        for place in ("foreign.db", "file/runs.db", "."):
            done = trioeval("s.json", "--db", place, cwd=tmp_path)
            assert done.returncode == 1, done.stderr
            assert done.stdout == ""
            assert done.stderr.startswith(place)
            assert "--db" in done.stderr
            assert "--no-write" in done.stderr
            assert len(done.stderr.splitlines()) == 1
        assert stats_of(url)["requests"] == 0
        assert trioeval("s.json", "--db", "file", "--no-write", cwd=tmp_path).returncode == 0


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="a folder without write permission")
def test_a_folder_that_cannot_be_written_to_is_refused_at_once(tmp_path: Path) -> None:
    """A run that is not stored works there without a cache, with a warning."""
    suite = write(tmp_path / "s.json", {"providers": ["echo"], "prompts": ["x"]})
    forbidden = Path("/sys/kernel")
    done = trioeval(suite, cwd=forbidden)
    assert done.returncode == 1
    assert ".trioeval/results.db" in done.stderr
    assert "--no-write" in done.stderr
    assert trioeval(suite, "--no-write", "--no-cache", cwd=forbidden).returncode == 0


def test_a_run_waits_for_a_locked_database(tmp_path: Path) -> None:
    """It then ends as usual."""
    write(tmp_path / "s.json", {"providers": ["echo"], "prompts": ["x"]})
    assert trioeval("s.json", cwd=tmp_path).returncode == 0
    connection = sqlite3.connect(tmp_path / ".trioeval" / "results.db", isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    command = [sys.executable, "-m", "trioeval", "s.json", "--no-table", "--no-progress"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENV, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert "locked by another program" in first
        connection.execute("ROLLBACK")
        connection.close()
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 0
    assert stderr.splitlines()[-1].endswith("exit 0: no row was graded")
    runs = json.loads(trioeval("runs", "--json", cwd=tmp_path).stdout)
    assert [run["state"] for run in runs] == ["finished", "finished"]
