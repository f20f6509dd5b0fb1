"""Exit codes and last lines."""

import signal

import attrs
import pytest

from trioeval.cli.ending import ending, is_unfinished
from trioeval.cli.environment import EnvironmentSettings
from trioeval.cli.settings import RunSettings
from trioeval.report import Totals
from trioeval.report.totals import ColumnTotals
from trioeval.tasks import Status


def totals(passed: int = 0, failed: int = 0, errors: int = 0, not_run: int = 0) -> Totals:
    column = ColumnTotals()
    column.statuses.update(
        {Status.PASS: passed, Status.FAIL: failed, Status.ERROR: errors + not_run}
    )
    column.outcomes.update({"done": passed + failed, "failed": errors, "not_run": not_run})
    return Totals([column])


def settings(threshold: float = 100, code: int = 100) -> RunSettings:
    environment = EnvironmentSettings(pass_rate_threshold=threshold)
    return RunSettings(environment=environment, fail_exit_code=code)


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
            "the deadline left 1 rows without a verdict; 60.0 % passed, 10 % are needed",
        ),
        (totals(), 100, 0, "no rows to run; exit 0"),
        (totals(299_999, 1), 99.99999, 7, "; 99.9 % passed, 100 % are needed"),
        (totals(1, 300_000), 1, 7, "; 0.1 % passed, 1 % are needed"),
    ],
)
def test_enough_rows_passed_or_the_line_says_what_is_missing(
    found: Totals, threshold: float, code: int, why: str
) -> None:
    """A row that was never judged fails the run, whatever share is asked for."""
    ended = ending(found, settings(threshold, 7), 1.25)
    assert ended.code == code
    assert ended.line.endswith(why)


def test_a_signal_decides_the_code() -> None:
    """The first of them, even where all rows had passed."""
    ended = ending(totals(4), settings(), 1.25, signals=[signal.SIGTERM, signal.SIGINT])
    assert attrs.astuple(ended) == (
        143,
        "4 rows in 1.2 s: 4 passed, 0 failed, 0 errors; exit 143: interrupted by SIGTERM",
    )


def test_the_last_line_names_the_command_that_goes_on() -> None:
    """Behind everything else, whatever ended the run."""
    ended = ending(totals(1, 0, 0, 3), settings(), 1, resume="trioeval resume eval-1")
    assert ended.line.endswith(
        "the deadline left 3 rows without a verdict; continue with: trioeval resume eval-1"
    )
    assert is_unfinished(totals(1, 0, 0, 3))
    assert not is_unfinished(totals(1, 1, 1))


def test_a_run_that_was_stopped_early_says_so() -> None:
    """Instead of blaming a deadline."""
    ended = ending(totals(1, 1, 0, 8), settings(), 0, stopped_early=True)
    assert ended.line.endswith("1 rows failed, --fail-fast left 8 rows without a verdict")
