"""Writes to the store: prepared in the writer's thread, then inserted into tables, many at a time.

Preparation needs no database, so that the file is locked only while statements run. Statements insert many
lines each: a thread that needs the interpreter lock after every line gets it late from a busy event loop.
"""

import functools
import json
import logging
import math
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import attrs

from trioeval.errors import ProviderError
from trioeval.evaluation.identity import Identities, recorded_row_id
from trioeval.evaluation.journal import CallRecord
from trioeval.evaluation.status import Status
from trioeval.grading.algebra import components
from trioeval.providers import Reply
from trioeval.providers.base import Media
from trioeval.providers.secrets import hide, hide_in, spellings
from trioeval.report.formats.json import compact, read_compact
from trioeval.report.phrases import IN_FULL, SHORT, Phrases, in_full, shortened
from trioeval.report.records import RowRecord
from trioeval.report.row import row_json, row_text
from trioeval.run import Row
from trioeval.store.records import (
    LEFT_OUT,
    error_facts,
    has_reply,
    plain,
    reply_facts,
    stored_json,
    stored_record,
)
from trioeval.store.schema import INDEX_BITS

# The values of a record and of a call that have their own columns, for queries and for people.
#
# A column without a value in the record is empty.


Value: TypeAlias = str | bytes | float | None
Line: TypeAlias = tuple[Value, ...]


class InsertTable(NamedTuple):
    """A table into which lines are inserted."""

    name: str
    columns: Sequence[str]


RESULT = InsertTable(
    "result",
    (
        *(
            "key",
            "row_id",
            "content",
            "test",
            "prompt",
            "repeat",
            "status",
            "outcome",
            "error_kind",
        ),
        *("score", "latency_ms", "wait_ms", "calls", "tokens", "cost", "cached"),
    ),
)
RECORD = InsertTable("record", ("key", "body"))
SCORE = InsertTable(
    "score", ("key", "position", "type", "metric", "passed", "score", "weight", "reason")
)
CALL = InsertTable(
    "call",
    (
        *(
            "key",
            "row_id",
            "role",
            "question",
            "provider",
            "prompt",
            "reply",
            "error",
            "error_kind",
        ),
        *("latency_ms", "tokens", "cost", "cached", "recalled", "execution"),
    ),
)
EVENT = InsertTable(
    "event",
    (
        *("run", "execution", "at_s", "lane", "kind", "row", "until_s", "retry_after_s"),
        *("concurrency", "reason"),
    ),
)

_LONGEST_REASON = 2000  # characters; the record has all of it
_LARGEST = 2**63 - 1


def result_columns(record: RowRecord) -> Line:
    """Return the columns from `test` on, without `repeat`.

    Example:
        >>> result_columns(
        ...     RowRecord.of(
        ...         {"failureReason": 1, "score": 0.5, "testIdx": 3, "tokenUsage": {"total": 7}}
        ...     )
        ... )
        (3, 0, 'fail', 'done', None, 0.5, None, None, None, 7, None, 0)
    """
    own, judges = record.own, record.usage.get("assertions")
    cost, grading_cost = number(record.cost), number(record.grading_cost)
    return (
        count(record.test_idx),
        count(record.prompt_idx),
        record.status.value,
        plain(record.outcome),
        _text(own.get("errorKind")),
        None if record.counted_score is None else number(record.json.get("score")),
        number(record.latency_ms),
        number(own.get("waitMs")),
        None if (calls := own.get("attempts")) is None else count(calls),
        _used(record.usage, is_cached=record.is_cached)
        + (_used(judges, is_cached=True) if isinstance(judges, dict) else 0),
        None if cost is None and grading_cost is None else (cost or 0.0) + (grading_cost or 0.0),
        int(record.is_cached),
    )


def row_columns(row: Row) -> Line:
    """Return the same columns of a row, without its record."""
    reply, lost, judged = row.reply, row.lost, row.spent
    cost = None if reply is None else number(reply.cost)
    is_cached = reply is not None and row.cached
    tokens = 0 if reply is None or (is_cached and not lost.calls) else count(reply.usage.reported)
    for spent in (lost, judged):
        if spent.calls:
            tokens += count(spent.usage.reported)
        if spent.cost is not None:
            cost = (cost or 0.0) + spent.cost
    return (
        row.step.test_idx,
        row.step.prompt_idx,
        row.status.value,
        row.outcome,
        row.error_kind,
        None if row.status is Status.NOT_GRADED else number(row.score),
        number(row.latency_ms),
        number(row.wait_ms),
        row.calls,
        tokens,
        cost,
        int(is_cached),
    )


def _used(usage: Mapping[str, Any], *, is_cached: bool) -> int:
    """Return the tokens used for a row; none for cached replies, for which no request was made."""
    return 0 if is_cached and usage.get("numRequests") == 0 else count(usage.get("total"))


def score_columns(record: RowRecord) -> Iterator[Line]:
    """Yield a line for each judged assertion, from `position` on."""
    for position, part in enumerate(record.parts):
        reason = _text(part.reason)
        yield (
            position,
            _text(part.assertion.get("type")),
            _text(part.assertion.get("metric")),
            int(part.passed),
            number(part.score),
            number(part.assertion.get("weight", 1.0)),
            None if reason is None else reason[:_LONGEST_REASON],
        )


def row_scores(row: Row) -> Iterator[Line]:
    """Yield the same lines of a row, without its record."""
    parts = row.graded if row.verdict is None else row.verdict.parts
    for position, part in enumerate(components(parts)):
        kind, metric, weight = None, None, 1.0
        if (assertion := part.assertion) is not None:
            kind, metric, weight = assertion.type, assertion.metric, assertion.weight
        yield (
            position,
            _text(kind),
            _text(metric),
            int(part.passed),
            number(part.score),
            number(weight),
            plain(part.reason)[:_LONGEST_REASON],
        )


def _text(value: Any) -> str | None:
    return plain(value) if isinstance(value, str) else None


def number(value: Any) -> float | None:
    """Return a finite number for a column; None for any other value."""
    if type(value) is float and math.isfinite(value):
        return value
    if not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def count(value: Any) -> int:
    """Return a whole number for a column; 0 for any other value."""
    return min(int(value), _LARGEST) if isinstance(value, int) and value > 0 else 0


_log = logging.getLogger("trioeval.store")

_STEPS = (64, 32, *range(16, 0, -1))  # lines per statement; few enough for the cache of statements
_TEXTS = (str, bytes)


class PendingWrite:
    """A pending write."""

    __slots__ = ()

    def make(self) -> int:
        """Prepare it in the writer's thread, without the database; return its approximate size in bytes."""
        return 0

    def lose(self) -> None:
        """Keep what is needed of it, as it will not be written. Called after `make`."""

    @property
    def media(self) -> Sequence[Media]:
        """The media whose files must exist before it is written."""
        return ()


@attrs.define(eq=False, repr=False, kw_only=True)
class RunPlace:
    """The place of a run in the database; known once it has started there."""

    eval_id: str
    keys: Mapping[str | None, Sequence[str]] = attrs.field(factory=dict)
    number: int = 0
    execution: int = 1
    parts: dict[str | None, int] = attrs.field(factory=dict)
    unsaved: dict[tuple[str | None, int], str] = attrs.field(factory=dict)
    """Texts of records that could not be written."""
    identities: Identities = attrs.field(factory=Identities)

    def key(self, task: str | None, index: int) -> int:
        """Return the key of a row."""
        return self.parts[task] << INDEX_BITS | index


@attrs.define(eq=False, repr=False)
class RowWrite(PendingWrite):
    """The write of a row, or of a record that exists already."""

    place: RunPlace
    task: str | None
    index: int
    what: Row | Mapping[str, Any]
    _short: str = ""
    """The text of its record, shortened."""
    _columns: Line = ()
    _scores: Sequence[Line] = ()

    def make(self) -> int:
        """Make its record."""
        if isinstance(self.what, Row):
            self._make_row(self.what)
        else:
            self._make_record(self.what, (recorded_row_id(self.what), None), None)
        return len(self._short)

    def _make_row(self, row: Row) -> None:
        place, step = self.place, row.planned or row.step
        identity = place.identities.of(step, row.provider)
        row_identity = (identity.id, identity.content)
        keys = place.keys.get(row.task, ())
        written, text = written_row(row, place.eval_id, SHORT)
        if _may_hold(text, keys):
            record = hide_in(row_json(written, place.eval_id), keys)
            self._make_record(record, row_identity, step.repeat_index)
            return
        self._short = text
        test, prompt, *rest = row_columns(written)
        self._columns = (*row_identity, test, prompt, step.repeat_index, *rest)
        self._scores = [*row_scores(written)]

    def _make_record(
        self, found: Mapping[str, Any], row_identity: Line, repeat: int | None
    ) -> None:
        record = RowRecord.of(found)
        self._short = shortened(record.text)
        test, prompt, *rest = result_columns(record)
        self._columns = (*row_identity, test, prompt, repeat, *rest)
        self._scores = [*score_columns(record)]

    def lose(self) -> None:
        """Keep its text, if it could be made."""
        if self._short:
            self.place.unsaved[self.task, self.index] = in_full(self._short)

    @property
    def media(self) -> Sequence[Media]:
        """The media of its reply."""
        reply = self.what.reply if isinstance(self.what, Row) else None
        return () if reply is None else reply.media

    def lines(self) -> tuple[Line, Line, Iterator[Line]]:
        """Return its line in the table of results, that of its record, and those of its scores."""
        key = self.place.key(self.task, self.index)
        return (
            (key, *self._columns),
            (key, stored_record(self._short)),
            ((key, *score) for score in self._scores),
        )


def make_record(row: Row, place: RunPlace) -> RowRecord:
    """Return the record of a row with its text; if it cannot be serialized, as much as possible."""
    keys = place.keys.get(row.task, ())
    _, text = written_row(row, place.eval_id)
    record = read_compact(text)
    if _may_hold(text, keys):
        record = hide_in(record, keys)
        text = compact(record)
    return RowRecord.of(record, text)


def written_row(row: Row, eval_id: str, words: Phrases = IN_FULL) -> tuple[Row, str]:
    """Return a row and its text; if it cannot be serialized, a row with as much of it as possible."""
    try:
        return row, row_text(row, eval_id, words)
    except Exception as error:  # noqa: BLE001 - user objects may raise anything
        message = f"the row cannot be stored: {type(error).__name__} while it was serialized"
        _log.warning("row %d: %s", row.index, message)
        bare = attrs.evolve(
            row, reply=None, output=None, verdict=None, graded=(), details={}, error=message
        )
        return bare, row_text(bare, eval_id, words)


def _may_hold(text: str, keys: Sequence[str]) -> bool:
    """Return whether a text may contain a key: a quick test that is false for nearly every text."""
    return any(spellings(key).core in text for key in keys)


T = TypeVar("T")


@attrs.define(eq=False, repr=False)
class LineWrite(PendingWrite, Generic[T]):
    """The write of a line of a table.

    Many wait in the queue, so it is one object: closures would be ten for the garbage collector.
    """

    table: InsertTable
    place: RunPlace
    task: str | None
    index: int | None
    """The index of its row; None if the line belongs to the run."""
    what: T
    columns: Callable[[RunPlace, T], Line | None]
    """Makes all columns except the key; None if nothing of it is stored."""
    _made: Line | None = attrs.field(init=False, default=None)

    def make(self) -> int:
        """Prepare what needs no database."""
        self._made = self.columns(self.place, self.what)
        return sum([len(value) for value in self._made or () if isinstance(value, _TEXTS)])

    @property
    def media(self) -> Sequence[Media]:
        """The media of the reply to a call."""
        what = self.what
        reply = what.answer if isinstance(what, CallRecord) else None
        return reply.media if isinstance(reply, Reply) else ()

    @property
    def line(self) -> Line | None:
        """Return the complete line, in a transaction; None if there is none."""
        if self._made is None:
            return None
        if self.index is None:
            return (self.place.number, self.place.execution, *self._made)
        return (self.place.key(self.task, self.index), *self._made)


def call_write(place: RunPlace, call: CallRecord) -> LineWrite[CallRecord]:
    """Return the write of a call that ended."""
    return LineWrite(CALL, place, call.key.task, call.key.index, call, _call_columns)


def earlier(place: RunPlace) -> RunPlace:
    """Return the place of the execution before: a run does not read its own records again."""
    return attrs.evolve(place, execution=max(1, place.execution - 1))


def recovered_calls(
    connection: sqlite3.Connection, place: RunPlace, calls: Iterable[CallRecord]
) -> Sequence[LineWrite[CallRecord]]:
    """Return the writes of replies that an earlier execution received, except those that are recorded.

    Calls of tasks that the run no longer has are left out.
    """
    before = earlier(place)
    return [
        call_write(before, one)
        for one in calls
        if one.key.task in place.parts
        and not has_reply(connection, place.key(one.key.task, one.key.index), one.key)
    ]


def _call_columns(place: RunPlace, call: CallRecord) -> Line:
    call_key, answer, keys = call.key, call.answer, place.keys.get(call.key.task, ())
    reply: str | bytes | None = None
    error: str | None = None
    kind: str | None = None
    recalled = False
    if isinstance(answer, ProviderError):
        error, kind = plain(_encode(hide_in(error_facts(answer), keys))), answer.kind
        tokens, cost = answer.usage.reported, answer.money
    else:
        text, recalled = _reply_text(answer, keys)
        reply = stored_json(text)
        tokens, cost = answer.usage.reported, answer.cost
    return (
        call_key.row,
        call_key.role,
        call_key.question,
        plain(call.provider),
        stored_json(compact(hide(call.prompt, keys))),
        reply,
        error,
        kind,
        number(call.latency_ms),
        None if tokens is None else count(tokens),
        number(cost),
        int(call.cached),
        int(recalled),
        place.execution,
    )


def _reply_text(reply: Reply, keys: Sequence[str]) -> tuple[str, bool]:
    """Return the JSON text of a reply, and whether it may be reused as the reply."""
    try:
        facts = reply_facts(reply)
        text = compact(facts)
        if _may_hold(text, keys) and (hidden := hide_in(facts, keys)) is not facts:
            return _encode(hidden), False  # it differs from the reply that was returned
        # `left_out` may be about a number that JSON does not have, which is not lost here.
        return _encode(facts) if "null" in text else text, LEFT_OUT not in facts
    except Exception as error:  # noqa: BLE001 - user objects may raise anything
        reason = f"{type(error).__name__} while it was written"
        return _encode({LEFT_OUT: {"output": reason}}), False


@attrs.frozen(eq=False)
class StepWrite(PendingWrite):
    """Any other write, in its order."""

    write: Callable[[sqlite3.Connection], None]
    ready: Callable[[], None] | None = None
    """The preparation, without the database."""

    def make(self) -> int:
        """Do what needs no database."""
        if self.ready is not None:
            self.ready()
        return 0


def write_batch(connection: sqlite3.Connection, works: Iterable[PendingWrite]) -> None:
    """Insert writes into their tables, in an open transaction. Iterators of scores are not consumed."""
    rows: list[RowWrite] = []
    lines: dict[InsertTable, list[Line]] = {}

    def flush() -> None:
        _write_rows(connection, rows)
        rows.clear()
        for table, own in lines.items():
            insert(connection, table, own)
        lines.clear()

    for work in works:
        if work.media and isinstance(work, RowWrite | LineWrite):
            named = [(work.place.number, one.file) for one in work.media]
            connection.executemany("INSERT OR IGNORE INTO media (run, file) VALUES (?, ?)", named)
        match work:
            case RowWrite():
                rows.append(work)
            case LineWrite(line=line) if line is not None:
                lines.setdefault(work.table, []).append(line)
            case StepWrite():
                flush()
                work.write(connection)
            case _:
                pass
    flush()


def _write_rows(connection: sqlite3.Connection, rows: Sequence[RowWrite]) -> None:
    if not rows:
        return
    results, records, scores = [], [], []
    last = {row.place.key(row.task, row.index): row for row in rows}
    for key in sorted(last):  # in order, so that pages become full
        result, record, own = last[key].lines()
        results.append(result)
        records.append(record)
        scores += [*own]
    keys = json.dumps([result[0] for result in results])
    connection.execute("DELETE FROM score WHERE key IN (SELECT value FROM json_each(?))", (keys,))
    for table, lines in ((RESULT, results), (RECORD, records), (SCORE, scores)):
        insert(connection, table, lines)


def insert(connection: sqlite3.Connection, table: InsertTable, lines: Sequence[Line]) -> None:
    """Insert lines, or replace those with the same key."""
    start = 0
    for size in _STEPS:
        while len(lines) - start >= size:
            part = lines[start : start + size]
            values = [value for line in part for value in line]
            connection.execute(_insertion(table, size), values)
            start += size


@functools.cache
def _insertion(table: InsertTable, lines: int) -> str:
    """Return the statement that inserts so many lines."""
    name, columns = table
    one = f"({','.join('?' * len(columns))})"
    return f"INSERT OR REPLACE INTO {name} ({','.join(columns)}) VALUES {','.join([one] * lines)}"  # noqa: S608


_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
