"""One Ctrl-C while rows wait for a shared limit: the run ends at once, and can be continued."""

import json
import signal
import sys
import time
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

import pytest
from test_command_line import ENV, write

from trioeval.cli import run_command_line

pytestmark = pytest.mark.slow

_ANSWER = """
def call_api(prompt, options, context):
    with open("asked.txt", "a") as asked:
        asked.write(prompt.splitlines()[0] + "\\n")
    return {"output": "<answer>Blue</answer>"}
"""
_HOUR = {"key": "answers:rpm", "kind": "rolling", "capacity": 2, "windowSeconds": 3600}


def write_suite(folder: Path) -> None:
    """Write a task of questions and a task of prompts; a limit allows two calls of a process in an hour."""
    (folder / "answer.py").write_text(_ANSWER)
    question = {"answers": ["Red", "Blue"], "correct_answers": ["Blue"]}
    questions = [{"question": f"Colour {n}?", **question} for n in range(2)]
    write(folder / "q.json", {"version": 1, "questions": questions})
    tests = [{"vars": {"n": n}} for n in range(2)]
    suite = {
        "providers": [{"id": "python:answer.py", "lane": {"limits": ["answers:rpm"]}}],
        "limits": {"limits": [_HOUR]},
        "tasks": [
            {"id": "asked", "type": "question_eval", "questionsFile": "q.json"},
            {"id": "said", "type": "prompt_eval", "prompts": ["Colour {{n}}?"], "tests": tests},
        ],
    }
    write(folder / "s.json", suite)


def calls_in(folder: Path) -> int:
    """The number of calls that were made."""
    path = folder / "asked.txt"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_one_interrupt_ends_a_run_that_waits_for_a_shared_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends at once, however distant the window is; the rest runs when the run is resumed."""
    write_suite(tmp_path)
    flags = ("s.json", "--no-progress", "--no-table", "--no-cache", "-o", "rows.jsonl")
    command = [sys.executable, "-m", "trioeval", *flags]
    with Popen(command, cwd=tmp_path, env=ENV, stdout=DEVNULL, stderr=PIPE, text=True) as run:
        while calls_in(tmp_path) < 2:
            assert run.poll() is None
            time.sleep(0.005)  # between two polls
        run.send_signal(signal.SIGINT)
        _, stderr = run.communicate(
            timeout=60
        )  # the window is an hour; this takes 0.2 s on an idle machine
    assert run.returncode == 130
    assert "exit 130: interrupted by SIGINT" in stderr.strip().splitlines()[-1]
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    left = [row["error"] for row in rows if row.get("error")]
    assert left == ["not run: the run was stopped"] * 2
    assert calls_in(tmp_path) == 2
    monkeypatch.chdir(tmp_path)
    assert run_command_line([*flags, "--resume"]) == 0
    assert "4 rows" in capsys.readouterr().err
    assert calls_in(tmp_path) == 4
