"""`--on local:2` as a command: interrupts, a killed run that is continued, and refusals."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster
from scaleout_command import (
    ROWS,
    WIDTH,
    check_every_row_was_paid,
    command,
    processes_of,
    rows_of,
    suite,
    wait_gone,
    wait_served,
)
from server_process import fake_provider, stats_of

from trioeval.cli import run_command_line
from trioeval.store.reader import read_store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.network,
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc"),
]


@pytest.mark.parametrize("count", [1, 2])
def test_an_interrupt_of_the_terminal_reaches_the_run_and_not_its_workers(
    tmp_path: Path, count: int
) -> None:
    """The first one drains, the second one cancels; every row is written, and no process remains."""
    with fake_provider("--latency", "0.2") as url:
        (tmp_path / "s.json").write_text(json.dumps(suite(url)))
        with command(tmp_path, "s.json", "--on", "local:2", "-o", "o.jsonl") as process:
            wait_served(url, process, 20)
            for _ in range(count):
                # As a terminal does: all processes of its foreground group.
                os.killpg(process.pid, signal.SIGINT)
            _, text = process.communicate(timeout=110)
            wait_gone(process.pid)  # law LEAK
        assert process.returncode == 130, text
        served = stats_of(url)["ok"]
    rows = rows_of(tmp_path)
    finished = [row for row in rows if row["success"]]
    assert len(rows) == ROWS
    assert 20 <= len(finished) < ROWS
    if count == 1:
        assert len(finished) == served, "running rows end"
    assert "Traceback" not in text


@pytest.mark.timeout(300)  # three programs and two clusters start
def test_a_killed_run_ends_its_workers_and_is_continued_without_a_second_payment(
    tmp_path: Path,
) -> None:
    """Law RESUME: on this machine or on workers, only calls in flight are made again."""
    log = tmp_path / "log.jsonl"
    with fake_provider("--latency", "0.2", "--log", str(log)) as url:
        (tmp_path / "s.json").write_text(json.dumps(suite(url)))
        with command(tmp_path, "s.json", "--on", "local:2") as process:
            wait_served(url, process, 30)
            process.kill()
            process.wait()
            wait_gone(process.pid)  # Dask's workers end with their parent
        with command(
            tmp_path, "resume", "--on", "local:2", "--no-cache", "-o", "o.jsonl"
        ) as process:
            _, text = process.communicate(timeout=110)
        assert process.returncode == 0, text
    check_every_row_was_paid(tmp_path, log, repeated=WIDTH)


REST = ("--no-cache", "--no-progress", "--no-table", "-o", "o.jsonl")
TURNS = "{{word}} after {% for turn in _conversation %}{{turn.output | length}} {% endfor %}"


def test_an_interrupted_conversation_is_continued_on_workers_with_its_turns(
    two_workers: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law RESUME: every turn is paid once, and has the prompt of an uninterrupted run."""
    turns = 30
    log = tmp_path / "log.jsonl"
    with fake_provider("--latency", "0.2", "--log", str(log)) as url:
        tests = [{"vars": {"word": f"turn {number}"}} for number in range(turns)]
        (tmp_path / "s.json").write_text(
            json.dumps(suite(url) | {"prompts": [TURNS], "tests": tests})
        )
        with command(tmp_path, "s.json", "--on", "local:2") as process:
            wait_served(url, process, 5)
            os.killpg(process.pid, signal.SIGINT)
            _, text = process.communicate(timeout=110)
        assert process.returncode == 130, text
        assert stats_of(url)["ok"] < turns
        monkeypatch.chdir(tmp_path)
        assert run_command_line(["resume", "--on", two_workers.scheduler_address, *REST]) == 0
    outputs = [row["response"]["output"] for row in rows_of(tmp_path)]
    for number, output in enumerate(outputs):
        lengths = "".join(f"{len(one)} " for one in outputs[:number])
        assert output.rstrip() == f"turn {number} after {lengths}".rstrip()
    served = [json.loads(line)["prompt"] for line in log.read_text().splitlines()]
    assert len(served) == turns


EXTENSION = """
import json, pathlib

def note(text):
    with open("events.txt", "a") as file:
        file.write(text + "\\n")

def beforeAll(context, _hook):
    note("beforeAll")
    suite = context["suite"]
    suite["tests"] = [*suite["tests"], {"vars": {"word": "added"}}]
    return {"suite": suite}

def beforeEach(context, _hook):
    context["test"]["vars"]["word"] += "!"
    return context

def afterEach(context, _hook):
    context["result"]["metadata"]["length"] = len(context["result"]["response"]["output"])
    return context

def afterAll(context, _hook):
    note(f"afterAll {len(context['results'])}")
"""


def test_extensions_are_called_once_for_a_run_and_for_each_row_on_its_worker(
    two_workers: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results are those of one process."""
    events = ("beforeAll", "beforeEach", "afterEach", "afterAll")
    (tmp_path / "hooks.py").write_text(EXTENSION)
    words = {
        "providers": ["echo"],
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": f"word {number}"}} for number in range(20)],
        "extensions": [f"file://hooks.py:{event}" for event in events],
    }
    (tmp_path / "s.json").write_text(json.dumps(words))
    found = []
    monkeypatch.chdir(tmp_path)
    for more in ([], ["--on", two_workers.scheduler_address]):
        assert run_command_line(["s.json", *REST, *more]) == 0
        kept = ("vars", "response", "testCase", "metadata")
        found.append([{name: row[name] for name in kept} for row in rows_of(tmp_path)])
        (tmp_path / "o.jsonl").unlink()
    local, sent = found
    assert len(local) == 21
    assert [row["response"]["output"] for row in sent] == [
        row["response"]["output"] for row in local
    ]
    assert [row["metadata"]["length"] for row in sent] == [
        row["metadata"]["length"] for row in local
    ]
    assert [row["testCase"]["vars"] for row in sent] == [row["testCase"]["vars"] for row in local]
    assert (tmp_path / "events.txt").read_text().splitlines() == ["beforeAll", "afterAll 21"] * 2


# Refusals; nothing is started.


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Run a suite in the folder of the test; return the message with which it is refused."""
    monkeypatch.chdir(tmp_path)

    def run(more: dict[str, Any], *words: str) -> str:
        base = {
            "providers": ["echo"],
            "prompts": ["say {{word}}"],
            "tests": [{"vars": {"word": 1}}],
        }
        Path("s.json").write_text(json.dumps(base | more))
        assert run_command_line(["s.json", *words]) == 2
        assert not Path(".trioeval").exists(), "no run was started"
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("more", "words", "named"),
    [
        ({}, ["--filter-sample", "1"], "--filter-sample without --filter-sample-seed"),
    ],
)
def test_what_cannot_run_on_workers_yet_is_refused_by_name(
    refused: Callable[..., str], more: dict[str, Any], words: list[str], named: str
) -> None:
    text = refused(more, "--on", "local:2", *words)
    assert "cannot be used on several workers yet" in text
    assert named in text


def test_a_wrong_cluster_is_refused_with_its_value(refused: Callable[..., str]) -> None:
    assert "got 'local:0'" in refused({}, "--on", "local:0")


def test_flags_about_workers_need_them(refused: Callable[..., str]) -> None:
    text = refused({}, "--lane-owner", "--send", "data", "--linger", "1")
    for flag in ("--lane-owner", "--send", "--linger"):
        assert f"{flag} needs --on: one process" in text


@pytest.mark.parametrize("seconds", ["-1", "61", "nan"])
def test_the_seconds_for_which_workers_collect_messages_are_bounded(
    refused: Callable[..., str], seconds: str
) -> None:
    assert "--linger" in refused({}, "--on", "tcp://127.0.0.1:9", "--linger", seconds)


def test_without_its_redis_a_run_on_workers_is_refused_before_anything_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    limits = {"backend": "redis", "url": "redis://127.0.0.1:9", "requestTimeoutMs": 500}
    whole = {"providers": ["echo"], "prompts": ["a"], "limits": limits}
    Path("s.json").write_text(json.dumps(whole))
    assert run_command_line(["s.json", "--on", "local:2"]) == 2
    text = capsys.readouterr().err
    assert "--on: the shared limits and the journal of the run need Redis: " in text
    assert "127.0.0.1:9" in text


def test_a_file_for_workers_is_looked_for_before_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.json").write_text(json.dumps({"providers": ["echo"], "prompts": ["a"]}))
    assert run_command_line(["s.json", "--on", "tcp://127.0.0.1:9", "--send", "data"]) == 2
    assert f"--send data: not found in the suite's folder {tmp_path}" in capsys.readouterr().err


def test_without_the_extra_the_command_names_it(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "pip install 'trioeval[dask]'" in refused({}, "--on", "local:2")


# Interrupts before the first row, and in a resumed run.


def wait_processes(session: int, count: int) -> None:
    """Wait until a session has so many processes."""
    ends_at = time.monotonic() + 60
    while len(processes_of(session)) < count:
        assert time.monotonic() < ends_at
        time.sleep(0.02)


@pytest.mark.parametrize("processes", [2, 4])
def test_an_interrupt_before_the_first_row_ends_the_start_and_stores_nothing(
    tmp_path: Path, processes: int
) -> None:
    """The processes of the workers may exist already, or not."""
    with fake_provider("--latency", "0.2") as url:
        (tmp_path / "s.json").write_text(json.dumps(suite(url)))
        with command(tmp_path, "s.json", "--on", "local:2", "-o", "o.jsonl") as process:
            wait_processes(process.pid, processes)
            os.killpg(process.pid, signal.SIGINT)
            _, text = process.communicate(timeout=60)
            wait_gone(process.pid)  # law LEAK
        assert process.returncode == 130, text
        assert stats_of(url)["requests"] == 0
    assert "Traceback" not in text
    assert not (tmp_path / "o.jsonl").exists()
    database = tmp_path / ".trioeval" / "results.db"
    if database.exists():  # else the suite was not loaded yet
        with read_store(database) as reader:
            assert reader.runs() == []


@pytest.mark.timeout(300)
def test_a_resumed_run_on_workers_is_interrupted_and_resumed_again(tmp_path: Path) -> None:
    """Law RESUME: no reply is paid for twice, over any number of drained executions."""
    with fake_provider("--latency", "0.2") as url:
        (tmp_path / "s.json").write_text(json.dumps(suite(url)))
        for words, count in ((["s.json"], 20), (["resume"], 60), (["resume"], ROWS)):
            with command(
                tmp_path, *words, "--on", "local:2", "--no-cache", "-o", "o.jsonl"
            ) as process:
                wait_served(url, process, count)
                if count < ROWS:
                    os.killpg(process.pid, signal.SIGINT)
                _, text = process.communicate(timeout=110)
                wait_gone(process.pid)
            assert process.returncode == (130 if count < ROWS else 0), text
        assert stats_of(url)["requests"] == ROWS
    assert [row["response"]["output"] for row in rows_of(tmp_path)] == [
        f"say word {number}" for number in range(ROWS)
    ]
