"""Exit codes and last lines."""

import signal

import pytest

from trioeval.cli.run.exit_status import Ending, is_unfinished
from trioeval.kernel import Cut
from trioeval.report import Totals
from trioeval.report.totals import ColumnTotals
from trioeval.run import Status


def totals(passed: int = 0, failed: int = 0, errors: int = 0, not_run: int = 0) -> Totals:
    column = ColumnTotals()
    column.statuses.update(
        {
            Status.PASS: passed,
            Status.FAIL: failed,
            Status.ERROR: errors,
            Status.NOT_RUN: not_run,
        }
    )
    column.outcomes.update({"done": passed + failed, "failed": errors, "not_run": not_run})
    return Totals([column])


@pytest.mark.parametrize(
    ("found", "threshold", "code", "why"),
    [
        (totals(4), 100, 0, "exit 0: every row passed"),
        (totals(2, 2), 50, 0, "exit 0: 50.0 % passed, 50 % are needed"),
        (totals(2, 1, 1), 50, 0, "exit 0: 50.0 % passed, 50 % are needed"),
        (totals(2, 2), 100, 7, "exit 7: 2 rows failed"),
        (totals(1, 3), 50, 7, "exit 7: 3 rows failed; 25.0 % passed, 50 % are needed"),
        (totals(0, 0, 1), 0, 0, "exit 0: 0.0 % passed, 0 % are needed"),
        (
            totals(3, 0, 1, 1),
            10,
            7,
            (
                "the deadline left 1 rows without a verdict; 75.0 % of the 4 rows that were run passed, "
                "10 % are needed"
            ),
        ),
        (totals(), 100, 0, "no rows to run; exit 0"),
        (totals(299_999, 1), 99.99999, 7, "; 99.9 % passed, 100 % are needed"),
        (totals(1, 300_000), 1, 7, "; 0.1 % passed, 1 % are needed"),
    ],
)
def test_the_last_line_gives_the_reason_unless_enough_rows_passed(
    found: Totals, threshold: float, code: int, why: str
) -> None:
    """A row without a verdict fails the run, whatever the threshold is."""
    ended = Ending(
        totals=found, duration=1.25, needed=threshold, failed_code=7, cuts=[None, Cut.DEADLINE]
    )
    assert ended.code == code
    assert ended.line.endswith(why)


def test_a_signal_determines_the_code() -> None:
    """The first signal counts, even if all rows passed."""
    ended = Ending(totals=totals(4), duration=1.25, signals=[signal.SIGTERM, signal.SIGINT])
    assert (ended.code, ended.line) == (
        143,
        "4 rows in 1.2 s: 4 passed, 0 failed, 0 errors; exit 143: interrupted by SIGTERM",
    )


def test_a_stop_by_a_viewer_is_not_fail_fast() -> None:
    """Both end a run in the same way; the line names the cause."""
    left = totals(1, 0, 0, 3)
    asked = Ending(totals=left, duration=1, cuts=[Cut.STOP], steered=True)
    assert "a stop by who watches it left 3 rows without a verdict" in asked.line
    assert "--fail-fast left 3 rows" in Ending(totals=left, duration=1, cuts=[Cut.STOP]).line


def test_the_last_line_names_the_command_that_continues() -> None:
    """It is last in the line, whatever ended the run."""
    ended = Ending(totals=totals(1, 0, 0, 3), duration=1, resume="trioeval resume eval-1")
    assert ended.line.endswith(
        "3 rows are left without a verdict; continue with: trioeval resume eval-1"
    )
    assert is_unfinished(totals(1, 0, 0, 3))
    assert not is_unfinished(totals(1, 1, 1))


def test_an_unfinished_retry_is_not_a_success() -> None:
    """This holds even if the earlier results passed, and if a signal determines the code."""
    ended = Ending(totals=totals(4), duration=1, standing=3, resume="trioeval resume eval-1")
    assert ended.code == 100
    assert ended.line.endswith(
        "exit 100: not everything was run again; 3 rows that were to be run again stand as they were; "
        "continue with: trioeval resume eval-1"
    )
    assert Ending(totals=totals(4), duration=1, needed=50, standing=3).code == 100
    ended = Ending(totals=totals(4), duration=1, standing=3, signals=[signal.SIGINT])
    assert ended.code == 130
    assert ended.line.endswith("SIGINT; 3 rows that were to be run again stand as they were")
    assert "3 rows failed; 1 rows that" in Ending(totals=totals(1, 3), duration=1, standing=1).line


@pytest.mark.parametrize(
    ("cuts", "told"),
    [
        ([Cut.STOP, None], "--fail-fast left 8"),
        ([Cut.BUDGET], "the budget left 8"),
        ([Cut.LANE, Cut.BUDGET], "the budget and a closed lane left 8"),
        ([Cut.CANCEL], "8 rows are left"),
    ],
)
def test_the_last_line_says_why_rows_were_not_run(cuts: list[Cut | None], told: str) -> None:
    """It does not blame a deadline for other causes."""
    ended = Ending(totals=totals(1, 1, 0, 8), duration=0, cuts=cuts)
    assert f"1 rows failed, {told}" in ended.line
    assert ended.line.endswith(" without a verdict")


def test_a_task_that_failed_fast_is_named() -> None:
    """Only its own failure left out its rows; a flag is named only if it was given."""
    found = totals(1, 1, 0, 8)
    ended = Ending(totals=found, duration=0, cuts=[None], failed_fast=["quiz", "sums"])
    assert "failFast of task quiz and failFast of task sums left 8 rows" in ended.line
    ended = Ending(totals=found, duration=0, cuts=[Cut.BUDGET], failed_fast=["a\x1b"])
    assert "the budget and failFast of task a left 8 rows" in ended.line
    assert "failFast of task left" in Ending(totals=found, duration=0, failed_fast=[None]).line
