"""Programs that stand in the line of the planner, and which of them live.

A program has a random id, a line in the table of owners that says when it was last seen, and a file beside
the database that it locks for as long as it lives. On one machine the lock alone says who lives. What runs
on another one may have locks that are not seen from here, so it also lives as long as it was seen lately.
Age by itself is no evidence: what somebody had is taken back only by who holds the lock of that somebody.
"""

import os
import re
import secrets
import socket
import sqlite3
from pathlib import Path

import attrs

from trioeval.errors import StoreError
from trioeval.store.cache_owners import Owners
from trioeval.store.locks import RunLock

_NAME = re.compile(r"[0-9a-f]{32}")

SILENT_BEATS = 3
"""Heartbeats that a program of another machine may miss and still live."""


@attrs.frozen(eq=False)
class Incarnation:
    """This program, as others know it, while its lock is held."""

    id: str
    host: str
    pid: int
    lock: RunLock = attrs.field(repr=False)


def enter(database: Path) -> Incarnation:
    """Become known as a program that lives. No other ever had its id.

    Raises:
        StoreError: No lock can be made beside the database.
    """
    owners, name = Owners.of(database), secrets.token_hex(16)
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


def seems_alive(owners: Owners, owner: str, host: str, heartbeat_s: float, *, since: float) -> bool:
    """Whether a program lives, for whoever only looks.

    Args:
        owners: The files.
        owner: Its id.
        host: Where it runs.
        heartbeat_s: When it was last seen, in seconds since 1970.
        since: When one of another machine must have been seen.
    """
    if host != socket.gethostname() and heartbeat_s > since:
        return True
    return owners.path(owner).exists() and not owners.is_gone(owner)


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
    _lives: dict[str, bool] = attrs.field(init=False, factory=dict)
    _graves: list[RunLock] = attrs.field(init=False, factory=list)

    def lives(self, owner: str) -> bool:
        """Whether one lives. If not, what it had may be taken back, and its line is removed here."""
        if owner == self._me.id:
            return True
        if owner not in self._lives:
            self._lives[owner] = self._look(owner)
        return self._lives[owner]

    def close(self, *, committed: bool) -> None:
        """Free the locks; where the transaction took effect, the files of the dead go too."""
        for lock in self._graves:
            if committed:
                lock.release()
            else:
                lock.leave()
        self._graves.clear()

    def _look(self, owner: str) -> bool:
        found = self._connection.execute(
            "SELECT host, heartbeat_s FROM owner WHERE id = ?", (owner,)
        ).fetchone()
        if found is not None and found[0] != self._me.host and found[1] > self._since:
            return True
        if _NAME.fullmatch(owner):  # nobody else can have a lock
            lock = self._owners.take(owner)
            if lock is None:
                return True
            self._graves.append(lock)
        self._connection.execute("DELETE FROM owner WHERE id = ?", (owner,))
        return False
