"""What is written down: made ready in the writer's thread, then laid into tables, many at a time.

Making it ready needs no database, so that the file is locked only as long as statements run. Statements
insert many lines each: a thread that has to ask for the interpreter after every line gets it late from a
busy event loop.
"""

import json
import logging
import math
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import attrs

from trioeval.errors import ProviderError
from trioeval.evaluation.identity import Identities, row_id_of
from trioeval.evaluation.journal import CallRecord
from trioeval.providers import Reply
from trioeval.providers.secrets import hide, hide_in, spelt
from trioeval.report import row_json
from trioeval.report.formats.json import compact
from trioeval.report.records import RowRecord
from trioeval.run import Row
from trioeval.store.records import LEFT_OUT, error_facts, plain, reply_facts, stored_json
from trioeval.store.schema import INDEX_BITS

# What of a record and of a call stands in columns of its own, for queries and for people.
#
# Of what a record lacks, the column is empty.


Value: TypeAlias = str | bytes | float | None

RESULT = [
    "key",
    "row_id",
    "content",
    "test",
    "prompt",
    "repeat",
    "status",
    "outcome",
    "error_kind",
    "score",
    "latency_ms",
    "wait_ms",
    "calls",
    "tokens",
    "cost",
    "cached",
]
"""The columns of a result."""

SCORE = ["key", "position", "type", "metric", "passed", "score", "weight", "reason"]
"""The columns of one assertion's verdict."""

_LONGEST_REASON = 2000  # characters; the record has all of it
_LARGEST = 2**63 - 1


def result_columns(record: RowRecord) -> tuple[Value, ...]:
    """What stands in the columns from `test` on, without `repeat`.

    Example:
        >>> result_columns(
        ...     RowRecord.of(
        ...         {"failureReason": 1, "score": 0.5, "testIdx": 3, "tokenUsage": {"total": 7}}
        ...     )
        ... )
        (3, 0, 'fail', 'done', None, 0.5, None, None, None, 7, None, 0)
    """
    own, judges = record.own, record.usage.get("assertions")
    cost, grading_cost = _number(record.cost), _number(record.grading_cost)
    return (
        _count(record.test_idx),
        _count(record.prompt_idx),
        record.status.value,
        plain(record.outcome),
        _text(own.get("errorKind")),
        _number(record.json.get("score")),
        _number(record.latency_ms),
        _number(own.get("waitMs")),
        count(own.get("attempts")),
        _used(record.usage, is_cached=record.is_cached)
        + (_used(judges, is_cached=True) if isinstance(judges, Mapping) else 0),
        None if cost is None and grading_cost is None else (cost or 0.0) + (grading_cost or 0.0),
        int(record.is_cached),
    )


def _used(usage: Mapping[str, Any], *, is_cached: bool) -> int:
    """Tokens that were used for a row; none for replies from the cache, for which there was no request."""
    return 0 if is_cached and usage.get("numRequests") == 0 else _count(usage.get("total"))


def score_columns(record: RowRecord) -> Iterator[tuple[Value, ...]]:
    """A line an assertion that was judged, from `position` on."""
    for position, part in enumerate(record.parts):
        reason = _text(part.reason)
        yield (
            position,
            _text(part.said.get("type")),
            _text(part.said.get("metric")),
            int(part.passed),
            _number(part.score),
            _number(part.said.get("weight", 1.0)),
            None if reason is None else reason[:_LONGEST_REASON],
        )


def number(value: Any) -> float | None:
    """A finite number for a column; None of what is none."""
    return _number(value)


def count(value: Any) -> int | None:
    """A whole number for a column; None of what is none."""
    return None if value is None else _count(value)


def _text(value: Any) -> str | None:
    return plain(value) if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    if type(value) is float and math.isfinite(value):
        return value
    if not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _count(value: Any) -> int:
    return min(int(value), _LARGEST) if isinstance(value, int) and value > 0 else 0


_log = logging.getLogger("trioeval.store")

CALL = [
    "key",
    "row_id",
    "role",
    "question",
    "provider",
    "prompt",
    "reply",
    "error",
    "error_kind",
    "latency_ms",
    "tokens",
    "cost",
    "cached",
    "recalled",
    "execution",
]
EVENT = [
    "run",
    "execution",
    "at_s",
    "lane",
    "kind",
    "row",
    "until_s",
    "retry_after_s",
    "concurrency",
    "reason",
]

_RECENT = 1000  # rows
_RECENT_SIZE = 16 * 2**20  # characters
_STEPS = (64, 16, 4, 1)  # lines a statement


class Work(Protocol):
    """Something that is to be written down."""

    def make(self) -> int:
        """Make it ready, in the writer's thread; how many bytes it has, about."""
        ...

    def lose(self) -> None:
        """It will not be written: keep what is needed of it. Called after `make`."""
        ...


@attrs.define(eq=False)
class Recent:
    """The records that were made last, for whoever shows them in a moment. One thread puts, others look."""

    _by_place: dict[tuple[str | None, int], RowRecord] = attrs.field(factory=dict)
    _order: deque[tuple[tuple[str | None, int], int]] = attrs.field(factory=deque)
    _size: int = 0

    def put(self, place: tuple[str | None, int], record: RowRecord, size: int) -> None:
        """Keep one of so many characters, and forget the oldest where there are too many."""
        self._by_place[place] = record
        self._order.append((place, size))
        self._size += size
        while len(self._order) > _RECENT or (self._size > _RECENT_SIZE and len(self._order) > 1):
            oldest, gone = self._order.popleft()
            self._size -= gone
            if oldest != place:
                self._by_place.pop(oldest, None)

    def get(self, place: tuple[str | None, int]) -> RowRecord | None:
        """One of them, if it is there still."""
        return self._by_place.get(place)


@attrs.define(eq=False, kw_only=True)
class Place:
    """Where in the database a run is written; known once it has begun there."""

    eval_id: str
    keys: Mapping[str | None, Sequence[str]] = attrs.field(factory=dict, repr=False)
    number: int = 0
    execution: int = 1
    parts: dict[str | None, int] = attrs.field(factory=dict)
    recent: Recent = attrs.field(factory=Recent, repr=False)
    unsaved: dict[tuple[str | None, int], str] = attrs.field(factory=dict, repr=False)
    """Texts of records that could not be written."""
    identities: Identities = attrs.field(factory=Identities, repr=False)

    def key(self, task: str | None, index: int) -> int:
        """The key of a row."""
        return self.parts[task] << INDEX_BITS | index


@attrs.define(eq=False)
class RowWork:
    """A row, or a record that is ready."""

    place: Place
    task: str | None
    index: int
    what: Row | Mapping[str, Any]
    text: str = ""
    _columns: tuple[Value, ...] = ()
    _scores: Sequence[tuple[Value, ...]] = ()

    def make(self) -> int:
        """Make its record."""
        if isinstance(self.what, Row):
            row = self.what
            record = make_record(row, self.place)
            step = row.planned or row.step
            identity = self.place.identities.of(step, row.provider)
            who: tuple[Value, Value] = (identity.id, identity.content)
            repeat: int | None = step.repeat_index
        else:
            record, repeat = RowRecord.of(self.what, compact(self.what)), None
            who = (row_id_of(self.what), None)
        self.text = record.text
        test, prompt, *rest = result_columns(record)
        self._columns = (*who, test, prompt, repeat, *rest)
        self._scores = [*score_columns(record)]
        self.place.recent.put((self.task, self.index), record, len(self.text))
        return len(self.text)

    def lose(self) -> None:
        """Keep its text, if it could be made."""
        if self.text:
            self.place.unsaved[self.task, self.index] = self.text

    def lines(self) -> tuple[tuple[Value, ...], tuple[Value, ...], Iterator[tuple[Value, ...]]]:
        """Its line in the table of results, that of its record, and those of its scores."""
        key = self.place.key(self.task, self.index)
        return (
            (key, *self._columns),
            (key, stored_json(self.text)),
            ((key, *score) for score in self._scores),
        )


def make_record(row: Row, place: Place) -> RowRecord:
    """The record of a row with its text; of one that cannot be told, what can be."""
    keys = place.keys.get(row.task, ())
    try:
        return _told(row, place.eval_id, keys)
    except Exception as error:  # noqa: BLE001 - objects of users may do anything when looked at
        told = f"the row cannot be written down: {type(error).__name__} while it was looked at"
        _log.warning("row %d: %s", row.index, told)
        bare = attrs.evolve(
            row, reply=None, output=None, verdict=None, graded=(), details={}, error=told
        )
        return _told(bare, place.eval_id, keys)


def _told(row: Row, eval_id: str, keys: Sequence[str]) -> RowRecord:
    record: Mapping[str, Any] = row_json(row, eval_id)
    text = compact(record)
    if _may_hold(text, keys):
        record = hide_in(record, keys)
        text = compact(record)
    return RowRecord.of(record, text)


def _may_hold(text: str, keys: Sequence[str]) -> bool:
    """A quick look that finds none in nearly every text, however its parts are spelt."""
    return any(spelt(key).core in text for key in keys)


@attrs.define(eq=False)
class CallWork:
    """A call that ended."""

    place: Place
    call: CallRecord
    _columns: tuple[Value, ...] = ()

    def make(self) -> int:
        """Make the texts of what was asked and answered."""
        call = self.call
        reply: str | bytes | None = None
        error: str | None = None
        kind: str | None = None
        tokens: int | None = None
        cost: float | None = None
        recalled = False
        size = len(call.prompt)
        answer, keys = call.answer, self.place.keys.get(call.key.task, ())
        if isinstance(answer, ProviderError):
            error, kind = plain(_encode(hide_in(error_facts(answer), keys))), answer.kind
            tokens, cost = count(answer.tokens), number(answer.money)
        else:
            text, recalled = _reply_text(answer, keys)
            size += len(text)
            reply = stored_json(text)
            tokens, cost = count(answer.usage.total), number(answer.cost)
        self._columns = (
            call.key.row,
            call.key.role,
            call.key.question,
            plain(call.provider),
            stored_json(compact(hide(call.prompt, keys))),
            reply,
            error,
            kind,
            number(call.latency_ms),
            tokens,
            cost,
            int(call.cached),
            int(recalled),
            self.place.execution,
        )
        return size

    def lose(self) -> None:
        """Nothing can be done with it in this execution."""

    def line(self) -> tuple[Value, ...]:
        """Its line in the table of calls."""
        return (self.place.key(self.call.key.task, self.call.key.index), *self._columns)


def _reply_text(reply: Reply, keys: Sequence[str]) -> tuple[str, bool]:
    """The JSON text of a reply, and whether it may be taken for the reply again."""
    try:
        told = reply_facts(reply)
        text = compact(told)
        if _may_hold(text, keys) and (hidden := hide_in(told, keys)) is not told:
            return _encode(hidden), False  # another reply than the one that was given
        # It may stand for a number that JSON does not have, which is not lost here.
        return _encode(told) if "null" in text else text, LEFT_OUT not in told
    except Exception as error:  # noqa: BLE001 - objects of users may do anything when looked at
        reason = f"{type(error).__name__} while it was written"
        return _encode({LEFT_OUT: {"output": reason}}), False


@attrs.frozen(eq=False)
class EventWork:
    """What befell a lane."""

    place: Place
    columns: tuple[Value, ...]
    """From `at_s` on."""

    def make(self) -> int:
        """It is ready."""
        return 0

    def lose(self) -> None:
        """It is of no use by itself."""

    def line(self) -> tuple[Value, ...]:
        """Its line in the table of events."""
        return (self.place.number, self.place.execution, *self.columns)


@attrs.frozen(eq=False)
class StepWork:
    """Anything else that is done in its turn."""

    write: Callable[[sqlite3.Connection], None]
    ready: Callable[[], None] | None = None
    """What is done before, without the database."""

    def make(self) -> int:
        """Do what needs no database."""
        if self.ready is not None:
            self.ready()
        return 0

    def lose(self) -> None:
        """It is of no use without the file."""


def insert(
    connection: sqlite3.Connection,
    table: str,
    columns: Sequence[str],
    lines: Sequence[tuple[Value, ...]],
) -> None:
    """Insert lines, or put them in place of those with the same key."""
    start = 0
    for size in _STEPS:
        if len(lines) - start < size:
            continue
        one = f"({','.join('?' * len(columns))})"
        statement = (
            f"INSERT OR REPLACE INTO {table} ({','.join(columns)}) VALUES {','.join([one] * size)}"  # noqa: S608
        )
        while len(lines) - start >= size:
            part = lines[start : start + size]
            connection.execute(statement, [value for line in part for value in line])
            start += size


_encode = json.JSONEncoder(ensure_ascii=False, default=str).encode
