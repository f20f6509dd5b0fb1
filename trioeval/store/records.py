"""Reading rows and calls: a page of them at a time, so that no reader holds up the log for long."""

import heapq
import sqlite3
from collections.abc import Iterator, Mapping

from trioeval.store.payloads import read_text
from trioeval.store.schema import INDEX_BITS

_PAGE = 200  # rows a statement


def read_body(connection: sqlite3.Connection, key: int) -> str | None:
    """The text of one record."""
    found = connection.execute("SELECT body FROM record WHERE key = ?", (key,)).fetchone()
    return None if found is None else read_text(found[0])


def record_texts(
    connection: sqlite3.Connection,
    part: int,
    prompt_idx: int | None = None,
    *,
    failed_only: bool = False,
) -> Iterator[tuple[int, str]]:
    """The rows of a part: index and text, by index.

    Args:
        connection: May be used for other things meanwhile.
        part: Its number.
        prompt_idx: Of one prompt alone.
        failed_only: Only what did not pass.
    """
    key, last = (part << INDEX_BITS) - 1, (part + 1 << INDEX_BITS) - 1
    chosen = "result.prompt = ? AND " if prompt_idx is not None else ""
    chosen += "result.status <> 'pass' AND " if failed_only else ""
    table = "record" if not chosen else "result CROSS JOIN record USING (key)"
    column = "result.key" if chosen else "key"
    statement = (
        f"SELECT {column}, body FROM {table} WHERE {chosen}{column} > ? AND {column} <= ? "  # noqa: S608
        f"ORDER BY {column} LIMIT {_PAGE}"
    )
    given = () if prompt_idx is None else (prompt_idx,)
    while True:
        page = connection.execute(statement, (*given, key, last)).fetchall()
        for key, body in page:
            yield key & (1 << INDEX_BITS) - 1, read_text(body)
        if len(page) < _PAGE:
            return


def merged(stored: Iterator[tuple[int, str]], unsaved: Mapping[int, str]) -> Iterator[str]:
    """Texts by index, those that could not be written in place of what is stored."""
    if not unsaved:
        yield from (text for _, text in stored)
        return
    kept = ((index, text) for index, text in stored if index not in unsaved)
    yield from (text for _, text in heapq.merge(kept, sorted(unsaved.items())))


def read_call(
    connection: sqlite3.Connection, key: int, role: str, question: bytes, execution: int
) -> tuple[str, float, bool] | None:
    """The last good reply to a question of a row from before an execution: text, latency, cached."""
    found = connection.execute(
        "SELECT reply, latency_ms, cached FROM call WHERE key = ? AND role = ? AND question = ? "
        "AND recalled AND execution < ? ORDER BY call DESC LIMIT 1",
        (key, role, question, execution),
    ).fetchone()
    return None if found is None else (read_text(found[0]), found[1] or 0.0, bool(found[2]))
