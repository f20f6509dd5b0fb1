"""The life of each question of a task, out of the events of the kernel and what the body notes.

    queued                       all questions first, in index order
    -> scheduled                 its job was started; tells how long it was the next one of its lane
    -> reserving                 it asks to be let through: by its lane, and by the limits shared with others
    -> (waiting_… -> reserving)* one event a reason, however often it is asked for
    -> running                   a request is made
    -> (tool_start, tool_finish)*
    -> reserving …               once more for each step of the model, and each attempt
    -> parsing                   there is a reply that calls no tools
    -> one of the seven outcomes, when its row is made; told when that is safe

`waiting_rate_limit`, `waiting_limit_decreasing` and `waiting_limiter_error` tell what a shared limit lacks;
`waiting_rate_limit` also tells of the rate and the back-off that a provider asked its lane for. Everything
else that a lane makes a call wait for is `waiting_lane`, with `why`. A reply that is
there already is parsed without being reserved. A question that is run again by a salvage round is scheduled
again.

The end of a life is a part of the row that is written down, and so is there before anybody hears of it. What
befalls other questions while that takes a moment is told first: sequence numbers and instants say when things
happened, and of each question all is told in that order.

Around them stand `task_start` and `task_end`, with its status and reason, which belong to no question; and
around all tasks the events of the run.
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
from trioeval.kernel.events import Finished, Noted, Reserving, Throttled, Why
from trioeval.question_eval.answer import QuestionEvent, QuestionResult
from trioeval.question_eval.result import QuestionCounts, TaskCounts, question_of

QuestionObserver: TypeAlias = Callable[[QuestionEvent], None]

NOTES = frozenset({"tool_start", "tool_finish", "parsing"})
"""Notes of a body that are events."""

NO_DETAILS: Mapping[str, Any] = MappingProxyType({})
"""The details of events of which no more is known."""

# A wait is named by its cause. That a limit or a rate has no room is `waiting_rate_limit`, and so is the
# rest of a call that was refused as one too many; any other wait for a lane is `waiting_lane`, with the
# kernel's word for it. A call behind another one waits for what that one was last found to wait for, so it
# is named like that one, with `why: turn`. The next question of a lane, which is not started yet, has no
# events until it is: then `scheduled` gives the time of that wait, and the limits that held up the line.

_LANE, _RATE = "waiting_lane", "waiting_rate_limit"
_SHORT: Mapping[str, str] = {
    "rate_limit": _RATE,
    "limit_decreasing": "waiting_limit_decreasing",
    "limiter_error": "waiting_limiter_error",
}
_RATES = frozenset({Why.PACE, Why.DELAY, Why.TOKENS, Why.BLOCKED})
_BEHIND = frozenset({Why.TURN, Why.BACKOFF, Why.GATE, Why.WINDOW})
"""Reasons to wait that do not hold up the line of a lane."""


@attrs.frozen
class _Wait:
    """The present wait of one question."""

    name: str
    """Of its event."""
    details: Mapping[str, Any]
    reason: Hashable
    """Another one than before makes another event."""
    keys: tuple[str, ...] = ()
    """The limits that lack room."""


@attrs.define(eq=False)
class _Line:
    """The line of one lane. Jobs are those of the kernel; None is the next one, which is not started."""

    fronts: dict[int | None, _Wait] = attrs.field(factory=dict)
    """The waits that hold it up, by job; the last one was found last."""
    ahead: dict[str, None] | None = None
    """The limits that its next job has waited behind; None if that job does not wait for its turn."""

    @property
    def front(self) -> _Wait | None:
        """The wait that was last found to hold up the line."""
        return self.fronts[next(reversed(self.fronts))] if self.fronts else None


@attrs.define(eq=False)
class _Life:
    """One question under way."""

    events: list[QuestionEvent] = attrs.field(factory=list)
    waits_for: Hashable = None
    """The reason of its last event, while it waits."""

    @property
    def state(self) -> str:
        """The name of its last event."""
        return self.events[-1].name if self.events else "queued"


# The whole run begins before its first task and ends after the last, so `run_start` is the first event of all
# and `run_end` the last, with the numbers of all tasks together. A run without questions has neither.


@attrs.define(eq=False)
class QuestionRun:
    """The tasks of questions of one run, the numbers of their events, and the observer of these."""

    _observer: QuestionObserver | None
    """Notified of each event as it happens, and of outcomes when they are safe; never raises."""
    has_questions: bool = True
    """Whether a task of the run is one of questions, known yet or not."""
    _next: int = attrs.field(init=False, default=0)
    _tasks: "list[QuestionEvents]" = attrs.field(init=False, factory=list)

    def task(self, name: str | None, rows: Sequence[int]) -> "QuestionEvents":
        """The events of a task of the run.

        Args:
            name: Its id; None where it is all of the suite.
            rows: The indices of its rows.
        """
        found = QuestionEvents(self, name, rows)
        self._tasks.append(found)
        return found

    def begin(self, at: float) -> None:
        """The run begins, at an instant of the Trio clock."""
        if self.has_questions:
            self.notify(QuestionEvent(sequence=self.number(), at=at, name="run_start"))

    def end(self, at: float) -> None:
        """All tasks are over."""
        if self.has_questions:
            facts = TaskCounts([task.counts for task in self._tasks]).facts()
            event = QuestionEvent(sequence=self.number(), at=at, name="run_end", details=facts)
            self.notify(event)

    def number(self, count: int = 1) -> int:
        """The number of the next event; with a count, the first of so many."""
        self._next += count
        return self._next - count

    def notify(self, event: QuestionEvent) -> None:
        """Give an event to the observer."""
        if self._observer is not None:
            self._observer(event)

    @property
    def is_observed(self) -> bool:
        """Whether there is an observer."""
        return self._observer is not None


@attrs.define(eq=False)
class QuestionEvents:
    """Makes the events of one task, and keeps those of questions that are not over."""

    _run: QuestionRun
    task: str | None
    rows: Sequence[int]
    """The index of the row of each job, ascending: of all, or of those that are left to run."""
    counts: QuestionCounts = attrs.field(init=False, factory=QuestionCounts)
    _first: int = attrs.field(init=False, default=0)
    """The number of the first `queued`; those of all others follow."""
    _began_at: float = attrs.field(init=False, default=0.0)
    _lives: dict[int, _Life] = attrs.field(init=False, factory=dict)
    """By index of the row."""
    _lines: defaultdict[str | None, _Line] = attrs.field(
        init=False, factory=lambda: defaultdict(_Line)
    )
    _refused: set[int] = attrs.field(init=False, factory=set)
    """Jobs whose last request was one too many."""

    def begin(self, at: float) -> None:
        """The task begins: all of its questions are queued."""
        self._began_at = at
        self._run.notify(self._event(at, None, "task_start"))
        # Not remembered, as most of them wait for long: it is made once more when it is asked for.
        self._first = self._run.number(len(self.rows))
        if self._run.is_observed:
            for place in range(len(self.rows)):
                self._run.notify(self._queued(place))

    def end(self, at: float) -> None:
        """The task is over."""
        details = {"status": self.counts.status, "reason": self.counts.reason}
        self._run.notify(self._event(at, None, "task_end", details))

    def observe(self, event: Event, waited: Mapping[str, float] = NO_WAITS) -> None:
        """Take note of an event of the kernel.

        Args:
            event: The event.
            waited: Of a job that is started: what it waited for until then, in seconds by reason.
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
        """The events of a question that is over, by the index of its row; they are forgotten."""
        life = self._lives.pop(index, None)
        place = bisect.bisect_left(self.rows, index)
        if place == len(self.rows) or self.rows[place] != index:
            return ()
        return (self._queued(place), *(() if life is None else life.events))

    def ended(self, row: Row, at: float) -> Row:
        """A question is over: its row, with the end of its life."""
        found = question_of(row)
        if found is None:
            return row
        self.counts.add(found.outcome, found.tokens_total)
        end = self._event(at, row.index, found.outcome, _ending(found))
        return attrs.evolve(row, result=attrs.evolve(found, events=(*found.events, end)))

    def never_began(self, rows: RowsNotRun) -> None:
        """Count many questions that never began, without an event for each."""
        if (found := question_of(rows.first)) is not None:
            self.counts.add_many(found.outcome, len(rows))

    def written(self, row: Row) -> None:
        """The row of a question is safe: notify the observer of its end."""
        if (found := question_of(row)) is not None:
            self._run.notify(found.events[-1])

    def kept(self, record: Mapping[str, Any]) -> None:
        """A question is not asked again, because its row is there already."""
        self.counts.add_record(record)

    def _before(self, event: Admitted, waited: Mapping[str, float]) -> Mapping[str, Any]:
        """How long a question was next on its lane, and behind which limits; empty without a wait."""
        line = self._lines[event.lane]
        keys, line.ahead = line.ahead, None
        line.fronts.pop(None, None)
        if not waited:
            return NO_DETAILS
        details = {"waited_ms": sum(waited.values()) * 1000, "reasons": list(waited)}
        return {**details, "keys": list(keys)} if keys else details

    def _wait(self, event: Waiting) -> None:
        wait, line, job = self._wait_of(event), self._lines[event.lane], event.index
        line.fronts.pop(job, None)
        if event.why not in _BEHIND:
            line.fronts[job] = wait
        if job is None and event.why is Why.TURN and line.ahead is None:
            line.ahead = {}
        if line.ahead is not None:
            line.ahead |= dict.fromkeys(wait.keys)
        if job is None:
            return
        life = self._life(job)
        if life.state == wait.name and life.waits_for == wait.reason:
            return
        self._reserve(event.at, job)
        self._add(event.at, job, wait.name, wait.details)
        life.waits_for = wait.reason

    def _wait_of(self, event: Waiting) -> _Wait:
        details: dict[str, Any] = {}
        if event.until is not None:
            details["retry_after_ms"] = max(0.0, (event.until - event.at) * 1000)
        short = event.shortage
        if event.why is Why.SHARED_LIMIT and short is not None:
            if short.keys:
                details["keys"] = list(short.keys)
            if short.message:
                details["message"] = short.message
            return _Wait(_SHORT[short.kind], details, (short.kind, short.keys), short.keys)
        details |= {"lane": event.lane, "why": event.why.value}
        name, keys = _LANE, tuple[str, ...]()
        front = self._lines[event.lane].front
        if event.why in _RATES or (event.why is Why.BACKOFF and event.index in self._refused):
            name = _RATE
        elif event.why is Why.TURN and front is not None:
            name, keys = front.name, front.keys
        if keys:
            details["keys"] = list(keys)
        return _Wait(name, details, (event.lane, event.why, keys), keys)

    def _end_wait(self, job: int) -> None:
        self._refused.discard(job)
        for line in self._lines.values():
            line.fronts.pop(job, None)

    def _reserve(self, at: float, job: int) -> None:
        if self._life(job).state != "reserving":
            self._add(at, job, "reserving")

    def _life(self, job: int) -> _Life:
        return self._lives.setdefault(self.rows[job], _Life())

    def _add(self, at: float, job: int, name: str, details: Mapping[str, Any] = NO_DETAILS) -> None:
        life = self._life(job)
        event = self._event(at, self.rows[job], name, details)
        life.events.append(event)
        life.waits_for = None
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
    """What is told of how a question ended."""
    if (error := found.run_error or found.parse_error) is not None:
        return {"kind": error.kind, "message": error.message}
    return {} if found.agent_answer is None else {"answer": found.agent_answer}
