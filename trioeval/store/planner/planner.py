"""The planner that programs share: a line in the database, and no process that keeps it.

Every operation is one short transaction; whoever makes one lets the next begin, whosever they are. So a
program learns in two ways that one of its own may run: from its own transactions at once, and from a look at
the line twice a second while something of its own waits.

Whoever leaves the line says so here first, and it is written with the next transaction, whichever that is:
where the database is locked at that moment, nothing is lost, and the caller need not wait.

Trouble of the database that may pass is waited for, as long as the patience lasts; who waits for its turn
hears of what lasts longer, and nobody hears of it any more once something could be written.

A queue in memory has the same tables on a connection of its own, and neither threads, locks nor tasks in
the background.
"""

import contextlib
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from trioeval.agent.planner import Entry, Submission
from trioeval.agent.processes import end_survivors
from trioeval.errors import StoreError, UsageError
from trioeval.nurseries import open_plain_nursery
from trioeval.store.cache.file import Owners
from trioeval.store.cache.single_flight import again
from trioeval.store.database import (
    IN_MEMORY,
    BusyError,
    open_database,
    open_memory,
    open_patiently,
    store_error,
)
from trioeval.store.planner.owners import (
    SILENT_BEATS,
    Incarnation,
    Neighbours,
    PlannerSettings,
    Remains,
    beat,
    enter,
    is_known,
    write_owner,
)
from trioeval.store.planner.queue import Line, Recovery, read_entries, readable_text
from trioeval.store.records import plain
from trioeval.store.schema import RUNS

T = TypeVar("T")

_TAKEN_FOR_DEAD = (
    "{}: another program took this one for dead, and its places in the line of agents back: more may run "
    "than the limit allows"
)
_STAYS = (
    "{}: {}; what this program had in the line of agents stands there until its run is resumed or deleted, "
    "and is in nobody's way"
)
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
_END_WITHIN = 5.0  # seconds that a program which is to end may take to leave the line
_END_PATIENCE = 4.0  # of these, for trouble of the database
_LOOK = 0.05  # seconds between two looks whether somebody else has ended what a dead program left running


@contextlib.asynccontextmanager
async def open_planner(
    database: Path | None,
    limit: int,
    *,
    settings: PlannerSettings = PlannerSettings(),  # noqa: B008 - frozen
    warn: Callable[[str], None] | None = None,
    wall: Callable[[], float] = time.time,
) -> AsyncGenerator["AgentPlanner"]:
    """Share the line of a database for as long as the block; at its end everything of it leaves the line.

    What leaves so has no outcome, and may be submitted again.

    Args:
        database: The database of runs; it is made if it is not there. None is a queue in memory, without
            threads, that no other program shares.
        limit: Root tasks that may run at once, of all programs, ≥ 1. Of programs that say different things
            the smallest limit holds, as long as they live.
        settings: How often it looks.
        warn: Told what goes wrong and ends nothing.
        wall: Seconds since 1970.

    Raises:
        UsageError: The limit is less than 1.
        StoreError: The database cannot be used.

    Example:
        >>> async def main():
        ...     async with open_planner(None, 1) as planner:
        ...         for name in ("a", "b"):
        ...             entry = await planner.submit(Submission(id=name, run="r", task=name))
        ...             print(name, entry.state, entry.position)
        ...         await planner.finish("a", done=True)
        ...         print(
        ...             [(entry.submission.id, entry.state) for entry in await planner.snapshot()]
        ...         )
        >>> trio.run(main)
        a running 0
        b queued 1
        [('b', 'running')]
    """
    _check_limit(limit)
    tell = warn or _ignore
    if database is None:
        with contextlib.closing(open_memory(RUNS)) as connection:
            yield AgentPlanner(IN_MEMORY, connection, enter(None), limit, settings, tell, wall)
        return
    connection = await open_patiently(
        partial(open_database, database, RUNS),
        database,
        RUNS,
        patience_s=settings.patience,
        on_warning=warn,
    )
    with contextlib.closing(connection):
        me = await trio.to_thread.run_sync(enter, database)
        planner = AgentPlanner(database, connection, me, limit, settings, tell, wall)
        try:
            for problem in (await planner.recover()).problems:
                planner.warn(problem)
            # Files of programs that died before they were written down.
            await trio.to_thread.run_sync(Owners.of(database).bury, _ignore)
            async with open_plain_nursery() as nursery:
                # Not `nursery.start`, which would wait for ever for what does not hear of a cancellation.
                background = trio.CancelScope(shield=True)
                nursery.start_soon(planner.serve, background)
                try:
                    yield planner
                finally:
                    background.cancel("the planner is closed")
        finally:
            # Its places must go to others also when it is cancelled.
            with trio.move_on_after(_END_WITHIN, shield=True):
                await planner.clear()
            planner.leave_remains()
            if me.lock is not None and planner.is_gone:
                me.lock.release()
            elif me.lock is not None:
                me.lock.leave()  # others find that it has died


def _ignore(_: str) -> None:
    """Nobody wants to know."""


@attrs.define(eq=False)
class _Seat:
    """A submission of this program."""

    submission: Submission
    is_running: bool = False
    news: trio.Event = attrs.field(factory=trio.Event)
    """Set when it runs, or has left, or nobody can say."""


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise UsageError(f"the planner lets at least 1 root task run at once, not {limit}")


@attrs.define(eq=False)
class AgentPlanner:
    """The line of a database, as one program sees it. Made by `open_planner`.

    Its transactions come one after the other, on a connection of their own: in a thread, except for tables
    in memory, which never block, and during whose transactions a virtual clock must not move. What is awaited
    returns or raises without a checkpoint since its transaction; cancelled, it has changed nothing.
    """

    _database: Path
    _connection: sqlite3.Connection = attrs.field(repr=False)
    _me: Incarnation
    _limit: int
    _settings: PlannerSettings
    warn: Callable[[str], None] = attrs.field(repr=False)
    _wall: Callable[[], float] = attrs.field(repr=False)
    is_gone: bool = attrs.field(init=False, default=True)
    """Whether nothing of this program stands in the line."""
    _seats: dict[str, _Seat] = attrs.field(init=False, factory=dict, repr=False)
    _left: dict[str, bool | None] = attrs.field(init=False, factory=dict, repr=False)
    """What has left the line and still stands in it, with its outcome."""
    _running: Sequence[str] = attrs.field(init=False, default=(), repr=False)
    """What of this program ran when the change began that goes on."""
    _waiting: Sequence[Submission] = attrs.field(init=False, default=(), repr=False)
    """What of it waited then."""
    _somebody: trio.Event = attrs.field(init=False, factory=trio.Event, repr=False)
    """Set when somebody waits for a turn."""
    _deaths: trio.Event = attrs.field(init=False, factory=trio.Event, repr=False)
    """Set when this program is to end what others have left running that have died."""
    _ending: trio.Lock = attrs.field(init=False, factory=trio.Lock, repr=False)
    _is_known: bool = attrs.field(init=False, default=False, repr=False)
    _error: StoreError | None = attrs.field(init=False, default=None, repr=False)
    _remains: dict[str, Remains] = attrs.field(init=False, factory=dict, repr=False)
    """What programs that have died have left running, and this one is to end; their locks are held here."""
    _has_warned: bool = attrs.field(init=False, default=False)
    """Whether a warning says that the database cannot be used now."""
    _owners: Owners = attrs.field(init=False, repr=False)
    _turn: trio.Lock = attrs.field(init=False, factory=trio.Lock, repr=False)
    _thread: trio.CapacityLimiter = attrs.field(
        init=False, factory=partial(trio.CapacityLimiter, 1), repr=False
    )

    def __attrs_post_init__(self) -> None:
        self._owners = Owners.of(self._database)
        self._connection.text_factory = readable_text

    async def submit(self, submission: Submission, /) -> Entry:
        """See `Planner.submit`.

        Less than a millisecond, and as long as others keep the database locked. What a program that has died
        has left running of it is ended before.
        """
        if not submission.id.strip():
            raise UsageError(
                f"{submission.task}: a submission to the planner needs an id; it has {submission.id!r}"
            )
        if submission.id in submission.depends_on:
            raise UsageError(f"{submission.id}: it depends on itself, and would wait for ever")
        for id_ in (submission.id, *submission.depends_on):
            if plain(id_) != id_:
                raise UsageError(f"{id_!r}: an id with characters that no database holds")
        named = attrs.evolve(submission, run=plain(submission.run), task=plain(submission.task))

        def put(line: Line) -> Entry | None:
            is_there = line.submit(named)
            line.schedule(self._limit)
            return line.entry(named.id) if is_there else None

        while (entry := await self._change(put)) is None:
            if self._remains:
                await self._end_remains()
            else:
                await trio.sleep(_LOOK)
        # No checkpoint since the transaction: whoever lets it begin later finds it here.
        self._seats.setdefault(named.id, _Seat(named)).submission = named
        if entry.state == "running":
            self._tell([named.id])
        else:
            self._somebody.set()
        return entry

    async def set_free(self, id_: str, /) -> Entry:
        """See `Planner.set_free`."""

        def free(line: Line) -> Entry | None:
            is_there = line.set_free(id_)
            line.schedule(self._limit)
            return line.entry(id_) if is_there else None

        entry = await self._change(free) if id_ in self._seats else None
        if (seat := self._seats.get(id_)) is not None:
            seat.submission = attrs.evolve(seat.submission, depends_on=())
        if entry is None:
            await trio.lowlevel.checkpoint()
            raise UsageError(f"{id_}: it does not stand in the line for this program")
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

    async def finish(self, id_: str, /, *, done: bool | None, schedule: bool = True) -> None:
        """See `Planner.finish`. Without `schedule` nobody gets the place yet: no more is to begin here."""
        seat = self._seats.pop(id_, None)
        if seat is not None:
            seat.news.set()
        self._left[id_] = done

        def let_next(line: Line) -> None:
            if schedule:
                line.schedule(self._limit)

        if not self._is_in_memory:
            await self._change(let_next)
            return
        # It takes no time, and perhaps no later transaction would make up for it.
        with trio.CancelScope(shield=True):
            await self._change(let_next)
        await trio.lowlevel.checkpoint_if_cancelled()

    async def snapshot(self) -> Sequence[Entry]:
        """Everything in the line that can be read, by order. Without side effects.

        Raises:
            StoreError: The database cannot be used.
        """
        work = partial(self._transact, "DEFERRED", partial(read_entries, self._connection))
        return await self._patiently(partial(self._run, work), self._settings.patience)

    async def recover(self) -> Recovery:
        """Take places back from programs that have died, and end what they have left running.

        A second call finds nothing more.

        Raises:
            StoreError: The database cannot be used.
        """

        def look(line: Line) -> Recovery:
            found = line.recover()
            line.schedule(self._limit)
            return found

        found = await self._change(look)
        told = tuple(f"{self._database}: {problem}" for problem in found.problems)
        if self._remains:
            await self._end_processes()
            later = await self._change(look)
            found = Recovery((*found.requeued, *later.requeued), later.kept)
        return attrs.evolve(found, problems=told)

    async def set_limit(self, limit: int, /) -> None:
        """Let so many root tasks run at once from now on, ≥ 1. None that runs is stopped.

        Raises:
            UsageError: It is less than 1.
            StoreError: The database cannot be used; the limit holds all the same.
        """
        _check_limit(limit)
        self._limit = limit
        await self._change(lambda line: line.schedule(limit))

    async def serve(self, scope: trio.CancelScope) -> None:
        """Say that this program lives, and look at the line, until `scope` is cancelled.

        It is shielded: a block that is cancelled keeps its places until it has left them.
        """
        with scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_alive)
                nursery.start_soon(self._keep_looking)
                nursery.start_soon(self._keep_ending)

    async def clear(self) -> None:
        """Leave the line with everything, at the end. What cannot be written is told."""

        def leave(line: Line) -> None:
            line.clear()
            line.schedule(self._limit)

        if self.is_gone:
            await trio.lowlevel.checkpoint()
            return
        reason = "the database does not answer"
        try:
            await self._change(leave, patience=min(_END_PATIENCE, self._settings.patience))
            self.is_gone = True
        except StoreError as error:
            reason = str(error).removeprefix(f"{self._database}: ")
        finally:
            if not self.is_gone:
                self.warn(_STAYS.format(self._database, reason))

    def leave_remains(self) -> None:
        """Leave to others what has not been ended."""
        for one in self._remains.values():
            one.lock.leave()
        self._remains.clear()

    async def _keep_alive(self) -> None:
        is_told = False
        while True:
            await trio.sleep(self._settings.heartbeat)
            try:
                for problem in await self._change(self._say_alive):
                    self.warn(f"{self._database}: {problem}; it is written anew")
            except StoreError as error:
                if not is_told:
                    self.warn(str(error))
                is_told = True
            else:
                is_told = False

    def _say_alive(self, line: Line) -> tuple[str, ...]:
        beat(self._connection, self._me, self._wall())
        # Otherwise what waits for a damaged entry would wait for ever.
        problems = line.mend(self._waiting)
        line.schedule(self._limit)
        return problems

    async def _keep_looking(self) -> None:
        while True:
            await self._somebody.wait()
            await trio.sleep(self._settings.poll)
            try:
                await self._change(lambda line: line.schedule(self._limit, patrol=True))
            except StoreError as error:
                self._error = error
                for seat in self._seats.values():
                    if not seat.is_running:
                        seat.news.set()
                        seat.news = trio.Event()
            if all(seat.is_running for seat in self._seats.values()):
                self._somebody = trio.Event()

    async def _keep_ending(self) -> None:
        while True:
            await self._deaths.wait()
            self._deaths = trio.Event()
            with contextlib.suppress(StoreError):  # told already; what is written next calls again
                await self._end_remains()

    async def _end_remains(self) -> None:
        """End what programs have left running that have died, and then let others have their places."""
        await self._end_processes()
        owners = list(self._remains)

        def take_back(line: Line) -> None:
            line.take_back(owners)
            line.schedule(self._limit)

        await self._change(take_back)

    async def _end_processes(self) -> None:
        async with self._ending:
            for one in list(self._remains.values()):
                if not one.is_over:
                    await end_survivors(one.processes)
                    one.is_over = True

    async def _change(self, act: Callable[[Line], T], *, patience: float | None = None) -> T:
        """Change the line, and learn what of this program runs.

        Args:
            act: Changes the line, in the thread.
            patience: Seconds that trouble of the database may last; None is that of the settings.

        Raises:
            UsageError: Whatever is done raised it.
            StoreError: The database cannot be used.
        """

        async def attempt() -> T:
            left = dict(self._left)
            # Taken before the thread begins: with the right to write it may not wait for the event loop,
            # which may wait for the same right. What leaves meanwhile is settled by the next change.
            seats = self._seats.items()
            self._running = [id_ for id_, seat in seats if seat.is_running]
            self._waiting = [seat.submission for _, seat in seats if not seat.is_running]

            def work(line: Line, is_anew: bool) -> tuple[T, frozenset[str], bool]:  # noqa: FBT001
                if is_anew and self._is_known:
                    line.restore(self._running, [one.id for one in self._waiting])
                line.settle(left)
                return act(line), line.started(), is_anew

            result, running, is_anew = await self._run(partial(self._write, work))
            self._error = None
            self.is_gone = False
            if self._remains:
                self._deaths.set()
            for id_ in left:  # one that left meanwhile once more was not there any more
                del self._left[id_]
            self._tell(running)
            if is_anew and self._is_known:
                self.warn(_TAKEN_FOR_DEAD.format(self._database))
            self._is_known = True
            return result

        return await self._patiently(
            attempt, self._settings.patience if patience is None else patience
        )

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
                    if waited >= _WARN_AFTER and not self._has_warned:
                        self._has_warned = True
                        self.warn(
                            f"{error}; the line of agents waits for it, at most {patience:g} s"
                        )
                    rest = _RETRY if isinstance(error, BusyError) else _REST
                else:
                    self._has_warned = False
                    return result
                await trio.sleep(rest)

    @property
    def _is_in_memory(self) -> bool:
        """Whether no other program shares the queue."""
        return self._me.lock is None

    async def _run(self, work: Callable[[], T]) -> T:
        if self._is_in_memory:  # after a checkpoint, which taking `_turn` is
            return work()
        return await trio.to_thread.run_sync(work, limiter=self._thread)

    def _write(self, act: Callable[[Line, bool], T]) -> T:
        now = self._wall()
        since = now - SILENT_BEATS * self._settings.heartbeat
        neighbours = Neighbours(self._connection, self._owners, self._me, since, self._remains)
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

    def _tell(self, running: Sequence[str] | frozenset[str]) -> None:
        """Wake those who may run."""
        for id_ in running:
            seat = self._seats.get(id_)
            if seat is not None:
                seat.is_running = True
                seat.news.set()


def _may_pass(error: StoreError) -> bool:
    """Whether the database may be used again by itself, or when somebody has made room."""
    return getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF in _PASSING


def _utc(now: float) -> str:
    stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")
