"""What all tasks of questions of a run have in common: who is told, the numbers of events, how they ended.

The whole run begins before its first task and ends after the last, so `run_start` is the first event of all
and `run_end` the last, with the numbers of all tasks together. A run without questions has neither.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.tasks.question_events import NO_DETAILS, Numbers, QuestionEvents, QuestionObserver
from trioeval.tasks.question_result import QuestionEvent
from trioeval.tasks.question_status import TaskCounts


@attrs.define(eq=False)
class QuestionRun:
    """The tasks of questions of one run."""

    tell: QuestionObserver | None
    """Told of what becomes of questions; never raises."""
    has_questions: bool = True
    """Whether a task of the run is one of questions, known yet or not."""
    _numbers: Numbers = attrs.field(init=False, factory=Numbers)
    _tasks: list[QuestionEvents] = attrs.field(init=False, factory=list)

    def task(self, name: str | None, rows: Sequence[int]) -> QuestionEvents:
        """What follows a task of the run.

        Args:
            name: Its id; None where it is all of the suite.
            rows: The indices of its rows.
        """
        found = QuestionEvents(name, self.tell, rows, self._numbers)
        self._tasks.append(found)
        return found

    def begin(self, at: float) -> None:
        """The run begins, at an instant of the Trio clock."""
        self._tell(at, "run_start")

    def end(self, at: float) -> None:
        """All tasks are over."""
        self._tell(at, "run_end", TaskCounts([task.counts for task in self._tasks]).facts())

    def _tell(self, at: float, name: str, details: Mapping[str, Any] = NO_DETAILS) -> None:
        if not self.has_questions or self.tell is None:
            return
        number = self._numbers.take()
        self.tell(
            QuestionEvent(
                sequence=number,
                at=at,
                task=None,
                index=None,
                job=None,
                name=name,
                details=details,
            )
        )
