"""Writes of datasets, prepared in the writer's thread as JSON text."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from trioeval.columns.files import GroupFile
from trioeval.columns.files.formats import encode_json
from trioeval.columns.graph import RowGrouping
from trioeval.columns.journal import MadeRecord
from trioeval.columns.result import DroppedRow
from trioeval.providers.secrets import hide, hide_in
from trioeval.report.stored import DatasetFacts
from trioeval.store.records import plain, read_text, stored_json
from trioeval.store.run_list import keeps_datasets, written_rows
from trioeval.store.schema import INDEX_BITS
from trioeval.store.writes import InsertTable, Line, LineWrite, RunPlace

CELL = InsertTable(
    "cell",
    ("key", "producer", "unit", "is_group", "digest", "made", "skipped", "tally", "execution"),
)
DROPPED = InsertTable(
    "dropped_row", ("key", "cause", "producer", "error", "error_kind", "attempts")
)
WRITTEN = InsertTable(
    "written_group", ("part", "number", "rows", "numbers", "file", "digest", "dropped")
)


def cell_write(
    place: RunPlace,
    task: str | None,
    row: int,
    record: MadeRecord,
    warn: Callable[[str], None],
    *,
    is_group: bool,
) -> LineWrite[MadeRecord]:
    """Return the write of one job's result.

    A value with a secret is not stored, since it could only be stored changed: a later execution makes it
    again. The same applies to values that are not JSON.

    Args:
        place: The place of the run.
        task: The id of the task.
        row: The row whose key it has.
        record: The result.
        warn: Called with the reason if it is not stored.
        is_group: Whether it belongs to a whole group.
    """
    columns = partial(_cell_columns, task=task, warn=warn, is_group=is_group)
    return LineWrite(CELL, place, task, row, record, columns)


def _cell_columns(
    place: RunPlace,
    record: MadeRecord,
    *,
    task: str | None,
    warn: Callable[[str], None],
    is_group: bool,
) -> Line | None:
    try:
        made = {str(row): dict(values) for row, values in record.values.items()}
        if hide_in(made, place.keys.get(task, ())) is not made:
            warn(f"the result of {record.producer} is not stored: it contains a secret")
            return None
        text = encode_json(made)
    except (TypeError, ValueError, RecursionError) as error:
        warn(f"the result of {record.producer} is not stored: {error}")
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


def drop_write(place: RunPlace, task: str | None, row: DroppedRow) -> LineWrite[DroppedRow]:
    """Return the write of a row that was dropped."""
    return LineWrite(DROPPED, place, task, row.row, row, partial(_drop_columns, task=task))


def _drop_columns(place: RunPlace, row: DroppedRow, *, task: str | None) -> Line:
    keys = place.keys.get(task, ())
    error = None if row.error is None else plain(hide(row.error, keys))
    return (row.cause, row.column, error, row.kind, row.attempts)


def dropped_of(line: Sequence[Any]) -> DroppedRow:
    """Return the row again, from a line whose key is its number."""
    row, cause, column, error, kind, attempts = line
    return DroppedRow(
        row=row, cause=cause, column=column, error=error, kind=kind, attempts=attempts
    )


def written_line(part: int, group: GroupFile) -> Line:
    """Return the line of a group that is written."""
    return (
        part,
        group.group,
        group.count,
        None if isinstance(group.rows, int) else encode_json(group.rows),
        group.file,
        group.digest,
        encode_json(dict(group.dropped)),
    )


def grouping_text(grouping: RowGrouping) -> str:
    """Return the JSON text of a grouping."""
    return encode_json({"size": grouping.size, "targets": grouping.targets})


def is_longer(old: RowGrouping, new: RowGrouping) -> bool:
    """Return whether a grouping equals an older one, possibly with more groups at its end."""
    return new.size == old.size and new.targets[: len(old.targets)] == old.targets


def is_of_group(record: MadeRecord) -> bool:
    """Return whether a record belongs to a whole group; a group of one row may match both ways."""
    return {*record.values, *record.skipped} != {record.unit}


def first_row(record: MadeRecord, grouping: RowGrouping) -> int:
    """Return the row whose key a record of a group has: the first one of the group.

    Raises:
        IndexError: The group does not exist.
    """
    rows = {*record.values, *record.skipped}
    group = grouping.group_of(min(rows)) if rows else record.unit
    return grouping.rows_of(group).start


def made_of(line: Mapping[str, Any], text: str) -> MadeRecord:
    """Return a record again.

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


# Facts about datasets of stored runs, without their cells.


def read_dataset_facts(
    connection: sqlite3.Connection, task: str | None, part: int
) -> DatasetFacts | None:
    """Return the facts about the dataset of a part; None if it has none that was started, or ended.

    Raises:
        sqlite3.Error: It cannot be read.
        ValueError, KeyError: The stored data is damaged.
    """
    if not keeps_datasets(connection):
        return None
    identity = connection.execute(
        "SELECT grouping, fingerprint FROM dataset WHERE part = ?", (part,)
    ).fetchone()
    ended = connection.execute("SELECT body FROM dataset_result WHERE part = ?", (part,)).fetchone()
    if identity is None and ended is None:
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
        fingerprint={} if identity is None else json.loads(identity[1]),
        requested=None if identity is None else json.loads(identity[0])["targets"][-1],
        written=written_rows(connection, (part,)) or 0,
        dropped=dropped,
        result=None if ended is None else json.loads(read_text(ended[0])),
        is_processed=processed is not None,
    )


def read_dropped(
    connection: sqlite3.Connection, part: int, row: int | None, limit: int
) -> Sequence[DroppedRow]:
    """Return rows of the dataset of a part that were dropped, by number.

    Args:
        connection: The connection of the store.
        part: The number of the part.
        row: Only that row; None takes all.
        limit: The most rows.

    Raises:
        sqlite3.Error: They cannot be read.
    """
    if not keeps_datasets(connection):
        return ()
    first = part << INDEX_BITS
    keys = (first, first + (1 << INDEX_BITS) - 1) if row is None else (first + row, first + row)
    found = connection.execute(
        f"SELECT key - {first}, {', '.join(DROPPED.columns[1:])} FROM dropped_row "  # noqa: S608
        "WHERE key BETWEEN ? AND ? ORDER BY key LIMIT ?",
        (*keys, limit),
    )
    return [dropped_of(line) for line in found]
