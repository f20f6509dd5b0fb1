"""Attacks: a standard output that fails while the exit code claims that everything was written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.attack("unwritable output")

TESTS = '[{"assert": [{"type": "equals", "value": "%s"}]}]'
SUITE = f'{{"providers": ["echo"], "prompts": ["a"], "tests": {TESTS}}}'
FULL = "the results cannot be written to stdout: No space left on device"
COMMANDS = {
    "run": ["suite.json", "--no-cache", "--no-write"],
    "failing": ["failing.json", "--no-cache", "--no-write"],
    "help": ["--help"],
    "version": ["--version"],
}


def _run(folder: Path, command: str, redirection: str) -> tuple[int, str]:
    """Return the exit code of a command, and its stderr."""
    (folder / "suite.json").write_text(SUITE % "a")
    (folder / "failing.json").write_text(SUITE % "b")
    line = f'"$0" -m trioeval {" ".join(COMMANDS[command])} {redirection}'
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line, sys.executable],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": "", "PYTHONUNBUFFERED": ""},
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_behind_stdout_is_reported_once_with_exit_code_one(tmp_path: Path) -> None:
    """The last line of a run contains its exit code."""
    code, stderr = _run(tmp_path, "run", "> /dev/full")
    assert code == 1
    assert stderr.count(FULL) == 1
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1].endswith(
        "; exit 1: some results could not be written, see above"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_version_that_cannot_be_written_has_exit_code_one(tmp_path: Path) -> None:
    """The version is printed before anything is imported, and fails like every other command."""
    code, reported = _run(tmp_path, "version", "> /dev/full")
    assert (code, reported) == (1, f"{FULL}\n")


@pytest.mark.parametrize(
    ("command", "code", "redirection"),
    [
        ("failing", 100, ">&-"),
        ("help", 0, "| true"),
        ("version", 0, ">&-"),
    ],
)
def test_a_closed_stdout_changes_no_exit_code(
    tmp_path: Path, command: str, code: int, redirection: str
) -> None:
    """It may be closed before the program begins, or later by its reader: no message and no failure."""
    found, stderr = _run(tmp_path, command, redirection)
    assert found == code
    assert "Traceback" not in stderr
    assert "Exception ignored" not in stderr
    if command == "failing":
        assert stderr.splitlines()[-1].endswith("exit 100: 1 row failed")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_result_file_on_a_full_device_has_exit_code_one_and_keeps_the_device(
    tmp_path: Path,
) -> None:
    """A link to it is written through, not replaced by a file."""
    (tmp_path / "out.json").symlink_to("/dev/full")
    code, stderr = _run(tmp_path, "run", "-o out.json > /dev/null")
    assert code == 1
    assert "out.json: cannot be written: No space left on device" in stderr
    assert stderr.splitlines()[-1].endswith(
        "; exit 1: some results could not be written, see above"
    )
    assert Path("/dev/full").is_char_device()
