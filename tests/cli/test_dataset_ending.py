"""Exit codes and last lines of runs with datasets."""

import signal

import attrs
import pytest

from trioeval.cli.run.exit_status import RunOutcome, is_unfinished, spent_line
from trioeval.columns.result import DatasetResult
from trioeval.report.totals import ColumnTotals, Totals
from trioeval.run import Status
from trioeval.usage import Usage

STRICT = 100.0
LENIENT = 50.0
FINE = DatasetResult(task="problems", requested=9, written=7, dropped={"filtered": 2})
LOST = DatasetResult(task="problems", requested=9, written=7, dropped={"failed": 2})
CUT = DatasetResult(task="more", requested=4, written=1, not_run={"deadline": 3})
NONE = Totals([])


def rows(passed: int, failed: int = 0) -> Totals:
    column = ColumnTotals()
    column.statuses.update({Status.PASS: passed, Status.FAIL: failed})
    column.outcomes.update({"done": passed + failed})
    return Totals([column])


@pytest.mark.parametrize(
    ("totals", "datasets", "needed", "code", "line"),
    [
        (
            NONE,
            [FINE],
            STRICT,
            0,
            "7 of 9 rows of datasets written in 1.2 s; exit 0: every dataset is complete",
        ),
        (
            NONE,
            [LOST, CUT],
            STRICT,
            100,
            (
                "8 of 13 rows of datasets written in 1.2 s; exit 100: dataset problems: 2 rows lost, "
                "dataset more: 3 rows not run (the deadline)"
            ),
        ),
        (
            rows(4),
            [FINE],
            STRICT,
            0,
            (
                "4 rows in 1.2 s: 4 passed, 0 failed, 0 errors; 7 of 9 rows of datasets written; "
                "exit 0: every row passed"
            ),
        ),
        (
            rows(3, 1),
            [FINE],
            LENIENT,
            0,
            (
                "4 rows in 1.2 s: 3 passed, 1 failed, 0 errors; 7 of 9 rows of datasets written; "
                "exit 0: 75.0 % of 4 rows passed, 50 % needed"
            ),
        ),
        (
            rows(3, 1),
            [LOST],
            LENIENT,
            100,
            (
                "4 rows in 1.2 s: 3 passed, 1 failed, 0 errors; 7 of 9 rows of datasets written; "
                "exit 100: 1 row failed, dataset problems: 2 rows lost; 75.0 % of 4 rows passed, 50 % needed"
            ),
        ),
        (
            NONE,
            [LOST],
            LENIENT,
            100,
            "7 of 9 rows of datasets written in 1.2 s; exit 100: dataset problems: 2 rows lost",
        ),
    ],
)
def test_a_run_succeeds_if_its_datasets_do(
    totals: Totals, datasets: list[DatasetResult], needed: float, code: int, line: str
) -> None:
    """The pass rate threshold does not apply: a row that could not be generated did not fail an assertion."""
    ended = RunOutcome(totals=totals, duration=1.25, needed=needed, datasets=datasets)
    assert (ended.code, ended.line) == (code, line)


def test_dataset_rows_that_were_not_run_can_be_continued() -> None:
    """Lost rows cannot: continuing would lose them again."""
    assert is_unfinished(NONE, [FINE, CUT])
    assert not is_unfinished(NONE, [LOST])
    assert is_unfinished(NONE, [attrs.evolve(FINE, error="a processor failed")])


def test_a_signal_decides_the_code_of_datasets_too() -> None:
    """The last line still shows the numbers."""
    ended = RunOutcome(totals=NONE, duration=1.25, datasets=[CUT], signals=[signal.SIGINT])
    assert (ended.code, ended.line) == (
        130,
        "1 of 4 rows of datasets written in 1.2 s; exit 130: interrupted by SIGINT",
    )


def test_the_usage_of_the_run_includes_datasets() -> None:
    """It is shown if it has a cost."""
    paid = attrs.evolve(FINE, cost=0.5, usage=Usage(total=30))
    assert spent_line(NONE, [paid, FINE]) == "used: 30 tokens, $0.5000"
    assert spent_line(NONE, [FINE]) is None
