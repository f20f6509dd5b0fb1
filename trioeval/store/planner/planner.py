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
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from trioeval.agent.planner import Entry, Recovery, Submission, check_limit, check_submission
from trioeval.agent.processes import end_survivors
from trioeval.errors import StoreError, UsageError
from trioeval.store.cache.file import Owners
from trioeval.store.cache.single_flight import again
from trioeval.store.database import IN_MEMORY, open_database, open_memory, open_patiently
from trioeval.store.planner.owners import enter
from trioeval.store.planner.queue import Line
from trioeval.store.planner.transactions import PlannerSettings, Transactions
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
    check_limit(limit)
    tell = warn or _ignore
    if database is None:
        with contextlib.closing(open_memory(RUNS)) as connection:
            alone = Transactions(IN_MEMORY, connection, enter(None), settings, wall, tell)
            yield AgentPlanner(IN_MEMORY, alone, limit, settings, tell)
        return
    connection = await open_patiently(
        partial(open_database, database, RUNS),
        database,
        RUNS,
        patience_s=settings.patience,
        on_warning=warn,
    )
    failure: Exception | None = None
    with contextlib.closing(connection):
        me = await trio.to_thread.run_sync(enter, database)
        transactions = Transactions(database, connection, me, settings, wall, tell)
        planner = AgentPlanner(database, transactions, limit, settings, tell)
        try:
            for problem in (await planner.recover()).problems:
                planner.warn(problem)
            # Files of programs that died before they were written down.
            await trio.to_thread.run_sync(Owners.of(database).bury, _ignore)
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
                await planner.clear()
            transactions.leave_remains()
            if me.lock is not None and planner.is_gone:
                me.lock.release()
            elif me.lock is not None:
                me.lock.leave()  # others find that it has died
    if failure is not None:
        raise failure


def _ignore(_: str) -> None:
    """Nobody wants to know."""


@attrs.define(eq=False)
class _Seat:
    """A submission of this program."""

    submission: Submission
    is_running: bool = False
    news: trio.Event = attrs.field(factory=trio.Event)
    """Set when it runs, or has left, or nobody can say."""


@attrs.define(eq=False)
class AgentPlanner:
    """The line of a database, as one program sees it. Made by `open_planner`."""

    _database: Path
    _transactions: Transactions = attrs.field(repr=False)
    _limit: int
    _settings: PlannerSettings
    warn: Callable[[str], None] = attrs.field(repr=False)
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

    async def submit(self, submission: Submission, /) -> Entry:
        """See `Planner.submit`.

        Less than a millisecond, and as long as others keep the database locked. What a program that has died
        has left running of it is ended before.
        """
        check_submission(submission)
        for id_ in (submission.id, *submission.depends_on):
            if plain(id_) != id_:
                raise UsageError(f"{id_!r}: an id with characters that no database holds")
        named = attrs.evolve(submission, run=plain(submission.run), task=plain(submission.task))

        def put(line: Line) -> Entry | None:
            is_there = line.submit(named)
            line.schedule(self._limit)
            return line.entry(named.id) if is_there else None

        while (entry := await self._change(put)) is None:
            if self._transactions.remains:
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

    async def finish(self, id_: str, /, *, done: bool, schedule: bool = True) -> None:
        """See `Planner.finish`."""
        await self._go(id_, done, schedule=schedule)

    async def leave(self, id_: str, /) -> None:
        """See `Planner.leave`."""
        await self._go(id_, None, schedule=True)

    async def snapshot(self) -> Sequence[Entry]:
        """See `Planner.snapshot`."""
        return await self._transactions.entries()

    async def recover(self) -> Recovery:
        """See `Planner.recover`. What is found running of programs that have died is ended."""

        def look(line: Line) -> Recovery:
            found = line.recover()
            line.schedule(self._limit)
            return found

        found = await self._change(look)
        told = tuple(f"{self._database}: {problem}" for problem in found.problems)
        if self._transactions.remains:
            await self._end_processes()
            later = await self._change(look)
            found = Recovery((*found.requeued, *later.requeued), later.kept)
        return attrs.evolve(found, problems=told)

    async def set_limit(self, limit: int, /) -> None:
        """See `Planner.set_limit`."""
        check_limit(limit)
        self._limit = limit
        await self._change(lambda line: line.schedule(limit))

    async def serve(
        self, *, task_status: trio.TaskStatus[trio.CancelScope] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Say that this program lives, and look at the line, until the scope it starts with is cancelled.

        Nothing else ends it: a block that is cancelled keeps its places until it has left them.
        """
        with trio.CancelScope(shield=True) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_alive)
                nursery.start_soon(self._keep_looking)
                nursery.start_soon(self._keep_ending)
                task_status.started(scope)

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

    async def _go(self, id_: str, done: bool | None, *, schedule: bool) -> None:  # noqa: FBT001
        seat = self._seats.pop(id_, None)
        if seat is not None:
            seat.news.set()
        self._left[id_] = done

        def let_next(line: Line) -> None:
            if schedule:
                line.schedule(self._limit)

        if not self._transactions.are_in_memory:
            await self._change(let_next)
            return
        # It takes no time, and perhaps no later transaction would make up for it.
        with trio.CancelScope(shield=True):
            await self._change(let_next)
        await trio.lowlevel.checkpoint_if_cancelled()

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
        self._transactions.say_alive()
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
        owners = list(self._transactions.remains)

        def take_back(line: Line) -> None:
            line.take_back(owners)
            line.schedule(self._limit)

        await self._change(take_back)

    async def _end_processes(self) -> None:
        async with self._ending:
            for one in list(self._transactions.remains.values()):
                if not one.is_over:
                    await end_survivors(one.processes)
                    one.is_over = True

    async def _change(self, act: Callable[[Line], T], *, patience: float | None = None) -> T:
        """Change the line, and learn what of this program runs. See `Transactions`."""
        left: dict[str, bool | None] = {}
        found: list[T] = []

        def prepare() -> Callable[[Line, bool], tuple[T, frozenset[str], bool]]:
            left.clear()
            left.update(self._left)
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

            return work

        def learn(written: tuple[T, frozenset[str], bool]) -> None:
            result, running, is_anew = written
            found.append(result)
            self._error = None
            self.is_gone = False
            if self._transactions.remains:
                self._deaths.set()
            for id_ in left:  # one that left meanwhile once more was not there any more
                del self._left[id_]
            self._tell(running)
            if is_anew and self._is_known:
                self.warn(_TAKEN_FOR_DEAD.format(self._database))
            self._is_known = True

        await self._transactions.change(prepare, learn, patience=patience)
        return found[0]

    def _tell(self, running: Sequence[str] | frozenset[str]) -> None:
        """Wake those who may run."""
        for id_ in running:
            seat = self._seats.get(id_)
            if seat is not None:
                seat.is_running = True
                seat.news.set()
