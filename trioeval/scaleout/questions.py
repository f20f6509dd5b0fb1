# Separate from `scaleout.single_rows`: only questions have events and `failFast`.
"""Questions on workers: their events, and the end of a task after its first failure."""

from collections.abc import Mapping
from typing import Any

import attrs
import trio

from trioeval.evaluation.row import Row, RowsNotRun
from trioeval.evaluation.task_run import TaskObserver
from trioeval.evaluation.waits import NO_WAITS
from trioeval.kernel import Event
from trioeval.question_eval import question_of
from trioeval.question_eval.counts import FATAL
from trioeval.question_eval.events import QuestionEvents


@attrs.frozen(eq=False, repr=False)
class SentQuestions(TaskObserver):
    """The observer of a task whose questions run on workers.

    A worker reports the events of a question with its row. The jobs of this process only wait for rows, so
    their events say nothing about questions.
    """

    _events: QuestionEvents
    _stop: trio.Event | None
    """Set when no more questions may start; None if failures do not stop the task."""

    def on_task_start(self, at: float, /) -> None:
        """Report the start of the task."""
        self._events.on_task_start(at)

    def on_event(self, event: Event, waited: Mapping[str, float] = NO_WAITS, /) -> None:
        """Ignore an event of a job that waits for its row."""

    def on_row(self, row: Row, at: float, /) -> Row:
        """Return the row to record; after the first failure of a task with `failFast`, stop the task."""
        found = question_of(row)
        if found is None or not found.events or found.events[-1].name != found.outcome:
            return self._events.on_row(row, at)  # no worker has finished it
        if self._stop is not None and found.outcome in FATAL and not self._stop.is_set():
            self._events.failed_fast = row.index
            self._stop.set()
        return self._events.adopt(row, at)

    def on_rows_not_run(self, rows: RowsNotRun, /) -> None:
        """Count questions that were never started."""
        self._events.on_rows_not_run(rows)

    def on_durable_row(self, row: Row, /) -> None:
        """Report the last event of a question whose row is stored."""
        self._events.on_durable_row(row)

    def on_kept_row(self, record: Mapping[str, Any], /) -> None:
        """Count a question that is not run again."""
        self._events.on_kept_row(record)

    def on_task_end(self, at: float, /) -> None:
        """Report the end of the task."""
        self._events.on_task_end(at)
