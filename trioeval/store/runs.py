"""The record of a run except its rows: its start, resumption, end and deletion."""

import enum
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trioeval.report.formats.json import compact
from trioeval.report.phrases import shortened
from trioeval.report.stored import EndState, RunStart
from trioeval.store.database import media_folder
from trioeval.store.records import plain, read_record, read_text, stored_json, stored_record
from trioeval.store.run_list import has_table, key_range, part_numbers, totals
from trioeval.store.schema import INDEX_BITS

_KEYED = ("result", "record", "score", "call", "job")
"""Tables of rows."""

_OF_PARTS = (
    "test",
    "dataset",
    "dataset_result",
    "never_began",
    "written_group",
    "group_again",
    "dataset_stage",
    "part_totals",
    "part",
)
"""Tables of other data of a part."""


def begin_run(connection: sqlite3.Connection, start: RunStart) -> tuple[int, dict[str | None, int]]:
    """Record the start of a run; return its number, and those of its parts."""
    number = connection.execute(
        "INSERT INTO run (id, suite, description, state, utc_created, executions, duration_ms, versions, "
        "flags, files) VALUES (?, ?, ?, 'open', ?, 1, 0, ?, ?, ?) RETURNING run",
        (
            plain(start.id),
            None if start.suite is None else plain(start.suite),
            None if start.description is None else plain(start.description),
            plain(start.utc_created),
            *(plain(compact(dict(fact))) for fact in (start.versions, start.flags, start.files)),
        ),
    ).fetchone()[0]
    parts = [_begin_part(connection, number, start, place) for place in range(len(start.tasks))]
    return number, dict(zip(start.tasks, parts, strict=True))


def _begin_part(connection: sqlite3.Connection, number: int, start: RunStart, position: int) -> int:
    head = start.heads[position] if start.heads else {}
    task = start.tasks[position]
    part: int = connection.execute(
        "INSERT INTO part (run, position, task, expected, head) VALUES (?, ?, ?, ?, ?) RETURNING part",
        (number, position, task, start.rows.get(task), stored_json(compact(dict(head)))),
    ).fetchone()[0]
    return part


def record_resumption(connection: sqlite3.Connection, number: int, start: RunStart) -> int:
    """Record that a run is resumed; return the number of this execution."""
    execution: int = connection.execute(
        "UPDATE run SET state = 'open', utc_finished = NULL, totals = NULL, derived = NULL, "
        "executions = executions + 1, flags = ?, files = ? WHERE run = ? RETURNING executions",
        (
            *(plain(compact(dict(fact))) for fact in (start.flags, start.files)),
            number,
        ),
    ).fetchone()[0]
    connection.execute(
        "DELETE FROM never_began WHERE part IN (SELECT part FROM part WHERE run = ?)", (number,)
    )
    _forget_totals(connection, number)
    if start.heads:
        _change_parts(connection, number, start)
    return execution


def store_suite(
    connection: sqlite3.Connection, number: int, start: RunStart
) -> dict[str | None, int]:
    """Record the suite of a run that has started; return the numbers of its parts."""
    connection.execute(
        "UPDATE run SET suite = ?, description = ?, versions = ?, flags = ?, files = ? WHERE run = ?",
        (
            None if start.suite is None else plain(start.suite),
            None if start.description is None else plain(start.description),
            *(plain(compact(dict(fact))) for fact in (start.versions, start.flags, start.files)),
            number,
        ),
    )
    _change_parts(connection, number, start)
    found = connection.execute("SELECT task, part FROM part WHERE run = ?", (number,))
    return dict(found.fetchall())


def _change_parts(connection: sqlite3.Connection, number: int, start: RunStart) -> None:
    """Give a run the tasks that its suite has now; delete all data of tasks that it no longer has."""
    there = dict(
        connection.execute("SELECT task, part FROM part WHERE run = ?", (number,)).fetchall()
    )
    for task in there.keys() - set(start.tasks):
        _delete_part(connection, there[task])
    # Move them away first, since their positions are reused.
    connection.execute("UPDATE part SET position = -1 - position WHERE run = ?", (number,))
    for position, (task, head) in enumerate(zip(start.tasks, start.heads, strict=True)):
        if task not in there:
            _begin_part(connection, number, start, position)
            continue
        connection.execute(
            "UPDATE part SET position = ?, expected = coalesce(?, expected), head = ? WHERE part = ?",
            (position, start.rows.get(task), stored_json(compact(dict(head))), there[task]),
        )


def finish_run(
    connection: sqlite3.Connection,
    number: int,
    execution: int,
    state: EndState,
    *,
    duration_ms: float,
    derived: str,
    part_totals: Mapping[int, str],
) -> None:
    """Record how an execution of a run ended, and the totals of the run.

    Nothing is written if another execution has followed. A finished run has nothing queued any more.

    Args:
        connection: In a transaction.
        number: The number of the run.
        execution: The execution that has ended.
        state: How it ended.
        duration_ms: Milliseconds to add to the duration of the run.
        derived: Derived metrics, as JSON text.
        part_totals: Results of `report.kept_totals.kept_text` by the number of a part, as far as known.
    """
    changed = connection.execute(
        "UPDATE run SET state = ?, utc_finished = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), "
        "duration_ms = duration_ms + ?, derived = ?, totals = ? WHERE run = ? AND executions = ?",
        (
            state,
            duration_ms,
            plain(derived),
            compact(totals(connection, number)),
            number,
            execution,
        ),
    )
    if not changed.rowcount:
        return
    _forget_totals(connection, number)
    connection.executemany(
        "INSERT INTO part_totals (part, body) VALUES (?, ?)",
        [(part, stored_json(text)) for part, text in part_totals.items()],
    )
    if state == "finished":
        forget_run(connection, number)


def _forget_totals(connection: sqlite3.Connection, number: int) -> None:
    connection.execute(
        "DELETE FROM part_totals WHERE part IN (SELECT part FROM part WHERE run = ?)", (number,)
    )


def read_part_totals(connection: sqlite3.Connection, part: int) -> str | None:
    """Return the text of the totals of a part; None if they were not kept."""
    if not has_table(connection, "part_totals"):
        return None
    found = connection.execute("SELECT body FROM part_totals WHERE part = ?", (part,)).fetchone()
    return None if found is None else read_text(found[0])


def read_activity(connection: sqlite3.Connection, number: int) -> list[Mapping[str, Any]]:
    """Return the activity of lanes for each execution of a run that came to its end, in order."""
    lines = connection.execute(
        "SELECT body FROM activity WHERE run = ? ORDER BY execution", (number,)
    )
    return [json.loads(read_text(body)) for (body,) in lines]


def delete_run(connection: sqlite3.Connection, number: int) -> None:
    """Delete a run and all data that belongs to it."""
    for part in part_numbers(connection, number):
        _delete_part(connection, part)
    forget_run(connection, number)
    for table in ("event", "activity", "media", "run"):
        connection.execute(f"DELETE FROM {table} WHERE run = ?", (number,))  # noqa: S608


def remove_media(connection: sqlite3.Connection, path: Path) -> int:
    """Remove the files of media that no run names; return their number. In a transaction.

    Args:
        connection: The database.
        path: Its file.
    """
    from trioeval.store.media import remove_unnamed

    folder = media_folder(path)
    if not folder.is_dir():
        return 0
    named = {file for (file,) in connection.execute("SELECT DISTINCT file FROM media")}
    return remove_unnamed(folder, named)


def _delete_part(connection: sqlite3.Connection, part: int) -> None:
    for table in (*_KEYED, "cell", "dropped_row", "running_attempt"):
        connection.execute(f"DELETE FROM {table} WHERE key BETWEEN ? AND ?", key_range(part))  # noqa: S608
    for table in _OF_PARTS:
        connection.execute(f"DELETE FROM {table} WHERE part = ?", (part,))  # noqa: S608


def delete_rows_from(connection: sqlite3.Connection, part: int, first: int) -> None:
    """Delete the rows of a part from an index on. In a transaction."""
    start, end = key_range(part)
    for table in _KEYED:
        connection.execute(f"DELETE FROM {table} WHERE key BETWEEN ? AND ?", (start + first, end))  # noqa: S608


class Mark(enum.IntEnum):
    """The meanings of the column `again` of a row."""

    KEPT = 0
    """It is run again only if it did not finish."""
    RETRIED = 1
    """It is run again, and counts until the new run has finished."""
    CHANGED = 2
    """It is run again, and has changed since: it does not count."""


def mark_rows(
    connection: sqlite3.Connection, part: int, marks: Mapping[Mark, Iterable[int]]
) -> None:
    """Mark rows of a part."""
    base = part << INDEX_BITS
    for mark, indices in marks.items():
        connection.executemany(
            f"UPDATE result SET again = {mark:d} WHERE key = ?",  # noqa: S608
            ((base | index,) for index in indices),
        )


def forget_replies(connection: sqlite3.Connection, part: int, indices: Iterable[int]) -> None:
    """Exclude the replies of rows from reuse when they are run again."""
    base = part << INDEX_BITS
    connection.executemany(
        "UPDATE call SET recalled = 0 WHERE key = ?", ((base | index,) for index in indices)
    )


def move_rows(
    connection: sqlite3.Connection,
    part: int,
    gone: Sequence[int],
    moved: Iterable[tuple[int, int, int, int, int, str]],
) -> None:
    """Give rows of a part other indices.

    Args:
        connection: In a transaction.
        part: Its number.
        gone: Indices of rows that leave the run; all of their data is deleted.
        moved: For each row that moves, recorded or only started: its old and new index, and its test, prompt,
            repeat and id.
    """
    base = part << INDEX_BITS
    connection.execute(
        "CREATE TEMP TABLE IF NOT EXISTS move "
        "(old INTEGER PRIMARY KEY, new INTEGER, test INTEGER, prompt INTEGER, repeat INTEGER, id TEXT)"
    )
    connection.execute("DELETE FROM move")
    for table in _KEYED:
        connection.executemany(
            f"DELETE FROM {table} WHERE key = ?",  # noqa: S608
            [(base | index,) for index in gone],
        )
    connection.executemany(
        "INSERT INTO move VALUES (?, ?, ?, ?, ?, ?)",
        ((base | old, base | new, *place) for old, new, *place in moved),
    )
    connection.create_function("moved_record", 4, _moved_record, deterministic=True)
    connection.execute(
        "UPDATE result SET test = move.test, prompt = move.prompt, repeat = move.repeat FROM move "
        "WHERE key = move.old"
    )
    connection.execute(
        "UPDATE record SET body = moved_record(body, move.test, move.prompt, move.id) FROM move "
        "WHERE key = move.old"
    )
    for table in _KEYED:
        # Via unused keys: another row may still have the new key.
        connection.execute(
            f"UPDATE {table} SET key = -move.new FROM move WHERE key = move.old"  # noqa: S608
        )
        connection.execute(f"UPDATE {table} SET key = -key WHERE key < 0")  # noqa: S608
    connection.execute("DROP TABLE move")


def _moved_record(body: str | bytes, test: int, prompt: int, name: str) -> str | bytes:
    try:
        record = json.loads(read_record(body))
    except ValueError:
        return body  # damaged: its row will be run again
    record |= {"id": name, "testIdx": test, "promptIdx": prompt}
    return stored_record(shortened(compact(record)))


def forget_run(connection: sqlite3.Connection, number: int) -> None:
    """Delete a run's remains in the queue, and its recorded outcomes, when it is finished or deleted."""
    of = "run = (SELECT id FROM run WHERE run = ?)"
    forget_entries(connection, of, "", (number,))


def forget_entries(
    connection: sqlite3.Connection, of: str, whose: str, values: Sequence[object] = ()
) -> None:
    """Delete recorded outcomes of runs, and their entries in the queue as far as `whose` selects them."""
    for statement in (
        f"DELETE FROM entry_needs WHERE id IN (SELECT id FROM entry WHERE {of} {whose})",  # noqa: S608
        f"DELETE FROM entry WHERE {of} {whose}",  # noqa: S608
        f"DELETE FROM entry_done WHERE {of}",  # noqa: S608
    ):
        connection.execute(statement, values)
