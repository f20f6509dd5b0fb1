"""Exit codes and last lines."""

import signal

import attrs
import pytest

from trioeval.cli.run.exit_status import RunOutcome, is_unfinished
from trioeval.kernel import StopReason
from trioeval.report.totals import ColumnTotals, Totals
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
        (totals(2, 2), 50, 0, "exit 0: 50.0 % of 4 rows passed, 50 % needed"),
        (totals(2, 1, 1), 50, 0, "exit 0: 50.0 % of 4 rows passed, 50 % needed"),
        (totals(2, 2), 100, 7, "exit 7: 2 rows failed"),
        (totals(1, 3), 50, 7, "exit 7: 3 rows failed; 25.0 % of 4 rows passed, 50 % needed"),
        (totals(0, 0, 1), 0, 0, "exit 0: 0.0 % of 1 row passed, 0 % needed"),
        (
            totals(3, 0, 1, 1),
            10,
            7,
            "1 row not run because of the deadline; 75.0 % of 4 rows passed, 10 % needed",
        ),
        (totals(), 100, 0, "no rows to run; exit 0"),
        (totals(299_999, 1), 99.99999, 7, "; 99.9 % of 300000 rows passed, 100 % needed"),
        (totals(1, 300_000), 1, 7, "; 0.1 % of 300001 rows passed, 1 % needed"),
    ],
)
def test_the_last_line_gives_the_reason_unless_enough_rows_passed(
    found: Totals, threshold: float, code: int, why: str
) -> None:
    """A row that was never judged fails the run, whatever the pass rate threshold is."""
    ended = RunOutcome(
        totals=found,
        duration=1.25,
        needed=threshold,
        failed_code=7,
        cuts=[None, StopReason.DEADLINE],
    )
    assert ended.code == code
    assert ended.line.endswith(why)


def test_the_last_line_names_who_stopped_the_run() -> None:
    """A stop of unknown origin is that of --fail-fast."""
    ended = RunOutcome(totals=totals(2, not_run=1), duration=0.1, cuts=[None, StopReason.STOP])
    assert "because of --fail-fast" in ended.line
    assert "because of a stop from the live view" in attrs.evolve(ended, steered=True).line
    assert "because of the loss of workers" in attrs.evolve(ended, lost_workers=True).line


def test_the_last_line_counts_rows_that_were_not_graded() -> None:
    """A run without assertions succeeds, and does not claim that a row passed."""
    found = totals(10)
    statuses = found.columns[0].statuses
    statuses.update({Status.PASS: -3, Status.NOT_GRADED: 3})
    assert RunOutcome(totals=found, duration=0.1).line == (
        "10 rows in 0.1 s: 7 passed, 0 failed, 0 errors, 3 not graded; exit 0: every graded row passed"
    )
    statuses.update({Status.PASS: -7, Status.NOT_GRADED: 7})
    ended = RunOutcome(totals=found, duration=0.1)
    assert (ended.code, ended.line.rpartition("; ")[2]) == (0, "exit 0: no row was graded")


def test_the_last_line_counts_cached_replies() -> None:
    """It adds the cost of the other replies if that is known."""
    found = totals(200)
    column = found.columns[0]
    column.from_cache = column.replies = 200
    assert "0 errors; 200 of 200 replies from cache; exit 0" in RunOutcome(totals=found).line
    column.cost = 0.0
    assert "; 200 of 200 replies from cache, $0 spent; exit 0" in RunOutcome(totals=found).line
    column.replies, column.cost, column.grading_cost = 201, 0.0123, 0.01
    assert "; 200 of 201 replies from cache, $0.0223 spent; exit 0" in RunOutcome(totals=found).line


def test_a_signal_decides_the_code() -> None:
    """The first signal counts, even if all rows passed."""
    ended = RunOutcome(totals=totals(4), duration=1.25, signals=[signal.SIGTERM, signal.SIGINT])
    assert (ended.code, ended.line) == (
        143,
        "4 rows in 1.2 s: 4 passed, 0 failed, 0 errors; exit 143: interrupted by SIGTERM",
    )


def test_a_stop_by_a_viewer_is_not_fail_fast() -> None:
    """Both end a run in the same way; the line names the cause."""
    left = totals(1, 0, 0, 3)
    steered = RunOutcome(totals=left, duration=1, cuts=[StopReason.STOP], steered=True)
    assert "3 rows not run because of a stop from the live view" in steered.line
    ended = RunOutcome(totals=left, duration=1, cuts=[StopReason.STOP])
    assert "3 rows not run because of --fail-fast" in ended.line


def test_the_last_line_ends_with_the_continuing_command() -> None:
    """The command comes last, whatever ended the run."""
    ended = RunOutcome(totals=totals(1, 0, 0, 3), duration=1, resume="trioeval resume eval-1")
    assert ended.line.endswith("3 rows not run; continue with: trioeval resume eval-1")
    assert is_unfinished(totals(1, 0, 0, 3))
    assert not is_unfinished(totals(1, 1, 1))


def test_an_interrupted_retry_is_not_a_success() -> None:
    """The run fails although its stored rows have passed, and also if a signal decides the code."""
    ended = RunOutcome(totals=totals(4), duration=1, standing=3, resume="trioeval resume eval-1")
    assert ended.code == 100
    assert ended.line.endswith(
        "exit 100: 3 rows were not run again and keep their earlier results; "
        "continue with: trioeval resume eval-1"
    )
    assert RunOutcome(totals=totals(4), duration=1, needed=50, standing=3).code == 100
    ended = RunOutcome(totals=totals(4), duration=1, standing=3, signals=[signal.SIGINT])
    assert ended.code == 130
    assert ended.line.endswith("SIGINT; 3 rows were not run again and keep their earlier results")
    line = RunOutcome(totals=totals(1, 3), duration=1, standing=1).line
    assert "3 rows failed; 1 row was not run again and keeps its earlier result" in line


@pytest.mark.parametrize(
    ("cuts", "reason"),
    [
        ([StopReason.STOP, None], " because of --fail-fast"),
        ([StopReason.BUDGET], " because of the budget"),
        ([StopReason.LANE, StopReason.BUDGET], " because of the budget and a closed lane"),
        ([StopReason.CANCEL], ""),
    ],
)
def test_the_last_line_gives_the_reason_of_rows_that_were_not_run(
    cuts: list[StopReason | None], reason: str
) -> None:
    """It does not always name a deadline."""
    ended = RunOutcome(totals=totals(1, 1, 0, 8), duration=0, cuts=cuts)
    assert ended.line.endswith(f"exit 100: 1 row failed, 8 rows not run{reason}")


def test_a_task_that_failed_fast_is_named() -> None:
    """Only its own failure skipped its rows; a flag is named only if it was given."""
    found = totals(1, 1, 0, 8)
    ended = RunOutcome(totals=found, duration=0, cuts=[None], failed_fast=["quiz", "sums"])
    assert "8 rows not run because of failFast of task quiz and failFast of task sums" in ended.line
    ended = RunOutcome(totals=found, duration=0, cuts=[StopReason.BUDGET], failed_fast=["a\x1b"])
    assert "because of the budget and failFast of task a" in ended.line
    assert (
        "because of failFast of task"
        in RunOutcome(totals=found, duration=0, failed_fast=[None]).line
    )
