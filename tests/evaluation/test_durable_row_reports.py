"""The observer of a task gets rows when they are durable, in the order in which they ended."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from asked_questions import Pupil, asked, quiz
from journalled import Notes

from trioeval import Row
from trioeval.evaluation.task_run import DurableRowReports
from trioeval.kernel import Event
from trioeval.run import RowsNotRun
from trioeval.testing import run_virtual


@attrs.define
class RecordingObserver:
    """An observer that records the durable rows."""

    rows: list[int] = attrs.field(factory=list)

    def on_task_start(self, at: float) -> None: ...

    def on_event(self, event: Event, waited: Mapping[str, float]) -> None: ...

    def on_row(self, row: Row, _at: float) -> Row:
        return row

    def on_rows_not_run(self, rows: RowsNotRun) -> None: ...

    def on_durable_row(self, row: Row) -> None:
        self.rows.append(row.index)

    def on_kept_row(self, record: Mapping[str, Any]) -> None: ...

    def on_task_end(self, at: float) -> None: ...


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    return asked(quiz(tmp_path, 4), Pupil()).rows


def test_a_durable_row_implies_that_earlier_ones_are_durable(rows: list[Row]) -> None:
    """The first report includes all earlier rows, and no row is reported twice."""
    observer = RecordingObserver()
    reports = DurableRowReports(observer, Notes())
    for index in (2, 0, 3, 1):
        reports.add(rows[index])
    assert observer.rows == []
    reports.report_durable(rows[0])
    assert observer.rows == [2, 0]
    reports.report_durable(rows[2])
    reports.report_durable(rows[1])
    assert observer.rows == [2, 0, 3, 1]


def test_without_a_journal_rows_are_reported_at_once(rows: list[Row]) -> None:
    """They do not wait for anything."""
    observer = RecordingObserver()
    reports = DurableRowReports(observer, None)
    reports.add(rows[1])
    reports.report_durable(rows[1])
    assert observer.rows == [1]


def test_a_waiting_task_gets_reports_of_later_rows_too(rows: list[Row]) -> None:
    """Rows that arrive during a wait are reported, and rows that arrive without one."""
    observer = RecordingObserver()

    async def main() -> list[tuple[float, list[int]]]:
        reports, found = DurableRowReports(observer, Notes(lasts=1.0)), []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reports.report_continuously)
            for pause, index in ((0.5, 3), (0.5, 1), (5.0, 0)):
                await trio.sleep(pause)
                reports.add(rows[index])
                found.append((trio.current_time(), [*observer.rows]))
            await trio.sleep(1.25)
            found.append((trio.current_time(), [*observer.rows]))
            nursery.cancel_scope.cancel("enough")
        return found

    assert run_virtual(main) == [(0.5, []), (1.0, []), (6.0, [3, 1]), (7.25, [3, 1, 0])]
