"""The line of the planner as people look at it, with the programs that stand in it."""

import contextlib
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from trioeval.agents.planner import Entry
from trioeval.store.agent_line import read_entries, readable_text
from trioeval.store.agent_owners import SILENT_BEATS, seems_alive
from trioeval.store.cache_owners import Owners
from trioeval.store.database import open_reading, store_error
from trioeval.store.line_transactions import PlannerSettings
from trioeval.store.schema import RUNS


@attrs.frozen
class QueuedEntry:
    """An entry, and its program."""

    entry: Entry
    host: str | None
    """Where its program runs; None where that has died."""
    pid: int | None


def read_queue(path: Path, now: float | None = None) -> Sequence[QueuedEntry]:
    """Everything in the line that can be read, by order. Changes nothing.

    Args:
        path: The database of runs.
        now: Seconds since 1970; None is now.

    Raises:
        StoreError: It is not there, or cannot be read.
    """
    now = time.time() if now is None else now
    connection = open_reading(path, RUNS)
    connection.text_factory = readable_text
    with contextlib.closing(connection):
        try:
            return _read(connection, path, now)
        except sqlite3.Error as error:
            raise store_error(path, RUNS, error) from error


def _read(connection: sqlite3.Connection, path: Path, now: float) -> Sequence[QueuedEntry]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'entry'").fetchone():
        return ()  # written before there were agents
    connection.execute("BEGIN")  # both are of one moment
    found = connection.execute("SELECT id, host, pid, heartbeat_s FROM owner").fetchall()
    entries = read_entries(connection)
    connection.execute("COMMIT")
    owners, since = Owners.of(path), now - SILENT_BEATS * PlannerSettings().heartbeat
    alive = {
        name: (host if isinstance(host, str) else None, pid if isinstance(pid, int) else None)
        for name, host, pid, heartbeat_s in found
        if isinstance(name, str) and seems_alive(owners, name, host, heartbeat_s, since=since)
    }
    return [QueuedEntry(one, *alive.get(one.owner or "", (None, None))) for one in entries]
