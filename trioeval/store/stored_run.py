"""One run, as it is written down and read while it goes on."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import trio

from trioeval.errors import StoreError
from trioeval.kernel.events import Event, LaneClosed, LimitChanged, Throttled, Waiting, Why
from trioeval.report.json_text import compact
from trioeval.store.columns import Value, number
from trioeval.store.facts import EndState
from trioeval.store.locks import RunLock
from trioeval.store.payloads import plain, stored_json
from trioeval.store.records import merged, read_body, read_call, record_texts
from trioeval.store.replies import read_reply
from trioeval.store.resuming import Going
from trioeval.store.runs import finish_run
from trioeval.store.schema import INDEX_BITS
from trioeval.store.works import (
    CallWork,
    EventWork,
    Place,
    RowWork,
    StepWork,
    Work,
    insert,
    make_record,
)
from trioeval.store.writer import Writer
from trioeval.tasks import Row
from trioeval.tasks.journal import CallKey, CallRecord, Journal, Paid

_TESTS = 500  # a statement
_MANY = 10_000  # numbers of rows that are remembered


@attrs.define(eq=False)
class Kept:
    """The rows of one task that are not run again."""

    _part: int | None
    _indices: frozenset[int] = attrs.field(repr=False)
    _read: Callable[[], sqlite3.Connection] = attrs.field(repr=False)

    def __contains__(self, index: object) -> bool:
        return index in self._indices

    def __len__(self) -> int:
        return len(self._indices)

    def record(self, index: int, /) -> Mapping[str, Any]:
        """What was recorded of one.

        Raises:
            KeyError: It is not kept.
        """
        if index not in self._indices or self._part is None:
            raise KeyError(index)
        text = read_body(self._read(), self._part << INDEX_BITS | index)
        if text is None:
            raise KeyError(index)
        found: Mapping[str, Any] = json.loads(text)
        return found


class StoredRun(Journal):
    """A run in a store that is open. Made by `Store.begin` and `Store.resume`."""

    def __init__(
        self,
        writer: Writer,
        place: Place,
        read: Callable[[], sqlite3.Connection],
        lock: RunLock | None,
        *,
        going: Going,
    ) -> None:
        self.id = place.eval_id
        self._writer = writer
        self._place = place
        self._read = read
        self._lock = lock
        self._resumed = going.execution > 1
        self._kept = {
            task: Kept(going.parts[task], rows, read) for task, rows in going.kept.items()
        }
        self._parts = going.parts
        self._numbers: dict[tuple[str | None, int], int] = {}
        self._most_numbers = _MANY
        self._began = trio.current_time()

    @property
    def resumed(self) -> bool:
        """Whether an earlier execution wrote anything down."""
        return self._resumed

    @property
    def error(self) -> StoreError | None:
        """Why nothing is written any more; None while it is."""
        return self._writer.error

    def call(self, call: CallRecord, /) -> None:
        """Write down a call."""
        self._writer.put(CallWork(self._place, call))

    def row(self, row: Row, /) -> None:
        """Write down a row, in place of what was known of it before."""
        place = (row.task, row.index)
        if len(self._numbers) >= self._most_numbers:  # some that nobody asks for
            done = self._writer.done
            self._numbers = {place: one for place, one in self._numbers.items() if one > done}
            self._most_numbers = max(_MANY, 2 * len(self._numbers))
        self._numbers[place] = self._writer.put(RowWork(self._place, row.task, row.index, row))

    def take(self, task: str | None, index: int, record: Mapping[str, Any]) -> None:
        """Write down a row whose record is there already, from wherever it comes."""
        self._writer.put(RowWork(self._place, task, index, record))

    async def durable(self, row: Row | None = None, /) -> None:
        """Return when it is safe, or cannot be made so. A checkpoint only if it has to wait.

        Args:
            row: A row that was written down, with all that was before it; None is everything until now.
        """
        if row is None:
            await self._writer.wait_done()
            return
        written = self._numbers.get((row.task, row.index))
        if written is not None:
            await self._writer.wait_done(written)
            self._numbers.pop((row.task, row.index), None)

    def recall(self, key: CallKey, /) -> Paid | None:
        """The reply to this question that an earlier execution of the run has written down, if any."""
        part = self._parts.get(key.task)
        if not self._resumed or part is None:
            return None
        found = read_call(
            self._read(),
            part << INDEX_BITS | key.index,
            key.role,
            key.question,
            self._place.execution,
        )
        if found is None:
            return None
        text, latency_ms, cached = found
        return Paid(read_reply(json.loads(text)), latency_ms, cached)

    def kept(self, task: str | None, /) -> Kept:
        """The rows of a task that are not run again."""
        return self._kept.get(task) or Kept(None, frozenset(), self._read)

    def record(self, row: Row) -> Mapping[str, Any]:
        """The record of a row that is durable, or kept in memory."""
        recent = self._place.recent.get((row.task, row.index))
        if recent is not None:
            return recent[0]
        found: Mapping[str, Any] = json.loads(self.text(row))
        return found

    def text(self, row: Row) -> str:
        """Its JSON text."""
        place = (row.task, row.index)
        recent = self._place.recent.get(place)
        if recent is not None:
            return recent[1]
        text = self._place.unsaved.get(place)
        if text is None and row.task in self._place.parts:
            text = read_body(self._read(), self._place.key(*place))
        return make_record(row, self._place)[1] if text is None else text

    def records(
        self, task: str | None, prompt_idx: int | None = None
    ) -> Iterator[Mapping[str, Any]]:
        """All rows of a task that are there, or those of one prompt, by their indices.

        Also those that could not be written. Those that were written before the iteration began.

        Raises:
            StoreError: The database cannot be read.
        """
        part = self._place.parts.get(task)
        stored = iter(()) if part is None else record_texts(self._read(), part, prompt_idx)
        unsaved = {
            index: text for (of, index), text in self._place.unsaved.copy().items() if of == task
        }
        for text in merged(stored, unsaved):
            found: Mapping[str, Any] = json.loads(text)
            # What was lost may be of any prompt.
            if prompt_idx is None or found["promptIdx"] == prompt_idx:
                yield found

    def observe(self, event: Event) -> None:
        """Write down what befalls lanes; an observer of the run."""
        columns: tuple[Value, ...]
        match event:
            case Waiting(index=None, why=Why.BLOCKED | Why.PAUSED):
                until = None if event.until is None else self._since(event.until)
                columns = (event.why.value, None, until, None, None, None)
            case Throttled():
                until = self._since(event.blocked_until)
                columns = ("throttled", event.index, until, number(event.retry_after), None, None)
            case LimitChanged():
                columns = ("limit_changed", None, None, None, event.limit, None)
            case LaneClosed():
                columns = ("closed", None, None, None, None, plain(event.reason))
            case _:
                return
        at = self._since(event.at)
        self._put(EventWork(self._place, (at, plain(event.lane), *columns)))

    def tests(self, task: str | None, tests: Iterator[Any]) -> None:
        """Write down what is told of a suite's tests. They are read in the writer's thread, one by one."""

        def write(connection: sqlite3.Connection) -> None:
            part = self._place.parts[task]
            connection.execute("DELETE FROM test WHERE part = ?", (part,))
            lines: list[tuple[Value, ...]] = []
            for position, test in enumerate(tests):
                lines.append((part, position, stored_json(compact(test))))
                if len(lines) == _TESTS:
                    insert(connection, "test", ("part", "position", "body"), lines)
                    lines.clear()
            insert(connection, "test", ("part", "position", "body"), lines)

        self._put(StepWork(write))

    def finish(self, state: EndState, *, duration_ms: float, derived: Any = None) -> None:
        """Say how the run ended, and free it for others. Nothing is written down of it after that.

        Args:
            state: Whether everything was done.
            duration_ms: How long this execution took.
            derived: Metrics that were derived, as JSON data.
        """

        def write(connection: sqlite3.Connection) -> None:
            finish_run(connection, self._place.number, state, duration_ms, compact(derived))

        self._put(StepWork(write))

    def release(self) -> None:
        """Free the run for others."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _put(self, work: Work) -> None:
        self._writer.put(work)

    def _since(self, at: float) -> float | None:
        return number(at - self._began)
