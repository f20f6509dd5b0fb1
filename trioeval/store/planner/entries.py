# Apart from `cli.commands.run_queue`: it belongs to this package, which the other only uses.
"""The line of the planner as people look at it, with the programs that stand in it."""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from trioeval.agent.planner import Entry
from trioeval.store.cache.file import Owners
from trioeval.store.database import open_database, open_reading, store_error
from trioeval.store.planner.owners import SILENT_BEATS, PlannerSettings, seems_alive
from trioeval.store.planner.queue import read_entries, read_problems, readable_text
from trioeval.store.schema import RUNS

_BUSY = 5.0  # seconds that others may keep the database locked


@attrs.frozen
class QueuedEntry:
    """An entry, and its program."""

    entry: Entry
    host: str | None
    """Where its program runs; None where that has died."""
    pid: int | None


def read_queue(
    path: Path, now: float | None = None, *, warn: Callable[[str], None] | None = None
) -> Sequence[QueuedEntry]:
    """Everything in the line that can be read, by order. Changes nothing.

    Args:
        path: The database of runs.
        now: Seconds since 1970; None is now.
        warn: Told in a sentence of each entry that cannot be read.

    Raises:
        StoreError: It is not there, or cannot be read.
    """
    now = time.time() if now is None else now
    connection = open_reading(path, RUNS)
    connection.text_factory = readable_text
    with contextlib.closing(connection):
        try:
            found, problems = _read(connection, path, now)
        except sqlite3.Error as error:
            raise store_error(path, RUNS, error) from error
    for problem in problems:
        if warn is not None:
            warn(problem)
    return found


def set_line_limit(path: Path, most: int) -> None:
    """Let so many root tasks run at once from now on, whatever programs say; 0 leaves it to them.

    Raises:
        StoreError: The database cannot be used.
    """
    with contextlib.closing(open_database(path, RUNS, busy_s=_BUSY)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM entry_limit")
            if most:
                connection.execute("INSERT INTO entry_limit (most) VALUES (?)", (most,))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise store_error(path, RUNS, error) from error


def _read(
    connection: sqlite3.Connection, path: Path, now: float
) -> tuple[Sequence[QueuedEntry], Sequence[str]]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'entry'").fetchone():
        return (), ()  # written before there were agents
    connection.execute("BEGIN")  # both are of one moment
    found = connection.execute("SELECT id, host, pid, heartbeat_s FROM owner").fetchall()
    entries, problems = read_entries(connection), read_problems(connection)
    connection.execute("COMMIT")
    owners, since = Owners.of(path), now - SILENT_BEATS * PlannerSettings().heartbeat
    alive = {
        name: (host if isinstance(host, str) else None, pid if isinstance(pid, int) else None)
        for name, host, pid, heartbeat_s in found
        if isinstance(name, str) and seems_alive(owners, name, host, heartbeat_s, since=since)
    }
    queued = [QueuedEntry(one, *alive.get(one.owner or "", (None, None))) for one in entries]
    return queued, problems
