"""Runs whose tests are on another machine: continued, changed and interrupted."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from file_server import TABLE, Files, Reply, serve_files
from test_command_line import ENV, last_line, trioeval, write

pytestmark = [pytest.mark.slow, pytest.mark.network]


@pytest.fixture
def files() -> Iterator[Files]:
    """A running server."""
    with serve_files() as found:
        yield found


def test_a_continued_run_sees_a_changed_file(tmp_path: Path, files: Files) -> None:
    """The same file leaves nothing to run; a changed one is reported like a changed local one."""
    write(
        tmp_path / "s.json",
        {"providers": ["echo"], "prompts": ["{{q}}"], "tests": f"{files.url}/t.csv"},
    )
    assert trioeval("s.json", cwd=tmp_path).returncode == 0
    again = trioeval("resume", cwd=tmp_path)
    assert (again.returncode, "no row is left to run" in again.stderr) == (0, True)
    body = TABLE + b"more,more\n"
    files.replies = lambda _path, _headers: Reply(body)
    refused = trioeval("s.json", "--resume", "--retry", "errors", cwd=tmp_path)
    assert refused.returncode == 2
    assert "has changed: .trioeval/remote/127.0.0.1-" in refused.stderr
    assert "pass --reconcile" in refused.stderr
    done = trioeval("s.json", "--resume", "--retry", "errors", "--reconcile", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 rows" in last_line(done)


def test_a_plan_shows_the_rows_and_a_url_of_the_command_line(tmp_path: Path, files: Files) -> None:
    """The user who names a URL in a flag allows it."""
    write(tmp_path / "s.json", {"providers": ["echo"], "prompts": ["{{q}}"]})
    done = trioeval("s.json", "--tests", f"{files.url}/t.csv", "--plan", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 rows of 2 tests" in done.stdout
    refused = trioeval(
        "s.json", "--tests", f"{files.url}/t.csv", "--untrusted", "--plan", cwd=tmp_path
    )
    assert refused.returncode == 2
    assert "allow it with --allow-network" in refused.stderr


def test_ctrl_c_ends_a_fetch(tmp_path: Path, files: Files) -> None:
    """The server never answers; the process ends at once, without a traceback, and leaves no copy."""

    def wait(_path: str, _headers: Mapping[str, str]) -> Reply:
        files.released.wait()
        return Reply(TABLE)

    files.replies = wait
    write(tmp_path / "s.json", {"providers": ["echo"], "tests": f"{files.url}/t.csv"})
    command = [sys.executable, "-m", "trioeval", "s.json", "--no-progress"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENV, stderr=subprocess.PIPE, text=True
    ) as process:
        assert files.arrived.wait(60)
        os.kill(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert [path.name for path in tmp_path.iterdir()] == ["s.json"]
