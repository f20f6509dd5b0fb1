"""The list of runs at every width: ids and counts are whole, and suites are truncated."""

import io
from typing import Any

import pytest
from rich.console import Console

from trioeval.report.run_list import run_json, run_line, runs_table
from trioeval.report.stored import StoredRunFacts


def listed(**facts: Any) -> StoredRunFacts:
    """Return a run for the list."""
    usual: dict[str, Any] = {
        "number": 1,
        "id": "eval-2026-11-22T20-12-58-a1b2",
        "suite": "/home/me/evals/a-suite-with-a-very-long-name-indeed.yaml",
        "description": "of the autumn",
        "state": "interrupted",
        "utc_created": "2026-11-22T20:12:58.123Z",
        "utc_finished": None,
        "executions": 1,
        "duration_ms": 1.0,
        "rows": 1234,
        "passed": 1001,
        "failed": 222,
        "errors": 11,
        "outcomes": {},
        "tokens": 0,
        "cost": 0.0,
        "versions": {},
        "flags": {},
        "files": {},
        "derived": None,
        "tasks": (None,),
        "sizes": (12345,),
        "parts": (1,),
    }
    return StoredRunFacts(**usual | facts)


RUNS = [listed(cost=12.5), listed(id="eval-short", suite="s.yaml", description=None)]


def lines(runs: list[StoredRunFacts], width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(runs_table(runs))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_ids_and_counts_are_never_truncated(width: int) -> None:
    """No line is wider than the terminal."""
    shown = lines(RUNS, width)
    assert max(map(len, shown)) <= width
    text = "\n".join(shown)
    for part in (*(run.id for run in RUNS), "interrupted", "1234/12345", "1001", "222", "81.1 %"):
        assert text.count(part) >= 1, part
    assert "s.yaml" in text


def test_a_run_is_one_line_on_a_wide_terminal() -> None:
    """Cost, errors and start are left out first; the suite is cut in the middle."""
    shown = lines(RUNS, 120)
    assert len(shown) == 2 + len(RUNS)
    assert shown[0].split() == ["run", "state", "rows", "pass", "fail", "pass", "rate", "suite"]
    assert "a-suite-wi" in shown[2]
    assert "…" in shown[2]
    assert shown[2].endswith("the autumn")
    wide = lines(RUNS, 200)
    assert wide[2].split()[:3] == [RUNS[0].id, "2026-11-22", "20:12"]
    assert "$12.50" in wide[2]


def test_rows_that_nothing_graded_have_a_column_and_enter_no_rate() -> None:
    """The column is shown if a run has such rows."""
    graded = listed(rows=10, passed=3, failed=1, errors=0, not_graded=6, sizes=(10,))
    shown = lines([graded], 200)
    assert "not graded" in shown[0]
    assert "75.0 % of 4 graded" in shown[2]
    assert "not graded" not in lines(RUNS, 200)[0]
    assert "3 passed, 1 failed, 0 errors, 6 not graded" in run_line(graded)
    assert run_json(graded)["notGraded"] == 6


def test_a_narrow_terminal_has_two_lines_for_a_run() -> None:
    """A narrow terminal has the numbers of a run on a second line."""
    shown = lines(RUNS, 80)
    assert shown[0] == f"{RUNS[0].id}  interrupted"
    assert shown[-2:] == [
        "eval-short  interrupted",
        "  1234/12345 rows, 1001 pass, 222 fail, 81.1 % of 1234 pass rate, s.yaml",
    ]
    assert lines(RUNS, 40)[-3:-1] == [
        "eval-short  interrupted",
        "  1234/12345 rows, 1001 pass, 222 fail,",
    ]


def test_rows_of_datasets_are_shown() -> None:
    """They are shown at every width."""
    for width in (40, 120):
        assert "98765" in "\n".join(lines([listed(dataset_rows=98765)], width))
