"""The planner that programs share: a queue in the database, without a process that serves it.

Every operation is one short transaction, which lets the next entries start, of any program.
So a program learns in two ways that one of its own entries may run: from its own transactions at once, and
from a check of the queue twice a second while one of its entries waits.

An entry that leaves the queue is recorded here first, and written with the next transaction of any kind:
if the database is locked at that moment, nothing is lost, and the caller need not wait.

Temporary failures of the database are waited for, within the patience; a caller that waits for its turn gets
the error of a longer one, and none does once a transaction succeeds.

A queue in memory has the same tables on its own connection, and no threads, locks or background tasks.
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

from trioeval.agent.planner import QueuedSubmission, Submission
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
    OrphanedProcesses,
    OtherClients,
    PlannerClient,
    PlannerSettings,
    beat,
    is_known,
    join_planner,
    write_owner,
)
from trioeval.store.planner.queue import QueueTransaction, Recovery, read_entries, readable_text
from trioeval.store.records import plain
from trioeval.store.schema import RUNS

T = TypeVar("T")

_TAKEN_FOR_DEAD = (
    "{}: another program took this one for dead, and took its slots in the queue of agents back: more may "
    "run than the limit allows"
)
_STAYS = (
    "{}: {}; the entries of this program in the queue of agents stay there until its run is resumed or "
    "deleted, and block no others"
)
_RETRY = 0.02  # seconds; the database itself waits for other programs
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
_END_WITHIN = 5.0  # seconds that a program may take to leave the queue at its end
_END_PATIENCE = 4.0  # of these, for failures of the database
_LOOK = (
    0.05  # seconds between two checks whether another program has ended the processes of a dead one
)


@contextlib.asynccontextmanager
async def open_planner(
    database: Path | None,
    limit: int,
    *,
    settings: PlannerSettings = PlannerSettings(),  # noqa: B008 - frozen
    warn: Callable[[str], None] | None = None,
    wall: Callable[[], float] = time.time,
) -> AsyncGenerator["AgentPlanner"]:
    """Share the queue of a database for as long as the block; at its end all of its entries leave the queue.

    Entries that leave so have no outcome, and may be submitted again.

    Args:
        database: The database of runs; it is created if it does not exist. None is a queue in memory,
            without threads, that no other program shares.
        limit: Root tasks that may run at once, of all programs, ≥ 1. If programs give different limits the
            smallest one applies, as long as they live.
        settings: The intervals of heartbeats and checks.
        warn: Called with problems that end nothing.
        wall: Returns seconds since 1970.

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
            yield AgentPlanner(
                IN_MEMORY, connection, join_planner(None), limit, settings, tell, wall
            )
        return
    connection = await open_patiently(
        partial(open_database, database, RUNS),
        database,
        RUNS,
        patience_s=settings.patience,
        on_warning=warn,
    )
    with contextlib.closing(connection):
        me = await trio.to_thread.run_sync(join_planner, database)
        planner = AgentPlanner(database, connection, me, limit, settings, tell, wall)
        try:
            for problem in (await planner.recover()).problems:
                planner.warn(problem)
            # Files of programs that died before they were recorded.
            await trio.to_thread.run_sync(Owners.of(database).bury, _ignore)
            async with open_plain_nursery() as nursery:
                # Not `nursery.start`, which would wait for ever for a task that does not see a cancellation.
                background = trio.CancelScope(shield=True)
                nursery.start_soon(planner.serve, background)
                try:
                    yield planner
                finally:
                    background.cancel("the planner is closed")
        finally:
            # Its slots must be released also when it is cancelled.
            with trio.move_on_after(_END_WITHIN, shield=True):
                await planner.clear()
            planner.leave_remains()
            if me.lock is not None and planner.is_gone:
                me.lock.release()
            elif me.lock is not None:
                me.lock.leave()  # others detect that it has died


def _ignore(_: str) -> None:
    """Ignore a warning."""


@attrs.define(eq=False, repr=False)
class _OwnSubmission:
    """A submission of this program."""

    submission: Submission
    is_running: bool = False
    news: trio.Event = attrs.field(factory=trio.Event)
    """Set when it runs, or has left, or its state is unknown."""


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise UsageError(f"the planner needs a limit of at least 1 root task, got {limit}")


@attrs.define(eq=False, repr=False)
class AgentPlanner:
    """The queue of a database, as one program sees it. Created by `open_planner`.

    Its transactions run one after the other, on their own connection: in a thread, except for tables in
    memory, which never block, and during whose transactions a virtual clock must not move. Async methods
    return or raise without a checkpoint since their transaction; if cancelled, they have changed nothing.
    """

    _database: Path
    _connection: sqlite3.Connection
    _me: PlannerClient
    _limit: int
    _settings: PlannerSettings
    warn: Callable[[str], None]
    _wall: Callable[[], float]
    is_gone: bool = attrs.field(init=False, default=True)
    """True if this program has no entries in the queue."""
    _seats: dict[str, _OwnSubmission] = attrs.field(init=False, factory=dict)
    _left: dict[str, bool | None] = attrs.field(init=False, factory=dict)
    """Entries that have left and are still in the table, with their outcomes."""
    _running: Sequence[str] = attrs.field(init=False, default=())
    """Entries of this program that ran at the start of the current change."""
    _waiting: Sequence[Submission] = attrs.field(init=False, default=())
    """Entries of this program that waited then."""
    _somebody: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when a caller waits for a turn."""
    _deaths: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when this program is to end processes of dead programs."""
    _ending: trio.Lock = attrs.field(init=False, factory=trio.Lock)
    _is_known: bool = attrs.field(init=False, default=False)
    _error: StoreError | None = attrs.field(init=False, default=None)
    _remains: dict[str, OrphanedProcesses] = attrs.field(init=False, factory=dict)
    """Processes of dead programs that this one is to end; their locks are held here."""
    _has_warned: bool = attrs.field(init=False, default=False)
    """True if a warning about the unusable database is active."""
    _owners: Owners = attrs.field(init=False)
    _turn: trio.Lock = attrs.field(init=False, factory=trio.Lock)
    _thread: trio.CapacityLimiter = attrs.field(
        init=False, factory=partial(trio.CapacityLimiter, 1)
    )

    def __attrs_post_init__(self) -> None:
        self._owners = Owners.of(self._database)
        self._connection.text_factory = readable_text

    async def submit(self, submission: Submission, /) -> QueuedSubmission:
        """See `Planner.submit`.

        Takes less than a millisecond, plus the time for which others keep the database locked. Processes that
        a dead program has left running of it are ended before.
        """
        if not submission.id.strip():
            raise UsageError(
                f"{submission.task}: a submission to the planner needs an id; it has {submission.id!r}"
            )
        if submission.id in submission.depends_on:
            raise UsageError(f"{submission.id}: it depends on itself, and would wait for ever")
        for id_ in (submission.id, *submission.depends_on):
            if plain(id_) != id_:
                raise UsageError(f"{id_!r}: an id with characters that no database can store")
        named = attrs.evolve(submission, run=plain(submission.run), task=plain(submission.task))

        def put(line: QueueTransaction) -> QueuedSubmission | None:
            is_there = line.submit(named)
            line.schedule(self._limit)
            return line.entry(named.id) if is_there else None

        while (entry := await self._change(put)) is None:
            if self._remains:
                await self._end_remains()
            else:
                await trio.sleep(_LOOK)
        # No checkpoint since the transaction: another program that starts it later finds it here.
        self._seats.setdefault(named.id, _OwnSubmission(named)).submission = named
        if entry.state == "running":
            self._report([named.id])
        else:
            self._somebody.set()
        return entry

    async def clear_dependencies(self, id_: str, /) -> QueuedSubmission:
        """See `Planner.set_free`."""

        def free(line: QueueTransaction) -> QueuedSubmission | None:
            is_there = line.clear_dependencies(id_)
            line.schedule(self._limit)
            return line.entry(id_) if is_there else None

        entry = await self._change(free) if id_ in self._seats else None
        if (seat := self._seats.get(id_)) is not None:
            seat.submission = attrs.evolve(seat.submission, depends_on=())
        if entry is None:
            await trio.lowlevel.checkpoint()
            raise UsageError(f"{id_}: not queued by this program")
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
            raise UsageError(f"{id_}: not queued by this program")

    async def finish(self, id_: str, /, *, done: bool | None, schedule: bool = True) -> None:
        """See `Planner.finish`. Without `schedule` the slot stays unused: no more is to start here."""
        seat = self._seats.pop(id_, None)
        if seat is not None:
            seat.news.set()
        self._left[id_] = done

        def let_next(line: QueueTransaction) -> None:
            if schedule:
                line.schedule(self._limit)

        if not self._is_in_memory:
            await self._change(let_next)
            return
        # It takes no time, and possibly no later transaction would do it.
        with trio.CancelScope(shield=True):
            await self._change(let_next)
        await trio.lowlevel.checkpoint_if_cancelled()

    async def snapshot(self) -> Sequence[QueuedSubmission]:
        """Return all readable entries of the queue, in order. Without side effects.

        Raises:
            StoreError: The database cannot be used.
        """
        work = partial(self._transact, "DEFERRED", partial(read_entries, self._connection))
        return await self._patiently(partial(self._run, work), self._settings.patience)

    async def recover(self) -> Recovery:
        """Take slots back from dead programs, and end the processes that they have left running.

        A second call finds nothing more.

        Raises:
            StoreError: The database cannot be used.
        """

        def look(line: QueueTransaction) -> Recovery:
            found = line.recover()
            line.schedule(self._limit)
            return found

        found = await self._change(look)
        problems = tuple(f"{self._database}: {problem}" for problem in found.problems)
        if self._remains:
            await self._end_processes()
            later = await self._change(look)
            found = Recovery((*found.requeued, *later.requeued), later.kept)
        return attrs.evolve(found, problems=problems)

    async def set_limit(self, limit: int, /) -> None:
        """Set the number of root tasks that may run at once from now on, ≥ 1. Running ones are not stopped.

        Raises:
            UsageError: It is less than 1.
            StoreError: The database cannot be used; the limit applies all the same.
        """
        _check_limit(limit)
        self._limit = limit
        await self._change(lambda line: line.schedule(limit))

    async def serve(self, scope: trio.CancelScope) -> None:
        """Send heartbeats and check the queue, until `scope` is cancelled.

        It is shielded: a cancelled block keeps its entries until it has left the queue.
        """
        with scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_alive)
                nursery.start_soon(self._keep_looking)
                nursery.start_soon(self._keep_ending)

    async def clear(self) -> None:
        """Leave the queue with all entries, at the end. A failure to write is reported."""

        def leave(line: QueueTransaction) -> None:
            line.clear()
            line.schedule(self._limit)

        if self.is_gone:
            await trio.lowlevel.checkpoint()
            return
        reason = "the database does not respond"
        try:
            await self._change(leave, patience=min(_END_PATIENCE, self._settings.patience))
            self.is_gone = True
        except StoreError as error:
            reason = str(error).removeprefix(f"{self._database}: ")
        finally:
            if not self.is_gone:
                self.warn(_STAYS.format(self._database, reason))

    def leave_remains(self) -> None:
        """Leave processes that were not ended to other programs."""
        for one in self._remains.values():
            one.lock.leave()
        self._remains.clear()

    async def _keep_alive(self) -> None:
        has_warned = False
        while True:
            await trio.sleep(self._settings.heartbeat)
            try:
                for problem in await self._change(self._say_alive):
                    self.warn(f"{self._database}: {problem}; it is written again")
            except StoreError as error:
                if not has_warned:
                    self.warn(str(error))
                has_warned = True
            else:
                has_warned = False

    def _say_alive(self, line: QueueTransaction) -> tuple[str, ...]:
        beat(self._connection, self._me, self._wall())
        # Otherwise a submission whose entry is damaged would wait for ever.
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
            with contextlib.suppress(StoreError):  # reported already; the next write tries again
                await self._end_remains()

    async def _end_remains(self) -> None:
        """End the processes of dead programs, and then release their slots."""
        await self._end_processes()
        owners = list(self._remains)

        def take_back(line: QueueTransaction) -> None:
            line.take_back(owners)
            line.schedule(self._limit)

        await self._change(take_back)

    async def _end_processes(self) -> None:
        async with self._ending:
            for one in list(self._remains.values()):
                if not one.is_over:
                    await end_survivors(one.processes)
                    one.is_over = True

    async def _change(
        self, act: Callable[[QueueTransaction], T], *, patience: float | None = None
    ) -> T:
        """Change the queue, and determine which entries of this program run.

        Args:
            act: Changes the queue, in the thread.
            patience: Seconds for which the database may fail; None is that of the settings.

        Raises:
            UsageError: Raised by `act`.
            StoreError: The database cannot be used.
        """

        async def attempt() -> T:
            left = dict(self._left)
            # Taken before the thread begins: while it has the write lock it may not wait for the event loop,
            # which may wait for the same lock. Entries that leave meanwhile are settled by the next change.
            seats = self._seats.items()
            self._running = [id_ for id_, seat in seats if seat.is_running]
            self._waiting = [seat.submission for _, seat in seats if not seat.is_running]

            def work(line: QueueTransaction, is_anew: bool) -> tuple[T, frozenset[str], bool]:  # noqa: FBT001
                if is_anew and self._is_known:
                    line.restore(self._running, [one.id for one in self._waiting])
                line.settle(left)
                return act(line), line.started(), is_anew

            result, running, is_anew = await self._run(partial(self._write, work))
            self._error = None
            self.is_gone = False
            if self._remains:
                self._deaths.set()
            for id_ in left:  # one that left once more meanwhile is not there any more
                del self._left[id_]
            self._report(running)
            if is_anew and self._is_known:
                self.warn(_TAKEN_FOR_DEAD.format(self._database))
            self._is_known = True
            return result

        return await self._patiently(
            attempt, self._settings.patience if patience is None else patience
        )

    async def _patiently(self, attempt: Callable[[], Awaitable[T]], patience: float) -> T:
        """Retry while the failure may be temporary. No other attempt runs between: all keep their order."""
        started_at = trio.current_time()
        async with self._turn:
            while True:
                try:
                    result = await attempt()
                except StoreError as error:
                    waited = trio.current_time() - started_at
                    if waited >= patience or not _may_pass(error):
                        raise
                    if waited >= _WARN_AFTER and not self._has_warned:
                        self._has_warned = True
                        self.warn(
                            f"{error}; the queue of agents waits for it, at most {patience:g} s"
                        )
                    rest = _RETRY if isinstance(error, BusyError) else _REST
                else:
                    self._has_warned = False
                    return result
                await trio.sleep(rest)

    @property
    def _is_in_memory(self) -> bool:
        """True if no other program shares the queue."""
        return self._me.lock is None

    async def _run(self, work: Callable[[], T]) -> T:
        if self._is_in_memory:  # after a checkpoint, which taking `_turn` is
            return work()
        return await trio.to_thread.run_sync(work, limiter=self._thread)

    def _write(self, act: Callable[[QueueTransaction, bool], T]) -> T:
        now = self._wall()
        since = now - SILENT_BEATS * self._settings.heartbeat
        neighbours = OtherClients(self._connection, self._owners, self._me, since, self._remains)
        line = QueueTransaction(self._connection, neighbours, self._me.id, _utc(now))

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
                with contextlib.suppress(sqlite3.Error):  # the first error is already reported
                    self._connection.execute("ROLLBACK")

    def _report(self, running: Sequence[str] | frozenset[str]) -> None:
        """Wake the submissions that may run."""
        for id_ in running:
            seat = self._seats.get(id_)
            if seat is not None:
                seat.is_running = True
                seat.news.set()


def _may_pass(error: StoreError) -> bool:
    """Return whether the database may work again by itself, or when space is freed."""
    return getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF in _PASSING


def _utc(now: float) -> str:
    stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    return stamp.replace("+00:00", "Z")
