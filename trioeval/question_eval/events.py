"""The events of each question of a task, from the events of the kernel and the notes of the body.

    queued                       all questions first, in index order
    -> scheduled                 its job was started; contains how long it was the next one of its lane
    -> reserving                 it waits for admission by its lane and by shared limits
    -> (waiting_… -> reserving)* one event per reason, even if the reason is reported several times
    -> running                   a request is sent
    -> (tool_start, tool_finish)*
    -> reserving …               again for each step of the model, and each attempt
    -> parsing                   a reply without tool calls has arrived
    -> one of the seven outcomes, when its row is made; reported after the row is stored

`waiting_rate_limit`, `waiting_limit_decreasing` and `waiting_limiter_error` report which shared limit lacks
room; `waiting_rate_limit` also reports the rate and the back-off that a provider asked its lane for. All
other waits for a lane are `waiting_lane`, with `why`. An existing reply is parsed without a reservation. A
question that runs again in a final retry round is scheduled again.

The last event of a question is part of its stored row, so the row is stored before the event is reported.
Events of other questions during that moment are reported first: sequence numbers and instants state when
events happened, and the events of each question are reported in that order.

`task_start` and `task_end` (with its status and reason) enclose them and belong to no question; the events of
the run enclose all tasks.
"""

import bisect
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs

from trioeval.evaluation.row import Row, RowsNotRun
from trioeval.evaluation.waits import NO_WAITS
from trioeval.kernel import Admitted, CallStarted, Event, Waiting
from trioeval.kernel.events import Finished, Noted, Reserving, Throttled, WaitReason
from trioeval.question_eval import question_of
from trioeval.question_eval.answer import QuestionEvent, QuestionResult
from trioeval.question_eval.counts import QuestionCounts, TaskCounts

QuestionObserver: TypeAlias = Callable[[QuestionEvent], None]

NOTES = frozenset({"tool_start", "tool_finish", "parsing"})
"""Notes of a body that are events."""

NO_DETAILS: Mapping[str, Any] = MappingProxyType({})
"""The details of events without further facts."""

# A wait is named after its cause. A limit or a rate without room is `waiting_rate_limit`, and so is the rest
# of a call that was rate limited; any other wait for a lane is `waiting_lane`, with the kernel's word for it.
# A call in the queue waits for the same cause as the call at its front, so it is named like that one, with
# `why: turn`. The next question of a lane, which is not started yet, has no events: when it starts,
# `scheduled` contains the duration of that wait, and the limits that held up the queue.

_LANE, _RATE = "waiting_lane", "waiting_rate_limit"
_SHORT: Mapping[str, str] = {
    "rate_limit": _RATE,
    "limit_decreasing": "waiting_limit_decreasing",
    "limiter_error": "waiting_limiter_error",
}
_RATES = frozenset({WaitReason.PACE, WaitReason.DELAY, WaitReason.TOKENS, WaitReason.BLOCKED})
_BEHIND = frozenset({WaitReason.TURN, WaitReason.BACKOFF, WaitReason.GATE, WaitReason.WINDOW})
"""Reasons to wait that do not hold up the queue of a lane."""


@attrs.frozen
class _QuestionWait:
    """The current wait of one question."""

    name: str
    """The name of its event."""
    details: Mapping[str, Any]
    reason: Hashable
    """Another event is reported when it changes."""
    keys: tuple[str, ...] = ()
    """The limits without room."""


@attrs.define(eq=False, repr=False)
class _LaneQueue:
    """The queue of one lane. Jobs are those of the kernel; None is the next one, which is not started."""

    fronts: dict[int | None, _QuestionWait] = attrs.field(factory=dict)
    """The waits that hold it up, by job; the last one was reported last."""
    ahead: dict[str, None] | None = None
    """The limits that its next job has waited behind; None if that job does not wait for its turn."""

    @property
    def front(self) -> _QuestionWait | None:
        """The wait that was last reported to hold up the queue."""
        return self.fronts[next(reversed(self.fronts))] if self.fronts else None


@attrs.define(eq=False, repr=False)
class _QuestionHistory:
    """One running question."""

    events: list[QuestionEvent] = attrs.field(factory=list)
    waits_for: Hashable = None
    """The reason of its last event, during a wait."""

    @property
    def state(self) -> str:
        """The name of its last event."""
        return self.events[-1].name if self.events else "queued"


# The whole run starts before its first task and ends after the last, so `run_start` is the first event and
# `run_end` the last, with the totals of all tasks. A run without questions has neither.


@attrs.define(eq=False, repr=False)
class QuestionRun:
    """The tasks of questions of one run, the counter of their events, and the observer."""

    _observer: QuestionObserver | None
    """Called with each event as it happens, and with outcomes after they are stored; never raises."""
    _next: int = attrs.field(init=False, default=0)
    _tasks: "list[QuestionEvents]" = attrs.field(init=False, factory=list)

    def task(self, name: str | None, rows: Sequence[int]) -> "QuestionEvents":
        """Return the events of a task of the run.

        Args:
            name: Its id; None if the suite has no tasks.
            rows: The indices of its rows.
        """
        found = QuestionEvents(self, name, rows)
        self._tasks.append(found)
        return found

    def begin(self, at: float) -> None:
        """Report the start of the run, at an instant of the Trio clock."""
        self.notify(QuestionEvent(sequence=self.number(), at=at, name="run_start"))

    def end(self, at: float) -> None:
        """Report the end of the run, after all tasks."""
        facts = TaskCounts([task.counts for task in self._tasks]).facts()
        self.notify(QuestionEvent(sequence=self.number(), at=at, name="run_end", details=facts))

    def number(self, count: int = 1) -> int:
        """Return the number of the next event; with a count, the first of that many numbers."""
        self._next += count
        return self._next - count

    def notify(self, event: QuestionEvent) -> None:
        """Call the observer with an event."""
        if self._observer is not None:
            self._observer(event)

    @property
    def is_observed(self) -> bool:
        """True if there is an observer."""
        return self._observer is not None


@attrs.define(eq=False, repr=False)
class QuestionEvents:
    """The events of one task; stores those of questions that have not ended."""

    _run: QuestionRun
    task: str | None
    rows: Sequence[int]
    """The index of the row of each job, ascending: all rows, or only the remaining ones."""
    counts: QuestionCounts = attrs.field(init=False, factory=QuestionCounts)
    failed_fast: int | None = attrs.field(init=False, default=None)
    """The index of the row whose failure stopped the task, with `failFast`."""
    _first: int = attrs.field(init=False, default=0)
    """The number of the first `queued` event; the others follow."""
    _began_at: float = attrs.field(init=False, default=0.0)
    _histories: dict[int, _QuestionHistory] = attrs.field(init=False, factory=dict)
    """By index of the row."""
    _queues: defaultdict[str | None, _LaneQueue] = attrs.field(
        init=False, factory=lambda: defaultdict(_LaneQueue)
    )
    _refused: set[int] = attrs.field(init=False, factory=set)
    """Jobs whose last request was rate limited."""

    def on_task_start(self, at: float) -> None:
        """Report the start of the task: all of its questions are queued."""
        self._began_at = at
        self._run.notify(self._event(at, None, "task_start"))
        # Not stored, because most of them wait for a long time: the events are made again when needed.
        self._first = self._run.number(len(self.rows))
        if self._run.is_observed:
            for place in range(len(self.rows)):
                self._run.notify(self._queued(place))

    def on_task_end(self, at: float) -> None:
        """Report the end of the task."""
        details = {"status": self.counts.status, "reason": self.counts.reason}
        self._run.notify(self._event(at, None, "task_end", details))

    def on_event(self, event: Event, waited: Mapping[str, float] = NO_WAITS) -> None:
        """Process an event of the kernel.

        Args:
            event: The event.
            waited: For a job that is started: its waits until then, in seconds by reason.
        """
        match event:
            case Admitted():
                self._add(event.at, event.index, "scheduled", self._before(event, waited))
            case Reserving():
                self._reserve(event.at, event.index)
            case Waiting():
                self._wait(event)
            case Throttled():
                self._refused.add(event.index)
            case CallStarted():
                self._end_wait(event.index)
                self._reserve(event.at, event.index)
                self._add(event.at, event.index, "running")
            case Finished():
                self._end_wait(event.outcome.index)
            case Noted() if event.what in NOTES:
                self._add(event.at, event.index, event.what, event.details)
            case _:
                pass

    def of(self, index: int) -> tuple[QuestionEvent, ...]:
        """Return and forget the events of a question that has ended, by the index of its row."""
        history = self._histories.pop(index, None)
        place = bisect.bisect_left(self.rows, index)
        if place == len(self.rows) or self.rows[place] != index:
            return ()
        return (self._queued(place), *(() if history is None else history.events))

    def on_row(self, row: Row, at: float) -> Row:
        """Return the row of a question that has ended, with its last event."""
        found = question_of(row)
        if found is None:
            return row
        self.counts.add(found.outcome, found.tokens_total)
        end = self._event(at, row.index, found.outcome, _ending(found))
        return attrs.evolve(row, result=attrs.evolve(found, events=(*found.events, end)))

    def adopt(self, row: Row, at: float) -> Row:
        """Return the row of a question that another process has performed, with its events as of this run.

        Its events are numbered and reported now, and dated so that the last one happens now.
        """
        found = question_of(row)
        if found is None:
            return row
        self.counts.add(found.outcome, found.tokens_total)
        queued, *others = found.events
        queued = self._queued(bisect.bisect_left(self.rows, row.index))
        number, later = self._run.number(len(others)), at - others[-1].at
        events = [
            attrs.evolve(event, sequence=sequence, at=max(event.at + later, queued.at))
            for sequence, event in enumerate(others, number)
        ]
        for event in events[:-1]:  # the last one is reported when the row is stored
            self._run.notify(event)
        return attrs.evolve(row, result=attrs.evolve(found, events=(queued, *events)))

    def on_rows_not_run(self, rows: RowsNotRun) -> None:
        """Count many questions that were never started, without an event for each."""
        if (found := question_of(rows.first)) is not None:
            self.counts.add_many(found.outcome, len(rows))

    def on_durable_row(self, row: Row) -> None:
        """Report the last event of a question whose row is stored."""
        if (found := question_of(row)) is not None:
            self._run.notify(found.events[-1])

    def on_kept_row(self, record: Mapping[str, Any]) -> None:
        """Count a question whose row exists from an earlier execution."""
        self.counts.add_record(record)

    def _before(self, event: Admitted, waited: Mapping[str, float]) -> Mapping[str, Any]:
        """Return the details of the wait as the next question of a lane; empty without a wait."""
        queue = self._queues[event.lane]
        keys, queue.ahead = queue.ahead, None
        queue.fronts.pop(None, None)
        if not waited:
            return NO_DETAILS
        details = {"waited_ms": sum(waited.values()) * 1000, "reasons": list(waited)}
        return {**details, "keys": list(keys)} if keys else details

    def _wait(self, event: Waiting) -> None:
        wait, queue, job = self._wait_of(event), self._queues[event.lane], event.index
        queue.fronts.pop(job, None)
        if event.why not in _BEHIND:
            queue.fronts[job] = wait
        if job is None and event.why is WaitReason.TURN and queue.ahead is None:
            queue.ahead = {}
        if queue.ahead is not None:
            queue.ahead |= dict.fromkeys(wait.keys)
        if job is None:
            return
        history = self._history(job)
        if history.state == wait.name and history.waits_for == wait.reason:
            return
        self._reserve(event.at, job)
        self._add(event.at, job, wait.name, wait.details)
        history.waits_for = wait.reason

    def _wait_of(self, event: Waiting) -> _QuestionWait:
        details: dict[str, Any] = {}
        if event.until is not None:
            details["retry_after_ms"] = max(0.0, (event.until - event.at) * 1000)
        short = event.shortage
        if event.why is WaitReason.SHARED_LIMIT and short is not None:
            if short.keys:
                details["keys"] = list(short.keys)
            if short.message:
                details["message"] = short.message
            return _QuestionWait(_SHORT[short.kind], details, (short.kind, short.keys), short.keys)
        details |= {"lane": event.lane, "why": event.why.value}
        name, keys = _LANE, tuple[str, ...]()
        front = self._queues[event.lane].front
        if event.why in _RATES or (
            event.why is WaitReason.BACKOFF and event.index in self._refused
        ):
            name = _RATE
        elif event.why is WaitReason.TURN and front is not None:
            name, keys = front.name, front.keys
        if keys:
            details["keys"] = list(keys)
        return _QuestionWait(name, details, (event.lane, event.why, keys), keys)

    def _end_wait(self, job: int) -> None:
        self._refused.discard(job)
        for queue in self._queues.values():
            queue.fronts.pop(job, None)

    def _reserve(self, at: float, job: int) -> None:
        if self._history(job).state != "reserving":
            self._add(at, job, "reserving")

    def _history(self, job: int) -> _QuestionHistory:
        return self._histories.setdefault(self.rows[job], _QuestionHistory())

    def _add(self, at: float, job: int, name: str, details: Mapping[str, Any] = NO_DETAILS) -> None:
        history = self._history(job)
        event = self._event(at, self.rows[job], name, details)
        history.events.append(event)
        history.waits_for = None
        self._run.notify(event)

    def _queued(self, place: int) -> QuestionEvent:
        sequence, index = self._first + place, self.rows[place]
        return QuestionEvent(
            sequence=sequence, at=self._began_at, task=self.task, index=index, name="queued"
        )

    def _event(
        self, at: float, index: int | None, name: str, details: Mapping[str, Any] = NO_DETAILS
    ) -> QuestionEvent:
        return QuestionEvent(
            sequence=self._run.number(),
            at=at,
            task=self.task,
            index=index,
            name=name,
            details=details,
        )


def _ending(found: QuestionResult) -> dict[str, Any]:
    """Return the details of the last event of a question."""
    if (error := found.run_error or found.parse_error) is not None:
        return {"kind": error.kind, "message": error.message}
    return {} if found.agent_answer is None else {"answer": found.agent_answer}
