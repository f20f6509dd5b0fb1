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
else that a lane makes a call wait for is `waiting_lane`, with `why`: see `question_waits`. A reply that is
there already is parsed without being reserved. A question that is run again by a salvage round is scheduled
again.

The end of a life is a part of the row that is written down, and so is there before anybody hears of it. What
befalls other questions while that takes a moment is told first: sequence numbers and instants say when things
happened, and of each question all is told in that order.

Around them stand `task_start` and `task_end`, with its status and reason, which belong to no question; and
around all tasks what `question_run` tells.
"""

import bisect
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs

from trioeval.kernel import Admitted, CallStarted, Event, Waiting
from trioeval.kernel.events import Noted, Reserving
from trioeval.tasks.question_result import QuestionEvent, QuestionResult
from trioeval.tasks.question_status import QuestionCounts
from trioeval.tasks.question_waits import QuestionWaits
from trioeval.tasks.rows import Row, RowsNotRun
from trioeval.tasks.waits import NO_WAITS

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
        found = row.question
        if found is None:
            return row
        self.counts.add(found.outcome, found.tokens_total)
        end = self._event(self.numbers.take(), at, row.index, found.outcome, _ending(found))
        return attrs.evolve(row, question=attrs.evolve(found, events=(*found.events, end)))

    def never_began(self, rows: RowsNotRun) -> None:
        """Count many questions that never began, without an event for each."""
        if rows.first.question is not None:
            self.counts.add_many(rows.first.question.outcome, len(rows))

    def written(self, row: Row) -> None:
        """The row of a question is safe: its end is told."""
        if row.question is not None and self.tell is not None:
            self.tell(row.question.events[-1])

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
