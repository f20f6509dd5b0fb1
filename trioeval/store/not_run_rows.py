"""Rows that were never started, as they are stored: one line for many, since they do not differ.

They belong to the last execution of their run. When the run is resumed they are deleted, and run like any row
that was not recorded.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from trioeval.question_eval import question_of
from trioeval.report.formats.json import compact
from trioeval.run import RowsNotRun
from trioeval.store.records import plain
from trioeval.store.schema import INDEX_BITS

if TYPE_CHECKING:
    from trioeval.question_eval.counts import QuestionOutcome


@attrs.frozen
class NotRunRows:
    """A range of consecutive rows of a task."""

    rows: range
    outcome: str
    error: str | None
    """The reason why they were not started."""
    question: QuestionOutcome | None
    """The outcome of their questions, for a task of questions."""
    columns: Mapping[int, int]
    """Numbers of rows by column number."""


def write_never_began(connection: sqlite3.Connection, part: int, rows: RowsNotRun) -> None:
    """Record rows that were never started, in place of earlier records of them; their calls stay."""
    first, stop = rows.indices.start, rows.indices.stop
    base = part << INDEX_BITS
    for table in ("result", "record", "score"):
        connection.execute(
            f"DELETE FROM {table} WHERE key >= ? AND key < ?",  # noqa: S608
            (base | first, base + stop),
        )
    error, question = rows.first.error, question_of(rows.first)
    connection.execute(
        "INSERT OR REPLACE INTO never_began (part, first, stop, outcome, error, question, columns) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            part,
            first,
            stop,
            rows.first.outcome,
            None if error is None else plain(error),
            None if question is None else question.outcome,
            compact({str(column): count for column, count in rows.columns.items()}),
        ),
    )


def read_never_began(connection: sqlite3.Connection, part: int) -> Sequence[NotRunRows]:
    """Return the recorded ranges of rows of a part that were never started, by index.

    Raises:
        ValueError: It is damaged.
    """
    if not _keeps_them(connection):
        return ()
    lines = connection.execute(
        "SELECT first, stop, outcome, error, question, columns FROM never_began "
        "WHERE part = ? ORDER BY first",
        (part,),
    )
    return [
        NotRunRows(range(first, stop), outcome, error, question, _columns(columns))
        for first, stop, outcome, error, question, columns in lines
    ]


def count_never_began(connection: sqlite3.Connection, part: int) -> Mapping[str, int]:
    """Return how many rows of a part were never started, by their outcome."""
    if not _keeps_them(connection):
        return {}
    lines = connection.execute(
        "SELECT outcome, sum(stop - first) FROM never_began WHERE part = ? GROUP BY outcome",
        (part,),
    )
    return dict(lines.fetchall())


def _keeps_them(connection: sqlite3.Connection) -> bool:
    """Return whether the store has the table; stores of earlier versions, opened for reading, lack it."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'never_began'")
    return found.fetchone() is not None


def _columns(text: str) -> Mapping[int, int]:
    return {int(column): int(count) for column, count in json.loads(text).items()}
