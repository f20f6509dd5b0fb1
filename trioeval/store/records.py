"""Reading of rows and calls: one text at a time, to hold little memory and keep no read transaction long."""

import heapq
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs

from trioeval.errors import ProviderError, StoreError
from trioeval.evaluation.journal import CallKey
from trioeval.providers import Guardrails, Reply, ToolCall
from trioeval.report.phrases import compared_members, in_full
from trioeval.report.stored import StoredCall
from trioeval.store.database import store_error
from trioeval.store.schema import INDEX_BITS, RUNS
from trioeval.usage import Usage

# JSON texts in the database: most of them uncompressed, so that people can read them.
#
# A text of 16 KiB or more is compressed, and so is one with characters that SQLite mishandles, which are
# halves of surrogate pairs and NUL. A compressed text is a blob.


LONG = 16 * 1024
"""The size in bytes from which a text is compressed."""

LARGEST = 256 * 2**20
"""The most bytes of a text that is read."""
_ANY_RATIO = 16 * 2**20
"""Bytes up to which any compression ratio is accepted; beyond that:"""
_RATIO = 100
"""The largest accepted ratio of a text to its stored bytes."""

_LEVEL = 1  # three times as fast as the default, and hardly larger


def stored_json(text: str) -> str | bytes:
    r"""Return JSON text in its stored form.

    Example:
        >>> stored_json('{"a": "ü"}')
        '{"a": "ü"}'
        >>> type(stored_json('{"a": "\ud800"}')), type(stored_json('"\\u0000"'))
        (<class 'bytes'>, <class 'bytes'>)
        >>> len(stored_json('"' + 100_000 * "x" + '"')) < 1000
        True
    """
    if r"\u0000" in text or r"\ud" in text or r"\uD" in text:
        return _compressed(text)
    if text.isascii():
        return text if len(text) < LONG else _compressed(text)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # halves of surrogate pairs
        return _compressed(text)
    return text if size < LONG else _compressed(text)


def read_text(stored: str | bytes) -> str:
    r"""Return the text again; half of a surrogate pair becomes its JSON escape.

    Raises:
        ValueError: It is damaged, or unpacks to more than any text that is written.

    Example:
        >>> read_text(stored_json('"\ud800"'))
        '"\\ud800"'
        >>> read_text(stored_json("x" * 20_000)) == "x" * 20_000
        True
    """
    if isinstance(stored, str):
        return stored
    most = min(LARGEST, max(_ANY_RATIO, _RATIO * len(stored)))
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(stored, most + 1)
    except (zlib.error, TypeError) as error:
        raise ValueError(str(error)) from error
    if len(text) > most:
        raise ValueError(f"{len(stored):,} bytes unpack to more than {most:,}")
    if not unpacker.eof:
        raise ValueError("it is truncated")
    return text.decode()


def plain(text: str) -> str:
    r"""Return a short text for a column that people read; characters that SQLite mishandles are escaped.

    Example:
        >>> plain("a\0\ud800")
        'a\\x00\\ud800'
    """
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _compressed(text: str) -> bytes:
    data = text.encode("utf-8", "backslashreplace")
    packed = zlib.compress(data, _LEVEL)
    if len(data) > max(_ANY_RATIO, _RATIO * len(packed)):
        return zlib.compress(data, 0)  # stored uncompressed, so that the ratio stays in bounds
    return packed


def stored_record(short: str) -> str | bytes:
    """Return the stored form of the shortened text of a record of a row, which `read_record` reads.

    A compressed one has its phrases in full.
    """
    stored = stored_json(short)
    return stored if isinstance(stored, str) else stored_json(in_full(short))


def read_record(stored: str | bytes) -> str:
    """Return the text of a record again.

    Raises:
        ValueError: It is damaged, or unpacks to more than any text that is written.
    """
    text = read_text(stored)
    return in_full(text) if isinstance(stored, str) else text


def quick_record(stored: str | bytes) -> dict[str, Any] | None:
    """Return a record, parsed as fast as possible; None if only `read_record` reads it exactly.

    See `trioeval.report.phrases.compared_members` for what it lacks.
    """
    try:
        return compared_members(read_text(stored))
    except ValueError:  # damaged
        return None


# Replies as JSON data that restores the same reply.
#
# All of a reply is stored except its report of the provider's limits, which is obsolete by then. Values that
# JSON cannot hold are left out, and `left_out` says why.


LEFT_OUT = "left_out"
"""The key of the reasons."""

_FREE = ("output", "raw", "metadata")
_GRADED = frozenset({"output", "tool_calls"})
_SIMPLE = ("cost", "reasoning", "finish_reason", "refusal", "first_token")
_USAGE = tuple(field.name for field in attrs.fields(Usage))


def reply_json(reply: Reply) -> dict[str, Any] | None:
    """Return a reply, ready for `json.dumps`; None if output or tool calls could not be restored exactly.

    Example:
        >>> reply_json(Reply(output="4", cost=0.5))
        {'output': '4', 'cost': 0.5}
        >>> reply_json(Reply(output={1}))
    """
    found = reply_facts(reply)
    return None if _GRADED.intersection(found.get(LEFT_OUT, ())) else found


def reply_facts(reply: Reply) -> dict[str, Any]:
    """Return the same for any output.

    Example:
        >>> reply_facts(Reply(output={1}))
        {'left_out': {'output': 'a value of type set is not JSON data'}}
    """
    from trioeval.providers.local.record import json_fault

    facts: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for name in _FREE:
        value = getattr(reply, name)
        if isinstance(value, Mapping):
            value = dict(value)
        fault = None if isinstance(value, str) else json_fault(value)
        if fault is not None:
            left_out[name] = fault
        elif value or name == "output" or (name == "raw" and value is not None):
            facts[name] = value
    usage, rails, probs = reply.usage, reply.guardrails, reply.log_probs
    if reply.tool_calls:
        calls = [call.to_json() for call in reply.tool_calls]
        if (fault := json_fault(calls)) is None:
            facts["tool_calls"] = calls
        else:
            left_out["tool_calls"] = fault
    if reply.media:
        facts["media"] = [one.to_json() for one in reply.media]
    rest = {
        **{name: getattr(reply, name) for name in _SIMPLE},
        "text": reply.own_text,
        "usage": _usage_facts(usage),
        "guardrails": None if rails is None else attrs.asdict(rails),
        "log_probs": None if probs is None else list(map(float, probs)),
        LEFT_OUT: left_out or None,
    }
    return facts | {name: value for name, value in rest.items() if value is not None}


def _usage_facts(usage: Usage) -> dict[str, int] | None:
    return {name: count for name in _USAGE if (count := getattr(usage, name)) is not None} or None


def read_reply(data: Any) -> Reply:
    """Return the reply from its data.

    Raises:
        ValueError: The data is not that of a complete reply.

    Example:
        >>> read_reply({"output": "4", "usage": {"total": 2}}).usage.total
        2
    """
    try:
        facts = {name: value for name, value in data.items() if name != LEFT_OUT}
        if "tool_calls" in facts:
            facts["tool_calls"] = tuple(ToolCall(**call) for call in facts["tool_calls"])
        if "media" in facts:
            from trioeval.providers.media import from_json

            facts["media"] = tuple(map(from_json, facts["media"]))
        if "usage" in facts:
            facts["usage"] = Usage(**facts["usage"])
        if "guardrails" in facts:
            facts["guardrails"] = Guardrails(**facts["guardrails"])
        if "log_probs" in facts:
            facts["log_probs"] = tuple(facts["log_probs"])
        return Reply(**facts)
    except (AttributeError, TypeError) as error:
        raise ValueError(f"not a valid reply: {error}") from error


def error_facts(error: ProviderError) -> dict[str, Any]:
    """Return a failure, ready for `json.dumps`.

    Example:
        >>> error_facts(ProviderError("server", "no", status=500))
        {'kind': 'server', 'message': 'no', 'status': 500}
    """
    facts = {
        "kind": error.kind,
        "message": str(error.message),
        "status": error.status,
        "retry_after": error.retry_after,
        "body_excerpt": error.body_excerpt,
        "usage": _usage_facts(error.usage),
        "money": error.money,
        "finish_reason": error.finish_reason,
    }
    return {name: value for name, value in facts.items() if value is not None}


_PAGE = 500  # keys per statement

L = TypeVar("L", bound=tuple[Any, ...])


@attrs.frozen
class RecordSource:
    """The origin of rows, for messages."""

    path: Path
    task: str | None

    def parsed(self, index: int, text: str) -> dict[str, Any]:
        """Return the record of a row.

        Raises:
            StoreError: Its text is damaged.
        """
        try:
            record = json.loads(text)
        except ValueError as error:
            raise self.fault(index, error) from error
        if not isinstance(record, dict):
            raise self.fault(index, ValueError(f"it is {text[:20]}"))
        return record

    def read(self, index: int, stored: str | bytes) -> dict[str, Any]:
        """Return the record of a row from its stored form.

        Raises:
            StoreError: It is damaged.
        """
        try:
            text = read_record(stored)
        except ValueError as error:
            raise self.fault(index, error) from error
        return self.parsed(index, text)

    def fault(self, index: int, error: ValueError | sqlite3.Error) -> StoreError:
        """Return the error for a record that cannot be read: of the database, or of this text alone."""
        if isinstance(error, sqlite3.Error) and not _is_of_text(error):
            return store_error(self.path, RUNS, error)
        of = "" if self.task is None else f" of task {self.task}"
        return StoreError(
            f"{self.path}: the record of row {index}{of} is damaged ({error}); "
            "`trioeval resume` of its run runs this row again"
        )


def read_body(connection: sqlite3.Connection, key: int, source: RecordSource) -> str | None:
    """Return the text of one record; None if it does not exist.

    Raises:
        StoreError: It cannot be read.
    """
    try:
        found = connection.execute("SELECT body FROM record WHERE key = ?", (key,)).fetchone()
        return None if found is None else read_record(found[0])
    except (ValueError, sqlite3.Error) as error:
        raise source.fault(key & (1 << INDEX_BITS) - 1, error) from error


def record_texts(
    connection: sqlite3.Connection,
    part: int,
    source: RecordSource,
    prompt_idx: int | None = None,
    *,
    failed_only: bool = False,
) -> Iterator[tuple[int, str]]:
    """The rows of a part: index and text, by index.

    Args:
        connection: May be used for other things meanwhile.
        part: Its number.
        source: What it is, for messages.
        prompt_idx: Of one prompt alone.
        failed_only: Only rows that are not successes.

    Raises:
        StoreError: A text is damaged, or the database cannot be read.
    """
    chosen = "prompt = ? AND " if prompt_idx is not None else ""
    chosen += "status NOT IN ('pass', 'not_graded') AND " if failed_only else ""
    statement = (
        f"SELECT key FROM {'result' if chosen else 'record'} WHERE {chosen}key > ? AND key <= ? "  # noqa: S608
        f"ORDER BY key LIMIT {_PAGE}"
    )
    given = () if prompt_idx is None else (prompt_idx,)

    def read(keys: tuple[int, int]) -> list[tuple[int]]:
        try:
            return connection.execute(statement, (*given, *keys)).fetchall()
        except sqlite3.Error as error:
            raise store_error(source.path, RUNS, error) from error

    for (key,) in _in_pages(part, read):
        text = read_body(connection, key, source)
        if text is not None:
            yield key & (1 << INDEX_BITS) - 1, text


def fact_bodies(
    connection: sqlite3.Connection, part: int, source: RecordSource
) -> Iterator[tuple[int, str, str, str | bytes]]:
    """Yield the key, status, outcome and stored record of each row of a part, by index.

    Args:
        connection: May be used for other things meanwhile.
        part: Its number.
        source: What it is, for messages.

    Raises:
        StoreError: A text is not valid, or the database cannot be read.
    """

    def read(keys: tuple[int, int]) -> list[tuple[int, str, str, str | bytes]]:
        try:
            return connection.execute(
                "SELECT key, status, outcome, body FROM result JOIN record USING (key) "
                "WHERE key > ? AND key <= ? ORDER BY key LIMIT ?",
                (*keys, _PAGE),
            ).fetchall()
        except sqlite3.Error as error:
            if not _is_of_text(error):
                raise store_error(source.path, RUNS, error) from error
            return _checked_page(connection, keys, source)

    return _in_pages(part, read)


def _in_pages(part: int, read: Callable[[tuple[int, int]], list[L]]) -> Iterator[L]:
    """Yield the lines of a part, which begin with their keys, one statement for many of them.

    Args:
        part: Its number.
        read: Returns the first `_PAGE` lines behind a key, and up to another one.
    """
    key, last = (part << INDEX_BITS) - 1, (part + 1 << INDEX_BITS) - 1
    while True:
        page = read((key, last))
        yield from page
        if len(page) < _PAGE:
            return
        key = page[-1][0]


def _checked_page(
    connection: sqlite3.Connection, keys: tuple[int, int], source: RecordSource
) -> list[tuple[int, str, str, str | bytes]]:
    """Return a page row by row, so that a damaged text is reported with its row."""
    lines = connection.execute(
        "SELECT key, status, outcome FROM result WHERE key > ? AND key <= ? ORDER BY key LIMIT ?",
        (*keys, _PAGE),
    ).fetchall()
    return [(*line, read_body(connection, line[0], source) or "") for line in lines]


def is_unreadable(body: bytes, is_text: bool) -> bool:  # noqa: FBT001 - called by SQLite
    """Return whether a body is damaged in a way that SQLite itself does not detect.

    Args:
        body: The body as bytes.
        is_text: Whether it was stored as a text, whose JSON SQLite checks.
    """
    try:
        if is_text:
            body.decode()
        else:
            json.loads(read_text(body))
    except ValueError:
        return True
    return False


def _is_of_text(error: sqlite3.Error) -> bool:
    """Return whether an error is about an invalid text, which only Python's module detects."""
    return isinstance(error, sqlite3.OperationalError) and not hasattr(error, "sqlite_errorcode")


def merged(
    stored: Iterator[tuple[int, str]], unsaved: Mapping[int, str]
) -> Iterator[tuple[int, str]]:
    """Yield texts by index, with those that could not be written in place of the stored ones."""
    if not unsaved:
        return stored
    kept = ((index, text) for index, text in stored if index not in unsaved)
    return heapq.merge(kept, sorted(unsaved.items()))


def read_calls(connection: sqlite3.Connection, key: int) -> list[StoredCall]:
    """Return all calls of a row, in the order in which they ended."""
    lines = connection.execute(
        "SELECT role, provider, execution, prompt, reply, error, latency_ms, tokens, cost, cached "
        "FROM call WHERE key = ? ORDER BY call",
        (key,),
    )
    return [
        StoredCall(
            role=role,
            provider=provider,
            execution=execution,
            prompt=json.loads(read_text(prompt)),
            reply=None if reply is None else json.loads(read_text(reply)),
            error=None if error is None else json.loads(error),
            latency_ms=latency_ms,
            tokens=tokens,
            cost=cost,
            cached=bool(cached),
        )
        for role, provider, execution, prompt, reply, error, latency_ms, tokens, cost, cached in lines
    ]


def read_call_keys(connection: sqlite3.Connection, key: int, row: CallKey) -> list[CallKey]:
    """Return the keys of all replies to a row that may be used again."""
    found = connection.execute(
        "SELECT DISTINCT role, question, row_id FROM call WHERE key = ? AND recalled", (key,)
    )
    return [
        attrs.evolve(row, role=role, question=question, row=row_id)
        for role, question, row_id in found
    ]


def has_reply(connection: sqlite3.Connection, key: int, call: CallKey) -> bool:
    """Return whether a reply to a question of a row is recorded, also if it is not to be used again."""
    found = connection.execute(
        "SELECT 1 FROM call WHERE key = ? AND role = ? AND question = ? AND row_id = ? "
        "AND reply IS NOT NULL LIMIT 1",
        (key, call.role, call.question, call.row),
    )
    return found.fetchone() is not None


def read_call(
    connection: sqlite3.Connection, key: int, call: CallKey, execution: int
) -> tuple[str, float, bool] | None:
    """The last good reply to a question of a row from before an execution: text, latency, cached."""
    found = connection.execute(
        "SELECT reply, latency_ms, cached FROM call WHERE key = ? AND role = ? AND question = ? "
        "AND row_id = ? AND recalled AND execution < ? ORDER BY call DESC LIMIT 1",
        (key, call.role, call.question, call.row, execution),
    ).fetchone()
    return None if found is None else (read_text(found[0]), found[1] or 0.0, bool(found[2]))


@attrs.define(eq=False, repr=False)
class StoredKeptRows:
    """The rows of one task that are not run again."""

    _source: RecordSource
    _part: int | None
    _indices: frozenset[int]
    _read: Callable[[], sqlite3.Connection]

    def __contains__(self, index: object) -> bool:
        return index in self._indices

    def __len__(self) -> int:
        return len(self._indices)

    def record(self, index: int, /) -> Mapping[str, Any]:
        """Return the record of a row.

        Raises:
            KeyError: The row is not among them.
            StoreError: It cannot be read.
        """
        if index not in self._indices or self._part is None:
            raise KeyError(index)
        text = read_body(self._read(), self._part << INDEX_BITS | index, self._source)
        if text is None:
            raise KeyError(index)
        return self._source.parsed(index, text)
