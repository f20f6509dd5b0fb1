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
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs

from trioeval.evaluation.row import Row, RowsNotRun
from trioeval.evaluation.waits import NO_WAITS
from trioeval.kernel import Admitted, CallStarted, Event, Waiting
from trioeval.kernel.events import Finished, Noted, Reserving, Throttled, Why
from trioeval.kernel.reservations import Shortage
from trioeval.question_eval.answer import QuestionEvent, QuestionResult
from trioeval.question_eval.result import QuestionCounts, TaskCounts, question_of

# What questions wait for, in the words of their events.
#
# A wait is named by its cause. That a limit or a rate has no room is `waiting_rate_limit`, and so is the
# rest of a call that was refused as one too many; what else a lane makes a call wait for is `waiting_lane`,
# with the kernel's word for it. A call that stands behind another one waits for what that one was last found
# to wait for, so it is named like that one, with `why: turn`. Of the next question of a lane, which is not
# started yet, nothing is told until it is: then it is told for how long that was so, and which limits held
# up the line.


_LANE, _RATE = "waiting_lane", "waiting_rate_limit"
_SHORT: Mapping[str, str] = {
    "rate_limit": _RATE,
    "limit_decreasing": "waiting_limit_decreasing",
    "limiter_error": "waiting_limiter_error",
}
_RATES = frozenset({Why.PACE, Why.DELAY, Why.TOKENS, Why.BLOCKED})
_BEHIND = frozenset({Why.TURN, Why.BACKOFF, Why.GATE, Why.WINDOW})
"""What is waited for without holding up the line of a lane."""


@attrs.frozen
class Wait:
    """What one question waits for."""

    name: str
    """Of its event."""
    details: Mapping[str, Any]
    reason: Hashable
    """What makes it another one than the one before."""
    keys: tuple[str, ...] = ()
    """The limits that lack room."""


@attrs.define(eq=False)
class QuestionWaits:
    """What the calls of one task wait for on their lanes. Jobs are those of the kernel."""

    _fronts: dict[str | None, dict[int | None, Wait]] = attrs.field(init=False, factory=dict)
    """By lane and job, None being its next one: of those that hold up its line."""
    _refused: set[int] = attrs.field(init=False, factory=set)
    """Jobs whose last request was one too many."""
    _ahead: dict[str | None, dict[str, None]] = attrs.field(init=False, factory=dict)
    """By lane: the limits that its next job has stood behind."""

    def of(self, event: Waiting) -> Wait:
        """What a call waits for from now on, or the next job of a lane."""
        lane, job = event.lane, event.index
        found = self._named(event)
        fronts = self._fronts.setdefault(lane, {})
        fronts.pop(job, None)
        if event.why not in _BEHIND:
            fronts[job] = found
        if job is None and event.why is Why.TURN:
            self._ahead.setdefault(lane, {})
        if lane in self._ahead:
            self._ahead[lane].update(dict.fromkeys(found.keys))
        return found

    def note(self, event: Event) -> None:
        """Take note of what refuses a call, or ends its wait."""
        match event:
            case Throttled():
                self._refused.add(event.index)
            case CallStarted():
                self._over(event.index)
            case Finished():
                self._over(event.outcome.index)
            case _:
                pass

    def before(self, event: Admitted, waited: Mapping[str, float]) -> Mapping[str, Any]:
        """What is told of how long a question was the next one of its lane; nothing if it did not wait.

        Args:
            event: It is started.
            waited: Seconds by reason.
        """
        keys = self._ahead.pop(event.lane, {})
        self._fronts.get(event.lane, {}).pop(None, None)
        if not waited:
            return {}
        told = {"waited_ms": sum(waited.values()) * 1000, "reasons": list(waited)}
        return {**told, "keys": list(keys)} if keys else told

    def _named(self, event: Waiting) -> Wait:
        details: dict[str, Any] = {}
        if event.until is not None:
            details["retry_after_ms"] = max(0.0, (event.until - event.at) * 1000)
        short = event.shortage
        if event.why is Why.QUOTA and short is not None:
            said = {**details, **_lacks(short)}
            return Wait(_SHORT[short.kind], said, (short.kind, short.keys), short.keys)
        details |= {"lane": event.lane, "why": event.why.value}
        name, keys = _LANE, tuple[str, ...]()
        if event.why in _RATES or (event.why is Why.BACKOFF and event.index in self._refused):
            name = _RATE
        elif event.why is Why.TURN and (front := self._front(event.lane)) is not None:
            name, keys = front.name, front.keys
        if keys:
            details["keys"] = list(keys)
        return Wait(name, details, (event.lane, event.why, keys), keys)

    def _front(self, lane: str | None) -> Wait | None:
        """What was last found to hold up the line of a lane, if anything does."""
        fronts = self._fronts.get(lane)
        return fronts[next(reversed(fronts))] if fronts else None

    def _over(self, job: int) -> None:
        self._refused.discard(job)
        for fronts in self._fronts.values():
            fronts.pop(job, None)


def _lacks(short: Shortage) -> dict[str, Any]:
    keys = {"keys": list(short.keys)} if short.keys else {}
    return {**keys, **({"message": short.message} if short.message else {})}


QuestionObserver: TypeAlias = Callable[[QuestionEvent], None]

NOTES = frozenset({"tool_start", "tool_finish", "parsing"})
"""What a body notes that is an event."""

NO_DETAILS: Mapping[str, Any] = MappingProxyType({})
"""Of events of which nothing more is told."""


@attrs.define(eq=False)
class Numbers:
    """The numbers of the events of a run, which its tasks share."""

    _next: int = attrs.field(init=False, default=0)

    def take(self, count: int = 1) -> int:
        """The next of them, and as many as are wanted from there on."""
        self._next += count
        return self._next - count


@attrs.define(eq=False)
class _Life:
    """One question under way."""

    events: list[QuestionEvent] = attrs.field(factory=list)
    state: str = "queued"
    waits_for: Hashable = None
    """The reason that was told last, while it waits."""


@attrs.define(eq=False)
class QuestionEvents:
    """Makes the events of one task, and keeps those of questions that are not over."""

    task: str | None
    tell: QuestionObserver | None = None
    """Told of each as it happens, and of outcomes when they are safe."""
    rows: Sequence[int] = ()
    """The index of the row of each job: of all, or of those that are left to run."""
    numbers: Numbers = attrs.field(factory=Numbers)
    counts: QuestionCounts = attrs.field(init=False, factory=QuestionCounts)
    _first: int = attrs.field(init=False, default=0)
    """The number of the first `queued`; those of all others follow."""
    _began_at: float = attrs.field(init=False, default=0.0)
    _lives: dict[int, _Life] = attrs.field(init=False, factory=dict)
    _waits: QuestionWaits = attrs.field(init=False, factory=QuestionWaits)

    def begin(self, at: float) -> None:
        """The task begins: all of its questions are queued."""
        self._began_at = at
        self._tell_task(at, "task_start")
        # Not remembered, as most of them wait for long: it is made once more when it is asked for.
        self._first = self.numbers.take(len(self.rows))
        if self.tell is not None:
            for place, index in enumerate(self.rows):
                self.tell(self._event(self._first + place, at, index, "queued"))

    def end(self, at: float) -> None:
        """The task is over."""
        counts = self.counts
        self._tell_task(at, "task_end", {"status": counts.status, "reason": counts.reason})

    def observe(self, event: Event, waited: Mapping[str, float] = NO_WAITS) -> None:
        """Take note of an event of the kernel.

        Args:
            event: What it tells.
            waited: Of a job that is started: what it waited for until then, in seconds by reason.
        """
        self._waits.note(event)
        match event:
            case Admitted():
                details = self._waits.before(event, waited)
                self._add(event.at, event.index, "scheduled", details)
            case Reserving():
                self._reserve(event.at, event.index)
            case Waiting():
                self._wait(event)
            case CallStarted():
                self._reserve(event.at, event.index)
                self._add(event.at, event.index, "running")
            case Noted() if event.what in NOTES:
                self._add(event.at, event.index, event.what, event.details)
            case _:
                pass

    def of(self, index: int) -> tuple[QuestionEvent, ...]:
        """The events of a question that is over, by the index of its row; they are forgotten."""
        life = self._lives.pop(index, None)
        place = self._place(index)
        if place is None:
            return ()
        queued = self._event(self._first + place, self._began_at, index, "queued")
        return (queued, *(() if life is None else life.events))

    def ended(self, row: Row, at: float) -> Row:
        """A question is over: its row, with the end of its life."""
        found = question_of(row)
        if found is None:
            return row
        self.counts.add(found.outcome, found.tokens_total)
        end = self._event(self.numbers.take(), at, row.index, found.outcome, _ending(found))
        return attrs.evolve(row, result=attrs.evolve(found, events=(*found.events, end)))

    def never_began(self, rows: RowsNotRun) -> None:
        """Count many questions that never began, without an event for each."""
        if (found := question_of(rows.first)) is not None:
            self.counts.add_many(found.outcome, len(rows))

    def written(self, row: Row) -> None:
        """The row of a question is safe: its end is told."""
        if (found := question_of(row)) is not None and self.tell is not None:
            self.tell(found.events[-1])

    def kept(self, record: Mapping[str, Any]) -> None:
        """A question is not asked again, because its row is there already."""
        self.counts.add_record(record)

    def _place(self, index: int) -> int | None:
        if isinstance(self.rows, range):
            return index if index in self.rows else None
        return _search(self.rows, index)

    def _reserve(self, at: float, job: int) -> None:
        if self._life(job).state != "reserving":
            self._add(at, job, "reserving")

    def _wait(self, event: Waiting) -> None:
        found = self._waits.of(event)
        if event.index is None:  # not started yet; it is told of when it is
            return
        life = self._life(event.index)
        if life.state == found.name and life.waits_for == found.reason:
            return
        self._reserve(event.at, event.index)
        self._add(event.at, event.index, found.name, found.details)
        life.waits_for = found.reason

    def _life(self, job: int) -> _Life:
        return self._lives.setdefault(self.rows[job], _Life())

    def _add(self, at: float, job: int, name: str, details: Mapping[str, Any] = NO_DETAILS) -> None:
        life = self._life(job)
        event = self._event(self.numbers.take(), at, self.rows[job], name, details)
        life.state, life.waits_for = name, None
        life.events.append(event)
        if self.tell is not None:
            self.tell(event)

    def _tell_task(self, at: float, name: str, details: Mapping[str, Any] = NO_DETAILS) -> None:
        sequence = self.numbers.take()
        if self.tell is not None:
            self.tell(self._event(sequence, at, None, name, details))

    def _event(
        self,
        sequence: int,
        at: float,
        index: int | None,
        name: str,
        details: Mapping[str, Any] = NO_DETAILS,
    ) -> QuestionEvent:
        job = None
        if index is not None:
            job = str(index + 1) if self.task is None else f"{self.task}-{index + 1}"
        return QuestionEvent(
            sequence=sequence,
            at=at,
            task=self.task,
            index=index,
            job=job,
            name=name,
            details=details,
        )


def _ending(found: QuestionResult) -> dict[str, Any]:
    """What is told of how a question ended."""
    if (error := found.run_error or found.parse_error) is not None:
        return {"kind": error.kind, "message": error.message}
    return {} if found.agent_answer is None else {"answer": found.agent_answer}


def _search(rows: Sequence[int], index: int) -> int | None:
    """The place of an index among those of ascending rows; None if it is not there."""
    place = bisect.bisect_left(rows, index)
    return place if place < len(rows) and rows[place] == index else None


# What all tasks of questions of a run have in common: who is told, the numbers of events, how they ended.
#
# The whole run begins before its first task and ends after the last, so `run_start` is the first event of all
# and `run_end` the last, with the numbers of all tasks together. A run without questions has neither.


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
