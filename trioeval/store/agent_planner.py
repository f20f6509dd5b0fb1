"""The planner that programs share: a line in the database, and no process that keeps it.

Every operation is one short transaction, in a thread and on a connection of its own; whoever makes one lets
the next begin, whosever they are. So a program learns in two ways that one of its own may run: from its own
transactions at once, and from a look at the line twice a second while something of its own waits.

Whoever leaves the line says so here first, and it is written with the next transaction, whichever that is:
where the database is locked at that moment, nothing is lost, and the caller need not wait.
"""

import contextlib
import math
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import attrs
import trio

from trioeval.agents.planner import Entry, Recovery, Submission, check_limit, check_submission
from trioeval.errors import StoreError, UsageError
from trioeval.store.agent_line import Line, read_entries, readable_text
from trioeval.store.agent_owners import (
    SILENT_BEATS,
    Incarnation,
    Neighbours,
    beat,
    enter,
    is_known,
    write_owner,
)
from trioeval.store.cache_flights import again
from trioeval.store.cache_owners import Owners
from trioeval.store.database import BusyError, open_database, store_error
from trioeval.store.opening import open_patiently
from trioeval.store.payloads import plain
from trioeval.store.schema import RUNS

T = TypeVar("T")

_RETRY = 0.02
_TAKEN_FOR_DEAD = (
    "{}: another program took this one for dead, and its places in the line of agents back: more may run "
    "than the limit allows"
)
_END_WITHIN = 5.0  # seconds that a program which is to end may wait to leave the line


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


@contextlib.asynccontextmanager
async def open_planner(
    database: Path,
    limit: int,
    *,
    settings: PlannerSettings = PlannerSettings(),
    warn: Callable[[str], None] | None = None,
    wall: Callable[[], float] = time.time,
) -> AsyncGenerator["AgentPlanner"]:
    """Share the line of a database for as long as the block; at its end everything of it leaves the line.

    What leaves so has no outcome, and may be submitted again.

    Args:
        database: The database of runs; it is made if it is not there.
        limit: Root tasks that may run at once, of all programs, ≥ 1. Programs that say different things each
            let begin as many as they say.
        settings: How often it looks.
        warn: Told what goes wrong and ends nothing.
        wall: Seconds since 1970.

    Raises:
        UsageError: The limit is less than 1.
        StoreError: The database cannot be used.
    """
    check_limit(limit)
    tell = warn or _ignore
    connection = await open_patiently(
        partial(open_database, database, RUNS),
        database,
        RUNS,
        patience_s=settings.patience,
        on_warning=warn,
    )
    planner = None
    failure: Exception | None = None
    try:
        me = await trio.to_thread.run_sync(enter, database)
        planner = AgentPlanner(database, connection, me, limit, settings, tell, wall)
        for problem in (await planner.recover()).problems:
            tell(problem)
        async with trio.open_nursery() as nursery:
            background = await nursery.start(planner.serve)
            try:
                yield planner
            except Exception as error:  # noqa: BLE001 - raised below, where no nursery wraps it
                failure = error
            finally:
                background.cancel("the planner is closed")
    finally:
        # Its places must go to others also when it is cancelled.
        with trio.move_on_after(_END_WITHIN, shield=True):
            if planner is not None:
                await planner.aclose()
        connection.close()
    if failure is not None:
        raise failure


def _ignore(_: str) -> None:
    """Nobody wants to know."""


@attrs.define(eq=False)
class _Seat:
    """One who waits for the turn of a submission."""

    is_running: bool = False
    news: trio.Event = attrs.field(factory=trio.Event)
    """Set when it runs, or has left, or nobody can say."""


@attrs.define(eq=False)
class AgentPlanner:
    """The line of a database, as one program sees it. Made by `open_planner`."""

    _database: Path
    _connection: sqlite3.Connection = attrs.field(repr=False)
    _me: Incarnation
    _limit: int
    _settings: PlannerSettings
    _warn: Callable[[str], None] = attrs.field(repr=False)
    _wall: Callable[[], float] = attrs.field(repr=False)
    _owners: Owners = attrs.field(init=False, repr=False)
    _turn: trio.Lock = attrs.field(init=False, factory=trio.Lock, repr=False)
    _thread: trio.CapacityLimiter = attrs.field(
        init=False, factory=partial(trio.CapacityLimiter, 1), repr=False
    )
    _seats: dict[str, _Seat] = attrs.field(init=False, factory=dict, repr=False)
    _left: dict[str, bool | None] = attrs.field(init=False, factory=dict, repr=False)
    """What has left the line and still stands in it, with its outcome."""
    _somebody: trio.Event = attrs.field(init=False, factory=trio.Event, repr=False)
    """Set when somebody waits for a turn."""
    _is_known: bool = attrs.field(init=False, default=False, repr=False)
    _error: StoreError | None = attrs.field(init=False, default=None, repr=False)

    def __attrs_post_init__(self) -> None:
        self._owners = Owners.of(self._database)
        self._connection.text_factory = readable_text

    @property
    def owner(self) -> str:
        """The id of this program."""
        return self._me.id

    async def submit(self, submission: Submission, /) -> Entry:
        """See `Planner.submit`. About 0.2 ms, and as long as the database is locked by others."""
        check_submission(submission)
        for id_ in (submission.id, *submission.depends_on):
            if plain(id_) != id_:
                raise UsageError(f"{id_!r}: an id with characters that no database holds")
        named = attrs.evolve(submission, run=plain(submission.run), task=plain(submission.task))

        def put(line: Line) -> Entry:
            line.submit(named)
            line.schedule(self._limit)
            return line.entry(named.id)

        entry = await self._change(put)
        # No checkpoint since the transaction: whoever lets it begin later finds it here.
        self._seats.setdefault(named.id, _Seat())
        if entry.state == "running":
            self._tell([named.id])
        else:
            self._somebody.set()
        return entry

    async def wait_started(self, id_: str, /) -> None:
        """See `Planner.wait_started`."""
        await trio.lowlevel.checkpoint()
        seat = self._seats.get(id_)
        while seat is not None and not seat.is_running and self._seats.get(id_) is seat:
            if self._error is not None:
                raise again(self._error)
            await seat.news.wait()
        if seat is None or self._seats.get(id_) is not seat:
            raise UsageError(f"{id_}: it does not stand in the line for this program")

    async def finish(self, id_: str, /, *, done: bool, schedule: bool = True) -> None:
        """See `Planner.finish`."""
        await self._go(id_, done, schedule=schedule)

    async def leave(self, id_: str, /) -> None:
        """See `Planner.leave`."""
        await self._go(id_, None, schedule=True)

    async def snapshot(self) -> Sequence[Entry]:
        """See `Planner.snapshot`."""

        async def attempt() -> Sequence[Entry]:
            read = partial(self._transact, "", partial(read_entries, self._connection))
            return await trio.to_thread.run_sync(read, limiter=self._thread)

        return await self._patiently(attempt)

    async def recover(self) -> Recovery:
        """See `Planner.recover`."""

        def look(line: Line) -> Recovery:
            found = line.recover()
            line.schedule(self._limit)
            return found

        found = await self._change(look)
        told = tuple(f"{self._database}: {problem}" for problem in found.problems)
        return attrs.evolve(found, problems=told)

    async def set_limit(self, limit: int, /) -> None:
        """See `Planner.set_limit`."""
        check_limit(limit)
        self._limit = limit
        await self._change(lambda line: line.schedule(limit))

    async def serve(
        self, *, task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Say that this program lives, and look at the line, until the scope that it starts with is cancelled.

        Nothing else ends it: a block that is cancelled keeps its places until it has left them.
        """
        with trio.CancelScope(shield=True) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_alive)
                nursery.start_soon(self._keep_looking)
                task_status.started(scope)

    async def aclose(self) -> None:
        """Leave the line with everything. What cannot be written is found by others: this program has died."""
        is_gone = False
        try:
            await self._change(self._clear)
            is_gone = True
        except StoreError as error:
            self._warn(str(error))
        finally:
            if is_gone:
                self._me.lock.release()
            else:
                self._me.lock.leave()

    def _clear(self, line: Line) -> None:
        line.clear()
        line.schedule(self._limit)

    async def _go(self, id_: str, done: bool | None, *, schedule: bool) -> None:  # noqa: FBT001
        seat = self._seats.pop(id_, None)
        if seat is not None:
            seat.news.set()
        self._left[id_] = done

        def let_next(line: Line) -> None:
            if schedule:
                line.schedule(self._limit)

        await self._change(let_next)

    async def _keep_alive(self) -> None:
        is_told = False
        while True:
            await trio.sleep(self._settings.heartbeat)
            try:
                await self._change(self._say_alive)
            except StoreError as error:
                if not is_told:
                    self._warn(str(error))
                is_told = True
            else:
                is_told = False

    def _say_alive(self, line: Line) -> None:
        beat(self._connection, self._me, self._wall())
        line.schedule(self._limit)

    async def _keep_looking(self) -> None:
        while True:
            await self._somebody.wait()
            await trio.sleep(self._settings.poll)
            try:
                await self._change(lambda line: line.schedule(self._limit, patrol=True))
            except StoreError as error:
                self._error = error
                for seat in self._seats.values():
                    seat.news.set()
                    seat.news = trio.Event()
            else:
                self._error = None
            if all(seat.is_running for seat in self._seats.values()):
                self._somebody = trio.Event()

    async def _change(self, act: Callable[[Line], T]) -> T:
        """Change the line in one transaction, and learn what of this program runs.

        Cancelled, it has not happened. From the end of the transaction to the return there is no checkpoint.
        """

        async def attempt() -> T:
            left = dict(self._left)
            running = [id_ for id_, seat in self._seats.items() if seat.is_running]
            waiting = [id_ for id_, seat in self._seats.items() if not seat.is_running]
            written = await trio.to_thread.run_sync(
                self._write, partial(_act, act, left, running, waiting), limiter=self._thread
            )
            for id_, done in left.items():
                if self._left[id_] is done:  # and not another outcome meanwhile
                    del self._left[id_]
            self._tell(written.running)
            if written.is_anew and self._is_known:
                self._warn(_TAKEN_FOR_DEAD.format(self._database))
            self._is_known = True
            return written.result

        return await self._patiently(attempt)

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

    def _write(self, act: Callable[[Line, bool], "_Written[T]"]) -> "_Written[T]":
        """In the thread."""
        now = self._wall()
        since = now - SILENT_BEATS * self._settings.heartbeat
        neighbours = Neighbours(self._connection, self._owners, self._me, since)
        line = Line(self._connection, neighbours, self._me.id, _utc(now))

        def work() -> "_Written[T]":
            is_anew = not is_known(self._connection, self._me)
            if is_anew:
                write_owner(self._connection, self._me, _utc(now), now)
            return act(line, is_anew)

        is_committed = False
        try:
            written = self._transact("IMMEDIATE", work)
            is_committed = True
        finally:
            neighbours.close(committed=is_committed)
        return written

    def _transact(self, kind: str, work: Callable[[], T]) -> T:
        """In the thread."""
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

    def _tell(self, running: Iterable[str]) -> None:
        """Wake those who may run."""
        for id_ in running:
            seat = self._seats.get(id_)
            if seat is not None:
                seat.is_running = True
                seat.news.set()


@attrs.frozen
class _Written(Generic[T]):
    """What came of a transaction."""

    result: T
    running: Iterable[str]
    """What of this program runs."""
    is_anew: bool
    """Whether this program was not known."""


def _act(
    act: Callable[[Line], T],
    left: Mapping[str, bool | None],
    running: Iterable[str],
    waiting: Iterable[str],
    line: Line,
    is_anew: bool,  # noqa: FBT001
) -> _Written[T]:
    if is_anew:
        line.restore(running, waiting)
    line.settle(left)
    result = act(line)
    return _Written(result, line.started(), is_anew)


def _utc(now: float) -> str:
    return (
        datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
