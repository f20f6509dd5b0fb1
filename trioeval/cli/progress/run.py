# Separate from `cli.run.execution`: together they exceed 600 lines.
"""The views and counters of a run in progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import attrs
import trio

from trioeval.agent import is_agent
from trioeval.cli.progress.progress import RunProgress
from trioeval.cli.run.results import Collector
from trioeval.cli.terminal import say
from trioeval.columns import is_columns
from trioeval.columns.lanes import OWN_LANES
from trioeval.evaluation.journal import ReusedRows
from trioeval.kernel import Event, Lanes
from trioeval.report.activity import Activity, RowPace, all_left_s
from trioeval.report.records import RowRecord
from trioeval.report.run_state import LaneState, RunSnapshot, lane_states
from trioeval.run import PreparedSuite, PreparedTask, Row, Status

if TYPE_CHECKING:
    from trioeval.agent.protocols import AgentEvent
    from trioeval.cli.progress.tasks import TaskProgress
    from trioeval.columns.events import DatasetEvent
    from trioeval.question_eval.answer import QuestionEvent
    from trioeval.report.run_metrics import RunMetrics

# The state of a run, computed from its rows and lanes on demand.


@attrs.define(eq=False, repr=False, kw_only=True)
class RunStateSource:
    """The data of the state of a run. `add` gets each row as soon as it ends."""

    total: int
    """Rows of the run, as far as they are known."""
    lanes: Lanes
    activity: Activity
    kept: Callable[[], int]
    """Rows of earlier executions whose turn has not come."""
    stopping: Callable[[], bool]
    """True if no more rows are started."""
    counts: Counter[Status] = attrs.field(factory=Counter)
    _paces: dict[str, RowPace] = attrs.field(factory=dict)
    """The progress of rows by lane."""

    def expect(self, rows: Mapping[str, int]) -> None:
        """Add rows that will be run, by lane."""
        for lane, count in rows.items():
            self._pace(lane).expected += count

    def add(self, status: Status, lane: str) -> None:
        """Count a finished row of a lane."""
        self.counts[status] += 1
        self._pace(lane).add(trio.current_time())

    def add_kept(self, status: Status) -> None:
        """Count a row of an earlier execution, when its turn comes."""
        self.counts[status] += 1

    def state(self) -> RunSnapshot:
        """Return the present state. Inside of `trio.run`; not a checkpoint."""
        now = trio.current_time()
        kept, stopping = self.kept(), self.stopping()
        lanes = lane_states(
            self.lanes.statistics(), self.activity, now, hidden=OWN_LANES, paces=self._paces
        )
        return RunSnapshot(
            elapsed_s=now - self.activity.began_at,
            total=self.total,
            done=self.counts.total() + kept,
            kept=kept,
            passed=self.counts[Status.PASS],
            failed=self.counts[Status.FAIL],
            errors=self.counts[Status.ERROR],
            not_graded=self.counts[Status.NOT_GRADED],
            not_run=self.counts[Status.NOT_RUN],
            eta_s=None if stopping else self._eta_s(lanes, now),
            stopping=stopping,
            lanes=lanes,
        )

    def _eta_s(self, lanes: Sequence[LaneState], now: float) -> float | None:
        open_ones = [lane for lane in lanes if lane.done < lane.rows]
        if any(lane.mood == "paused" for lane in open_ones):
            return None
        found = all_left_s(self._paces.values(), now)
        # A lane may have to wait longer than the rate of its rows suggests.
        return found and max([found, *(lane.eta_s for lane in open_ones if lane.eta_s is not None)])

    def _pace(self, lane: str) -> RowPace:
        found = self._paces.get(lane)
        if found is None:
            found = self._paces[lane] = RowPace(self.activity.began_at)
        return found


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
    picture: RunStateSource = attrs.field(init=False)
    tasks: TaskProgress | None = attrs.field(init=False)
    """The progress of its tasks; None if all of them are of type `prompt_eval`."""

    @picture.default
    def _make_source(self) -> RunStateSource:
        return RunStateSource(
            total=self.prepared.size,
            lanes=self.lanes,
            activity=Activity(
                trio.current_time(),
                limit_of=partial(_limit, self.lanes),
                labels=self.prepared.lane_labels,
            ),
            kept=lambda: self.collector.kept_left,
            stopping=self.stopping,
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
            self.metrics.lanes = self.lanes.statistics
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
        self.picture.expect(_rows_of_lanes(part.prepared, kept))
        if self.tasks is not None and is_agent(part.prepared.suite.settings):
            self.tasks.expect(part.id, part.rows - len(kept))


def _rows_of_lanes(prepared: PreparedSuite, kept: ReusedRows) -> Mapping[str, int]:
    """Return the number of rows of each lane, without those of earlier executions."""
    steps, lanes = prepared.steps, prepared.lane_names
    used = {lanes[place] for place in steps.used_providers}
    if len(used) == 1:  # true for most suites; to look at each step takes some microseconds
        return {used.pop(): len(steps) - len(kept)}
    return Counter(lanes[step.provider_index] for step in steps if step.index not in kept)


def _limit(lanes: Lanes, name: str) -> int | None:
    """Return the present limit of a lane; None for a lane that is not one of the run's."""
    lane = lanes.by_name.get(name)
    return None if lane is None else lane.statistics().limit


def _row_counts(prepared: PreparedSuite) -> Mapping[str | None, int | None]:
    """Return the number of rows of each dataset, as far as the suite sets it."""
    parts = {part.id: part.prepared.suite.settings for part in prepared.parts}
    return {task: own.rows for task, own in parts.items() if is_columns(own)}
