"""One run, as it is recorded and read while it is in progress."""

from __future__ import annotations

import bisect
import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import trio

from trioeval.errors import StoreError, UsageError
from trioeval.evaluation.identity import Identities
from trioeval.evaluation.journal import CallKey, CallRecord, RecordedReply, ReusedRows
from trioeval.evaluation.status import has_ended
from trioeval.kernel.events import Event, LaneClosed, LimitChanged, Throttled, Waiting, WaitReason
from trioeval.providers.secrets import hide_in
from trioeval.report.formats.json import compact
from trioeval.report.head import config_tests
from trioeval.report.records import RowRecord
from trioeval.report.stored import EndState, RunStart
from trioeval.run import PreparedSuite, Row, RowsNotRun
from trioeval.run.journal import RunJournal
from trioeval.run.same_rows import same_rows
from trioeval.store.database import RunLock, media_folder
from trioeval.store.jobs import StoredJob, read_jobs
from trioeval.store.not_run_rows import write_never_began
from trioeval.store.records import (
    RecordSource,
    StoredKeptRows,
    merged,
    plain,
    read_body,
    read_call,
    read_call_keys,
    read_reply,
    record_texts,
    stored_json,
)
from trioeval.store.run_list import open_connection
from trioeval.store.run_start import keys_of_task, run_start
from trioeval.store.runs import (
    Mark,
    delete_rows_from,
    finish_run,
    mark_rows,
    read_activity,
    store_suite,
)
from trioeval.store.schema import INDEX_BITS
from trioeval.store.writer import Writer
from trioeval.store.writes import (
    EVENT,
    InsertTable,
    Line,
    LineWrite,
    PendingWrite,
    RowWrite,
    RunPlace,
    StepWrite,
    call_write,
    insert,
    make_record,
    number,
    recovered_calls,
)

T = TypeVar("T")

if TYPE_CHECKING:
    from trioeval.agent.journal import RunningAttempt
    from trioeval.columns.result import DatasetResult
    from trioeval.store.agent_processes import StoredAgents
    from trioeval.store.dataset import StoredDataset
    from trioeval.suite.expand import Expansion

_TEST = InsertTable("test", ("part", "position", "body"))
_ACTIVITY = InsertTable("activity", ("run", "execution", "body"))
_DATASET_RESULT = InsertTable("dataset_result", ("part", "body"))
_TESTS = 500  # per statement
_RECORDED_EVENTS = frozenset({Waiting, Throttled, LimitChanged, LaneClosed})
"""A look-up is faster than comparisons, and most events are of other types."""
_MANY = 10_000  # numbers of rows that are remembered


@attrs.frozen(kw_only=True)
class ResumedRun:
    """The state of a run at its start or resumption; the defaults are those of a new run."""

    number: int = 0
    execution: int = 1
    parts: Mapping[str | None, int] = attrs.field(factory=dict)
    kept: Mapping[str | None, frozenset[int]] = attrs.field(factory=dict, repr=False)
    """The rows of each task that are not run again."""
    retried: Mapping[str | None, frozenset[int]] = attrs.field(factory=dict, repr=False)
    """Rows that are run again, and count until the new run has finished."""
    anew: Mapping[str | None, frozenset[int]] = attrs.field(factory=dict, repr=False)
    """Those of them whose replies are not reused."""
    damaged: Mapping[str | None, Sequence[int]] = attrs.field(factory=dict, repr=False)
    """Rows whose records cannot be read, of tasks that have any; they are run again."""
    reconciled: frozenset[str | None] = frozenset()
    """The tasks whose rows were compared with those that the suite has now."""


class StoredRun(RunJournal):
    """A run in an open store. Created by `Store.begin` and `Store.resume`."""

    def __init__(
        self,
        writer: Writer,
        place: RunPlace,
        read: Callable[[], sqlite3.Connection],
        lock: RunLock | None,
        *,
        start: RunStart,
        going: ResumedRun,
    ) -> None:
        self.id = place.eval_id
        self._writer = writer
        self._place = place
        self._read = read
        self._lock = lock
        self._start = start
        self._has_suite = bool(start.heads)
        self._reported_ms = 0.0
        self._resumed = going.execution > 1
        self._kept: dict[str | None, ReusedRows] = {
            task: StoredKeptRows(RecordSource(writer.path, task), going.parts[task], rows, read)
            for task, rows in going.kept.items()
        }
        self._has_warned = False
        self._retried = going.retried
        self._ended = {
            task: sorted(rows | going.kept.get(task, frozenset()))
            for task, rows in going.retried.items()
        }
        self._standing: set[tuple[str | None, int]] = set()
        self._parts = going.parts
        self._anew = going.anew
        self._reconciled = going.reconciled
        self._numbers: dict[tuple[str | None, int], int] = {}
        self._most_numbers = _MANY
        self._jobs: dict[CallKey, str | None] = {}
        self._began = trio.current_time()
        self._is_over = False
        self.stays_open = False
        """True if `end` leaves the run to its owner, who calls `finish` and `release` later."""

    @property
    def resumed(self) -> bool:
        """True if an earlier execution recorded anything."""
        return self._resumed

    @property
    def error(self) -> StoreError | None:
        """The reason why nothing is written any more; None while writes succeed."""
        return self._writer.error

    @property
    def standing_rows(self) -> int:
        """Number of rows that were to be run again and were not, so that the earlier result counts."""
        return len(self._standing)

    def begin(self, suite: PreparedSuite, /) -> None:
        """Record the suite, if it was not known when the run started.

        Raises:
            UsageError: The run is over, and others may have resumed it since.
        """
        if self._is_over:
            raise UsageError(
                f"run {self.id} is over; continue it with `await store.resume({self.id!r}, start)`"
            )
        place = self._place
        if self._has_suite:
            return
        self._has_suite = True
        starts: list[RunStart] = []

        def ready() -> None:
            start = run_start(suite, run=self.id, utc_created=self._start.utc_created)
            place.keys, place.identities = start.keys, Identities(start.sources)
            starts.append(start)

        def write(connection: sqlite3.Connection) -> None:
            place.parts = store_suite(connection, place.number, starts[0])

        # It reads files, so it is done in the writer's thread.
        self._writer.put(StepWrite(write, ready))
        for part in suite.parts:
            if part.prepare_with_rows is None:
                tests = config_tests(part.prepared.suite, keys_of_task(part))
                self.tests(part.id, tests)
                rows = self._kept.get(part.id)
                if (
                    rows and part.id not in self._reconciled
                ):  # the suite may have changed since then
                    self._kept[part.id] = same_rows(rows, part.prepared.steps)

    def set_steps(self, task: str | None, steps: Expansion) -> None:
        """Set the rows of a task that are known only now: other recorded ones leave the run."""
        part = self._parts.get(task)
        if part is None:
            return  # nothing of it was recorded before
        if rows := self._kept.get(task):
            self._kept[task] = same_rows(rows, steps)
        self._step(lambda connection: delete_rows_from(connection, part, len(steps)))

    async def end(self, *, finished: bool, duration: float) -> None:
        """Record how the run ended, and release it for others once that is durable. A checkpoint.

        Nothing happens if it is over already, or stays open.

        Args:
            finished: Whether nothing is left to be run.
            duration: Seconds on the Trio clock.
        """
        if self._is_over or self.stays_open:
            await trio.lowlevel.checkpoint()
            return
        self._is_over = True
        try:
            state: EndState = "interrupted" if self._standing or not finished else "finished"
            self.finish(state, duration_ms=1000 * duration)
            await self.durable()
        finally:
            self.release()

    def call(self, call: CallRecord, /) -> None:
        """Record a call."""
        self._writer.put(call_write(self._place, call))

    def recover(self, calls: Sequence[CallRecord], rejected: Sequence[CallKey], /) -> int:
        """Record replies that an earlier execution received; return how many were not recorded yet."""
        new = recovered_calls(self._read(), self._place, calls)
        for write in new:
            self._writer.put(write)
        for key in (one for one in rejected if one.task in self._place.parts):
            self.reject(key)
        return len(new)

    def recover_job(self, key: CallKey, name: str | None, /) -> None:
        """Record the job of a call that an earlier execution created; None is its end."""
        if key.task in self._place.parts:
            self.job(key).recover(name)

    def recover_attempt(self, task: str | None, attempt: RunningAttempt | str, /) -> None:
        """Record a process of an agent of an earlier execution; a run id is the end of all of an attempt."""
        if task in self._place.parts:
            self.agents(task).recover(attempt)

    def row(self, row: Row, /) -> None:
        """Record a row, replacing an earlier record of it.

        A row that did not finish never replaces one that did: the earlier one counts, and is still to be run
        again.
        """
        place = (row.task, row.index)
        work: PendingWrite = RowWrite(self._place, row.task, row.index, row)
        if not has_ended(row.outcome):
            if row.index in self._retried.get(row.task, ()):
                self._standing.add(place)  # it is already marked
                return
            if row.index in self.reused_rows(
                row.task
            ):  # it is only compared with one that is run again
                self._standing.add(place)
                work = self._marking(*place)
        if len(self._numbers) >= self._most_numbers:  # they are unlikely to be requested
            done = self._writer.done
            self._numbers = {place: one for place, one in self._numbers.items() if one > done}
            self._most_numbers = max(_MANY, 2 * len(self._numbers))
        self._numbers[place] = self._writer.put(work)

    def first_single_row(self, task: str | None, rows: range, /) -> int:
        """Return the first of some rows whose earlier result counts until it is rerun; else their stop."""
        ended = self._ended.get(task, ())
        place = bisect.bisect_left(ended, rows.start)
        return min(ended[place], rows.stop) if place < len(ended) else rows.stop

    def rows_not_run(self, rows: RowsNotRun, /) -> None:
        """Record many rows that were never started, in one line."""
        place, task = self._place, rows.first.task
        self._step(lambda connection: write_never_began(connection, place.parts[task], rows))

    def superseding_record(self, row: Row, /) -> Mapping[str, Any] | None:
        """Return the durable record that counts instead of a row of this execution; None without one."""
        return self.record(row).json if (row.task, row.index) in self._standing else None

    def _marking(self, task: str | None, index: int) -> StepWrite:
        def write(connection: sqlite3.Connection) -> None:
            mark_rows(connection, self._place.parts[task], {Mark.RETRIED: [index]})

        return StepWrite(write)

    def take(self, task: str | None, index: int, record: Mapping[str, Any]) -> None:
        """Record a row whose record exists already, from any source."""
        self._writer.put(RowWrite(self._place, task, index, record))

    @property
    def media_folder(self) -> Path:
        """The folder of the media of the database."""
        return media_folder(self._writer.path)

    async def durable(self, row: Row | None = None, /, *, urgent: bool = True) -> None:
        """Return when writes are durable, or have failed. A checkpoint only if it has to wait.

        Args:
            row: A recorded row, with everything recorded before it, which is never urgent; None is everything
                until now.
            urgent: Whether the commit begins at once; otherwise it may wait for others.
        """
        if row is None:
            await self._writer.wait_done(urgent=urgent)
            return
        place = (row.task, row.index)
        if self._numbers.get(place, 0) > self._writer.done:
            await self._writer.wait_done(self._numbers[place], urgent=False)
        self._numbers.pop(place, None)  # not before: others may wait for the same row

    def recorded_reply(self, key: CallKey, /) -> RecordedReply | None:
        """Return the reply to this request that an earlier execution of the run recorded, if any.

        An unreadable one is ignored: the request is made again, and the first such case is reported.
        """
        part = self._parts.get(key.task)
        if not self._resumed or part is None:
            return None
        try:
            found = read_call(
                self._read(), part << INDEX_BITS | key.index, key, self._place.execution
            )
            if found is None:
                return None
            text, latency_ms, cached = found
            reply = read_reply(json.loads(text))
            if reply.media:
                from trioeval.providers.media import locate

                locate(reply.media, self.media_folder)
            return RecordedReply(reply, latency_ms, cached)
        except (ValueError, sqlite3.Error) as error:
            if not self._has_warned:
                self._has_warned = True
                self._writer.warn(
                    f"{self._writer.path}: a reply to row {key.index} cannot be read ({error}); "
                    "its call is made again, and so is that of each other unreadable reply"
                )
            return None

    def job(self, key: CallKey, /) -> StoredJob:
        """Return the record of the job of a call."""
        return StoredJob(key, self._place, self._writer, self._read, self._jobs)

    def recorded_replies(self, task: str | None, index: int) -> list[tuple[CallKey, RecordedReply]]:
        """Return all replies to a row that earlier executions of the run recorded and did not reject.

        Unreadable ones are left out.
        """
        keys = self._recorded(read_call_keys, task, index)
        found = ((key, self.recorded_reply(key)) for key in keys)
        return [(key, reply) for key, reply in found if reply is not None]

    def recorded_jobs(self, task: str | None, index: int) -> Sequence[tuple[CallKey, str]]:
        """Return the jobs of a row that earlier executions recorded; none if they are unreadable."""
        return self._recorded(read_jobs, task, index)

    def _recorded(
        self,
        read: Callable[[sqlite3.Connection, int, CallKey], Sequence[T]],
        task: str | None,
        index: int,
    ) -> Sequence[T]:
        part = self._parts.get(task)
        if not self._resumed or part is None:
            return ()
        try:
            row = CallKey(task, index, "provider", b"")
            return read(self._read(), part << INDEX_BITS | index, row)
        except sqlite3.Error:
            return ()

    def reject(self, key: CallKey, /) -> None:
        """Record that the reply to this request was unusable: no later execution reuses it."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE call SET recalled = 0 WHERE key = ? AND role = ? AND question = ?",
                (self._place.key(key.task, key.index), key.role, key.question),
            )

        self._step(write)

    def needs_new_reply(self, task: str | None, index: int, /) -> bool:
        """Return whether a row needs new replies instead of its earlier ones, including those of a cache."""
        return index in self._anew.get(task, ())

    def reused_rows(self, task: str | None, /) -> ReusedRows:
        """Return the rows of a task that are not run again."""
        return self._kept.get(task) or StoredKeptRows(
            self._source(task), None, frozenset(), self._read
        )

    def dataset(self, task: str | None, /) -> StoredDataset:
        """Return the journal of the dataset of a task."""
        from trioeval.store.dataset import StoredDataset

        return StoredDataset(self._writer, self._place, task, self._parts.get(task), self._read)

    def agents(self, task: str | None, /) -> StoredAgents:
        """Return the journal of the agents' processes of a task."""
        from trioeval.store.agent_processes import StoredAgents

        return StoredAgents(self._writer, self._place, task, self._parts.get(task), self._read)

    def record(self, row: Row) -> RowRecord:
        """Return the record of a row, as it is stored; or of the earlier one that counts instead."""
        if (row.task, row.index) in self._standing:
            with contextlib.suppress(StoreError):
                found = self.stored_record(row.task, row.index)
                if found is not None:
                    return RowRecord.of(found)
        return make_record(row, self._place)

    def stored_record(
        self, task: str | None, index: int, *, anew: bool = False
    ) -> Mapping[str, Any] | None:
        """Return the record of a row that is durable, or that could not be written; None without one.

        Args:
            task: The id of the task.
            index: The index of the row.
            anew: Whether an own connection reads: the common one sees an older state while a thread reads.

        Raises:
            StoreError: It cannot be read.
        """
        place, source = (task, index), self._source(task)
        text = self._place.unsaved.get(place)
        if text is None and task in self._place.parts:
            path = self._writer.path
            own = open_connection(path) if anew else contextlib.nullcontext(self._read())
            with own as connection:
                text = read_body(connection, self._place.key(*place), source)
        return None if text is None else source.parsed(index, text)

    def _source(self, task: str | None) -> RecordSource:
        return RecordSource(self._writer.path, task)

    def records(
        self, task: str | None, prompt_idx: int | None = None
    ) -> Iterator[Mapping[str, Any]]:
        """Yield all recorded rows of a task, or those of one prompt, by index; see `numbered`."""
        return (record for _, record in self.numbered(task, prompt_idx))

    def numbered(
        self, task: str | None, prompt_idx: int | None = None
    ) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield all recorded rows of a task, or those of one prompt, in order, each with its index.

        Rows that could not be written are included. Rows written during the iteration may be missing.

        Raises:
            StoreError: The database cannot be read, or one of the rows is damaged.
        """
        part, source = self._place.parts.get(task), self._source(task)
        stored: Iterator[tuple[int, str]] = iter(())
        if part is not None:
            stored = record_texts(self._read(), part, source, prompt_idx)
        unsaved = {
            index: text for (of, index), text in self._place.unsaved.copy().items() if of == task
        }
        for index, text in merged(stored, unsaved):
            found = source.parsed(index, text)
            # A row that could not be written may have any prompt.
            if prompt_idx is None or found["promptIdx"] == prompt_idx:
                yield index, found

    def observe(self, event: Event) -> None:
        """Record the events of lanes; an observer of the run."""
        if type(event) not in _RECORDED_EVENTS:
            return
        columns: Line
        match event:
            case Waiting(index=None, why=WaitReason.BLOCKED | WaitReason.PAUSED):
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
        if event.lane is not None:
            line = (self._since(event.at), plain(event.lane), *columns)
            self._writer.put(LineWrite(EVENT, self._place, None, None, line, lambda _place, it: it))

    def tests(self, task: str | None, tests: Iterator[Any]) -> None:
        """Record a suite's tests. They are read in the writer's thread, one by one."""

        def write(connection: sqlite3.Connection) -> None:
            part = self._place.parts[task]
            connection.execute("DELETE FROM test WHERE part = ?", (part,))
            lines: list[Line] = []
            for position, test in enumerate(tests):
                lines.append((part, position, stored_json(compact(test))))
                if len(lines) == _TESTS:
                    insert(connection, _TEST, lines)
                    lines.clear()
            insert(connection, _TEST, lines)

        self._step(write)

    def activity(self, facts: Mapping[str, Any]) -> None:
        """Record the activity of the lanes in this execution, as JSON data without secrets."""

        def write(connection: sqlite3.Connection) -> None:
            line = (self._place.number, self._place.execution, stored_json(compact(facts)))
            insert(connection, _ACTIVITY, [line])

        self._step(write)

    def activities(self) -> list[Mapping[str, Any]]:
        """Return the recorded and durable activity of all executions; nothing if it cannot be read."""
        with contextlib.suppress(ValueError, sqlite3.Error, StoreError):
            return read_activity(self._read(), self._place.number)
        return []

    def dataset_ended(self, result: DatasetResult, /) -> None:
        """Record how the dataset of a task ended."""
        from trioeval.report.columns import dataset_json

        place, task = self._place, result.task

        def write(connection: sqlite3.Connection) -> None:
            facts = hide_in(dataset_json(result), place.keys.get(task, ()))
            line = (place.parts[task], stored_json(compact(facts)))
            insert(connection, _DATASET_RESULT, [line])

        self._step(write)

    def finish(
        self,
        state: EndState,
        *,
        duration_ms: float,
        derived: Any = None,
        totals: Mapping[str | None, str] = MappingProxyType({}),
    ) -> None:
        """Record how this execution of the run ended, replacing earlier records of that.

        Nothing is written if another execution has started meanwhile.

        Args:
            state: Whether everything was done.
            duration_ms: Milliseconds that this execution took.
            derived: Derived metrics, as JSON data.
            totals: Results of `trioeval.report.kept_totals.kept_text` by task; reports of a task without them
                read all of its rows.
        """
        place, more_ms = self._place, duration_ms - self._reported_ms
        self._reported_ms = duration_ms

        def write(connection: sqlite3.Connection) -> None:
            finish_run(
                connection,
                place.number,
                place.execution,
                state,
                duration_ms=more_ms,
                derived=compact(derived),
                part_totals={place.parts[task]: text for task, text in totals.items()},
            )

        self._step(write)

    def release(self) -> None:
        """Release the run for others."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def is_released(self) -> bool:
        """True if others may run it."""
        return self._lock is None

    def _step(self, write: Callable[[sqlite3.Connection], None]) -> None:
        self._writer.put(StepWrite(write))

    def _since(self, at: float) -> float | None:
        return number(at - self._began)
