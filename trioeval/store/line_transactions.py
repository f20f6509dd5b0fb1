"""Transactions on the line of agents, one after the other, in a thread and on a connection of their own."""

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

from trioeval.agents.planner import Entry
from trioeval.errors import UsageError
from trioeval.store.agent_line import Line, read_entries, readable_text
from trioeval.store.agent_owners import (
    SILENT_BEATS,
    Incarnation,
    Neighbours,
    beat,
    is_known,
    write_owner,
)
from trioeval.store.cache_owners import Owners
from trioeval.store.database import BusyError, store_error
from trioeval.store.schema import RUNS

T = TypeVar("T")

_RETRY = 0.02


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
    """Seconds that another program may keep the database locked."""

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
    _owners: Owners = attrs.field(init=False, repr=False)
    _turn: trio.Lock = attrs.field(init=False, factory=trio.Lock, repr=False)
    _thread: trio.CapacityLimiter = attrs.field(
        init=False, factory=partial(trio.CapacityLimiter, 1), repr=False
    )

    def __attrs_post_init__(self) -> None:
        self._owners = Owners.of(self._database)
        self._connection.text_factory = readable_text

    async def change(
        self, prepare: Callable[[], Callable[[Line, bool], T]], learn: Callable[[T], None]
    ) -> None:
        """Change the line.

        Args:
            prepare: Gives what is done with the line, in the thread; it is told whether this program was not
                known there, so that others have taken what it had.
            learn: Hears what comes of it, before anything else of this program changes the line.

        Raises:
            UsageError: Whatever is done raised it.
            StoreError: The database cannot be used.
        """

        async def attempt() -> None:
            work = partial(self._write, prepare())
            learn(await trio.to_thread.run_sync(work, limiter=self._thread))

        await self._patiently(attempt)

    async def entries(self) -> Sequence[Entry]:
        """Everything in the line that can be read.

        Raises:
            StoreError: The database cannot be used.
        """

        async def attempt() -> Sequence[Entry]:
            work = partial(self._transact, "DEFERRED", partial(read_entries, self._connection))
            return await trio.to_thread.run_sync(work, limiter=self._thread)

        return await self._patiently(attempt)

    def say_alive(self) -> None:
        """Write down that this program lives. In the thread, where the line is changed."""
        beat(self._connection, self._me, self._wall())

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try again while other programs keep the database locked, and let others try between."""
        give_up_at = trio.current_time() + self._settings.patience
        while True:
            try:
                async with self._turn:
                    return await attempt()
            except BusyError:
                if trio.current_time() >= give_up_at:
                    raise
            await trio.sleep(_RETRY)

    def _write(self, act: Callable[[Line, bool], T]) -> T:
        now = self._wall()
        since = now - SILENT_BEATS * self._settings.heartbeat
        neighbours = Neighbours(self._connection, self._owners, self._me, since)
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


def _utc(now: float) -> str:
    stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")
