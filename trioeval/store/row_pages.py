"""Pages of the rows of a run, which may be many and still growing.

A page starts after a row, not at a number of rows, so that rows added meanwhile move nothing. Rows are found
by their columns in the table of results; only those that are shown are read completely. Texts are in records
only, so a search reads records, a limited number at a time, and reports its progress.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.errors import StoreError
from trioeval.report.records import RowRecord
from trioeval.report.stored import StoredRunFacts
from trioeval.store.records import RecordSource, read_body
from trioeval.store.schema import INDEX_BITS

RowStatus: TypeAlias = Literal["pass", "fail", "error", "not_graded", "not_run"]

_LINES = (
    500  # a statement, so that a read transaction never keeps the log of a run from being truncated
)
_INDEX = (1 << INDEX_BITS) - 1


@attrs.frozen(kw_only=True)
class RowQuery:
    """A query of rows. The key of a row is its position in the order of all rows."""

    position: int | None = None
    """The position of their task in the run, from 0; None takes all tasks."""
    status: RowStatus | None = None
    column: int | None = None
    """The number of their prompt and provider, from 0."""
    text: str = ""
    """Text in their variables, prompt, output or reason, ignoring case."""
    after: int | None = None
    """The key of the previous row; None starts with the first one."""
    before: int | None = None
    """The key of the next row: the page ends with the one before it."""
    size: int = 50
    """The most rows of the page."""
    reads: int = 20_000
    """The most records that a search reads; they take about a third of a second."""
    characters: int = 100_000_000
    """The most characters that these have together, except the last one."""


@attrs.frozen(kw_only=True)
class PagedRow:
    """One row of a page."""

    key: int
    position: int
    """The position of its task in the run."""
    index: int
    status: str
    record: RowRecord | None
    """None if it is damaged."""


@attrs.frozen(kw_only=True)
class RowPage:
    """A page of rows, by their keys."""

    rows: list[PagedRow]
    total: int | None
    """The number of matching rows on all pages; None for a search, which does not know it."""
    earlier: bool
    """True if there may be more before these."""
    later: bool
    """True if there may be more after them."""
    searched: int | None = None
    """The key at which a search stopped; None if it reached the end or filled the page."""


def read_row_page(
    connection: sqlite3.Connection, path: Path, run: StoredRunFacts, query: RowQuery
) -> RowPage:
    """Return one page of rows.

    Raises:
        sqlite3.Error: The database cannot be read.
    """
    backward = query.before is not None
    chosen = {
        part: position
        for position, part in enumerate(run.parts)
        if query.position in {None, position}
    }
    found: list[PagedRow] = []
    last, broke_off, left = None, False, [query.reads, query.characters]
    for key, status in _keys(connection, sorted(chosen, reverse=backward), query):
        if len(found) > query.size or (query.text and min(left) <= 0):
            broke_off = len(found) <= query.size
            break
        last = key
        text = _text(connection, key, RecordSource(path, None))
        left = [left[0] - 1, left[1] - len(text or "")]
        if query.text and (text is None or not may_say(text, query.text)):
            continue
        record = None if text is None else _parsed(key, text, RecordSource(path, None))
        if not query.text or (record is not None and says(record, query.text)):
            position = chosen[key >> INDEX_BITS]
            found.append(
                PagedRow(
                    key=key, position=position, index=key & _INDEX, status=status, record=record
                )
            )
    more = len(found) > query.size or broke_off
    rows = found[: query.size]
    return RowPage(
        rows=rows[::-1] if backward else rows,
        total=None if query.text else _count(connection, list(chosen), query),
        earlier=more if backward else query.after is not None,
        later=backward or more,
        searched=last if broke_off else None,
    )


def says(record: RowRecord, text: str) -> bool:
    """Return whether a text occurs in a row's variables, prompt, output or reason.

    Example:
        >>> row = RowRecord.of({"vars": {"city": "Bern"}, "prompt": {"raw": "?"}})
        >>> says(row, "BERN"), says(row, "vars")
        (True, False)
    """
    needle = text.casefold()
    return any(needle in one.casefold() for one in _texts(record))


def may_say(json_text: str, text: str) -> bool:
    r"""Return whether a record may contain a text, by its JSON alone, so that most need not be parsed.

    Example:
        >>> may_say('{"a":"Bern"}', "BERN"), may_say('{"a":"Bern"}', "bär"), may_say("{}", "\n")
        (True, False, True)
    """
    is_plain = text.isprintable() and not {'"', "\\"} & {*text}
    return not is_plain or "\\u" in json_text or text.casefold() in json_text.casefold()


def _texts(row: RowRecord) -> Iterator[str]:
    reason = None if row.verdict is None else row.verdict.get("reason")
    for part in (row.vars, row.prompt, row.output, row.error, reason, row.test.get("description")):
        yield from _leaves(part)


def _leaves(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            left += [*one.values()][::-1]
        elif isinstance(one, list):
            left += one[::-1]
        elif one is not None:
            yield json.dumps(one)


def _text(connection: sqlite3.Connection, key: int, source: RecordSource) -> str | None:
    try:
        return read_body(connection, key, source)
    except (
        StoreError
    ):  # of this row alone; errors of the whole database occur again in the next statement
        return None


def _parsed(key: int, text: str, source: RecordSource) -> RowRecord | None:
    try:
        return RowRecord.of(source.parsed(key & _INDEX, text))
    except StoreError:  # as above
        return None


def _keys(
    connection: sqlite3.Connection, parts: list[int], query: RowQuery
) -> Iterator[tuple[int, str]]:
    """Yield the keys and statuses of matching rows, apart from their texts, from the start of the page."""
    backward = query.before is not None
    where, given = _chosen(query)
    order = "DESC" if backward else "ASC"
    statement = (
        f"SELECT key, status FROM result WHERE key > ? AND key < ? {where} "  # noqa: S608
        f"ORDER BY key {order} LIMIT {_LINES}"
    )
    for part in parts:
        low, high = (part << INDEX_BITS) - 1, part + 1 << INDEX_BITS
        if query.after is not None:
            low = max(low, query.after)
        if query.before is not None:
            high = min(high, query.before)
        while True:
            lines = connection.execute(statement, (low, high, *given)).fetchall()
            yield from lines
            if len(lines) < _LINES:
                break
            low, high = (low, lines[-1][0]) if backward else (lines[-1][0], high)


def _count(connection: sqlite3.Connection, parts: list[int], query: RowQuery) -> int:
    where, given = _chosen(query)
    statement = f"SELECT count(*) FROM result WHERE key BETWEEN ? AND ? {where}"  # noqa: S608
    return sum(
        connection.execute(
            statement, (part << INDEX_BITS, (part + 1 << INDEX_BITS) - 1, *given)
        ).fetchone()[0]
        for part in parts
    )


def _chosen(query: RowQuery) -> tuple[str, list[str | int]]:
    where, given = "", list[str | int]()
    for column, value in (("status", query.status), ("prompt", query.column)):
        if value is not None:
            where += f"AND {column} = ? "
            given.append(value)
    return where, given
