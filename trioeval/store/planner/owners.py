"""Programs that stand in the line of the planner, and which of them live.

A program has a random id, a line in the table of owners that says when it was last seen, and a file beside
the database that it locks for as long as it lives. On one machine the lock alone says who lives. What runs
on another one may have locks that are not seen from here, so it also lives as long as it was seen lately.
Age by itself is no evidence: what somebody had is taken back only by who holds the lock of that somebody.

What one that has died has left running is ended before its places are free. Whoever ends it holds its lock
as long, so that nobody else does; if that one dies too, the next goes on.

Where the file of a lock is gone, locks say nothing: such a program lives as long as it was seen lately.
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
from trioeval.report.stored import RunFacts
from trioeval.store.cache.file import Owners
from trioeval.store.database import RunLock, is_running
from trioeval.store.schema import INDEX_BITS

# What programs that have died have left running, found in what was written down of their attempts.


EndProcesses: TypeAlias = Callable[[RunFacts, Sequence[ProcessIdentity]], object]
"""Ends what the agents of a run have left running: the first processes of their trees."""


def leave(_run: RunFacts, _processes: Sequence[ProcessIdentity]) -> None:
    """End nothing."""


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


@attrs.define(eq=False)
class Remains:
    """What one program has left running that has died, until it is ended."""

    owner: str
    processes: tuple[ProcessIdentity, ...]
    """The first ones of its trees."""
    lock: RunLock = attrs.field(repr=False)
    """Its lock, held by whoever ends them."""
    is_over: bool = attrs.field(init=False, default=False)
    """Whether they are ended."""


def find_processes(
    connection: sqlite3.Connection, database: Path, owner: str
) -> tuple[ProcessIdentity, ...]:
    """What a program that has died was at, as far as it can be read; it may be over by now.

    A run that somebody goes on with is left alone: what it has begun since is not what has died.
    """
    found = connection.execute(_ATTEMPTS, (owner,)).fetchall()
    live = {run for run in {run for run, _, _ in found} if is_running(database, str(run))}
    return _readable(process for run, is_earlier, process in found if is_earlier or run not in live)


def processes_of(connection: sqlite3.Connection, number: int) -> tuple[ProcessIdentity, ...]:
    """The first processes of all trees that a run has not seen the end of."""
    return _readable(process for (process,) in connection.execute(_OF_RUN, (number,)))


def _readable(processes: Iterable[str]) -> tuple[ProcessIdentity, ...]:
    """What can be read; whoever goes on with the run is told of the rest."""
    found = []
    for process in processes:
        with contextlib.suppress(ValueError, TypeError):
            found.append(ProcessIdentity(**json.loads(process)))
    return tuple(found)


_NAME = re.compile(r"[0-9a-f]{32}")

SILENT_BEATS = 3
"""Heartbeats that a program of another machine may miss and still live."""

Fate: TypeAlias = Literal["lives", "dying", "dead"]
"""`dying` has died, and what it has left running is being ended: it keeps its places until that is over."""


@attrs.frozen(kw_only=True)
class PlannerSettings:
    """How often a program looks, and says that it lives.

    Raises:
        UsageError: A time is not > 0.
    """

    heartbeat: float = 5.0
    """Seconds between two signs of life; for programs of other machines, three without one are a death."""
    poll: float = 0.5
    """Seconds between two looks at what others changed, while something of this program waits."""
    patience: float = 30.0
    """Seconds that the database may be locked, full, or otherwise not to be written."""

    def __attrs_post_init__(self) -> None:
        wrong = [
            f"{name} is {value:g}"
            for name, value in attrs.asdict(self).items()
            if not 0 < value <= math.inf
        ]
        if wrong:
            raise UsageError(f"times of a planner are > 0 seconds: {', '.join(wrong)}")


@attrs.frozen(eq=False)
class Incarnation:
    """This program, as others know it, while its lock is held."""

    id: str
    host: str
    pid: int
    lock: RunLock | None = attrs.field(repr=False)
    """None in a queue in memory, which no other program shares."""


def enter(database: Path | None) -> Incarnation:
    """Become known as a program that lives. No other ever had its id.

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
                f"{database}: the line of agents cannot be entered: {owners.path(name)} cannot be locked"
            )
    return Incarnation(name, socket.gethostname(), os.getpid(), lock)


def write_owner(connection: sqlite3.Connection, me: Incarnation, utc: str, now: float) -> None:
    """Write down that a program has come."""
    connection.execute(
        "INSERT INTO owner (id, host, pid, utc_started, heartbeat_s) VALUES (?, ?, ?, ?, ?)",
        (me.id, me.host, me.pid, utc, now),
    )


def is_known(connection: sqlite3.Connection, me: Incarnation) -> bool:
    """Whether a program is written down; False if others have taken it for dead."""
    found = connection.execute("SELECT 1 FROM owner WHERE id = ?", (me.id,)).fetchone()
    return found is not None


def beat(connection: sqlite3.Connection, me: Incarnation, now: float) -> None:
    """Write down that a program lives."""
    connection.execute("UPDATE owner SET heartbeat_s = ? WHERE id = ?", (now, me.id))


def seems_alive(owners: Owners, owner: str, host: object, seen: object, *, since: float) -> bool:
    """Whether a program lives, for whoever only looks.

    Args:
        owners: The files.
        owner: Its id.
        host: Where it runs.
        seen: When that was last, in seconds since 1970; what is no number is never.
        since: When one of another machine must have been seen.
    """
    if is_elsewhere(host, socket.gethostname()) and was_seen(seen, since):
        return True
    if _NAME.fullmatch(owner) is None:
        return False
    return not owners.is_gone(owner) if owners.path(owner).exists() else was_seen(seen, since)


def is_elsewhere(host: object, here: str) -> bool:
    """Whether a program runs on another machine; what is no name of one, in a damaged table, is not."""
    return isinstance(host, str) and host != here


def was_seen(seen: object, since: float) -> bool:
    """Whether somebody was seen lately; what is no number is never."""
    return isinstance(seen, int | float) and seen > since


def problem_of_owner(line: tuple[Any, ...]) -> str | None:
    """What of the line of a program cannot be read, as id, host and heartbeat; None if all of it can."""
    name, host, seen = line
    at = f"program {name} of the line of agents"
    if not isinstance(name, str):
        return f"{at}: its id cannot be read; it counts as dead"
    if not isinstance(host, str):
        return f"{at}: its host cannot be read ({host!r}); its lock alone says whether it lives"
    if not isinstance(seen, int | float):
        return f"{at}: when it was seen cannot be read ({seen!r}); its lock alone says whether it lives"
    return None


@attrs.define(eq=False)
class Neighbours:
    """Who of those in the line lives, as it was found out in one transaction.

    The locks of those who have died are held until that is over: nobody else takes from them meanwhile.
    """

    _connection: sqlite3.Connection
    _owners: Owners
    _me: Incarnation
    _since: float
    """Seconds since 1970; who was seen later, on another machine, lives."""
    _remains: dict[str, Remains]
    """What this program ends, by who left it; what is found is put there."""
    _fates: dict[str, Fate] = attrs.field(init=False, factory=dict)
    _graves: list[RunLock] = attrs.field(init=False, factory=list)
    _found: list[Remains] = attrs.field(init=False, factory=list)
    _buried: list[Remains] = attrs.field(init=False, factory=list)

    def fate(self, owner: str) -> Fate:
        """Whether one lives. What a dead one had may be taken back, and its line is removed here."""
        if owner == self._me.id:
            return "lives"
        if owner not in self._fates:
            self._fates[owner] = self._look(owner)
        return self._fates[owner]

    def close(self, *, committed: bool) -> None:
        """Free the locks; where the transaction took effect, the files of the dead go too."""
        if committed:
            for lock in (*self._graves, *(one.lock for one in self._buried)):
                lock.release()
            for one in self._buried:
                del self._remains[one.owner]
            self._remains.update({one.owner: one for one in self._found})
        else:
            for lock in (*self._graves, *(one.lock for one in self._found)):
                lock.leave()

    def _look(self, owner: str) -> Fate:
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

    def _ask(self, owner: str) -> Fate:
        host, seen, has_died = self._connection.execute(
            "SELECT host, heartbeat_s, has_died FROM owner WHERE id = ?", (owner,)
        ).fetchone() or (self._me.host, None, False)
        if is_elsewhere(host, self._me.host) and not has_died and was_seen(seen, self._since):
            return "lives"
        if not _NAME.fullmatch(owner):  # nobody can have a lock
            return "dead"
        lock = self._owners.take(owner, is_silent=not was_seen(seen, self._since))
        if lock is None:
            return "dying" if has_died else "lives"
        processes = find_processes(self._connection, self._owners.database, owner)
        if not processes:
            self._graves.append(lock)
            return "dead"
        self._found.append(Remains(owner, processes, lock))
        self._connection.execute("UPDATE owner SET has_died = 1 WHERE id = ?", (owner,))
        return "dying"
