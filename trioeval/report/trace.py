"""The calls and waits of lanes over time, as records of the trace event format of Perfetto and Chrome.

A run is a process, and so is each worker of a run on several machines. A lane has several tracks, which
viewers call threads: one for each slot, because calls overlap and slices of a track must not; and one for its
waits, which also shows refusals. The calls in flight and the limit are counters. A job is an asynchronous
slice from its admission to its outcome.

Each record is a line, and any line may be the last one: viewers accept the list of a killed run as it is.
Therefore a call is two records, at its start and its end, and is visible even if it never ended. Only the
calls and jobs in progress are held in memory.

Waits are defined in `trioeval.report.activity`. The sums of both are the same: test_trace.py.
"""

import heapq
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from trioeval.errors import CallError, ProviderError
from trioeval.kernel.events import (
    Admitted,
    CallEnded,
    CallStarted,
    Event,
    Finished,
    LaneClosed,
    LimitChanged,
    Salvaged,
    Throttled,
    Waiting,
    WaitReason,
)
from trioeval.report.activity import counts
from trioeval.text_safety import escape_control_characters

Which: TypeAlias = tuple[str | None, int]
"""A job: the id of its task, and its index there."""

RowOf: TypeAlias = Callable[[int], int | str | None]
"""Returns the index of the row of a job; for a job without a row its name, or None."""

_NAME = 120  # characters of a name
_MOST_SLOTS = 1_000_000  # tracks of a lane are numbered consecutively


def _no_row(_job: int) -> None:
    """Returns None: rows are unknown."""


@attrs.define
class _LaneTracks:
    """The tracks of one lane, and its calls in flight."""

    name: str
    """The name as JSON text."""
    rank: int
    """The number among the lanes, from 0."""
    waits: int
    """The track of its waits."""
    limit: int | None = None
    """The limit of calls in flight, once it is known."""
    in_flight: int = 0
    free: list[tuple[int, int]] = attrs.field(factory=list)
    """Free slots, as number and track; the lowest first."""
    slots: int = 0
    calls: dict[Which, list[tuple[int, int]]] = attrs.field(factory=dict)
    """The slots of the calls of each job, the earliest first."""
    wait: Waiting | None = None
    waits_for: str | None = None
    """The waiting job as JSON text; None if it is not started."""


@attrs.define
class _OpenJob:
    """An admitted job without an outcome."""

    id: str
    """The id as JSON text, unique in the file."""
    name: str
    """The name as JSON text."""


@attrs.define
class TraceRecords:
    """A converter of events to records, each preceded by its separator; it writes nothing itself.

    The results of `records` belong between `head` and `tail`.

    Example:
        >>> from trioeval.kernel import CallEnded, CallStarted
        >>> trace = TraceRecords(began_at=0.0, run_id="eval-1")
        >>> text = trace.head()
        >>> text += trace.records(None, CallStarted(1.0, 7, "model"))
        >>> text += trace.records(None, CallEnded(1.5, 7, "model", tokens=20))
        >>> calls = [one for one in json.loads(text + trace.tail(2.0)) if one["ph"] in "BE"]
        >>> calls[0]["name"], calls[0]["ts"], calls[1]["ts"], calls[1]["args"]
        ('job 7', 1000000.0, 1500000.0, {'tokens': 20, 'cost': 0.0})
    """

    began_at: float
    """The start of the run, on the Trio clock: the zero of the trace."""
    run_id: str
    limits: Mapping[str, int] = attrs.field(factory=dict)
    """The initial limit of each lane, by name."""
    name_of: Callable[[str | None, int], str | None] = lambda _task, _row: None
    """Returns the name of a row by task and index; None without a name."""
    hide: Callable[[str], str] = str
    """Removes keys from a text."""
    process: int = 1
    """The number of the process in the file; others than the first are workers."""
    _lanes: dict[str, _LaneTracks] = attrs.field(init=False, factory=dict)
    _jobs: dict[Which, _OpenJob] = attrs.field(init=False, factory=dict)
    _tracks: int = attrs.field(init=False, default=0)
    _admissions: int = attrs.field(init=False, default=0)
    _lines: list[str] = attrs.field(init=False, factory=list)
    """The rows of the task of the current event."""

    def head(self) -> str:
        """Return the beginning of the file."""
        return "[\n" + self._process_name(self.process, f"trioeval {self._escaped(self.run_id)}")

    def worker(self, process: int, name: str) -> tuple["TraceRecords", str]:
        """Return the maker of records of a worker, and the record of its name.

        Args:
            process: The number of the worker, > 1.
            name: Its name.
        """
        about = self._process_name(process, f"worker {self._escaped(name)}")
        return attrs.evolve(self, process=process), ",\n" + about

    def records(self, task: str | None, event: Event, *, row_of: RowOf = _no_row) -> str:
        """Return the records of an event; empty if there are none.

        Args:
            task: The id of the task; None if the suite has only one.
            event: The event.
            row_of: Returns the row of a job of the task.
        """
        if type(event) is Admitted:
            self._admitted(task, event, row_of(event.index))
            return self._taken()
        take = _TAKES.get(type(event))
        if take is None:
            return ""
        take(self, task, event)
        return self._taken()

    def tail(self, now: float) -> str:
        """Return the end of everything in progress, and of the file."""
        return self.end(now) + "\n]\n"

    def end(self, now: float) -> str:
        """Return the end of everything in progress."""
        for lane in self._lanes.values():
            self._end_wait(lane, now)
            for slot in (one for several in lane.calls.values() for one in several):
                self._add("E", now, slot[1], args='"cut":true')
        for which in tuple(self._jobs):
            self._end_job(which, now, "cut")
        return self._taken()

    @staticmethod
    def _process_name(process: int, name: str) -> str:
        about = f'"name":"process_name","args":{{"name":"{name}"}}'
        return f'{{"ph":"M","pid":{process},"tid":0,{about}}}'

    def _admitted(self, task: str | None, event: Admitted, row: int | str | None) -> None:
        which, lane = (task, event.index), None
        if event.lane is not None:
            lane = self._lane(event.lane, event.at)
            if lane.wait is not None and lane.wait.index is None:
                self._end_wait(lane, event.at)
        self._end_job(which, event.at, "set aside")
        self._admissions += 1
        number = f"job {event.index}" if row is None else f"{row}"
        words = (task, number, self.name_of(task, row) if isinstance(row, int) else None)
        name = self._escaped(" ".join(word for word in words if word))
        job_id = f"{self._admissions}"
        if self.process != 1:  # ids of all processes share one space
            job_id = f'"{self.process}.{job_id}"'
        self._jobs[which] = _OpenJob(job_id, name)
        on = "" if lane is None else f',"lane":"{lane.name}"'
        self._add_job("b", job_id, event.at, f'"job":"{name}"{on}')

    def _finished(self, task: str | None, event: Finished) -> None:
        # A job that never started has no slice.
        self._end_job((task, event.outcome.index), event.at, type(event.outcome).__name__)

    def _job(self, task: str | None, index: int) -> str:
        """Return the name of a job in progress."""
        job = self._jobs.get((task, index))
        return f"job {index}" if job is None else job.name

    def _salvaged(self, _task: str | None, event: Salvaged) -> None:
        self._add("i", event.at, 0, "salvage", f'"jobs":{len(event.indices)}', ',"s":"p"')

    def _started(self, task: str | None, event: CallStarted) -> None:
        at, which = event.at, (task, event.index)
        lane = self._lane(event.lane, at)
        self._end_wait(lane, at)
        if lane.free:
            slot = heapq.heappop(lane.free)
        else:
            lane.slots += 1
            slot = (lane.slots, self._track(f"{lane.name} {lane.slots}", lane.rank, lane.slots))
        lane.calls.setdefault(which, []).append(slot)
        lane.in_flight += 1
        self._add("B", at, slot[1], self._job(task, event.index))
        self._count(lane, at)

    def _ended(self, task: str | None, event: CallEnded) -> None:
        at, which = event.at, (task, event.index)
        lane = self._lane(event.lane, at)
        slots = lane.calls.get(which)
        if slots is None:  # it started before the observer was added
            return
        # Several calls of one job on one lane cannot be distinguished: take the earliest.
        slot = slots.pop(0)
        if not slots:
            del lane.calls[which]
        heapq.heappush(lane.free, slot)
        lane.in_flight -= 1
        has_slot = lane.limit is None or lane.in_flight < lane.limit
        if lane.wait is not None and lane.wait.why is WaitReason.SLOT and has_slot:
            self._end_wait(
                lane, at
            )  # the call has its slot, or a new event reports the next obstacle
        details = []
        if event.is_reported:
            details.append(f'"tokens":{event.tokens},"cost":{_number(event.money)}')
        if event.error is not None:
            details.append(f'"error":"{self._escaped(error_kind(event.error))}"')
        self._add("E", at, slot[1], args=",".join(details))
        self._count(lane, at)

    def _waiting(self, task: str | None, event: Waiting) -> None:
        if event.lane is None:
            return
        lane = self._lane(event.lane, event.at)
        if not counts(event, lane.wait, lane.in_flight):
            return
        self._end_wait(lane, event.at)
        lane.wait = event
        lane.waits_for = None if event.index is None else self._job(task, event.index)

    def _throttled(self, task: str | None, event: Throttled) -> None:
        lane = self._lane(event.lane, event.at)
        job = self._job(task, event.index)
        details = f'"job":"{job}","retry after":{_number(event.retry_after)}'
        self._add("i", event.at, lane.waits, "429", details, ',"s":"t"')

    def _limited(self, _task: str | None, event: LimitChanged) -> None:
        lane = self._lane(event.lane, event.at)
        lane.limit = event.limit
        self._add("C", event.at, 0, f"{lane.name}: limit", f'"calls":{event.limit}')

    def _closed(self, _task: str | None, event: LaneClosed) -> None:
        lane = self._lane(event.lane, event.at)
        self._end_wait(lane, event.at)
        reason = f'"reason":"{self._escaped(event.reason)}"'
        self._add("i", event.at, lane.waits, f"{lane.name} is closed", reason, ',"s":"p"')

    def _end_wait(self, lane: _LaneTracks, at: float) -> None:
        wait, lane.wait = lane.wait, None
        if wait is None:
            return
        # No event reports that a waiting call was dropped; its wait ends at the latest with the obstacle.
        at = at if wait.until is None else min(at, wait.until)
        if at <= wait.at:
            return
        job = "" if lane.waits_for is None else f'"job":"{lane.waits_for}"'
        lasted = f',"dur":{(at - wait.at) * 1e6:.3f}'
        self._add("X", wait.at, lane.waits, wait.why.value, job, lasted)

    def _end_job(self, which: Which, at: float, outcome: str) -> None:
        job = self._jobs.pop(which, None) if self._jobs else None
        if job is not None:
            self._add_job("e", job.id, at, f'"outcome":"{outcome}"')

    def _count(self, lane: _LaneTracks, at: float) -> None:
        self._add("C", at, 0, f"{lane.name}: in flight", f'"calls":{lane.in_flight}')

    def _lane(self, name: str, at: float) -> _LaneTracks:
        found = self._lanes.get(name)
        if found is None:
            rank, shown = len(self._lanes), self._escaped(name)
            if any(lane.name == shown for lane in self._lanes.values()):
                shown += f" ({rank + 1})"  # viewers merge counters of one name
            waits = self._track(f"{shown}: waits", rank, 0)
            found = self._lanes[name] = _LaneTracks(shown, rank, waits)
            if name in self.limits:
                self._add("C", at, 0, f"{shown}: limit", f'"calls":{self.limits[name]}')
        return found

    def _track(self, name: str, rank: int, place: int) -> int:
        """Return a new track next to those of its lane."""
        self._tracks += 1
        where = f'"pid":{self.process},"tid":{self._tracks}'
        named = f'"name":"thread_name","args":{{"name":"{name}"}}'
        order = rank * _MOST_SLOTS + place
        sorted_as = f'"name":"thread_sort_index","args":{{"sort_index":{order}}}'
        self._lines += [f'{{"ph":"M",{where},{about}}}' for about in (named, sorted_as)]
        return self._tracks

    def _add(  # noqa: PLR0917 - a record has so many parts, and there may be a million
        self, kind: str, at: float, track: int, name: str = "", args: str = "", more: str = ""
    ) -> None:
        """Return a record; texts are JSON text already."""
        called = f',"name":"{name}"' if name else ""
        details = f',"args":{{{args}}}' if args else ""
        stamp = (at - self.began_at) * 1e6
        self._lines.append(
            f'{{"ph":"{kind}","pid":{self.process},"tid":{track},"ts":{stamp:.3f}{called}{details}{more}}}'
        )

    def _add_job(self, kind: str, job_id: str, at: float, args: str) -> None:
        # One name for all: viewers group slices of one name, and give each other name a track.
        self._add(kind, at, 0, "job", args, f',"cat":"job","id":{job_id}')

    def _taken(self) -> str:
        if not self._lines:
            return ""
        text = ",\n" + ",\n".join(self._lines)
        self._lines.clear()
        return text

    def _escaped(self, text: str) -> str:
        """Return a text as written between JSON quotes, on one line and without unusual characters."""
        # Perfetto misreads a quote behind an escaped backslash, and refuses such a file.
        return json.dumps(escape_control_characters(self.hide(text), _NAME))[1:-1].replace(
            r"\\", r"\u005c"
        )


def error_kind(error: Exception) -> str:
    """Return the kind of the failure of a call, without any message."""
    if isinstance(error, ProviderError):
        return error.kind
    return error.fault.value if isinstance(error, CallError) else type(error).__name__


def _number(value: float | None) -> str:
    """Return a number as JSON, which has no infinities."""
    return "null" if value is None or not math.isfinite(value) else repr(value)


_TAKES: Mapping[type, Callable[[TraceRecords, str | None, Any], None]] = {
    Finished: TraceRecords._finished,  # noqa: SLF001 - its own
    Salvaged: TraceRecords._salvaged,  # noqa: SLF001
    CallStarted: TraceRecords._started,  # noqa: SLF001
    CallEnded: TraceRecords._ended,  # noqa: SLF001
    Waiting: TraceRecords._waiting,  # noqa: SLF001
    Throttled: TraceRecords._throttled,  # noqa: SLF001
    LimitChanged: TraceRecords._limited,  # noqa: SLF001
    LaneClosed: TraceRecords._closed,  # noqa: SLF001
}
