# Separate from `store.run`: together they exceed 600 lines.
"""The jobs that calls have created at their services, and that have no recorded reply yet."""

import sqlite3
from collections.abc import Callable

import attrs

from trioeval.evaluation.journal import CallKey
from trioeval.store.records import plain
from trioeval.store.schema import INDEX_BITS
from trioeval.store.writer import Writer
from trioeval.store.writes import RunPlace, StepWrite


@attrs.define(eq=False, repr=False)
class StoredJob:
    """The record of the job of one call; see `KeptJob`."""

    _key: CallKey
    _place: RunPlace
    _writer: Writer
    _read: Callable[[], sqlite3.Connection]
    _names: dict[CallKey, str | None]
    """The records of this execution, of all calls; None for a removed one."""

    def find(self) -> str | None:
        """Return the name of the job; an unreadable record is reported, and counts as none."""
        key = self._key
        part = self._place.parts.get(key.task)
        if key in self._names or part is None:
            return self._names.get(key)
        try:
            found = (
                self._read()
                .execute(
                    "SELECT name FROM job WHERE key = ? AND role = ? AND question = ? AND row_id = ?",
                    (part << INDEX_BITS | key.index, key.role, key.question, key.row),
                )
                .fetchone()
            )
        except sqlite3.Error as error:
            self._writer.warn(
                f"{self._writer.path}: the job of row {key.index} cannot be read ({error}); "
                "its call is made again"
            )
            return None
        return None if found is None else found[0]

    def note(self, name: str, /) -> None:
        """Record the name of a job."""
        key = self._key
        self._names[key] = name

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO job (key, role, question, row_id, name) VALUES (?, ?, ?, ?, ?)",
                (self._row_key, key.role, key.question, key.row, plain(name)),
            )

        self._writer.put(StepWrite(write))

    async def keep(self, name: str, /) -> None:
        """Record the name of a job, and wait until that is durable."""
        self.note(name)
        await self._writer.wait_done(urgent=True)

    def recover(self, name: str | None, /) -> None:
        """Record the name of a job that an earlier execution created; None is its end."""
        if name is None:
            self.drop()
        else:
            self.note(name)

    def drop(self) -> None:
        """Remove the record."""
        if self.find() is None:
            return
        key = self._key
        self._names[key] = None

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "DELETE FROM job WHERE key = ? AND role = ? AND question = ?",
                (self._row_key, key.role, key.question),
            )

        self._writer.put(StepWrite(write))

    @property
    def _row_key(self) -> int:
        return self._place.key(self._key.task, self._key.index)


def read_jobs(connection: sqlite3.Connection, key: int, row: CallKey) -> list[tuple[CallKey, str]]:
    """Return the jobs of the calls of a row.

    Args:
        connection: The database.
        key: The key of the row.
        row: The identity of any of its calls.
    """
    found = connection.execute("SELECT role, question, row_id, name FROM job WHERE key = ?", (key,))
    return [
        (attrs.evolve(row, role=role, question=question, row=row_id), name)
        for role, question, row_id, name in found
    ]
