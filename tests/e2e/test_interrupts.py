"""Signals at any instant: no traceback, a true last line, and files that are complete or absent."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from textwrap import dedent

import pytest
from test_command_line import ENV, write

from trioeval.cli.app import run_command_line

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="sees in /proc which signals are handled"),
]

ROWS = 12
OUTPUTS = ("o.jsonl", "o.json", "o.csv")
SUITE = {
    "providers": ["echo", "exec:sh -c 'sleep 0.05; echo done'"],
    "prompts": ["say {{word}}"],
    "tests": [{"vars": {"word": f"w{n}"}} for n in range(ROWS // 2)],
}


def handles(pid: int, number: signal.Signals) -> bool:
    """True if a process has its own handler for a signal."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def run_interrupted(
    folder: Path, signals: Sequence[tuple[float, signal.Signals]]
) -> tuple[int, str]:
    """Exit code and stderr of a run that gets signals, each so many seconds after the one before.

    The first interval starts when the process handles signals: before that, Python handles them.
    """
    command = [sys.executable, "-m", "trioeval", "s.json", "--no-progress"]
    command += [word for name in OUTPUTS for word in ("-o", name)]
    with subprocess.Popen(
        command, cwd=folder, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None and not handles(process.pid, signal.SIGTERM):
            pass
        for gap, number in signals:
            time.sleep(gap)  # the instants are varied, so no condition is awaited
            if process.poll() is None:
                os.kill(process.pid, number)
        _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr


def check_end(folder: Path, code: int, stderr: str) -> str:
    """Check the laws of an interrupted run, and return its last line."""
    assert "Traceback" not in stderr
    last = stderr.strip().splitlines()[-1]
    found = re.search(r"exit (\d+)", last)
    assert found is not None, stderr
    assert int(found[1]) == code
    assert code in {0, 100, 129, 130, 143}
    if "before the run started" in last:
        assert not any((folder / name).exists() for name in OUTPUTS)
        return last
    assert last.startswith(f"{ROWS} rows in")
    lines = (folder / "o.jsonl").read_text().splitlines()
    document = json.loads((folder / "o.json").read_text())
    assert [json.loads(line) for line in lines] == document["results"]["results"]
    assert len(lines) == ROWS
    assert len((folder / "o.csv").read_text().splitlines()) == 1 + ROWS // 2
    return last


@pytest.mark.parametrize("seed", range(16))
def test_signals_at_any_instant_leave_whole_files_and_a_true_last_line(
    tmp_path: Path, seed: int
) -> None:
    """One to six signals, from all at once to across the whole run and its end."""
    random = Random(seed)  # noqa: S311 - repeatable instants, nothing to keep secret
    write(tmp_path / "s.json", SUITE)
    spread = random.choice([0.003, 0.02, 0.1, 0.4])
    numbers = random.choices(
        [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], [6, 1, 1], k=random.randint(1, 6)
    )
    signals = [(random.uniform(0, spread), number) for number in numbers]
    first_gap = random.choice([0.0, 0.3, 0.6, 0.9]) + signals[0][0]
    code, stderr = run_interrupted(tmp_path, [(first_gap, numbers[0]), *signals[1:]])
    last = check_end(tmp_path, code, stderr)
    if code > 128:
        assert code == 128 + numbers[0] or len({*numbers}) > 1, last


LOADING = {
    "code": """
        def make():
            open("began", "w").close()
            time.sleep(600)
    """,
    "the end of an object, which swallows what is raised": """
        class Ending:
            def __del__(self):
                open("began", "w").close()
                time.sleep(600)

        def make():
            Ending()
            time.sleep(600)
    """,
}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("what", LOADING)
def test_a_signal_while_a_suite_is_loaded_ends_it_before_the_run(
    tmp_path: Path, what: str, number: signal.Signals
) -> None:
    """This includes signals that do not come from the terminal."""
    (tmp_path / "tests.py").write_text("import time\n" + dedent(LOADING[what]))
    write(tmp_path / "s.json", {**SUITE, "tests": "file://tests.py:make"})
    command = [sys.executable, "-m", "trioeval", "s.json", "-o", "o.jsonl"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=ENV, stderr=subprocess.PIPE, text=True
    ) as process:
        while not (tmp_path / "began").exists():
            assert process.poll() is None
        process.send_signal(number)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert stderr == f"interrupted before the run started; exit {128 + number}\n"
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["s.json"], "interrupted before the run started; exit 130\n"),
        (["resume", "latest"], "interrupted before the run started; exit 130\n"),
        (["compare", "a", "b"], "interrupted before it finished; exit 130\n"),
        (["export", "latest", "-o", "x.csv"], "interrupted before it finished; exit 130\n"),
    ],
)
def test_commands_without_a_run_report_the_interrupt_without_naming_one(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_given: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("trioeval.cli.app._run_command_line", interrupted)
    assert run_command_line(arguments) == 130
    assert capsys.readouterr().err == message
