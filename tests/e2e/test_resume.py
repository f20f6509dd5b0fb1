"""Continued runs, as a user continues them: real processes that are killed, and suites that change."""

import contextlib
import json
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


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run_of(folder: Path) -> dict[str, Any]:
    """The latest run."""
    found: list[dict[str, Any]] = json.loads(trioeval("runs", "--json", cwd=folder).stdout)
    return found[0]


def kill_after(folder: Path, server: HeldServer, replies: int, *flags: str) -> None:
    """Start a run, and kill its process when a number of replies are recorded and four are held."""
    server.hold_after(replies)
    command = [sys.executable, "-m", "trioeval", "s.json", "--no-progress", *flags]
    with subprocess.Popen(
        command, cwd=folder, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        server.wait_held(4)
        while calls_in(folder) < replies:
            assert process.poll() is None
        process.kill()
    server.forget_held()


def outcomes(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["metadata"]["trioeval"]["outcome"] for row in rows]


def test_a_killed_run_continues_and_repeats_no_recorded_call(tmp_path: Path) -> None:
    """Every row is in every file of the start exactly once; only calls in flight are lost."""
    with held_server() as server:
        write(tmp_path / "s.json", http_suite(server.url, 24))
        kill_after(tmp_path, server, 8, "-o", "o.json", "-o", "o.jsonl", "--no-cache")
        assert run_of(tmp_path)["state"] == "died"
        done = trioeval("s.json", "--resume", "--no-table", "--no-cache", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert last_line(done).startswith("24 rows in ")
        assert len(server.prompts) == 24 + 4  # those in flight at the kill
        rows = rows_of(tmp_path / "o.jsonl")
        assert [row["testIdx"] for row in rows] == list(range(24))
        assert all(row["success"] for row in rows)
        assert json.loads((tmp_path / "o.json").read_text())["results"]["results"] == rows
        assert run_of(tmp_path)["state"] == "finished"

        before = len(server.prompts)
        done = trioeval("resume", "-o", "again.csv", cwd=tmp_path)
        assert done.returncode == 0
        first, last = done.stderr.splitlines()
        assert first.endswith("is finished: no row is left to run")
        assert last.endswith("24 not graded; exit 0: no row was graded")
        assert len((tmp_path / "again.csv").read_text().splitlines()) == 25
        assert len(server.prompts) == before


def counting_suite(folder: Path, *words: str, expected: str = "w") -> None:
    """Write a suite whose provider records its prompts and fails for `broken`."""
    (folder / "ask.py").write_text(_ASK)
    suite = {
        "providers": [f"exec:{sys.executable} ask.py"],
        "prompts": ["say {{word}}"],
        "tests": [
            {"vars": {"word": word}, "assert": [{"type": "contains", "value": expected}]}
            for word in words
        ],
    }
    write(folder / "s.json", suite)
    (folder / "asked").write_text("")


_ASK = """\
import os
import sys
import time

prompt = sys.argv[1]
with open("asked", "a") as file:
    file.write(prompt + "\\n")
if os.path.exists("slow"):
    time.sleep(60)
if "broken" in prompt and not os.path.exists("mended"):
    sys.exit(3)
print(prompt)
"""


def take_prompts(folder: Path) -> list[str]:
    """The prompts since the last call, sorted."""
    found = sorted((folder / "asked").read_text().splitlines())
    (folder / "asked").write_text("")
    return found


def test_rows_are_run_again_as_they_are_named(tmp_path: Path) -> None:
    """Failed rows, rows without a verdict, or row numbers; the others are unchanged."""
    counting_suite(tmp_path, "w0", "x1", "broken w2")
    assert trioeval("s.json", cwd=tmp_path).returncode == 100
    assert take_prompts(tmp_path) == ["say broken w2", "say w0", "say x1"]
    done = trioeval("s.json", "--resume", cwd=tmp_path)
    assert (done.returncode, take_prompts(tmp_path)) == (100, [])
    (tmp_path / "mended").touch()
    done = trioeval("s.json", "--retry-errors", "-o", "o.jsonl", cwd=tmp_path)
    assert (done.returncode, take_prompts(tmp_path)) == (100, ["say broken w2"])
    assert "2 passed, 1 failed, 0 errors" in last_line(done)
    assert [row["success"] for row in rows_of(tmp_path / "o.jsonl")] == [True, False, True]
    for which, expected in (("failed", ["say x1"]), ("0,2", ["say broken w2", "say w0"])):
        done = trioeval("resume", "--retry", which, cwd=tmp_path)
        assert (done.returncode, take_prompts(tmp_path)) == (100, expected)


@pytest.mark.parametrize("cut", ["deadline", "interrupts"])
def test_an_interrupted_retry_loses_no_result(tmp_path: Path, cut: str) -> None:
    """Earlier results remain in the store and in every file until the rerun finishes or is cancelled."""
    counting_suite(tmp_path, "w0", "w1", "w2")
    assert trioeval("s.json", "--no-cache", "-o", "o.jsonl", cwd=tmp_path).returncode == 0
    rows = rows_of(tmp_path / "o.jsonl")
    take_prompts(tmp_path)
    (tmp_path / "slow").touch()
    command = [sys.executable, "-m", "trioeval", "resume", "--retry", "1-2", "--no-cache"]
    command += ["--max-time", "0.5"] if cut == "deadline" else []
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        if cut == "interrupts":
            while not (tmp_path / "asked").read_text():
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert "stopping" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
        last = process.stderr.read().splitlines()[-1]
    assert process.returncode == (130 if cut == "interrupts" else 100)
    assert "3 passed, 0 failed, 0 errors" in last
    assert "2 rows were not run again and keep their earlier results; continue with: " in last
    assert rows_of(tmp_path / "o.jsonl") == rows
    run = run_of(tmp_path)
    assert (run["state"], run["passed"], run["errors"]) == ("interrupted", 3, 0)

    (tmp_path / "slow").unlink()
    take_prompts(tmp_path)
    given_up = cut == "deadline"
    more = ["--retry", "none"] if given_up else []
    done = trioeval("resume", "--no-cache", "--max-time", "0", *more, cwd=tmp_path)
    assert done.returncode == 0
    assert take_prompts(tmp_path) == ([] if given_up else ["say w1", "say w2"])
    assert (rows_of(tmp_path / "o.jsonl") == rows) is given_up


def test_a_changed_suite_is_refused_or_reconciled(tmp_path: Path) -> None:
    """Changes are shown row by row; unchanged rows are kept at any position, without calls."""
    counting_suite(tmp_path, "w0", "w1", "w2")
    assert trioeval("s.json", cwd=tmp_path).returncode == 0
    run = run_of(tmp_path)["id"]
    counting_suite(tmp_path, "w9", "w0", "w2")
    lines = [
        f"the suite of {run} has changed: s.json",
        "of 3 rows: 2 kept (1 of them at other positions), 1 new; 1 is gone",
        "  new: 0 (word=w9)",
        "  gone: 1 (word=w1)",
    ]
    done = trioeval("s.json", "--resume", cwd=tmp_path)
    assert (done.returncode, take_prompts(tmp_path)) == (2, [])
    hint = "pass --reconcile to keep the unchanged rows and run the others"
    assert done.stderr.splitlines() == [*lines, hint]
    done = trioeval("resume", "--reconcile", "-o", "o.jsonl", cwd=tmp_path)
    assert (done.returncode, take_prompts(tmp_path)) == (0, ["say w9"])
    assert done.stderr.splitlines()[:4] == lines
    rows = rows_of(tmp_path / "o.jsonl")
    assert [row["vars"]["word"] for row in rows] == ["w9", "w0", "w2"]
    assert [row["testIdx"] for row in rows] == [0, 1, 2]


def test_a_suite_that_was_edited_after_a_kill_gets_no_reply_of_another_row(tmp_path: Path) -> None:
    """The run was killed between replies and verdicts: recorded calls follow their rows."""
    (tmp_path / "late.py").write_text(
        "import os, time\n\ndef get_assert(o, c):\n"
        "    time.sleep(60 * ('LATE' in os.environ))\n    return o == c['vars']['word']\n"
    )

    def edit(url: str, *words: str) -> None:
        config = {
            "url": f"{url}/chat/completions",
            "method": "POST",
            "body": {"model": "m", "messages": [{"role": "user", "content": "{{word}}"}]},
            "transformResponse": "json.choices[0].message.content",
        }
        judged = [{"type": "python", "value": "file://late.py"}]
        suite = {
            "prompts": ["answer me"],  # two rows differ only in their variables
            "providers": [{"id": "http", "config": config}],
            "tests": [{"vars": {"word": word}, "assert": judged} for word in words],
        }
        write(tmp_path / "s.json", suite)

    with fake_provider() as url:
        edit(url, "w0", "w1", "w2")
        command = [sys.executable, "-m", "trioeval", "s.json", "--no-progress", "--no-cache"]
        with subprocess.Popen(
            command, cwd=tmp_path, env=ENV | {"LATE": "1"}, stderr=subprocess.DEVNULL
        ) as process:
            while calls_in(tmp_path) < 3:
                assert process.poll() is None
            process.kill()
        edit(url, "w9", "w0", "w8", "w2")
        refused = trioeval("s.json", "--resume", "--no-cache", cwd=tmp_path)
        assert refused.returncode == 2
        assert refused.stderr.splitlines()[1:3] == [
            "of 4 rows: 4 new, or not run before",
            "  3 unrecorded rows run as the suite says now",
        ]
        assert stats_of(url)["requests"] == 3
        flags = ["--reconcile", "--no-cache", "--no-table", "-o", "o.jsonl"]
        done = trioeval("resume", *flags, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert stats_of(url)["requests"] == 5
    rows = rows_of(tmp_path / "o.jsonl")
    assert [row["response"]["output"] for row in rows] == ["w9", "w0", "w8", "w2"]
    assert calls_in(tmp_path) == 4


def calls_in(folder: Path) -> int:
    """The number of recorded calls."""
    path = folder / ".trioeval" / "results.db"
    if not path.exists():
        return 0
    with contextlib.closing(sqlite3.connect(path)) as connection:
        try:
            (found,) = connection.execute("SELECT count(*) FROM call").fetchone()
        except sqlite3.OperationalError:  # it is being created
            return 0
    return int(found)


def test_a_run_continues_in_its_own_folder_with_its_own_flags(tmp_path: Path) -> None:
    """It can be continued from any folder; files of new flags are relative to that folder."""
    (tmp_path / "suite").mkdir()
    (tmp_path / "else").mkdir()
    counting_suite(tmp_path / "suite", "w0", "x1", "w2", "w3")
    flags = ["-n", "3", "--var", "a=b", "--db", "../runs.db"]
    assert trioeval("s.json", *flags, cwd=tmp_path / "suite").returncode == 100
    take_prompts(tmp_path / "suite")
    again = ["resume", "--db", "../runs.db", "--retry", "failed", "-o", "o.jsonl"]
    done = trioeval(*again, cwd=tmp_path / "else")
    assert done.returncode == 100, done.stderr
    assert take_prompts(tmp_path / "suite") == ["say x1"]
    rows = rows_of(tmp_path / "else" / "o.jsonl")
    assert [row["vars"] for row in rows] == [
        {"word": word, "a": "b"} for word in ("w0", "x1", "w2")
    ]


def test_a_run_continues_with_the_flags_of_its_start(tmp_path: Path) -> None:
    """Flags of an execution apply only to it, including --no-cache."""
    counting_suite(tmp_path, "w0", "x1", "w2", "w3")
    flags = ["--no-cache", "--fail-exit-code", "7", "--no-table", "-j", "2", "--max-requests", "1"]
    done = trioeval("s.json", *flags, cwd=tmp_path)
    assert (done.returncode, len(take_prompts(tmp_path))) == (7, 1)
    assert "1 passed, 0 failed, 0 errors, 3 not run" in last_line(done)
    assert "3 rows not run because of the budget; continue with: " in last_line(done)
    begun = stored_flags_of(tmp_path)
    assert begun["keep"] == {"cache": False}

    now = ["--max-requests", "2", "--timeout", "60", "--table", "-j", "1"]
    done = trioeval("resume", *now, cwd=tmp_path)
    assert (done.returncode, len(take_prompts(tmp_path))) == (7, 2)
    assert stored_flags_of(tmp_path) == begun
    done = trioeval("resume", cwd=tmp_path)
    assert (done.returncode, len(take_prompts(tmp_path)), done.stdout) == (7, 1, "")
    assert "3 passed, 1 failed, 0 errors; exit 7" in last_line(done)
    assert stored_flags_of(tmp_path) == begun
    assert not (tmp_path / ".trioeval" / "cache.db").exists()


def stored_flags_of(folder: Path) -> dict[str, Any]:
    """The stored flags of the only run."""
    with contextlib.closing(sqlite3.connect(folder / ".trioeval" / "results.db")) as connection:
        ((text,),) = connection.execute("SELECT flags FROM run").fetchall()
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_running_run_is_neither_continued_nor_deleted(tmp_path: Path) -> None:
    """The list shows it as running."""
    with fake_provider("--latency", "60") as url:
        write(tmp_path / "s.json", http_suite(url, 2))
        command = [sys.executable, "-m", "trioeval", "s.json", "--no-progress", "-o", "o.jsonl"]
        with subprocess.Popen(
            command, cwd=tmp_path, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            while stats_of(url)["in_flight"] < 2:
                assert process.poll() is None
            run = run_of(tmp_path)
            assert run["state"] == "running"
            done = trioeval("s.json", "--resume", "-o", "o.jsonl", cwd=tmp_path)
            assert (done.returncode, done.stderr) == (
                2,
                f"{run['id']} is running in another process; wait until it ends, or stop it\n",
            )
            done = trioeval("runs", "delete", run["id"], cwd=tmp_path)
            assert (done.returncode, done.stderr) == (
                2,
                f"{run['id']}: still running, so nothing was deleted\n",
            )
            for number in (signal.SIGINT, signal.SIGTERM):  # two of one number may come as one
                process.send_signal(number)
            process.wait(timeout=60)
        assert len(rows_of(tmp_path / "o.jsonl")) == 2
