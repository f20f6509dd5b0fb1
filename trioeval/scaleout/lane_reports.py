# Separate from `scaleout.worker`: together they exceed 600 lines.
"""The reports of a worker on its lanes and rows: snapshots a few times a second, and events if asked for.

A message for each event would cost the coordinator more than most rows. So the worker counts, as the
progress of a run on one machine does, and sends its counts. Events themselves are sent only to traces and
telemetry, which need each of them.
"""

from collections import Counter
from collections.abc import Callable

import attrs
import trio

from trioeval.errors import CallError, ProviderError
from trioeval.evaluation.journal import RecordObserver
from trioeval.evaluation.row import Row
from trioeval.evaluation.task_run import RowOf
from trioeval.kernel import Done, Failed, Lanes, Observer
from trioeval.kernel.events import (
    Admitted,
    CallEnded,
    CallStarted,
    Event,
    Finished,
    LaneClosed,
    LimitChanged,
    Throttled,
    Waiting,
)
from trioeval.report.activity import Activity
from trioeval.report.run_state import LaneState, lane_states
from trioeval.report.worker_lanes import LaneReport, WorkerReport
from trioeval.scaleout.messages import Message, WorkerEvent

_EVERY = 0.25
"""Seconds between two reports, at least."""
_AT_LEAST_EVERY = 2.0
"""Seconds after which a report is sent although nothing has happened, because earlier ones may be lost."""
_SENT = (
    Admitted,
    Waiting,
    CallStarted,
    CallEnded,
    Throttled,
    LimitChanged,
    LaneClosed,
    Finished,
)
"""The events that are sent if asked for."""


@attrs.define(eq=False, repr=False, kw_only=True)
class LaneReporter(RecordObserver):
    """An observer of all rows of a worker, which reports its lanes. Created inside of `trio.run`."""

    worker: str
    """The address of the worker."""
    name: str
    """Its name for people."""
    session: str
    lanes: Lanes
    send: Callable[[Message], None]
    _activity: Activity = attrs.field(init=False)
    _most: Counter[str] = attrs.field(init=False, factory=Counter)
    """The most calls in flight since the last report, by lane."""
    _rows: int = attrs.field(init=False, default=0)
    _expected: int = attrs.field(init=False, default=0)
    """Rows that were sent to this worker."""
    _changed: trio.Event = attrs.field(init=False, factory=trio.Event)

    @_activity.default
    def _make_activity(self) -> Activity:
        return Activity(trio.current_time(), self._limit)

    def expect(self, rows: int) -> None:
        """Count rows that were sent to this worker."""
        self._expected += rows

    def shard_ended(self, *, is_idle: bool) -> None:
        """Send a report after the end of a shard.

        Args:
            is_idle: Whether it was the last one: rows that it did not finish are not expected any more.
        """
        if is_idle:
            self._expected = 0
        self.report()

    def observe(self, event: Event) -> None:
        """Count an event of the kernel."""
        self._activity.observe(event)
        if isinstance(event, CallStarted):
            lane = event.lane
            in_flight = self._activity.lane(lane).in_flight
            self._most[lane] = max(self._most[lane], in_flight)
            self._changed.set()
        elif isinstance(event, CallEnded | Waiting):
            self._changed.set()

    def on_row(self, row: Row, /) -> None:
        """Count a row. With the last one a report is sent, since the run may end with it."""
        self._rows += row.cut is None
        self._expected -= 1
        if self._expected <= 0:
            self.report()

    def observer(self, task: str | None, row_of: RowOf) -> Observer:
        """Return the observer that sends the events of a task."""

        def observe(event: Event) -> None:
            if isinstance(event, _SENT):
                self.send(self._sendable(task, row_of, event))

        return observe

    def report(self) -> None:
        """Send a report now."""
        self._changed = trio.Event()
        now = trio.current_time()
        states = lane_states(self.lanes.statistics(), self._activity, now)
        self.send(
            WorkerReport(
                worker=self.worker,
                name=self.name,
                session=self.session,
                at=now,
                rows=self._rows,
                lanes={one.name: self._lane(one, now) for one in states if _is_used(one)},
            )
        )
        self._most.clear()

    async def report_continuously(self) -> None:
        """Send a report soon after each change, until cancelled."""
        while True:
            with trio.move_on_after(_AT_LEAST_EVERY):
                await self._changed.wait()
            self.report()
            await trio.sleep(_EVERY)

    def _lane(self, state: LaneState, now: float) -> LaneReport:
        name = state.name
        statistics, activity = self.lanes[name].statistics(), self._activity.lane(name)
        return LaneReport(
            state=state,
            statistics=statistics,
            counts=activity.counts(now),
            unfailed=activity.calls - activity.in_flight - activity.failed,
            most_in_flight=max(self._most[name], statistics.in_flight),
        )

    def _limit(self, lane: str) -> int | None:
        found = self.lanes.by_name.get(lane)
        return None if found is None else found.statistics().limit

    def _sendable(self, task: str | None, row_of: RowOf, event: Event) -> WorkerEvent:
        match event:
            case Finished():
                outcome = attrs.evolve(event.outcome, index=_row(event.outcome.index, row_of))
                # Values may be large, and exceptions of user code may not be picklable.
                if isinstance(outcome, Done):
                    outcome = attrs.evolve(outcome, value=None)
                elif isinstance(outcome, Failed):
                    outcome = attrs.evolve(outcome, error=_plain(outcome.error))
                event = attrs.evolve(event, outcome=outcome)
            case CallEnded():
                error = None if event.error is None else _plain(event.error)
                event = attrs.evolve(event, index=_row(event.index, row_of), error=error)
            case Admitted() | CallStarted() | Throttled():
                event = attrs.evolve(event, index=_row(event.index, row_of))
            case Waiting():
                row = None if event.index is None else _row(event.index, row_of)
                event = attrs.evolve(event, index=row)
            case _:
                pass
        return WorkerEvent(self.worker, task, event)


def _row(job: int, row_of: RowOf) -> int:
    """Return the row of a job, in place of its index, which is unique only within a shard."""
    row = row_of(job)
    return row if isinstance(row, int) else -1 - job


def _is_used(lane: LaneState) -> bool:
    return bool(lane.calls or lane.in_flight or lane.queued or lane.reason is not None)


def _plain(error: Exception) -> Exception:
    """Return an exception of the same kind that can be sent, without its message."""
    if isinstance(error, ProviderError):
        return ProviderError(error.kind, "")
    return CallError(error.fault, "") if isinstance(error, CallError) else RuntimeError()
