# Apart from `cli.commands.limits_admin`: keeping limits in a file is no matter of commands.
"""Limits that outlive their server in a file, and their leases in a journal beside it.

The file has the definitions, for people to read and to change while no server has it open; what of them is
in use stands there too, as it was some seconds ago. The journal has all of it, and each lease: what was
granted, completed, extended or changed is on the disk before it is answered. So a server that is started
again after any end knows every lease that it has answered for, whether it was stopped, killed or cut off
from its power.

Instants are in Unix time, so that they go on while there is no server. Where the clock was set back
meanwhile they go on from the last one in the journal: windows then pass as they should, and nothing that
was taken is forgotten.
"""

import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import attrs
import trio
from filelock import FileLock, Timeout

from trioeval.errors import LimitError, OutputError
from trioeval.limits.backend import Backend, made_of
from trioeval.limits.denials import check_pause
from trioeval.limits.journal import Journal, amounts_data, read_journal
from trioeval.limits.json import limit_data
from trioeval.limits.ledger import Book
from trioeval.limits.limits_file import read_limits, write_limits
from trioeval.limits.model import Ask, Decision, Granted, Limit, LimitState, Settlement
from trioeval.nurseries import open_plain_nursery

# One user at a time of a file that is replaced whenever it is written.
#
# The lock is on another file beside it: that one stays the same.


@contextmanager
def only_user(path: Path) -> Iterator[None]:
    """Be the only one that uses a file so, of all processes of this machine, for as long as the block.

    A process that is killed is no user any more; an empty file `.NAME.lock` is left of it.

    Args:
        path: The file; it need not be there.

    Raises:
        OutputError: Somebody uses it, or its folder cannot be written.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():  # the lock would make it
        msg = f"{path}: the limits cannot be written: there is no folder {target.parent}"
        raise OutputError(msg)
    beside = target.with_name(f".{target.name}.lock")
    lock = FileLock(beside, timeout=0, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        msg = f"{path} is open in another process: if it serves the limits, ask it with --url"
        raise OutputError(msg) from None
    except OSError as error:
        msg = f"{path}: the limits cannot be written: {error.strerror or error}"
        raise OutputError(msg) from error
    try:
        yield
    finally:
        # While it is held: whoever waits for this very file sees that it is gone, and makes a new one.
        with suppress(OSError):  # some systems keep open files
            beside.unlink()
        lock.release()


PERIOD = 5.0
"""Seconds between two looks whether there is something to write into the file of limits."""

LAST_GRACE = 5.0
"""Seconds that the last writing may take."""

_logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_filed(
    path: Path, *, period: float = PERIOD, now: Callable[[], float] | None = None
) -> AsyncGenerator[Backend]:
    """Limits of a file, kept in memory and written back to it.

    While it is open the file is its own: what others write there is lost, and nobody else can open it so.

    Args:
        path: The file; it is made if it is not there.
        period: Seconds between two looks whether there is something to write into the file of limits.
        now: The instant in seconds, for tests that give it; None for Unix time, which is read once.

    Raises:
        SuiteError: It, or the journal beside it, cannot be read, with everything that is wrong with it.
        OutputError: It is open elsewhere; or what was used could not be written at the end.
    """
    with only_user(path):
        async with _open(path, period, now or _unix_clock()) as filed:
            yield filed


def filed_states(path: Path) -> list[LimitState]:
    """How the limits of a file stand, by key, without opening it: another process may have it open.

    Raises:
        SuiteError: It, or the journal beside it, cannot be read.
    """
    known = read_limits(path)
    recorded = read_journal(_journal_of(path))
    if recorded is None:
        return sorted(known, key=lambda state: state.limit.key)
    now = max(time.time(), recorded.at)
    _take_over(recorded.book, known, now)
    return recorded.book.states(now)


def _unix_clock() -> Callable[[], float]:
    """Unix time that no change of the machine's clock disturbs."""
    ahead = time.time() - trio.current_time()
    return lambda: trio.current_time() + ahead


def _journal_of(path: Path) -> Path:
    return Path(f"{os.path.realpath(path)}.journal")


@asynccontextmanager
async def _open(path: Path, period: float, clock: Callable[[], float]) -> AsyncGenerator[Backend]:
    known = read_limits(path, missing_ok=True)
    recorded = read_journal(_journal_of(path))
    if recorded is None:
        filed = _FiledLimits(path, Book(known, clock()), clock)
    else:
        behind = max(0.0, recorded.at - clock())
        filed = _FiledLimits(path, recorded.book, lambda: clock() + behind)
        _take_over(recorded.book, known, filed.now())
    periods_known = all(one.limit.reset is None or one.began_at is not None for one in known)
    if periods_known and path.exists():  # noqa: ASYNC240 - a moment, as reading it is
        filed.saved = sorted(known, key=lambda state: state.limit.key)
    else:
        await filed.save()  # where it cannot be written that is told now
    try:
        async with open_plain_nursery() as nursery:
            nursery.start_soon(filed.keep, period)
            try:
                yield filed
            finally:
                nursery.cancel_scope.cancel("closed")
    finally:
        # What was used counts when it is opened again, also where this was cancelled.
        with trio.move_on_after(LAST_GRACE, shield=True):
            await filed.close()


def _take_over(book: Book, known: Sequence[LimitState], now: float) -> None:
    """Define limits as a file does where it differs: it was changed, or is another one.

    What is in use of those that are of the same kind is known to the book.
    """
    given = {state.limit.key: state for state in known}
    there: dict[str, Limit] = {}
    for state in book.states(now):
        key = state.limit.key
        if key not in given or given[key].limit.kind != state.limit.kind:
            book.remove(key, now)
        else:
            [there[key]] = made_of([state])
    for state in known:
        [limit] = made_of([state])
        if limit.key not in there:
            book.add(state, now)
        elif limit != there[limit.key]:
            book.define(limit, now)


@attrs.define(eq=False)
class _FiledLimits:
    """A `Backend` in memory, its file, and its journal."""

    _path: Path
    _book: Book
    now: Callable[[], float]
    """The instant on the book's clock."""
    saved: list[LimitState] | None = attrs.field(init=False, default=None)
    """What stands in the file; None before it is there."""
    _journal: Journal = attrs.field(init=False)
    _saving: trio.StrictFIFOLock = attrs.field(init=False, factory=trio.StrictFIFOLock)
    """An older state must not be written over a newer one."""

    @_journal.default
    def _new_journal(self) -> Journal:
        return Journal(_journal_of(self._path), lambda: self._book.snapshot(self.now()))

    async def reserve(self, asks: Sequence[Ask], /) -> Sequence[Decision]:
        now = self.now()
        decisions = [self._book.reserve(ask, now) for ask in asks]
        for ask, decision in zip(asks, decisions, strict=True):
            if isinstance(decision, Granted):
                self._journal.append("reserve", now, ask.lease_id, amounts_data(ask.requirements))
        await self._commit()
        return decisions

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        now = self.now()
        for settlement in settlements:
            if self._book.complete(settlement, now):
                self._journal.append(
                    "complete", now, settlement.lease_id, amounts_data(settlement.actuals)
                )
        await self._commit()

    async def extend(self, lease_ids: Sequence[str], /) -> Sequence[bool]:
        now = self.now()
        extended = self._book.extend(lease_ids, now)
        if alive := [one for one, is_alive in zip(lease_ids, extended, strict=True) if is_alive]:
            self._journal.append("extend", now, alive)
        await self._commit()
        return extended

    async def states(self) -> Sequence[LimitState]:
        await trio.lowlevel.checkpoint()
        return self._book.states(self.now())

    async def define(self, limit: Limit, /) -> LimitState:
        limit.check()
        now = self.now()
        state = self._book.define(limit, now)
        self._journal.append("define", now, limit_data(limit))
        await self._commit(limit.key, in_file=True)
        return state

    async def pause(self, key: str, seconds: float, /) -> LimitState:
        check_pause(key, seconds)
        now = self.now()
        state = self._book.pause(key, now + seconds, now)
        self._journal.append("pause", now, key, now + seconds)
        await self._commit(key)
        return state

    async def remove(self, key: str, /) -> None:
        now = self.now()
        self._book.remove(key, now)
        self._journal.append("remove", now, key)
        await self._commit(key, in_file=True)

    async def _commit(self, *keys: str, in_file: bool = False) -> None:
        """Wait until all that was done is in the journal, and in the file if it is to be. A checkpoint.

        Raises:
            LimitError: `limiter_unavailable`: it cannot be written.
        """
        try:
            await self._journal.commit()
            if in_file:
                await self.save()
        except OutputError as error:
            raise LimitError("limiter_unavailable", str(error), keys=keys) from error

    def standing(self) -> list[LimitState]:
        """What is to stand in the file: all limits, without pauses."""
        states = self._book.states(self.now())
        return [attrs.evolve(state, paused_until=None) for state in states]

    async def save(self) -> None:
        """Write what has changed into the file of limits.

        Raises:
            OutputError: It cannot be written.
        """
        async with self._saving:
            states = self.standing()
            if states != self.saved:
                await trio.to_thread.run_sync(write_limits, self._path, states)
                self.saved = states

    async def keep(self, period: float) -> None:
        """Save now and then, until cancelled."""
        failed = False
        while True:
            await trio.sleep(period)
            try:
                await self._journal.commit()  # of requests that were cancelled
                await self.save()
            except OutputError as error:
                if not failed:  # it is tried again; once told is enough
                    _logger.warning("%s; what is used is kept in memory", error)
                failed = True
            else:
                failed = False

    async def close(self) -> None:
        """Write all that is not written. No journal is left that says no more than the file does.

        Raises:
            OutputError: It cannot be written.
        """
        try:
            await self.save()
            if self._book.snapshot(self.now()).is_plain:
                self._journal.remove()
            else:
                await self._journal.commit()
        finally:
            self._journal.close()
