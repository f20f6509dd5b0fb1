"""The programs in the planner's queue, and which of them live.

A program has a random id, a line in the table of owners that records when it was last seen, and a file beside
the database that it locks for as long as it lives. On one machine the lock alone decides. The locks of
another machine may not be visible here, so its programs also live as long as they were seen lately. Age by
itself proves nothing: the entries of a program are taken back only by a process that holds its lock.

Processes that a dead program has left running are ended before its slots are released. The program that ends
them holds the lock for that time, so that no other one does; if it dies too, the next one continues.

If the lock file is missing, locks prove nothing: such a program lives as long as it was seen lately.
"""

import contextlib
import json
import math
import os
import re
import secrets
import socket
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.agent.journal import ProcessIdentity
from trioeval.errors import StoreError, UsageError
from trioeval.report.stored import StoredRunFacts
from trioeval.store.cache.file import Owners
from trioeval.store.database import RunLock, is_running
from trioeval.store.schema import INDEX_BITS

# The processes that dead programs have left running, found in the records of their attempts.


EndProcesses: TypeAlias = Callable[[StoredRunFacts, Sequence[ProcessIdentity]], object]
"""Ends what the agents of a run have left running: the root processes of their trees."""


# Attempts of an earlier execution, or of one that may have died.
_ATTEMPTS = f"""
    SELECT run.id, attempt.execution < run.executions, attempt.process
    FROM run JOIN part ON part.run = run.run JOIN running_attempt AS attempt
    ON attempt.key BETWEEN part.part << {INDEX_BITS} AND (part.part + 1 << {INDEX_BITS}) - 1
    WHERE run.id IN (SELECT run FROM entry WHERE owner = ? AND state = 'running')
"""  # noqa: S608 - all of it stands here


_OF_RUN = f"""
    SELECT attempt.process FROM part JOIN running_attempt AS attempt
    ON attempt.key BETWEEN part.part << {INDEX_BITS} AND (part.part + 1 << {INDEX_BITS}) - 1
    WHERE part.run = ?
"""  # noqa: S608


@attrs.define(eq=False, repr=False)
class OrphanedProcesses:
    """The processes that one dead program has left running, until they are ended."""

    owner: str
    processes: tuple[ProcessIdentity, ...]
    """The root processes of their trees."""
    lock: RunLock
    """Its lock, held by the program that ends them."""
    is_over: bool = attrs.field(init=False, default=False)
    """True if they are ended."""


def find_processes(
    connection: sqlite3.Connection, database: Path, owner: str
) -> tuple[ProcessIdentity, ...]:
    """Return the processes of a dead program, as far as readable; they may have ended by now.

    A run that another program has resumed is left alone: its new processes are not those of the dead program.
    """
    found = connection.execute(_ATTEMPTS, (owner,)).fetchall()
    live = {run for run in {run for run, _, _ in found} if is_running(database, str(run))}
    return _readable(process for run, is_earlier, process in found if is_earlier or run not in live)


def processes_of(connection: sqlite3.Connection, number: int) -> tuple[ProcessIdentity, ...]:
    """Return the root processes of all trees of a run whose end was not recorded."""
    return _readable(process for (process,) in connection.execute(_OF_RUN, (number,)))


def _readable(processes: Iterable[str]) -> tuple[ProcessIdentity, ...]:
    """Return the readable processes; the others are reported when the run is resumed."""
    found = []
    for process in processes:
        with contextlib.suppress(ValueError, TypeError):
            found.append(ProcessIdentity(**json.loads(process)))
    return tuple(found)


_NAME = re.compile(r"[0-9a-f]{32}")

SILENT_BEATS = 3
"""Heartbeats that a program of another machine may miss and still count as alive."""

ClientFate: TypeAlias = Literal["lives", "dying", "dead"]
"""A `dying` program has died, and its processes are being ended: it keeps its slots until that is over."""


@attrs.frozen(kw_only=True)
class PlannerSettings:
    """The intervals of a program's heartbeats and checks.

    Raises:
        UsageError: A time is not > 0.
    """

    heartbeat: float = 5.0
    """Seconds between two heartbeats; a program of another machine that misses three counts as dead."""
    poll: float = 0.5
    """Seconds between two checks for changes by others, while a submission of this program waits."""
    patience: float = 30.0
    """Seconds for which the database may be locked, full, or otherwise not writable."""

    def __attrs_post_init__(self) -> None:
        wrong = [
            f"{name} is {value:g}"
            for name, value in attrs.asdict(self).items()
            if not 0 < value <= math.inf
        ]
        if wrong:
            raise UsageError(f"times of a planner must be > 0 seconds: {', '.join(wrong)}")


@attrs.frozen(eq=False)
class PlannerClient:
    """This program, as others know it, while its lock is held."""

    id: str
    host: str
    pid: int
    lock: RunLock | None = attrs.field(repr=False)
    """None for a queue in memory, which no other program shares."""


def join_planner(database: Path | None) -> PlannerClient:
    """Register a living program with a unique id.

    Args:
        database: The database of runs; None for a queue in memory.

    Raises:
        StoreError: No lock can be made beside the database.
    """
    name, lock = secrets.token_hex(16), None
    if database is not None:
        owners = Owners.of(database)
        lock = owners.enter(name)
        if lock is None:
            raise StoreError(
                f"{database}: cannot join the queue of agents: {owners.path(name)} cannot be locked"
            )
    return PlannerClient(name, socket.gethostname(), os.getpid(), lock)


def write_owner(connection: sqlite3.Connection, me: PlannerClient, utc: str, now: float) -> None:
    """Record that a program has joined."""
    connection.execute(
        "INSERT INTO owner (id, host, pid, utc_started, heartbeat_s) VALUES (?, ?, ?, ?, ?)",
        (me.id, me.host, me.pid, utc, now),
    )


def is_known(connection: sqlite3.Connection, me: PlannerClient) -> bool:
    """Return whether a program is recorded; False if others have taken it for dead."""
    found = connection.execute("SELECT 1 FROM owner WHERE id = ?", (me.id,)).fetchone()
    return found is not None


def beat(connection: sqlite3.Connection, me: PlannerClient, now: float) -> None:
    """Record that a program lives."""
    connection.execute("UPDATE owner SET heartbeat_s = ? WHERE id = ?", (now, me.id))


def seems_alive(owners: Owners, owner: str, host: object, seen: object, *, since: float) -> bool:
    """Return whether a program lives, for readers.

    Args:
        owners: The lock files.
        owner: Its id.
        host: The machine on which it runs.
        seen: When it was last seen, in seconds since 1970; an invalid value counts as never.
        since: When a program of another machine must have been seen.
    """
    if is_elsewhere(host, socket.gethostname()) and was_seen(seen, since):
        return True
    if _NAME.fullmatch(owner) is None:
        return False
    return not owners.is_gone(owner) if owners.path(owner).exists() else was_seen(seen, since)


def is_elsewhere(host: object, here: str) -> bool:
    """Return whether a program runs on another machine; False for an invalid name in a damaged table."""
    return isinstance(host, str) and host != here


def was_seen(seen: object, since: float) -> bool:
    """Return whether a program was seen lately; an invalid value counts as never."""
    return isinstance(seen, int | float) and seen > since


def problem_of_owner(line: tuple[Any, ...]) -> str | None:
    """Return which of id, host and heartbeat in the line of a program is unreadable; None if none is."""
    name, host, seen = line
    at = f"program {name} of the queue of agents"
    if not isinstance(name, str):
        return f"{at}: its id cannot be read; it counts as dead"
    if not isinstance(host, str):
        return f"{at}: its host cannot be read ({host!r}); its lock alone says whether it lives"
    if not isinstance(seen, int | float):
        return f"{at}: when it was seen cannot be read ({seen!r}); its lock alone says whether it lives"
    return None


@attrs.define(eq=False, repr=False)
class OtherClients:
    """The fates of the programs in the queue, as determined in one transaction.

    The locks of dead programs are held until the transaction is over: no other program takes back their
    entries meanwhile.
    """

    _connection: sqlite3.Connection
    _owners: Owners
    _me: PlannerClient
    _since: float
    """Seconds since 1970; a program of another machine that was seen later lives."""
    _remains: dict[str, OrphanedProcesses]
    """The processes that this program ends, by the owner that left them; new findings are added."""
    _fates: dict[str, ClientFate] = attrs.field(init=False, factory=dict)
    _graves: list[RunLock] = attrs.field(init=False, factory=list)
    _found: list[OrphanedProcesses] = attrs.field(init=False, factory=list)
    _buried: list[OrphanedProcesses] = attrs.field(init=False, factory=list)

    def fate(self, owner: str) -> ClientFate:
        """Return the fate of a program.

        The entries of a dead one may be taken back, and its line is removed here.
        """
        if owner == self._me.id:
            return "lives"
        if owner not in self._fates:
            self._fates[owner] = self._look(owner)
        return self._fates[owner]

    def close(self, *, committed: bool) -> None:
        """Release the locks; if the transaction was committed, the files of the dead are removed too."""
        if committed:
            for lock in (*self._graves, *(one.lock for one in self._buried)):
                lock.release()
            for one in self._buried:
                del self._remains[one.owner]
            self._remains.update({one.owner: one for one in self._found})
        else:
            for lock in (*self._graves, *(one.lock for one in self._found)):
                lock.leave()

    def _look(self, owner: str) -> ClientFate:
        own = self._remains.get(owner)
        if own is not None:
            if not own.is_over:
                return "dying"
            self._buried.append(own)
        else:
            fate = self._ask(owner)
            if fate != "dead":
                return fate
        self._connection.execute("DELETE FROM owner WHERE id = ?", (owner,))
        return "dead"

    def _ask(self, owner: str) -> ClientFate:
        host, seen, has_died = self._connection.execute(
            "SELECT host, heartbeat_s, has_died FROM owner WHERE id = ?", (owner,)
        ).fetchone() or (self._me.host, None, False)
        if is_elsewhere(host, self._me.host) and not has_died and was_seen(seen, self._since):
            return "lives"
        if not _NAME.fullmatch(owner):  # not a possible lock name
            return "dead"
        lock = self._owners.take(owner, is_silent=not was_seen(seen, self._since))
        if lock is None:
            return "dying" if has_died else "lives"
        processes = find_processes(self._connection, self._owners.database, owner)
        if not processes:
            self._graves.append(lock)
            return "dead"
        self._found.append(OrphanedProcesses(owner, processes, lock))
        self._connection.execute("UPDATE owner SET has_died = 1 WHERE id = ?", (owner,))
        return "dying"
