"""The summary of all question tasks of a run, and of a run without questions."""

import json
from pathlib import Path
from typing import Any

import pytest

from trioeval.cli.app import run_command_line

_QUIET = ("--no-progress", "--no-table")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two tasks of two questions with right answers, and a task of prompts."""
    question = {"answers": ["Red", "Blue"], "correct_answers": ["Blue"]}
    questions = [{"question": f"Colour {n}?", **question} for n in range(2)]
    text = json.dumps({"version": 1, "questions": questions})
    (tmp_path / "q.json").write_text(text)
    quiz = {"type": "question_eval", "questionsFile": "q.json"}
    tasks: list[dict[str, Any]] = [
        {"id": "first", **quiz},
        {"id": "other", "type": "prompt_eval", "prompts": ["hi"], "providers": ["echo"]},
        {"id": "second", **quiz},
    ]
    answers = {"id": "sequence", "config": {"inputs": ["<answer>Blue</answer>"]}}
    suite = {"providers": [answers], "tasks": tasks}
    (tmp_path / "s.json").write_text(json.dumps(suite))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_several_question_tasks_have_a_common_summary(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is shown at the end of a run, in its document, and by `show`; a single task has its own."""
    assert run_command_line(["s.json", *_QUIET, "-o", "out.json"]) == 0
    summary = "2 tasks of questions: 2 passed, 0 failed, 0 errors; 4 of 4 correct, accuracy 1.000"
    *_, together, last = capfd.readouterr().err.splitlines()
    assert together.startswith(summary)
    assert last.startswith("5 rows in ")
    tokens = json.loads((folder / "out.json").read_text())["summary"]["tokensTotal"]
    assert together == f"{summary}; {tokens} tokens"
    assert run_command_line(["show"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == together
    assert run_command_line(["show", "--task", "first"]) == 0
    assert "tasks of questions" not in capfd.readouterr().out
    assert run_command_line(["export", "-o", "again.json"]) == 0
    again = json.loads((folder / "again.json").read_text())
    assert again["summary"] == json.loads((folder / "out.json").read_text())["summary"]


def test_qe_40_filters_that_match_no_question_are_reported(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They are an error, or with `--allow-empty` the status of the tasks."""
    nothing = ("--filter-pattern", "nothing")
    assert run_command_line(["s.json", *_QUIET, *nothing]) == 2
    assert "no rows match the filters (pass --allow-empty to accept this)" in capfd.readouterr().err
    flags = (*nothing, "--allow-empty", "--verbose", "-o", "out.json")
    assert run_command_line(["s.json", *_QUIET, *flags]) == 0
    stderr = capfd.readouterr().err
    assert stderr.count("error (no_questions): 0 of 0 correct, accuracy 0.000") == 2
    assert 'first: task end, status "error", reason "no_questions"' in stderr
    assert "2 tasks of questions: 0 passed, 0 failed, 2 errors; 0 of 0 correct" in stderr
    assert stderr.splitlines()[-1] == "no rows to run; exit 0"
    document = json.loads((folder / "out.json").read_text())
    task = document["tasks"]["first"]
    assert (task["status"], task["failureReason"]) == ("error", "no_questions")
    assert document["summary"]["tasksErrored"] == 2
