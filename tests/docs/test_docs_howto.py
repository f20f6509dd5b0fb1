"""The how-to about question/answer JSONL, from the questions to the comparison, over loopback."""

import doctest
import json
import subprocess
import sys
from pathlib import Path

import pytest
from server_process import fake_provider
from snippets import DOCS, ROOT
from workbench import load

from trioeval.grading import Assertion, grade

HOWTO = DOCS / "howto"
SCRIPT = HOWTO / "suite_from_jsonl.py"
QUESTIONS = HOWTO / "questions.jsonl"

script = load(SCRIPT)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.network
def test_recorded_solutions_pass_if_they_were_judged_correct(tmp_path: Path) -> None:
    """The whole procedure of the page: script, fake provider, run, comparison."""
    assert run(SCRIPT, QUESTIONS, tmp_path).returncode == 0
    flags = ["--replay", str(tmp_path / "replies.jsonl")]
    with fake_provider(*flags, cwd=ROOT) as url:
        run(SCRIPT, QUESTIONS, tmp_path, "--base-url", url)
        out = tmp_path / "out.json"
        done = run(
            "-m",
            "trioeval",
            tmp_path / "suite.json",
            "-o",
            out,
            "--no-table",
            "--no-write",
            "--no-cache",
        )
    assert done.returncode == 100
    assert "10 passed, 4 failed, 0 errors; exit 100: 4 rows failed" in done.stderr
    checked = run(SCRIPT, "--check", out, QUESTIONS)
    assert checked.stdout.splitlines() == [
        "hasty: 5 of 7 pass, 5 are recorded as correct",
        "careful: 5 of 7 pass, 5 are recorded as correct",
        "no row differs",
    ]
    assert checked.stdout in (HOWTO / "question-answer-jsonl.md").read_text()
    assert checked.returncode == 0
    found = json.loads(out.read_text())["results"]["results"]
    assert [row["testCase"]["metadata"]["row"] for row in found] == [
        row for row in range(1, 8) for _model in range(2)
    ]


def test_rows_that_differ_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """The report has the expected and the actual verdict, and the exit code reflects it."""
    records = [{"final_answer": "4", "models": {"m": {"solution": "A: 5", "is_correct": True}}}]
    result = {
        "provider": {"label": "m"},
        "testCase": {"metadata": {"row": 1}},
        "success": False,
        "response": {"output": "two and two\nA: 5\n"},
    }
    assert script.check({"results": {"results": [result]}}, records) == 1
    assert capsys.readouterr().out.splitlines() == [
        "m: 0 of 1 pass, 1 are recorded as correct",
        "row 1, m: does not pass and is recorded as True; '4' against 'A: 5'",
    ]


@pytest.mark.parametrize(
    ("answer", "line", "right"),
    [
        ("1080", "A: 1080", True),
        ("1080", "A: 1,080", True),
        ("1,080", "A: $1080.00", True),
        ("1080", "A: 10,80", False),
        ("18", "A: 18.0", True),
        ("18", "A: 18.", True),
        ("18", "A: 18.5", False),
        ("18", "A: 118", False),
        ("18", "so it is\nA: 18\n", True),
        ("18", "A: 18\nA: 19", False),
        ("18", "B A: 18", False),
        ("0.50", "A: 0.5", True),
        ("-3", "A: -3", True),
        ("-3", "A: 3", False),
        ("dark blue", "A: dark blue", True),
        ("a.b", "A: axb", False),
    ],
)
def test_answers_are_found_in_the_last_line(answer: str, line: str, right: bool) -> None:  # noqa: FBT001
    """Separators and zeros may vary, and nothing else is tolerated."""
    assertion = Assertion(type="regex", value=script.answer_pattern(answer))
    assert grade(line, [assertion]).passed is right


def test_the_script_has_the_properties_of_its_page() -> None:
    """It is under 150 lines, and its own examples hold."""
    assert len(SCRIPT.read_text().splitlines()) < 150
    assert doctest.testmod(script).failed == 0
