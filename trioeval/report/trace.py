"""What lanes and calls did, and when, as records of the trace event format that Perfetto and Chrome read.

A run is a process. A lane is some tracks of it, which viewers call threads: one for each slot, because calls
overlap and the slices of a track must not; and one for what the lane waits for, on which refusals stand as
well. How many calls are in flight, and how many may be, are counters. A job is an asynchronous slice from its
admission to its outcome.

Each record is a line of its own, and every line can be the last one: a viewer takes the list as it is when
a run was killed. So a call is two records, at its start and at its end, and is seen also if it never ended.
Nothing is remembered but what is under way.

Waits are those of `trioeval.report.activity`, where it is said what counts as one. The sums of both are the
same: test_trace.py.
"""

import heapq
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs

from trioeval.errors import CallError, ProviderError
from trioeval.inert import inert
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
    Why,
)
from trioeval.report.activity import counts

Which: TypeAlias = tuple[str | None, int]
"""A job: the id of its task, and its index there."""

RowOf: TypeAlias = Callable[[int], int | str | None]
"""Gives the index of the row that a job is for; of a job that is for none its name, or None."""

_NAME = 120  # characters of a name
_PROCESS = 1
_MOST_SLOTS = 1_000_000  # tracks of a lane stand together


def _no_row(_job: int) -> None:
    """Nothing is known of rows."""


@attrs.define
class _LaneTracks:
    """The tracks of one lane, and what is under way on them."""

    name: str
    """As it stands in JSON text."""
    rank: int
    """Among the lanes, from 0."""
    waits: int
    """The track of its waits."""
    limit: int | None = None
    """How many calls it allows, once that was told."""
    in_flight: int = 0
    free: list[tuple[int, int]] = attrs.field(factory=list)
    """Slots that no call is in, as number and track; the lowest first."""
    slots: int = 0
    calls: dict[Which, list[tuple[int, int]]] = attrs.field(factory=dict)
    """The slots in which calls of a job are, the earliest first."""
    wait: Waiting | None = None
    waits_for: str | None = None
    """The job that waits, as it stands in JSON text; None if it is not started."""


@attrs.define
class _OpenJob:
    """A job that was admitted and has no outcome."""

    id: int
    name: str
    """As it stands in JSON text."""


@attrs.define
class Trace:
    """Turns events into records, each with its separator in front of it; writes nothing by itself.

    What `records` gives belongs behind `head` and before `tail`.

    Example:
        >>> from trioeval.kernel import CallEnded, CallStarted
        >>> trace = Trace(began_at=0.0, run_id="eval-1")
        >>> text = trace.head()
        >>> text += trace.records(None, CallStarted(1.0, 7, "model"))
        >>> text += trace.records(None, CallEnded(1.5, 7, "model", tokens=20))
        >>> calls = [one for one in json.loads(text + trace.tail(2.0)) if one["ph"] in "BE"]
        >>> calls[0]["name"], calls[0]["ts"], calls[1]["ts"], calls[1]["args"]
        ('job 7', 1000000.0, 1500000.0, {'tokens': 20, 'cost': 0.0})
    """

    began_at: float
    """When the run began, on the Trio clock: the zero of the trace."""
    run_id: str
    limits: Mapping[str, int] = attrs.field(factory=dict)
    """How many calls each lane allows at first, by its name."""
    name_of: Callable[[str | None, int], str | None] = lambda _task, _row: None
    """What a row is called besides its number, by its task and index; None if nothing."""
    hide: Callable[[str], str] = str
    """Takes keys out of a text."""
    _lanes: dict[str, _LaneTracks] = attrs.field(init=False, factory=dict)
    _jobs: dict[Which, _OpenJob] = attrs.field(init=False, factory=dict)
    _tracks: int = attrs.field(init=False, default=0)
    _admissions: int = attrs.field(init=False, default=0)
    _lines: list[str] = attrs.field(init=False, factory=list)
    """Those of the event that is looked at."""

    def head(self) -> str:
        """What the file begins with."""
        name = f"trioeval {self._escaped(self.run_id)}"
        about = f'"name":"process_name","args":{{"name":"{name}"}}'
        return f'[\n{{"ph":"M","pid":{_PROCESS},"tid":0,{about}}}'

    def records(self, task: str | None, event: Event, *, row_of: RowOf = _no_row) -> str:
        """What is to be written of an event; empty if nothing.

        Args:
            task: The id of the task whose jobs it is about; None where the suite has none.
            event: It.
            row_of: Which row a job of the task is for.
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
        """The end of all that is under way, and of the file."""
        for lane in self._lanes.values():
            self._end_wait(lane, now)
            for slot in (one for several in lane.calls.values() for one in several):
                self._add("E", now, slot[1], args='"cut":true')
        for which in tuple(self._jobs):
            self._end_job(which, now, "cut")
        return self._taken() + "\n]\n"

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
        self._jobs[which] = _OpenJob(self._admissions, name)
        on = "" if lane is None else f',"lane":"{lane.name}"'
        self._add_job("b", self._admissions, event.at, f'"job":"{name}"{on}')

    def _finished(self, task: str | None, event: Finished) -> None:
        # Nothing of one that never started.
        self._end_job((task, event.outcome.index), event.at, type(event.outcome).__name__)

    def _job(self, task: str | None, index: int) -> str:
        """What a job that is under way is called."""
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
        if slots is None:  # it began before anybody looked
            return
        # Of several calls of one job on one lane nobody can say which this is: the earliest.
        slot = slots.pop(0)
        if not slots:
            del lane.calls[which]
        heapq.heappush(lane.free, slot)
        lane.in_flight -= 1
        has_slot = lane.limit is None or lane.in_flight < lane.limit
        if lane.wait is not None and lane.wait.why is Why.SLOT and has_slot:
            self._end_wait(lane, at)  # who waits has it, or is told of another obstacle
        told = []
        if event.is_told:
            told.append(f'"tokens":{event.tokens},"cost":{_number(event.money)}')
        if event.error is not None:
            told.append(f'"error":"{self._escaped(error_kind(event.error))}"')
        self._add("E", at, slot[1], args=",".join(told))
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
        asked = f'"job":"{job}","retry after":{_number(event.retry_after)}'
        self._add("i", event.at, lane.waits, "429", asked, ',"s":"t"')

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
        # Nobody tells when who waits goes away; the obstacle is over then at the latest.
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
                shown += f" ({rank + 1})"  # counters of one name are one to a viewer
            waits = self._track(f"{shown}: waits", rank, 0)
            found = self._lanes[name] = _LaneTracks(shown, rank, waits)
            if name in self.limits:
                self._add("C", at, 0, f"{shown}: limit", f'"calls":{self.limits[name]}')
        return found

    def _track(self, name: str, rank: int, place: int) -> int:
        """A new track, which stands with those of its lane."""
        self._tracks += 1
        where = f'"pid":{_PROCESS},"tid":{self._tracks}'
        named = f'"name":"thread_name","args":{{"name":"{name}"}}'
        order = rank * _MOST_SLOTS + place
        sorted_as = f'"name":"thread_sort_index","args":{{"sort_index":{order}}}'
        self._lines += [f'{{"ph":"M",{where},{about}}}' for about in (named, sorted_as)]
        return self._tracks

    def _add(  # noqa: PLR0917 - a record has so many parts, and there may be a million
        self, kind: str, at: float, track: int, name: str = "", args: str = "", more: str = ""
    ) -> None:
        """A record; texts are JSON text already."""
        called = f',"name":"{name}"' if name else ""
        told = f',"args":{{{args}}}' if args else ""
        stamp = (at - self.began_at) * 1e6
        self._lines.append(
            f'{{"ph":"{kind}","pid":{_PROCESS},"tid":{track},"ts":{stamp:.3f}{called}{told}{more}}}'
        )

    def _add_job(self, kind: str, number: int, at: float, args: str) -> None:
        # One name for all: viewers lay those of one name together, and give each other one a track.
        self._add(kind, at, 0, "job", args, f',"cat":"job","id":{number}')

    def _taken(self) -> str:
        if not self._lines:
            return ""
        text = ",\n" + ",\n".join(self._lines)
        self._lines.clear()
        return text

    def _escaped(self, text: str) -> str:
        """A text as it stands between the quotes of JSON, on one line and without odd characters."""
        # Perfetto takes the quote behind an escaped backslash for one of the text, and opens no such file.
        return json.dumps(inert(self.hide(text), _NAME))[1:-1].replace(r"\\", r"\u005c")


def error_kind(error: Exception) -> str:
    """In a word how a call failed; nothing of what was said in it."""
    if isinstance(error, ProviderError):
        return error.kind
    return error.fault.value if isinstance(error, CallError) else type(error).__name__


def _number(value: float | None) -> str:
    """As JSON, which has no infinities."""
    return "null" if value is None or not math.isfinite(value) else repr(value)


_TAKES: Mapping[type, Callable[[Trace, str | None, Any], None]] = {
    Finished: Trace._finished,  # noqa: SLF001 - its own
    Salvaged: Trace._salvaged,  # noqa: SLF001
    CallStarted: Trace._started,  # noqa: SLF001
    CallEnded: Trace._ended,  # noqa: SLF001
    Waiting: Trace._waiting,  # noqa: SLF001
    Throttled: Trace._throttled,  # noqa: SLF001
    LimitChanged: Trace._limited,  # noqa: SLF001
    LaneClosed: Trace._closed,  # noqa: SLF001
}
