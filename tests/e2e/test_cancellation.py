"""Ctrl-C and timeouts leave nothing behind: no descendant process, and no call at a server."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from server_process import fake_provider, stats_of
from test_command_line import ENV, trioeval, write

pytestmark = [pytest.mark.slow, pytest.mark.network]

STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
open(os.environ["STARTED"], "a").write("x")
time.sleep(600)
"""

HANGING = """
import os, time
def call_api(prompt, options, context):
    open(os.environ["STARTED"], "a").write("x")
    time.sleep(600)
"""


def family(marker: str) -> list[int]:
    """The processes that have a marker in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (process / "environ").read_bytes():
                stat = (process / "stat").read_text().rpartition(")")[2].split()
                if stat[0] != "Z":
                    found.append(int(process.name))
        except OSError:
            continue
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="counts processes by /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_everything_within_two_seconds(
    tmp_path: Path, number: signal.Signals
) -> None:
    """This includes programs that ignore signals, their children, hanging functions and open calls."""
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    (tmp_path / "hanging.py").write_text(HANGING)
    marker = f"TRIOEVAL_TEST={os.getpid()}.{number}"
    started = tmp_path / "started"
    with fake_provider("--latency", "600") as url:
        suite = {
            "providers": [
                {"id": "openai:m", "config": {"apiBaseUrl": url}},
                f"exec:{sys.executable} stubborn.py",
                "python:hanging.py",
            ],
            "prompts": ["one", "two"],
        }
        command = [sys.executable, "-m", "trioeval", str(write(tmp_path / "s.json", suite))]
        name, _, value = marker.partition("=")
        environ = {**ENV, name: value, "STARTED": str(started)}
        with subprocess.Popen(
            [*command, "-o", "o.jsonl"],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as run:
            assert run.stderr is not None
            # Two programs and one worker; the other call of the function waits for that worker.
            while not (started.exists() and started.stat().st_size >= 3):
                assert run.poll() is None
            while stats_of(url)["in_flight"] < 2:
                assert run.poll() is None
            assert len(family(marker)) >= 1 + 2 * 3 + 1
            run.send_signal(number)
            while "stopping" not in run.stderr.readline():
                assert run.poll() is None
            run.send_signal(number)
            signalled_at = time.monotonic()
            assert run.wait(timeout=60) == 128 + number
            took = time.monotonic() - signalled_at
        assert family(marker) == []
        while (stats := stats_of(url))["in_flight"]:
            pass
        assert stats["abandoned"] == 2
    # Programs are given one and a half seconds to end by themselves; the rest is this command's own end.
    assert took < 20  # on a busy machine; waiting for one of them would take ten minutes
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert len(rows) == 6
    assert all("interrupted" in row["error"] or "not run" in row["error"] for row in rows)


@pytest.mark.skipif(sys.platform != "linux", reason="counts processes by /proc")
def test_a_timeout_ends_the_whole_tree(tmp_path: Path) -> None:
    """The timeout of each row is enough; the run continues and ends as usual."""
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    marker = f"TRIOEVAL_TEST_TIMEOUT={os.getpid()}"
    suite = {
        "providers": [f"exec:{sys.executable} stubborn.py", "echo"],
        "prompts": ["one"],
        "evaluateOptions": {"timeoutMs": 2000},
    }
    name, _, value = marker.partition("=")
    done = subprocess.run(
        [sys.executable, "-m", "trioeval", write(tmp_path / "s.json", suite), "-o", "o.jsonl"],
        cwd=tmp_path,
        env={**ENV, name: value, "STARTED": str(tmp_path / "started")},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 100
    assert family(marker) == []
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert [row["success"] for row in rows] == [False, True]
    assert "timed out after 2 s" in rows[0]["error"]


def test_a_program_runs_as_a_provider(tmp_path: Path) -> None:
    """It runs through the whole command line, with the prompt as its argument."""
    suite = {
        "providers": [{"id": "exec:printf %s", "label": "printf"}],
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": "hi"}, "assert": [{"type": "starts-with", "value": "say hi"}]}],
    }
    assert trioeval(write(tmp_path / "s.json", suite), cwd=tmp_path).returncode == 0
