"""The output at the end of a run: harmless, in any width and encoding, or none."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hostile import assert_inert_terminal, write_hostile_suite

from trioeval.cli.app import run_command_line
from trioeval.store.reader import read_store

COMMAND = [sys.executable, "-m", "trioeval"]


def in_terminal(folder: Path, *arguments: str, columns: int) -> str:
    """The text that a terminal receives from stdout and stderr."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    environ.pop("NO_COLOR", None)
    done = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environ,
        stdin=follower,
        stdout=follower,
        stderr=follower,
    )
    os.close(follower)
    found = bytearray()
    try:
        while piece := os.read(leader, 65_536):
            found += piece
    except OSError:  # no process is left
        pass
    done.wait(60)
    os.close(leader)
    return found.decode()


def piped(folder: Path, *arguments: str, encoding: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
def test_hostile_replies_reach_no_terminal(tmp_path: Path) -> None:
    """Run, list of runs and stored run are shown on a terminal of 40 columns and in Windows-1252."""
    write_hostile_suite(tmp_path)
    ran = in_terminal(tmp_path, "hostile.json", "--no-progress", columns=40)
    *lines, last = ran.rstrip().split("\r\n")
    assert_inert_terminal("\n".join(lines), colours=True)
    # Sentences of trioeval itself are not wrapped.
    drawn = [line for line in lines if not line.startswith(("… and ", "waited "))]
    assert_inert_terminal("\n".join(drawn), colours=True, longest=40)
    assert "\x1b[" in ran
    assert "53 rows did not pass" in ran
    assert last.startswith("104 rows in ")
    shown = piped(tmp_path, "show", encoding="cp1252")
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert_inert_terminal(shown.stdout.decode("cp1252"))
    assert "53 rows did not pass" in shown.stdout.decode("cp1252")
    listed = piped(tmp_path, "runs", encoding="ascii")
    assert (listed.returncode, listed.stderr) == (0, b"")
    assert_inert_terminal(listed.stdout.decode("ascii"))


SUITE = {
    "providers": ["echo"],
    "prompts": ["say {{word}}"],
    "tests": [
        {"vars": {"word": word}, "assert": [{"type": "contains", "value": "ba"}]}
        for word in ("ba", "bo")
    ],
}


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite.json").write_text(json.dumps(SUITE))
    return "suite.json"


def test_quiet_shows_only_the_last_line(suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    """This includes runs with failures."""
    assert run_command_line([suite, "--quiet"]) == 100
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.endswith("1 passed, 1 failed, 0 errors; exit 100: 1 row failed")


def test_without_a_table_failures_are_not_shown_either(
    suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The counts are still shown."""
    assert run_command_line([suite, "--no-table", "--no-progress"]) == 100
    out, err = capsys.readouterr()
    assert out == ""
    assert "95 % CI" in err


def test_failures_name_the_command_that_shows_more(
    suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command works; without a stored run there is none, and a named database is named in it."""
    run_command_line([suite, "--no-progress", "--db", "my runs.db"])
    out = capsys.readouterr().out
    assert '1  FAIL  word=bo: the output does not contain "ba"' in out
    with read_store(Path("my runs.db")) as reader:
        run = reader.run("latest").id
    assert f"one row in full: trioeval show {run} 1 --db 'my runs.db'\n" in out
    assert run_command_line(["show", run, "1", "--db", "my runs.db"]) == 0
    assert 'does not contain "ba"' in capsys.readouterr().out
    run_command_line(["show", "--db", "my runs.db"])
    assert f"one row in full: trioeval show {run} 1 --db 'my runs.db'\n" in capsys.readouterr().out
    run_command_line([suite, "--no-progress", "--no-write"])
    assert "one row in full" not in capsys.readouterr().out
