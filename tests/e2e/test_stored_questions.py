"""Question tasks as a user runs them: real processes that are killed, resumed and read.

A process that is killed or interrupted is a separate one. The commands before and after it run in this
process, which need not be started for them.
"""

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from test_command_line import ENV, last_line, trioeval, write

from trioeval.cli import run_command_line

pytestmark = pytest.mark.slow

_ANSWER = """
import pathlib, time

def call_api(prompt, options, context):
    number = int(prompt.split("Colour ")[1].split("?")[0])
    with open("asked.txt", "a") as asked:
        asked.write(f"{number}\\n")
    if pathlib.Path(f"hang-{number}").exists():
        time.sleep(600)
    if pathlib.Path(f"fail-{number}").exists():
        raise ValueError("no luck")
    answer = "Red" if number == 3 else "Blue"
    return {
        "output": f"<answer>{answer}</answer>",
        "tokenUsage": {"total": 9, "prompt": 5, "completion": 4},
    }
"""

_QUIET = ("--no-table", "--no-cache", "--no-progress")


def questions_in(folder: Path, size: int, **entry: Any) -> None:
    """Write a suite with a number of questions, and with a provider that records its prompts."""
    questions = [
        {"question": f"Colour {number}?", "answers": ["Red", "Blue"], "correct_answers": ["Blue"]}
        for number in range(size)
    ]
    write(folder / "q.json", {"version": 1, "questions": questions})
    task = {"id": "quiz", "type": "question_eval", "questionsFile": "q.json", **entry}
    (folder / "answer.py").write_text(_ANSWER)
    write(folder / "s.json", {"providers": ["python:answer.py"], "tasks": [task]})


def calls_in(folder: Path) -> list[int]:
    path = folder / "asked.txt"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def begun(folder: Path, *flags: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "trioeval", "s.json", "--no-progress", "--no-cache", *flags]
    return subprocess.Popen(
        command, cwd=folder, env=ENV, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def without_times(value: Any) -> Any:
    """A document without times and ids, which differ between two runs."""
    hidden = {
        *("evalId", "id", "timestamp", "metadata", "latencyMs", "totalLatencyMs", "durationMs"),
        *("evaluationDurationMs", "wallTimeSeconds", "waitSeconds", "events"),
    }
    match value:
        case Mapping():
            return {key: without_times(part) for key, part in value.items() if key not in hidden}
        case list():
            return [without_times(part) for part in value]
        case _:
            return value


def document(path: Path) -> Any:
    return json.loads(path.read_text())["tasks"]["quiz"]


def wait_until(process: subprocess.Popen[bytes], holds: Callable[[], bool]) -> None:
    """Return when a condition holds; fail if the process ends before."""
    while not holds():
        assert process.poll() is None
        time.sleep(0.005)  # between two polls


def rows_of(path: Path) -> list[Any]:
    """The complete lines of a result file."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


class Here:
    """The command in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, folder: Path, *arguments: str) -> tuple[int, str]:
        """Run it to its end, and return the exit code and its output."""
        self._monkeypatch.chdir(folder)
        code = run_command_line(arguments)
        return code, self._capsys.readouterr().err


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(monkeypatch, capsys)


def test_qe_43_a_killed_run_calls_only_for_the_rest(tmp_path: Path, here: Here) -> None:
    """After five of ten terminal records the other five run, with the results of an undisturbed run."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for folder in (whole, cut):
        folder.mkdir()
        questions_in(folder, 10)
    (cut / "hang-5").touch()
    with begun(cut, "-o", "o.jsonl") as process:
        code, _ = here(whole, "s.json", "-o", "o.json", *_QUIET)  # while the other one starts
        assert code == 100
        assert calls_in(whole) == list(range(10))
        # A row is reported when it is durable.
        wait_until(process, lambda: len(rows_of(cut / "o.jsonl")) == 5 and len(calls_in(cut)) == 6)
        process.kill()
    assert calls_in(cut) == [0, 1, 2, 3, 4, 5]
    (cut / "hang-5").unlink()
    code, stderr = here(cut, "resume", "-o", "o.json", *_QUIET)
    assert code == 100, stderr
    assert calls_in(cut)[6:] == [5, 6, 7, 8, 9]
    one, other = document(whole / "o.json"), document(cut / "o.json")
    assert without_times(one) == without_times(other)
    summary = {
        "questionsTotal": 10,
        "questionsEnded": 10,
        "questionsCorrect": 9,
        "questionsIncorrect": 1,
        "questionsByOutcome": {"correct": 9, "incorrect": 1},
        "accuracy": 0.9,
    }
    assert other["questionEval"] == {"questionsFile": "q.json", "summary": summary}
    assert (other["status"], other["failureReason"]) == ("fail", "incorrect_answers")
    assert "fail (incorrect_answers): 9 of 10 correct, accuracy 0.900" in stderr


def test_outcomes_of_questions_are_recorded_before_they_are_reported(
    tmp_path: Path, here: Here
) -> None:
    """A run that is killed at the line about an outcome has that row, with its end."""
    questions_in(tmp_path, 2)
    (tmp_path / "hang-1").touch()
    command = [sys.executable, "-m", "trioeval", "s.json", "--verbose", "--no-cache"]
    with subprocess.Popen(command, cwd=tmp_path, env=ENV, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            lines = next(line for line in process.stderr if b": correct" in line)
        finally:
            process.kill()
    assert b" quiz-1: correct" in lines
    code, stderr = here(tmp_path, "export", "latest", "-o", "rows.jsonl")
    assert code == 0, stderr
    (row,) = rows_of(tmp_path / "rows.jsonl")
    assert row["question"]["events"][-1]["event"] == row["question"]["outcome"] == "correct"
    (tmp_path / "hang-1").unlink()
    (tmp_path / "asked.txt").unlink(missing_ok=True)
    here(tmp_path, "resume", *_QUIET)
    assert calls_in(tmp_path) == [1]


def test_qe_44_cancelled_questions_run_again_and_errors_on_request(
    tmp_path: Path, here: Here
) -> None:
    """Two questions were cancelled and one failed: two run, and one more with `--retry errors`."""
    questions_in(tmp_path, 4)
    (tmp_path / "fail-1").touch()
    (tmp_path / "hang-2").touch()
    begun_rows = tmp_path / "begun.jsonl"
    with begun(tmp_path, "-o", begun_rows.name) as process:
        wait_until(process, lambda: len(calls_in(tmp_path)) == 3 and len(rows_of(begun_rows)) == 2)
        # Simultaneous signals may be merged: the second one is sent until it is handled.
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.005)
        assert process.returncode == 130
    (tmp_path / "fail-1").unlink()
    (tmp_path / "hang-2").unlink()
    code, stderr = here(tmp_path, "export", "latest", "-o", "rows.jsonl")
    assert code == 0, stderr
    outcomes = [row["question"]["outcome"] for row in rows_of(tmp_path / "rows.jsonl")]
    assert outcomes == ["correct", "runtime_error", "cancelled", "cancelled"]
    (tmp_path / "asked.txt").unlink()
    here(tmp_path, "resume", *_QUIET)
    assert calls_in(tmp_path) == [2, 3]
    _, stderr = here(tmp_path, "resume", "--retry", "errors", *_QUIET)
    assert calls_in(tmp_path) == [2, 3, 1]
    assert "fail (incorrect_answers): 3 of 4 correct, accuracy 0.750" in stderr


def test_qe_42_lines_of_a_verbose_run_are_whole(tmp_path: Path) -> None:
    """With eight workers, and any text from models, each event is one line."""
    questions = [
        {"question": f"Line\n{n}\r\x1b[31m?", "answers": ["a\nb", "c"], "correct_answers": ["c"]}
        for n in range(40)
    ]
    write(tmp_path / "q.json", {"version": 1, "questions": questions})
    task = {"id": "quiz", "type": "question_eval", "questionsFile": "q.json", "workers": 8}
    options = {"maxConcurrency": 8}
    write(tmp_path / "s.json", {"providers": ["echo"], "evaluateOptions": options, "tasks": [task]})
    done = trioeval("s.json", "--verbose", "--no-table", cwd=tmp_path)
    assert done.returncode == 100
    lines = [line for line in done.stderr.splitlines() if re.match(r"\d+\.\d{3} s ", line)]
    whole = re.compile(
        r"\d+\.\d{3} s (quiz(-\d+)?|questions): ((task|run) (start|end)|queued|scheduled|reserving|"
        r"running|parsing|parse error|waiting)\b.*"
    )
    assert [line for line in lines if not whole.fullmatch(line)] == []
    assert len(lines) == 40 * 6 + 4
    assert lines[0].endswith("questions: run start")
    assert lines[1].endswith("quiz: task start")
    assert 'kind "trailing_text"' in lines[-3]
    assert "questions: run end" in lines[-1]
    assert last_line(done).endswith("40 failed, 0 errors; exit 100: 40 rows failed")
