"""Transactions on the line of agents, one after the other, on a connection of their own.

They run in a thread, except for tables in memory: these never block, and a virtual clock must not move
during a transaction.
"""

import contextlib
import math
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from trioeval.agent.planner import Entry
from trioeval.errors import StoreError, UsageError
from trioeval.store.cache.file import Owners
from trioeval.store.database import BusyError, store_error
from trioeval.store.planner.owners import (
    SILENT_BEATS,
    Incarnation,
    Neighbours,
    Remains,
    beat,
    is_known,
    write_owner,
)
from trioeval.store.planner.queue import Line, read_entries, readable_text
from trioeval.store.schema import RUNS

T = TypeVar("T")

_RETRY = 0.02  # seconds; whoever keeps it locked is waited for by the database itself
_REST = 0.2
_WARN_AFTER = 2.0
_PASSING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_CANTOPEN,
}


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


@attrs.define(eq=False)
class Transactions:
    """The connection of one program to the line. All that is async is a checkpoint.

    What is awaited returns or raises without a checkpoint since the end of the transaction. Cancelled, it has
    changed nothing.
    """

    _database: Path
    _connection: sqlite3.Connection = attrs.field(repr=False)
    _me: Incarnation
    _settings: PlannerSettings
    _wall: Callable[[], float] = attrs.field(repr=False)
    _warn: Callable[[str], None] = attrs.field(repr=False)
    remains: dict[str, Remains] = attrs.field(init=False, factory=dict, repr=False)
    """What programs that have died have left running, and this one is to end; their locks are held here."""
    _is_told: bool = attrs.field(init=False, default=False)
    """Whether it was told that the database cannot be used now."""
    _owners: Owners = attrs.field(init=False, repr=False)
    _turn: trio.Lock = attrs.field(init=False, factory=trio.Lock, repr=False)
    _thread: trio.CapacityLimiter = attrs.field(
        init=False, factory=partial(trio.CapacityLimiter, 1), repr=False
    )

    def __attrs_post_init__(self) -> None:
        self._owners = Owners.of(self._database)
        self._connection.text_factory = readable_text

    async def change(
        self,
        prepare: Callable[[], Callable[[Line, bool], T]],
        learn: Callable[[T], None],
        *,
        patience: float | None = None,
    ) -> None:
        """Change the line.

        Args:
            prepare: Gives what is done with the line, in the thread; it is told whether this program was not
                known there, so that others have taken what it had.
            learn: Hears what comes of it, before anything else of this program changes the line.
            patience: Seconds that trouble of the database may last; None is that of the settings.

        Raises:
            UsageError: Whatever is done raised it.
            StoreError: The database cannot be used.
        """

        async def attempt() -> None:
            work = partial(self._write, prepare())
            learn(await self._run(work))

        await self._patiently(attempt, self._settings.patience if patience is None else patience)

    async def entries(self) -> Sequence[Entry]:
        """Everything in the line that can be read.

        Raises:
            StoreError: The database cannot be used.
        """

        async def attempt() -> Sequence[Entry]:
            work = partial(self._transact, "DEFERRED", partial(read_entries, self._connection))
            return await self._run(work)

        return await self._patiently(attempt, self._settings.patience)

    @property
    def are_in_memory(self) -> bool:
        """Whether no other program shares the queue."""
        return self._me.lock is None

    def leave_remains(self) -> None:
        """Leave to others what has not been ended."""
        for one in self.remains.values():
            one.lock.leave()
        self.remains.clear()

    def say_alive(self) -> None:
        """Write down that this program lives. In the thread, where the line is changed."""
        beat(self._connection, self._me, self._wall())

    async def _patiently(self, attempt: Callable[[], Awaitable[T]], patience: float) -> T:
        """Try again while there is trouble that may pass. Nobody else tries between: all keep their order."""
        begun = trio.current_time()
        async with self._turn:
            while True:
                try:
                    result = await attempt()
                except StoreError as error:
                    waited = trio.current_time() - begun
                    if waited >= patience or not _may_pass(error):
                        raise
                    if waited >= _WARN_AFTER and not self._is_told:
                        self._is_told = True
                        self._warn(
                            f"{error}; the line of agents waits for it, at most {patience:g} s"
                        )
                    rest = _RETRY if isinstance(error, BusyError) else _REST
                else:
                    self._is_told = False
                    return result
                await trio.sleep(rest)

    async def _run(self, work: Callable[[], T]) -> T:
        if self.are_in_memory:  # after a checkpoint, which taking `_turn` is
            return work()
        return await trio.to_thread.run_sync(work, limiter=self._thread)

    def _write(self, act: Callable[[Line, bool], T]) -> T:
        now = self._wall()
        since = now - SILENT_BEATS * self._settings.heartbeat
        neighbours = Neighbours(self._connection, self._owners, self._me, since, self.remains)
        line = Line(self._connection, neighbours, self._me.id, _utc(now))

        def work() -> T:
            is_anew = not is_known(self._connection, self._me)
            if is_anew:
                write_owner(self._connection, self._me, _utc(now), now)
            return act(line, is_anew)

        is_committed = False
        try:
            result = self._transact("IMMEDIATE", work)
            is_committed = True
        finally:
            neighbours.close(committed=is_committed)
        return result

    def _transact(self, kind: str, work: Callable[[], T]) -> T:
        try:
            self._connection.execute(f"BEGIN {kind}")
            result = work()
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise store_error(self._database, RUNS, error) from error
        else:
            return result
        finally:
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # what went wrong is told already
                    self._connection.execute("ROLLBACK")


def _may_pass(error: StoreError) -> bool:
    """Whether the database may be used again by itself, or when somebody has made room."""
    return getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF in _PASSING


def _utc(now: float) -> str:
    stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")
