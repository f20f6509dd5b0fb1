"""The status of a row is the same in all outputs."""

import csv
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from trioeval.cli import run_command_line

SUITE: dict[str, Any] = {
    "providers": [{"id": "echo", "lane": {"maxConcurrency": 1}}],
    "prompts": ["say {{word}}"],
    "tests": [
        {"vars": {"word": word}, "assert": [{"type": "contains", "value": "h"}]}
        for word in ("hi", "x", "ho", "hu")
    ],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.json").write_text(json.dumps(SUITE))
    return tmp_path


def test_rows_that_were_not_run_are_the_same_everywhere(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tables of rows and of columns, the last line, JSON, HTML, `runs` and `show` agree."""
    code = run_command_line(
        ["s.json", "--fail-fast", "--no-progress", "-o", "o.json", "-o", "o.html", "-o", "o.jsonl"]
    )
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in (folder / "o.jsonl").read_text().splitlines()]
    left = sum(row["metadata"]["trioeval"]["outcome"] == "not_run" for row in rows)
    assert (code, left) == (100, 2)
    assert "NOT RUN" not in printed.out
    assert "ERROR" not in printed.out
    last = printed.err.splitlines()[-1]
    assert ": 1 passed, 1 failed, 0 errors, 2 not run; exit 100: " in last
    assert "2 rows not run: 2–3; continue with trioeval resume eval-" in printed.err
    document = json.loads((folder / "o.json").read_text())
    stats = document["results"]["stats"]
    counts = [stats[name] for name in ("successes", "failures", "errors", "notRun")]
    assert counts == [1, 1, 0, 2]
    metrics = document["results"]["prompts"][0]["metrics"]
    assert (metrics["testErrorCount"], metrics["testNotRunCount"]) == (0, 2)
    page = (folder / "o.html").read_text()
    assert '<b class="error">0</b> errors' in page
    assert '<b class="not_run">2</b> not run' in page
    assert run_command_line(["runs", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert [run[name] for name in ("passed", "failed", "errors", "notRun")] == [1, 1, 0, 2]
    assert run_command_line(["show"]) == 0
    shown = capsys.readouterr().out
    assert "4 rows: 1 passed, 1 failed, 0 errors, 2 not run" in shown
    assert "NOT RUN" not in shown
    assert "2 rows not run: 2–3; continue with trioeval resume eval-" in shown
    assert shown.count("50.0 %") == 1


def test_rows_that_nothing_graded_are_the_same_everywhere(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every output counts them apart from passed rows, and pass rates leave them out."""
    tests = [{"vars": {"word": word}, "assert": []} for word in ("hi", "x")]
    (folder / "s.json").write_text(json.dumps({**SUITE, "tests": [*SUITE["tests"][:2], *tests]}))
    outputs = [
        word
        for suffix in ("json", "csv", "xml", "junit.xml", "jsonl")
        for word in ("-o", f"o.{suffix}")
    ]
    assert run_command_line(["s.json", "--no-progress", *outputs]) == 100
    said = capsys.readouterr()
    counts = "1 passed, 1 failed, 0 errors, 2 not graded"
    assert f": {counts}; exit 100: " in said.err.splitlines()[-1]
    assert said.out.count("NOT GRADED") == 2
    rows = [json.loads(line) for line in (folder / "o.jsonl").read_text().splitlines()]
    assert [(row["success"], row["failureReason"]) for row in rows] == [
        (True, 0),
        (False, 1),
        (True, 0),
        (True, 0),
    ]
    stats = json.loads((folder / "o.json").read_text())["results"]["stats"]
    assert [stats[name] for name in ("successes", "failures", "errors", "notGraded")] == [
        3,
        1,
        0,
        2,
    ]
    lines = [*csv.reader((folder / "o.csv").read_text().splitlines())]
    assert [line[2:4] for line in lines] == [
        ["Status", "Score"],
        ["PASS", "1.00"],
        ["FAIL", "0.00"],
        ["NOT GRADED", ""],
        ["NOT GRADED", ""],
    ]
    assert (folder / "o.junit.xml").read_text().count('name="graded" value="false"') == 2
    assert run_command_line(["runs", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    names = ("passed", "failed", "errors", "notGraded", "notRun")
    assert [run[name] for name in names] == [1, 1, 0, 2, 0]
    assert run_command_line(["runs"]) == 0
    assert "50.0 % of 2 graded" in capsys.readouterr().out
    assert run_command_line(["runs", "--graph", "latest"]) == 0
    assert "1 passed, 1 failed, 2 not graded" in capsys.readouterr().out
    assert run_command_line(["show"]) == 0
    shown = capsys.readouterr().out
    assert counts in shown
    assert shown.count("NOT GRADED") == 2
    assert run_command_line(["show", "latest", "2"]) == 0
    assert "NOT GRADED done" in capsys.readouterr().out
    assert run_command_line(["show", "--failed"]) == 0
    assert "NOT GRADED" not in capsys.readouterr().out
    assert run_command_line(["compare", "latest", "latest"]) == 0
    told = capsys.readouterr()
    assert "2 rows of the later run were not graded" in told.out + told.err
    database = sqlite3.connect(folder / ".trioeval" / "results.db")
    assert database.execute("SELECT passed, failed, errors, not_graded FROM runs").fetchall() == [
        (1, 1, 0, 2)
    ]
    assert database.execute("SELECT status, score FROM results").fetchall() == [
        ("pass", 1.0),
        ("fail", 0.0),
        ("not_graded", None),
        ("not_graded", None),
    ]
    database.close()


def test_the_pass_rate_threshold_applies_to_rows_that_ended(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line reports this."""
    monkeypatch.setenv("TRIOEVAL_PASS_RATE_THRESHOLD", "75")
    assert run_command_line(["s.json", "--fail-fast", "--no-progress", "--no-table"]) == 100
    last = capsys.readouterr().err.splitlines()[-1]
    assert "50.0 % of 2 rows passed, 75 % needed" in last


def test_accuracy_is_the_pass_rate_of_questions(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """This holds for a task that ended early: both count the questions that ended."""
    questions = [
        {"id": str(n), "question": "?", "answers": ["a", "b"], "correct_answers": ["a"]}
        for n in range(4)
    ]
    (folder / "q.json").write_text(json.dumps({"version": 1, "questions": questions}))
    right = "<answer>a</answer>"
    suite = {
        "providers": [
            {
                "id": "sequence",
                "config": {"inputs": [right]},
                "lane": {"maxConcurrency": 1},
            }
        ],
        "evaluateOptions": {"budget": {"requests": 2}},
        "tasks": [{"id": "quiz", "type": "question_eval", "questionsFile": "q.json"}],
    }
    (folder / "s.json").write_text(json.dumps(suite))
    assert run_command_line(["s.json", "--no-progress", "-o", "o.json"]) == 100
    printed = capsys.readouterr()
    assert (
        "error (cancelled): 2 of 2 correct, accuracy 1.000, 2 cancelled"
        in printed.err + printed.out
    )
    assert "100.0 %" in printed.out + printed.err
    summary = json.loads((folder / "o.json").read_text())["tasks"]["quiz"]["questionEval"][
        "summary"
    ]
    assert (summary["questionsEnded"], summary["accuracy"]) == (2, 1.0)
