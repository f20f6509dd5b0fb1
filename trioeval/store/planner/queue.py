"""The planner's queue in its tables, within one transaction.

Whether an entry is blocked or queued follows from its dependencies and the outcomes, and is updated whenever
one of them changes. The next entries are found in an index that holds only those that may start: entries that
wait for others, and those of dead programs, cost nothing.

An unreadable line of the table never starts, and does not count as running, so that it blocks no others; it
is reported by `Line.recover`.
"""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

import attrs

from trioeval.agent.planner import QueuedSubmission, Submission, SubmissionState
from trioeval.errors import UsageError
from trioeval.store.cache.file import Owners
from trioeval.store.database import open_database, open_reading, store_error
from trioeval.store.planner.owners import (
    SILENT_BEATS,
    ClientFate,
    OtherClients,
    PlannerSettings,
    problem_of_owner,
    seems_alive,
)
from trioeval.store.queue_tables import BLOCK_BITS, LEVELS
from trioeval.store.runs import forget_entries
from trioeval.store.schema import RUNS

_STATES = get_args(SubmissionState)
_ENTRY = "place, id, run, task, state, owner, utc_submitted, utc_started"

# The state of an entry that does not run.
_STATE = """
    CASE WHEN EXISTS (
        SELECT 1 FROM entry_needs AS own LEFT JOIN entry_done AS over ON over.id = own.needs
        WHERE own.id = entry.id AND coalesce(over.done, 0) = 0
    ) THEN 'blocked' ELSE 'queued' END
"""
_WAITS = "state IN ('queued', 'blocked')"
# Entries of unknown programs do not run.
_RUNNING = (
    "SELECT count(*) FROM entry JOIN owner ON owner.id = entry.owner WHERE entry.state = 'running'"
)
_NEXT = f"""
    SELECT {_ENTRY} FROM entry WHERE state = 'queued' AND owner IS NOT NULL AND place > ?
    ORDER BY place LIMIT 1
"""  # noqa: S608 - all of it stands here


def _rank() -> str:
    """Return SQL for the number of waiting entries up to place ?1: of its block, and of blocks before it."""
    block = f"place BETWEEN ?1 >> {BLOCK_BITS} << {BLOCK_BITS} AND ?1"
    parts = [f"(SELECT count(*) FROM entry WHERE {block} AND {_WAITS})"]  # noqa: S608
    for level in range(1, LEVELS + 1):
        first = f"?1 >> {BLOCK_BITS * (level + 1)} << {BLOCK_BITS}"
        parts.append(
            f"(SELECT total(waiting) FROM entry_count WHERE level = {level} "  # noqa: S608
            f"AND block BETWEEN {first} AND (?1 >> {BLOCK_BITS * level}) - 1)"
        )
    return f"SELECT {' + '.join(parts)}"


_RANK = _rank()


@attrs.frozen
class Recovery:
    """The findings about dead programs."""

    requeued: tuple[str, ...] = ()
    """Ids that were running, and are queued again at their old places, without an owner."""
    kept: tuple[str, ...] = ()
    """Ids that run in living programs, including this one; they count against the limit."""
    problems: tuple[str, ...] = ()
    """Messages about unreadable entries; they are held back, and all others continue."""


@attrs.frozen(eq=False)
class QueueTransaction:
    """The queue, in an open transaction, as one program sees it."""

    _connection: sqlite3.Connection
    _neighbours: OtherClients
    _me: str
    """The id of the program."""
    _utc: str
    """The current time in ISO 8601."""

    def submit(self, submission: Submission) -> bool:
        """Queue a submission. Nothing starts yet.

        Returns:
            False if nothing was changed: a dead program has left it running, which is being ended.

        Raises:
            UsageError: It runs here, or a living program has submitted it.
        """
        name = submission.id
        known = self._connection.execute(
            "SELECT state, owner, utc_submitted FROM entry WHERE id = ?", (name,)
        ).fetchone()
        if known is None:
            self._connection.execute(
                "INSERT INTO entry (id, run, task, state, owner, utc_submitted) VALUES (?, ?, ?, ?, ?, ?)",
                (name, submission.run, submission.task, "blocked", self._me, self._utc),
            )
        else:
            state, owner, utc = known
            if not self._take(name, state, owner):
                return False
            utc = utc if isinstance(utc, str) else self._utc
            self._connection.execute(
                "UPDATE entry SET run = ?, task = ?, state = 'blocked', owner = ?, utc_submitted = ?, "
                "utc_started = NULL WHERE id = ?",
                (submission.run, submission.task, self._me, utc, name),
            )
            self._connection.execute("DELETE FROM entry_needs WHERE id = ?", (name,))
        self._connection.executemany(
            "INSERT INTO entry_needs (id, needs) VALUES (?, ?)",
            [(name, needed) for needed in dict.fromkeys(submission.depends_on)],
        )
        self._connection.execute(f"UPDATE entry SET state = {_STATE} WHERE id = ?", (name,))  # noqa: S608
        if self._connection.execute("DELETE FROM entry_done WHERE id = ?", (name,)).rowcount:
            self._look_at_dependents(name)
        return True

    def clear_dependencies(self, name: str) -> bool:
        """Remove the dependencies of an entry of this program; False if it has no such entry."""
        own = "id = ? AND owner = ?"
        known = self._connection.execute(
            f"SELECT state FROM entry WHERE {own}",  # noqa: S608
            (name, self._me),
        ).fetchone()
        if known is not None and known[0] != "running":
            self._connection.execute("DELETE FROM entry_needs WHERE id = ?", (name,))
            self._connection.execute("UPDATE entry SET state = 'queued' WHERE id = ?", (name,))
        return known is not None

    def settle(self, outcomes: Mapping[str, bool | None]) -> None:
        """Remove finished entries from the queue, and record whether they are done; None if unknown."""
        for name, done in outcomes.items():
            entry = self._connection.execute(
                "DELETE FROM entry WHERE id = ? AND (owner IS NULL OR owner = ?) RETURNING run",
                (name, self._me),
            ).fetchone()
            if entry is None:
                continue
            self._connection.execute("DELETE FROM entry_needs WHERE id = ?", (name,))
            if done is not None:
                self._connection.execute(
                    "INSERT OR REPLACE INTO entry_done (id, run, done) VALUES (?, ?, ?)",
                    (name, entry[0], done),
                )
                self._look_at_dependents(name)

    def schedule(self, limit: int, *, patrol: bool = False) -> None:
        """Start the next entries of any program while there is room.

        Args:
            limit: The limit of this program; the smallest limit of the living programs applies.
            patrol: If room is lacking, take back the entries of dead programs.
        """
        self._connection.execute(
            "UPDATE owner SET most = ?1 WHERE id = ?2 AND most IS NOT ?1", (limit, self._me)
        )
        limit = self._smallest(limit)
        if patrol and self._running() >= limit:
            for owner in self._strings("SELECT DISTINCT owner FROM entry WHERE state = 'running'"):
                self._fate(owner)
        last = -1
        while self._running() < limit:
            found = self._connection.execute(_NEXT, (last,)).fetchone()
            if found is None:
                return
            last = found[0]
            # The fate of its program is determined last: if it is dead, the queue has changed.
            if problem_of(found) is None and self._fate(found[5]) == "lives":
                self._connection.execute(
                    "UPDATE entry SET state = 'running', utc_started = ? WHERE place = ?",
                    (self._utc, last),
                )

    def take_back(self, owners: Iterable[str]) -> None:
        """Take back the entries of some programs, if they are dead."""
        for owner in owners:
            self._fate(owner)

    def recover(self) -> Recovery:
        """Take back the entries of dead programs, and check the queue.

        Remains of finished runs are deleted.
        """
        before = set(self._strings("SELECT id FROM entry WHERE state = 'running'"))
        answers = map(
            problem_of_owner,
            self._connection.execute("SELECT id, host, heartbeat_s FROM owner ORDER BY id"),
        )
        problems = [problem for problem in answers if problem is not None]
        self.take_back(
            [
                *self._strings("SELECT id FROM owner ORDER BY id"),
                *self._strings("SELECT DISTINCT owner FROM entry WHERE owner IS NOT NULL"),
            ]
        )
        forget_finished(self._connection)
        kept, requeued = [], []
        for row in self._connection.execute(f"SELECT {_ENTRY} FROM entry ORDER BY place"):  # noqa: S608
            problem, name = problem_of(row), row[1]
            if problem is not None:
                problems.append(f"{problem}; it is held back")
            elif row[4] == "running":
                kept.append(name)
            elif name in before:
                requeued.append(name)
        return Recovery(tuple(requeued), tuple(kept), tuple(problems))

    def entry(self, name: str) -> QueuedSubmission:
        """Return an entry of the queue."""
        statement = f"SELECT {_ENTRY} FROM entry WHERE id = ?"  # noqa: S608
        row = self._connection.execute(statement, (name,)).fetchone()
        position = 0
        if row[4] != "running":
            position = int(self._connection.execute(_RANK, (row[0],)).fetchone()[0])
        return _read(row, position, _needs_of(self._connection, name))

    def started(self) -> frozenset[str]:
        """Return the entries that run here."""
        return frozenset(
            self._strings(
                "SELECT id FROM entry INDEXED BY entry_running WHERE state = 'running' AND owner = ?",
                (self._me,),
            )
        )

    def mend(self, waiting: Iterable[Submission]) -> tuple[str, ...]:
        """Write again waiting entries of this program that are unreadable or missing.

        Returns:
            The problems, as sentences.
        """
        rows = self._connection.execute(
            f"SELECT {_ENTRY} FROM entry WHERE owner = ?",  # noqa: S608
            (self._me,),
        )
        readable = {row[1] for row in rows if problem_of(row) is None}
        problems = []
        for submission in waiting:
            if submission.id in readable:
                continue
            row = self._connection.execute(
                f"SELECT {_ENTRY} FROM entry WHERE id = ?",  # noqa: S608
                (submission.id,),
            ).fetchone()
            problem = f"{submission.id} is not in the queue of agents any more"
            if row is not None and (problem := problem_of(row) or "") == "":
                continue  # another program has it, which took this one for dead
            self.submit(submission)
            problems.append(problem)
        return tuple(problems)

    def restore(self, running: Iterable[str], waiting: Iterable[str]) -> None:
        """Take back this program's entries, after others took it for dead."""
        for state, names in (("'running'", running), (_STATE, waiting)):
            self._connection.executemany(
                f"UPDATE entry SET owner = ?, state = {state} WHERE id = ? AND owner IS NULL",  # noqa: S608
                [(self._me, name) for name in names],
            )

    def clear(self) -> None:
        """Remove all entries of this program from the queue, without an outcome."""
        names = self._strings("SELECT id FROM entry WHERE owner = ?", (self._me,))
        self.settle(dict.fromkeys(names))
        self._connection.execute("DELETE FROM owner WHERE id = ?", (self._me,))

    def _take(self, name: str, state: object, owner: object) -> bool:
        """Return whether a known submission may be replaced already."""
        if owner == self._me and state == "running":
            raise UsageError(f"{name}: it already runs, and cannot be submitted again")
        fate = self._fate(owner) if isinstance(owner, str) else "dead"
        if owner != self._me and fate == "lives":
            raise UsageError(
                f"{name}: another program has submitted it, and still runs; wait until it is over, or end it"
            )
        return fate != "dying"

    def _fate(self, owner: str) -> ClientFate:
        """Return the fate of a program; entries of a dead one are queued again, without an owner."""
        fate = self._neighbours.fate(owner)
        if fate == "dead":
            self._connection.execute(
                f"UPDATE entry SET state = {_STATE}, owner = NULL, utc_started = NULL "  # noqa: S608
                "WHERE owner = ? AND state IN ('running', 'queued', 'blocked')",
                (owner,),
            )
        return fate

    def _look_at_dependents(self, name: str) -> None:
        self._connection.execute(
            f"UPDATE entry SET state = {_STATE} WHERE {_WAITS} "  # noqa: S608
            "AND id IN (SELECT id FROM entry_needs WHERE needs = ?)",
            (name,),
        )

    def _smallest(self, own: int) -> int:
        """Return the limit that people have set, or else the smallest limit of the living programs.

        This program has none any more when it has left.
        """
        most: int
        for (most,) in self._connection.execute("SELECT most FROM entry_limit"):
            return most
        limits: dict[int, list[Any]] = {}
        found = self._connection.execute(
            "SELECT most, id FROM owner WHERE typeof(most) = 'integer'"
        )
        for most, owner in found:
            limits.setdefault(most, []).append(owner)
        for most in sorted(limits):
            fates = [self._fate(owner) for owner in limits[most] if isinstance(owner, str)]
            if "lives" in fates:
                return most
        return own

    def _running(self) -> int:
        count: int = self._connection.execute(_RUNNING).fetchone()[0]
        return count

    def _strings(self, statement: str, values: Sequence[str] = ()) -> list[str]:
        """Return the texts in the only column of a result; other values are left out."""
        found = self._connection.execute(statement, values).fetchall()
        return [value for (value,) in found if isinstance(value, str)]


def readable_text(stored: bytes) -> str | bytes:
    """Return a text from the database; bytes if it is invalid, so that only its own line is unusable."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def read_entries(connection: sqlite3.Connection) -> list[QueuedSubmission]:
    """Return all readable entries of the queue, in order."""
    entries, waiting = [], 0
    for row in _rows(connection):
        if problem_of(row) is None:
            waits = row[4] != "running"
            waiting += waits
            entries.append(_read(row, waiting if waits else 0, _needs_of(connection, row[1])))
    return entries


def read_problems(connection: sqlite3.Connection) -> list[str]:
    """Return messages about unreadable entries of the queue, in order."""
    return [problem for row in _rows(connection) if (problem := problem_of(row)) is not None]


def _rows(connection: sqlite3.Connection) -> sqlite3.Cursor:
    return connection.execute(f"SELECT {_ENTRY} FROM entry ORDER BY place")  # noqa: S608


def forget_finished(connection: sqlite3.Connection) -> None:
    """Delete the remains of finished runs in the queue, in a transaction."""
    forget_entries(
        connection, "run IN (SELECT id FROM run WHERE state = 'finished')", "AND owner IS NULL"
    )


def problem_of(row: Sequence[Any]) -> str | None:
    """Return why a line of the table cannot be read; None if it can."""
    place, name, run, task, state, owner, utc_submitted, utc_started = row
    at = f"place {place} of the queue of agents"
    if not isinstance(name, str) or not name.strip():
        return f"{at}: its id cannot be read ({name!r})"
    for field, value in (("run", run), ("task", task), ("utc_submitted", utc_submitted)):
        if not isinstance(value, str):
            return f"{at}, {name}: its {field} cannot be read ({value!r})"
    for field, value in (("owner", owner), ("utc_started", utc_started)):
        if not isinstance(value, str | None):
            return f"{at}, {name}: its {field} cannot be read ({value!r})"
    if state not in _STATES:
        return f"{at}, {name}: its state is {state!r}, not one of {', '.join(_STATES)}"
    if state == "running" and owner is None:
        return f"{at}, {name}: it is marked as running without a program"
    return None


def _needs_of(connection: sqlite3.Connection, name: str) -> tuple[str, ...]:
    found = connection.execute("SELECT needs FROM entry_needs WHERE id = ? ORDER BY needs", (name,))
    return tuple(str(needed) for (needed,) in found)


def _read(row: Sequence[Any], position: int, needs: tuple[str, ...]) -> QueuedSubmission:
    place, name, run, task, state, owner, utc_submitted, utc_started = row
    return QueuedSubmission(
        submission=Submission(id=name, run=run, task=task, depends_on=needs),
        order=place,
        state=cast("SubmissionState", state),
        owner=owner,
        position=position,
        utc_submitted=utc_submitted,
        utc_started=utc_started,
    )


# The queue as people read it, with its programs.


_BUSY = 5.0  # seconds that others may keep the database locked


def read_queue(
    path: Path, now: float | None = None, *, warn: Callable[[str], None] | None = None
) -> Sequence[QueuedSubmission]:
    """Return all readable entries of the queue, in order. Changes nothing.

    Args:
        path: The database of runs.
        now: Seconds since 1970; None is now.
        warn: Called with a message about each unreadable entry.

    Raises:
        StoreError: It does not exist, or cannot be read.
    """
    now = time.time() if now is None else now
    connection = open_reading(path, RUNS)
    connection.text_factory = readable_text
    with contextlib.closing(connection):
        try:
            found, problems = _read_queue(connection, path, now)
        except sqlite3.Error as error:
            raise store_error(path, RUNS, error) from error
    for problem in problems:
        if warn is not None:
            warn(problem)
    return found


def set_line_limit(path: Path, most: int) -> None:
    """Set the number of root tasks that may run at once from now on, overriding programs; 0 removes it.

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


def _read_queue(
    connection: sqlite3.Connection, path: Path, now: float
) -> tuple[Sequence[QueuedSubmission], Sequence[str]]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'entry'").fetchone():
        return (), ()  # written by a version without agents
    connection.execute("BEGIN")  # both from one snapshot
    found = connection.execute("SELECT id, host, pid, heartbeat_s FROM owner").fetchall()
    entries, problems = read_entries(connection), read_problems(connection)
    connection.execute("COMMIT")
    owners, since = Owners.of(path), now - SILENT_BEATS * PlannerSettings().heartbeat
    alive = {
        name: (host if isinstance(host, str) else None, pid if isinstance(pid, int) else None)
        for name, host, pid, heartbeat_s in found
        if isinstance(name, str) and seems_alive(owners, name, host, heartbeat_s, since=since)
    }
    placed = [(one, *alive.get(one.owner or "", (None, None))) for one in entries]
    return [attrs.evolve(one, host=host, pid=pid) for one, host, pid in placed], problems
