"""Reading rows and calls: one text at a time, so that as little is held as can be, and no log for long."""

import heapq
import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import StoreError
from trioeval.store.database import store_error
from trioeval.store.facts import StoredCall
from trioeval.store.payloads import read_text
from trioeval.store.schema import INDEX_BITS, RUNS
from trioeval.tasks.journal import CallKey

_PAGE = 500  # keys a statement


@attrs.frozen
class Source:
    """Where rows are read from, for messages."""

    path: Path
    task: str | None

    def parsed(self, index: int, text: str) -> dict[str, Any]:
        """The record of a row.

        Raises:
            StoreError: Its text is damaged.
        """
        try:
            record = json.loads(text)
        except ValueError as error:
            raise self.fault(index, error) from error
        if not isinstance(record, dict):
            raise self.fault(index, ValueError(f"it holds {text[:20]}"))
        return record

    def fault(self, index: int, error: ValueError | sqlite3.Error) -> StoreError:
        """Why the record of a row cannot be read: the database is at fault, or this text alone."""
        if isinstance(error, sqlite3.Error) and not _is_of_text(error):
            return store_error(self.path, RUNS, error)
        of = "" if self.task is None else f" of task {self.task}"
        return StoreError(
            f"{self.path}: the record of row {index}{of} is damaged ({error}); "
            "`trioeval resume` of its run makes this row again"
        )


def read_body(connection: sqlite3.Connection, key: int, source: Source) -> str | None:
    """The text of one record; None if there is none.

    Raises:
        StoreError: It cannot be read.
    """
    try:
        found = connection.execute("SELECT body FROM record WHERE key = ?", (key,)).fetchone()
        return None if found is None else read_text(found[0])
    except (ValueError, sqlite3.Error) as error:
        raise source.fault(key & (1 << INDEX_BITS) - 1, error) from error


def record_texts(
    connection: sqlite3.Connection,
    part: int,
    source: Source,
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
        failed_only: Only what did not pass.

    Raises:
        StoreError: A text is damaged, or the database cannot be read.
    """
    key, last = (part << INDEX_BITS) - 1, (part + 1 << INDEX_BITS) - 1
    chosen = "prompt = ? AND " if prompt_idx is not None else ""
    chosen += "status <> 'pass' AND " if failed_only else ""
    statement = (
        f"SELECT key FROM {'result' if chosen else 'record'} WHERE {chosen}key > ? AND key <= ? "  # noqa: S608
        f"ORDER BY key LIMIT {_PAGE}"
    )
    given = () if prompt_idx is None else (prompt_idx,)
    while True:
        try:
            page = connection.execute(statement, (*given, key, last)).fetchall()
        except sqlite3.Error as error:
            raise store_error(source.path, RUNS, error) from error
        for (key,) in page:
            text = read_body(connection, key, source)
            if text is not None:
                yield key & (1 << INDEX_BITS) - 1, text
        if len(page) < _PAGE:
            return


def is_unreadable(body: bytes, is_text: bool) -> bool:  # noqa: FBT001 - called by SQLite
    """Whether a body is damaged in a way that SQLite itself does not see.

    Args:
        body: As bytes.
        is_text: Whether it was stored as a text, whose JSON SQLite looks through.
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
    """Whether it is about a text that is none, which only the module of Python looks at."""
    return isinstance(error, sqlite3.OperationalError) and not hasattr(error, "sqlite_errorcode")


def merged(
    stored: Iterator[tuple[int, str]], unsaved: Mapping[int, str]
) -> Iterator[tuple[int, str]]:
    """Texts by index, those that could not be written in place of what is stored."""
    if not unsaved:
        return stored
    kept = ((index, text) for index, text in stored if index not in unsaved)
    return heapq.merge(kept, sorted(unsaved.items()))


def read_calls(connection: sqlite3.Connection, key: int) -> list[StoredCall]:
    """All calls of a row, in the order in which they ended."""
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


def read_call(
    connection: sqlite3.Connection, key: int, asked: CallKey, execution: int
) -> tuple[str, float, bool] | None:
    """The last good reply to a question of a row from before an execution: text, latency, cached."""
    found = connection.execute(
        "SELECT reply, latency_ms, cached FROM call WHERE key = ? AND role = ? AND question = ? "
        "AND row_id = ? AND recalled AND execution < ? ORDER BY call DESC LIMIT 1",
        (key, asked.role, asked.question, asked.row, execution),
    ).fetchone()
    return None if found is None else (read_text(found[0]), found[1] or 0.0, bool(found[2]))
