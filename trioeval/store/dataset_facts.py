"""What is known of datasets of stored runs, without their cells."""

import json
import sqlite3
from collections.abc import Sequence

from trioeval.datasets.result import DroppedRow
from trioeval.store.dataset_works import DROPPED, dropped_of
from trioeval.store.facts import DatasetFacts
from trioeval.store.payloads import read_text
from trioeval.store.schema import INDEX_BITS


def read_dataset_facts(
    connection: sqlite3.Connection, task: str | None, part: int
) -> DatasetFacts | None:
    """What is known of the dataset of a part; None if it has none that was begun, or ended.

    Raises:
        sqlite3.Error: It cannot be read.
        ValueError, KeyError: It is damaged.
    """
    if not _keeps_datasets(connection):
        return None
    begun = connection.execute(
        "SELECT grouping, fingerprint FROM dataset WHERE part = ?", (part,)
    ).fetchone()
    ended = connection.execute("SELECT body FROM dataset_result WHERE part = ?", (part,)).fetchone()
    if begun is None and ended is None:
        return None
    processed = connection.execute(
        "SELECT 1 FROM dataset_stage "
        "WHERE part = ? AND name = 'after_generation' AND state LIKE 'done%'",
        (part,),
    ).fetchone()
    first = part << INDEX_BITS
    (dropped,) = connection.execute(
        "SELECT count(*) FROM dropped_row WHERE key BETWEEN ? AND ?",
        (first, first + (1 << INDEX_BITS) - 1),
    ).fetchone()
    return DatasetFacts(
        task=task,
        fingerprint={} if begun is None else json.loads(begun[1]),
        requested=None if begun is None else json.loads(begun[0])["targets"][-1],
        written=written_rows(connection, (part,)) or 0,
        dropped=dropped,
        result=None if ended is None else json.loads(read_text(ended[0])),
        is_processed=processed is not None,
    )


def read_dropped(
    connection: sqlite3.Connection, part: int, row: int | None, limit: int
) -> Sequence[DroppedRow]:
    """Rows of the dataset of a part that are not there, by their numbers.

    Args:
        connection: That of the store.
        part: The number of the part.
        row: Only that row; None is all of them.
        limit: At most so many.

    Raises:
        sqlite3.Error: They cannot be read.
    """
    if not _keeps_datasets(connection):
        return ()
    first = part << INDEX_BITS
    keys = (first, first + (1 << INDEX_BITS) - 1) if row is None else (first + row, first + row)
    found = connection.execute(
        f"SELECT key - {first}, {', '.join(DROPPED[1:])} FROM dropped_row "  # noqa: S608
        "WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
        (*keys, limit),
    )
    return [dropped_of(line) for line in found]


def written_rows(connection: sqlite3.Connection, parts: Sequence[int]) -> int | None:
    """Rows of datasets that are written, of several parts; None if none of them has a dataset."""
    if not _keeps_datasets(connection):
        return None
    numbers = json.dumps(list(parts))
    datasets, rows = connection.execute(
        "SELECT (SELECT count(*) FROM dataset WHERE part IN (SELECT value FROM json_each(?1))), "
        "(SELECT coalesce(sum(rows), 0) FROM written_group "
        "WHERE part IN (SELECT value FROM json_each(?1)))",
        (numbers,),
    ).fetchone()
    return rows if datasets else None


def _keeps_datasets(connection: sqlite3.Connection) -> bool:
    """Whether the store has tables of datasets: one of version 1, which is only read, has none."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'dataset_result'")
    return found.fetchone() is not None
