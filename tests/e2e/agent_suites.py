"""Suites whose agents are shell scripts that a test controls, and programs that run them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from test_command_line import ENV

PATIENCE = 60.0
"""Seconds after which a waiting test fails."""

_AGENT = """\
suite=$(dirname "$0")
log() { echo "$TRIOEVAL_CASE $TRIOEVAL_ATTEMPT $1" >>"$suite/log"; }
hold() { read -r _ <"$suite/$TRIOEVAL_CASE.go"; }
alive() {  # except zombies
    case $(cat /proc/$1/stat 2>/dev/null) in "" | *") Z "* | *") X "*) return 1;; esac
}
leave() {  # a process in a session of its own that ignores requests to terminate
    setsid sh -c 'trap "" TERM; echo $$ >'"$suite/$1"'.new; mv '"$suite/$1.new $suite/$1"'
        while :; do sleep 100; done' &
    until [ -e "$suite/$1" ]; do sleep 0.01; done
}
log begins
. "$suite/${TRIOEVAL_CASE%%.*}.sh"
log ends
"""
"""Runs the script of its case."""


@attrs.frozen
class Bench:
    """A folder with a suite of agents."""

    folder: Path

    def write(
        self,
        cases: Mapping[str, str],
        tests: Mapping[str, Mapping[str, Any]] = {},
        name: str = "s.json",
        top: Mapping[str, Any] = {},
        **task: Any,
    ) -> None:
        """Write a suite.

        Args:
            cases: The shell script of each case.
            tests: Further keys of some cases.
            name: The name of the file.
            top: Keys of the suite beside its task.
            **task: Keys of its task.
        """
        (self.folder / "agent.sh").write_text(_AGENT)
        for case, script in cases.items():
            (self.folder / f"{case}.sh").write_text(script)
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self.folder / f"{case}.go")
        suite = {
            **top,
            "tasks": [
                {
                    "id": "work",
                    "type": "agent",
                    "prompts": ["Do it."],
                    "providers": ["exec:sh {{suite}}/agent.sh"],
                    "restartDelay": 0,
                    "grace": 0.2,
                    "tests": [{"id": case, **tests.get(case, {})} for case in cases],
                    **task,
                }
            ],
        }
        (self.folder / name).write_text(json.dumps(suite))

    @contextlib.contextmanager
    def program(self, *words: str) -> Iterator["subprocess.Popen[str]"]:
        """A program that is killed if the test ends first."""
        with subprocess.Popen(
            [sys.executable, "-m", "trioeval", *words],
            cwd=self.folder,
            env=ENV,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as program:
            try:
                yield program
            finally:
                program.kill()

    def run(self, *flags: str) -> contextlib.AbstractContextManager["subprocess.Popen[str]"]:
        """A program that starts a run."""
        return self.program(*flags, "--no-progress", "--no-table", "-o", "rows.jsonl")

    @property
    def log(self) -> list[str]:
        """The entries that agents wrote, in order: `CASE ATTEMPT WHAT`."""
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def started(self) -> list[str]:
        """The attempts that have started, in order: `CASE ATTEMPT`."""
        return [line.removesuffix(" begins") for line in self.log if line.endswith(" begins")]

    def wait_logged(self, *lines: str) -> None:
        """Return when agents have written all of these entries."""
        wait_until(lambda: all(self.log.count(line) >= lines.count(line) for line in lines), self)

    def release(self, case: str) -> None:
        """Let the held agent of a case continue, now or when it is held."""
        found: list[int] = []

        def opened() -> bool:
            with contextlib.suppress(OSError):  # it has no reader yet
                found.append(os.open(self.folder / f"{case}.go", os.O_WRONLY | os.O_NONBLOCK))
            return bool(found)

        wait_until(opened, self)
        os.write(found[0], b"go\n")
        os.close(found[0])

    def pid(self, name: str) -> int:
        """The id of a process that was left behind."""
        return int((self.folder / name).read_text())

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The result row of each case, each exactly once."""
        lines = (self.folder / "rows.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        found = {row["testCase"]["case"]: row for row in rows}
        assert len(found) == len(rows)
        return found

    @property
    def outcomes(self) -> dict[str, str]:
        """The outcome of each case, in a word."""
        return {case: outcome_of(row) for case, row in self.rows.items()}

    def case(self, name: str) -> Path:
        """The folder of a case of the only run."""
        (run,) = (self.folder / ".trioeval" / "agents").iterdir()
        return run / "work" / name


def outcome_of(row: Mapping[str, Any]) -> str:
    """`pass`, `fail`, or the outcome of a row without a verdict."""
    if row["failureReason"] == 2:
        outcome: str = row["metadata"]["trioeval"]["outcome"]
        return outcome
    return "pass" if row["success"] else "fail"


def agent_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a row about its agent."""
    found: dict[str, Any] = row["response"]["metadata"]["agent"]
    return found


def wait_until(holds: Callable[[], bool], bench: Bench) -> None:
    """Poll until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, bench.log
        time.sleep(0.005)  # between two polls


def finish(program: "subprocess.Popen[str]", code: int) -> str:
    """The output of a program that ends with a given code."""
    output, _ = program.communicate(timeout=PATIENCE)
    assert program.returncode == code, output
    assert "Traceback" not in output, output
    return output


def interrupt(program: "subprocess.Popen[str]", times: int = 1) -> None:
    """Send SIGINT like Ctrl-C; the second one when the first has been handled."""
    for _ in range(times):
        program.send_signal(signal.SIGINT)
        assert program.stdout is not None
        if times > 1:
            while "stopping" not in (line := program.stdout.readline()):
                assert line, "it has ended"
            times = 1


def last_line(output: str) -> str:
    """The last line."""
    return output.strip().splitlines()[-1]


def reasons(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The reasons of rows that did not pass."""
    return [row["error"] for row in rows]
