"""A run of the command line, watched and steered from another process."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio

from trioeval.errors import NotLiveError
from trioeval.web.live_client import live_run_ids, open_live

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(socket, "AF_UNIX"),
        reason="this system does not support sockets in its file system",
    ),
]

SUITE = """
prompts: ["{{word}}"]
providers: [{id: echo, lane: {rpm: 20}}]
tests:
"""
# The command line with a longer wait for watchers at its end.
PATIENT = """
import sys
from trioeval.cli import app
from trioeval.web import live
live._GOODBYE = 60.0
sys.exit(app.run_command_line(sys.argv[1:]))
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the sockets of these runs only."""
    with TemporaryDirectory(prefix="te-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder, "trioeval")


@contextmanager
def running(folder: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Start a run of 400 rows that takes twenty minutes unless it is steered; its end waits for watchers."""
    tests = "".join(f"  - {{vars: {{word: {number}}}}}\n" for number in range(400))
    (folder / "suite.yaml").write_text(SUITE + tests)
    quiet = ("--no-table", "--no-progress", "--no-cache")
    command = [sys.executable, "-c", PATIENT, "suite.yaml", *quiet, *flags]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def run_id() -> str:
    """Return the running run as soon as it is reachable."""
    for _ in range(3000):
        if found := live_run_ids():
            (run,) = found
            return run
        time.sleep(0.02)  # only polling detects another process
    raise AssertionError("no run can be watched")


def test_a_run_is_retuned_and_stopped_from_outside(tmp_path: Path, place: Path) -> None:
    """A retuned lane keeps the new rate; the rest is for `resume`; no socket is left."""

    async def main() -> tuple[int, int]:
        async with open_live(run_id()) as live:
            assert await live.ask({"do": "retune", "lane": "echo", "rpm": 1200}) == {"ok": True}
            states = live.states()
            async for state in states:
                (lane,) = state["lanes"]
                if state["done"] >= 5:
                    break
            assert (lane["name"], lane["rpm"]) == ("echo", pytest.approx(1200))
            assert await live.ask({"do": "stop"}) == {"ok": True}
            final = [state async for state in states][-1]
            with pytest.raises(NotLiveError, match="is over"):
                await live.ask({"do": "resume", "lane": "echo"})
        return final["done"], final["total"]

    with running(tmp_path) as process:
        done, total = trio.run(main)
        _, stderr = process.communicate(timeout=60)
    assert 5 <= done <= total == 400
    assert process.returncode == 100
    assert "continue with: trioeval resume" in stderr
    if hasattr(socket, "SO_PEERCRED"):
        assert f"stopping at the request of a viewer (process {os.getpid()}): " in stderr
    assert list(place.iterdir()) == []


def test_a_run_that_must_not_be_watched_is_not_listed(tmp_path: Path, place: Path) -> None:
    """Runs with `--no-live` and killed runs are not listed."""
    with running(tmp_path, "--no-live") as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
        assert not place.exists()
    with running(tmp_path) as process:
        run = run_id()
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
        assert live_run_ids() == []

        async def watch() -> None:
            async with open_live(run):
                pass

        with pytest.raises(NotLiveError, match=f"run {run}: not reachable"):
            trio.run(watch)
