# Separate from `cli.run.execution`: together they exceed 600 lines.
"""The views and counters of a run in progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs
import trio

from trioeval.agent import is_agent
from trioeval.cli.progress.progress import RunProgress
from trioeval.cli.terminal import say
from trioeval.columns import is_columns
from trioeval.kernel import Event, Lanes
from trioeval.report.records import RowRecord
from trioeval.run import PreparedSuite, PreparedTask, Row
from trioeval.session.collector import Collector
from trioeval.session.progress import RunStateSource, rows_of_lanes

if TYPE_CHECKING:
    from trioeval.agent.protocols import AgentEvent
    from trioeval.cli.progress.tasks import TaskProgress
    from trioeval.columns.events import DatasetEvent
    from trioeval.question_eval.answer import QuestionEvent
    from trioeval.report.run_metrics import RunMetrics


@attrs.frozen(kw_only=True)
class RunViews:
    """The observers of a run that show or count its events."""

    prepared: PreparedSuite
    lanes: Lanes
    collector: Collector
    """The collector of rows, which has those of earlier executions and reports each new row."""
    metrics: RunMetrics | None
    progress: RunProgress
    """The progress on stderr."""
    verbose: bool
    """True if events are printed, a line each."""
    stopping: Callable[[], bool]
    """Returns whether no more rows are started."""
    warn: Callable[[str], None]
    """Called with warnings."""
    on_workers: bool = False
    """True if rows run on several machines."""
    picture: RunStateSource = attrs.field(init=False)
    tasks: TaskProgress | None = attrs.field(init=False)
    """The progress of its tasks; None if all of them are of type `prompt_eval`."""

    @picture.default
    def _make_source(self) -> RunStateSource:
        return RunStateSource.of(
            self.prepared,
            self.lanes,
            self.collector,
            self.stopping,
            trio.current_time(),
            on_workers=self.on_workers,
        )

    @tasks.default
    def _make_tasks(self) -> TaskProgress | None:
        if self.prepared.task_types <= {"prompt_eval"}:
            return None
        from trioeval.cli.progress.tasks import TaskProgress

        verbose_line = say if self.verbose else None
        began_at = self.picture.activity.began_at
        return TaskProgress(self.warn, _row_counts(self.prepared), verbose_line, began_at)

    def __attrs_post_init__(self) -> None:
        if self.metrics is not None:
            self.metrics.lanes = self.picture.statistics
            if self.picture.workers is not None:
                self.picture.workers.on_calls = self.metrics.add_calls
        for part in self.prepared.parts:
            self._expect(part)
        self.collector.watch = self._add

    def observe(self, event: Event) -> None:
        """Handle an event of the kernel."""
        self.picture.activity.observe(event)
        if self.metrics is not None:
            self.metrics.observe(event)

    def observe_agent(self, event: AgentEvent) -> None:
        """Handle an event of an agent."""
        if self.tasks is not None:
            self.tasks.observe(event)
        if self.metrics is not None:
            self.metrics.observe_agent(event)

    def observe_dataset(self, task: str | None, event: DatasetEvent) -> None:
        """Handle an event of a dataset."""
        if self.tasks is not None:
            self.tasks.observe(event, task)

    def dataset_ended(self, task: str | None) -> None:
        """Remove the line of a dataset that has ended."""
        if self.tasks is not None:
            self.tasks.ended(task)

    def observe_question(self, event: QuestionEvent) -> None:
        """Handle an event of a question."""
        if self.tasks is not None:
            self.tasks.observe(event)

    async def show(self) -> None:
        """Show the progress until cancelled, or until it cannot be shown."""
        await self.progress.show(
            self.picture.state, tuple if self.tasks is None else self.tasks.lines
        )

    def settled(self, task: PreparedTask) -> None:
        """Handle the tests of a task, which are known from now on."""
        self.collector.settled(task)
        self.picture.total += task.rows or 0
        self._expect(task)

    def row_is_over(self, row: Row) -> None:
        """Count a row, which may end before earlier ones."""
        self.picture.add(row.status, row.lane)

    def _add(self, record: RowRecord, is_kept: bool) -> None:  # noqa: FBT001 - as it is called
        if is_kept:
            self.picture.add_kept(record.status)
        self.progress.add(record)

    def _expect(self, part: PreparedTask) -> None:
        if part.rows is None:
            return
        kept = self.collector.run.reused_rows(part.id)
        self.picture.expect(rows_of_lanes(part.prepared, kept))
        if self.tasks is not None and is_agent(part.prepared.suite.settings):
            self.tasks.expect(part.id, part.rows - len(kept))


def _row_counts(prepared: PreparedSuite) -> Mapping[str | None, int | None]:
    """Return the number of rows of each dataset, as far as the suite sets it."""
    parts = {part.id: part.prepared.suite.settings for part in prepared.parts}
    return {task: own.rows for task, own in parts.items() if is_columns(own)}
