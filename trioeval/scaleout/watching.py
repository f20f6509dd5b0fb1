"""The views of a run on several machines: they get what its workers report, beside its coordinator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import trio

from trioeval.kernel.events import Event, Finished
from trioeval.report.worker_lanes import WorkerLanes, WorkerReport
from trioeval.scaleout.cluster import ClusterEvents
from trioeval.scaleout.messages import Message, RecordingLine, WorkerEvent

_SHOWN = frozenset({WorkerReport, WorkerEvent, RecordingLine})
"""The types of messages that concern only views."""


@attrs.define(eq=False, repr=False)
class WorkerClocks:
    """The differences between the clocks of workers and that of this process.

    Nothing arrives before it is sent, so the least difference is the nearest to the truth: it is too large by
    the time of the fastest message.
    """

    _offsets: dict[str, float] = attrs.field(init=False, factory=dict)

    def on_report(self, worker: str, sent_at: float, received_at: float) -> None:
        """Handle a report, which was sent at an instant of the clock of the worker."""
        offset = received_at - sent_at
        self._offsets[worker] = min(offset, self._offsets.get(worker, offset))

    def forget(self, worker: str) -> None:
        """Forget a worker: another process may get its address."""
        self._offsets.pop(worker, None)

    def own_instant(self, worker: str, at: float, now: float) -> float:
        """Return an instant of the own clock for one of a worker; at most the present."""
        offset = self._offsets.get(worker)
        return now if offset is None else min(now, at + offset)


@attrs.frozen(eq=False, repr=False, kw_only=True)
class WorkerViews:
    """The receivers of the reports of workers."""

    lanes: WorkerLanes | None = None
    on_event: Callable[[WorkerEvent], None] | None = None
    """Receives the events of lanes and rows, with instants of the clock of this process."""
    on_loss: Callable[[str], None] | None = None
    """Called with each lost worker."""
    record: Callable[[str], None] | None = None
    """Receives the lines of recorded calls."""


@attrs.define(eq=False, repr=False)
class WatchedCluster:
    """A receiver of the events of a cluster, which passes them on, except those that are only shown."""

    _events: ClusterEvents
    """The coordinator."""
    _views: WorkerViews
    _clocks: WorkerClocks = attrs.field(init=False, factory=WorkerClocks)
    _workers: set[str] = attrs.field(init=False, factory=set)

    def on_worker(self, worker: str) -> None:
        """Pass on a worker that can run shards."""
        self._workers.add(worker)
        self._events.on_worker(worker)

    def on_loss(self, worker: str) -> None:
        """Show the loss of a worker, and pass it on."""
        self._workers.discard(worker)
        self._clocks.forget(worker)
        if self._views.lanes is not None:
            self._views.lanes.on_loss(worker, trio.current_time())
        if self._views.on_loss is not None:
            self._views.on_loss(worker)
        self._events.on_loss(worker)

    def on_messages(self, messages: Sequence[Message]) -> None:
        """Show the messages that concern views, and pass on the others."""
        if _SHOWN.isdisjoint(map(type, messages)):
            self._events.on_messages(messages)
            return
        others: list[Message] = []
        for message in messages:
            match message:
                case WorkerReport():
                    self._report(message)
                case WorkerEvent():
                    self._show(message)
                case RecordingLine():
                    if self._views.record is not None:
                        self._views.record(message.text)
                case _:
                    others.append(message)
        if others:
            self._events.on_messages(others)

    def on_shard_end(self, number: int, error: Exception | None) -> None:
        """Pass on the end of a shard."""
        self._events.on_shard_end(number, error)

    def _report(self, report: WorkerReport) -> None:
        if report.worker in self._workers:  # else it is lost, and this report is late
            now = trio.current_time()
            self._clocks.on_report(report.worker, report.at, now)
            if self._views.lanes is not None:
                self._views.lanes.on_report(report, now)

    def _show(self, message: WorkerEvent) -> None:
        if self._views.on_event is None:
            return
        now, event = trio.current_time(), message.event
        at = self._clocks.own_instant(message.worker, event.at, now)
        self._views.on_event(attrs.evolve(message, event=moved(event, at - event.at)))


def moved(event: Event, seconds: float) -> Event:
    """Return an event with all of its instants moved.

    Example:
        >>> from trioeval.kernel import CallStarted
        >>> moved(CallStarted(2.0, 7, "a"), 0.5).at
        2.5
    """
    changes: dict[str, Any] = {"at": event.at + seconds}
    for name in ("until", "blocked_until"):
        found = getattr(event, name, None)
        if found is not None:
            changes[name] = found + seconds
    if isinstance(event, Finished):
        return Finished(event.at + seconds, event.outcome)
    return attrs.evolve(event, **changes)
