"""What is written down of datasets: made ready in the writer's thread, as JSON text."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from trioeval.columns.files import GroupFile
from trioeval.columns.files.formats import encode_json
from trioeval.columns.graph import Grouping
from trioeval.columns.journal import MadeRecord
from trioeval.columns.result import DroppedRow
from trioeval.providers.secrets import hide, hide_in
from trioeval.report.stored import DatasetFacts
from trioeval.store.records import plain, read_text, stored_json
from trioeval.store.schema import INDEX_BITS
from trioeval.store.writes import Line, LineWork, Place, Table

CELL = Table(
    "cell",
    ("key", "producer", "unit", "is_group", "digest", "made", "skipped", "tally", "execution"),
)
DROPPED = Table("dropped_row", ("key", "cause", "producer", "error", "error_kind", "attempts"))
WRITTEN = Table("written_group", ("part", "number", "rows", "numbers", "file", "digest", "dropped"))


def cell_work(
    place: Place,
    task: str | None,
    row: int,
    record: MadeRecord,
    warn: Callable[[str], None],
    *,
    is_group: bool,
) -> LineWork[MadeRecord]:
    """What one job has made.

    What holds a secret is not written down, for it could only be written as something else: it is made again
    by a later execution. So is what is no JSON.

    Args:
        place: Of the run.
        task: The id of the task.
        row: Whose key it has.
        record: It.
        warn: Told why it is not written down.
        is_group: Whether it is of a whole group.
    """
    columns = partial(_cell_columns, task=task, warn=warn, is_group=is_group)
    return LineWork(CELL, place, task, row, record, columns)


def _cell_columns(
    place: Place,
    record: MadeRecord,
    *,
    task: str | None,
    warn: Callable[[str], None],
    is_group: bool,
) -> Line | None:
    try:
        made = {str(row): dict(values) for row, values in record.values.items()}
        if hide_in(made, place.keys.get(task, ())) is not made:
            warn(f"what {record.producer} made is not written down: it holds a secret")
            return None
        text = encode_json(made)
    except (TypeError, ValueError, RecursionError) as error:
        warn(f"what {record.producer} made is not written down: {error}")
        return None
    return (
        record.producer,
        record.unit,
        int(is_group),
        record.digest,
        stored_json(text),
        encode_json(record.skipped) if record.skipped else None,
        encode_json(dict(record.tally)) if record.tally else None,
        place.execution,
    )


def drop_work(place: Place, task: str | None, row: DroppedRow) -> LineWork[DroppedRow]:
    """A row that is gone."""
    return LineWork(DROPPED, place, task, row.row, row, partial(_drop_columns, task=task))


def _drop_columns(place: Place, row: DroppedRow, *, task: str | None) -> Line:
    keys = place.keys.get(task, ())
    error = None if row.error is None else plain(hide(row.error, keys))
    return (row.cause, row.column, error, row.kind, row.attempts)


def dropped_of(line: Sequence[Any]) -> DroppedRow:
    """The row again: of a line whose key is its number."""
    row, cause, column, error, kind, attempts = line
    return DroppedRow(
        row=row, cause=cause, column=column, error=error, kind=kind, attempts=attempts
    )


def written_line(part: int, group: GroupFile) -> Line:
    """The line of a group that is written."""
    return (
        part,
        group.group,
        group.count,
        None if isinstance(group.rows, int) else encode_json(group.rows),
        group.file,
        group.digest,
        encode_json(dict(group.dropped)),
    )


def grouping_text(grouping: Grouping) -> str:
    """JSON text of a grouping."""
    return encode_json({"size": grouping.size, "targets": grouping.targets})


def is_longer(old: Grouping, new: Grouping) -> bool:
    """Whether a grouping is the same as an older one, perhaps with more groups behind it."""
    return new.size == old.size and new.targets[: len(old.targets)] == old.targets


def is_of_group(record: MadeRecord) -> bool:
    """Whether a record is of a whole group. One of a group of one row with its own number may be either."""
    return {*record.values, *record.skipped} != {record.unit}


def first_row(record: MadeRecord, grouping: Grouping) -> int:
    """The row whose key a record of a group has: the first one of the group.

    Raises:
        IndexError: There is no such group.
    """
    rows = {*record.values, *record.skipped}
    group = grouping.group_of(min(rows)) if rows else record.unit
    return grouping.rows_of(group).start


def made_of(line: Mapping[str, Any], text: str) -> MadeRecord:
    """A record again.

    Raises:
        ValueError: It is damaged.
    """
    values = {int(row): found for row, found in json.loads(text).items()}
    return MadeRecord(
        producer=line["producer"],
        unit=line["unit"],
        digest=line["digest"],
        values=values,
        skipped=tuple(json.loads(line["skipped"])) if line["skipped"] else (),
        tally=json.loads(line["tally"]) if line["tally"] else {},
    )


# What is known of datasets of stored runs, without their cells.


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
        f"SELECT key - {first}, {', '.join(DROPPED.columns[1:])} FROM dropped_row "  # noqa: S608
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
