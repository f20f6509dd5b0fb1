"""Rows that never began, as they are stored: a line for many, since nothing tells them apart.

They are those of the last execution of their run. When the run goes on they are forgotten, as if they had
never been heard of, and are run like any row that was not written down.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence

import attrs

from trioeval.question_eval.answer import QuestionOutcome
from trioeval.question_eval.result import question_of
from trioeval.report.formats.json import compact
from trioeval.run import RowsNotRun
from trioeval.store.records import plain
from trioeval.store.schema import INDEX_BITS


@attrs.frozen
class NeverBegan:
    """Rows of a task that follow each other."""

    rows: range
    outcome: str
    error: str | None
    """Why they never began."""
    question: QuestionOutcome | None
    """How their questions ended, where they are such."""
    columns: Mapping[int, int]
    """How many each column has, by its number."""


def write_never_began(connection: sqlite3.Connection, part: int, rows: RowsNotRun) -> None:
    """Write down rows that never began, in place of what is there of them; their calls stay."""
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


def read_never_began(connection: sqlite3.Connection, part: int) -> Sequence[NeverBegan]:
    """What is written down of rows of a part that never began, by their indices.

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
        NeverBegan(range(first, stop), outcome, error, question, _columns(columns))
        for first, stop, outcome, error, question, columns in lines
    ]


def count_never_began(connection: sqlite3.Connection, part: int) -> Mapping[str, int]:
    """How many rows of a part never began, by how they ended."""
    if not _keeps_them(connection):
        return {}
    lines = connection.execute(
        "SELECT outcome, sum(stop - first) FROM never_began WHERE part = ? GROUP BY outcome",
        (part,),
    )
    return dict(lines.fetchall())


def _keeps_them(connection: sqlite3.Connection) -> bool:
    """Whether the store has the table: one of an earlier version, which is only read, has none."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'never_began'")
    return found.fetchone() is not None


def _columns(text: str) -> Mapping[int, int]:
    return {int(column): int(count) for column, count in json.loads(text).items()}
