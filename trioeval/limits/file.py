"""Limits that outlive their server in a file, and their leases in a journal beside it.

The file has the definitions, for people to read, and to change while no server has it open; it also has their
usage as of some seconds ago. The journal has the whole state and each lease: every grant, completion,
extension and change is on disk before it is answered. So a restarted server knows every lease that it has
answered for, whether it was stopped, killed or lost power.

Instants are in Unix time, so that time passes while no server runs. If the clock was set back meanwhile, time
continues from the last instant in the journal: windows then pass as they should, and no usage is lost.
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
from trioeval.limits.backend import Backend, definitions_of
from trioeval.limits.denials import check_pause
from trioeval.limits.journal import LimitJournal, amounts_data, read_journal
from trioeval.limits.json import limit_data
from trioeval.limits.ledger import LimitLedger
from trioeval.limits.limits_file import read_limits, write_limits
from trioeval.limits.model import (
    Decision,
    Granted,
    LeaseRequest,
    LimitState,
    Settlement,
    SharedLimit,
)
from trioeval.nurseries import open_plain_nursery

# Exclusive access to a file that is replaced whenever it is written.
#
# The lock is on a separate file beside it, which is never replaced.


@contextmanager
def exclusive_access(path: Path) -> Iterator[None]:
    """Lock a file against all other processes of this machine for as long as the block.

    The lock of a killed process is released; an empty file `.NAME.lock` may remain.

    Args:
        path: The file; it need not exist.

    Raises:
        OutputError: Another process has it locked, or its folder cannot be written.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():  # the lock would create it
        msg = f"{path}: cannot write the limits: folder {target.parent} not found"
        raise OutputError(msg)
    beside = target.with_name(f".{target.name}.lock")
    lock = FileLock(beside, timeout=0, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        msg = f"{path} is open in another process; if that process serves the limits, use --url"
        raise OutputError(msg) from None
    except OSError as error:
        msg = f"{path}: cannot write the limits: {error.strerror or error}"
        raise OutputError(msg) from error
    try:
        yield
    finally:
        # While the lock is held: a process that waits for this file sees that it is gone, and creates a new
        # one.
        with suppress(OSError):  # some systems keep open files
            beside.unlink()
        lock.release()


PERIOD = 5.0
"""Seconds between two checks for changes to write into the file of limits."""

LAST_GRACE = 5.0
"""Seconds that the last write may take."""

_logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_file_limits(
    path: Path, *, period: float = PERIOD, now: Callable[[], float] | None = None
) -> AsyncGenerator[Backend]:
    """Open the limits of a file, kept in memory and written back to it.

    While it is open, other processes cannot open it, and what they write into it is lost.

    Args:
        path: The file; created if it does not exist.
        period: Seconds between two checks for changes to write into the file.
        now: Returns the instant in seconds, for tests; None for Unix time, which is read once.

    Raises:
        SuiteError: The file, or the journal beside it, cannot be read; with all its problems.
        OutputError: The file is open elsewhere; or the usage could not be written at the end.
    """
    with exclusive_access(path):
        async with _open(path, period, now or _unix_clock()) as filed:
            yield filed


def file_states(path: Path) -> list[LimitState]:
    """Return the states of a file's limits, by key, without opening it: another process may have it open.

    Raises:
        SuiteError: The file, or the journal beside it, cannot be read.
    """
    known = read_limits(path)
    recorded = read_journal(_journal_of(path))
    if recorded is None:
        return sorted(known, key=lambda state: state.limit.key)
    now = max(time.time(), recorded.at)
    _take_over(recorded.ledger, known, now)
    return recorded.ledger.states(now)


def _unix_clock() -> Callable[[], float]:
    """Return Unix time that no change of the machine's clock disturbs."""
    ahead = time.time() - trio.current_time()
    return lambda: trio.current_time() + ahead


def _journal_of(path: Path) -> Path:
    return Path(f"{os.path.realpath(path)}.journal")


@asynccontextmanager
async def _open(path: Path, period: float, clock: Callable[[], float]) -> AsyncGenerator[Backend]:
    known = read_limits(path, missing_ok=True)
    recorded = read_journal(_journal_of(path))
    if recorded is None:
        filed = _FileLimits(path, LimitLedger(known, clock()), clock)
    else:
        behind = max(0.0, recorded.at - clock())
        filed = _FileLimits(path, recorded.ledger, lambda: clock() + behind)
        _take_over(recorded.ledger, known, filed.now())
    periods_known = all(one.limit.reset is None or one.began_at is not None for one in known)
    if periods_known and path.exists():  # noqa: ASYNC240 - as short as reading it
        filed.saved = sorted(known, key=lambda state: state.limit.key)
    else:
        await filed.save()  # a file that cannot be written is reported now
    try:
        async with open_plain_nursery() as nursery:
            nursery.start_soon(filed.keep, period)
            try:
                yield filed
            finally:
                nursery.cancel_scope.cancel("closed")
    finally:
        # The usage counts when it is opened again, also if this was cancelled.
        with trio.move_on_after(LAST_GRACE, shield=True):
            await filed.close()


def _take_over(ledger: LimitLedger, known: Sequence[LimitState], now: float) -> None:
    """Apply the definitions of a file that differ from the journal's: it was changed, or replaced.

    The usage of limits that keep their kind is known to the ledger.
    """
    given = {state.limit.key: state for state in known}
    there: dict[str, SharedLimit] = {}
    for state in ledger.states(now):
        key = state.limit.key
        if key not in given or given[key].limit.kind != state.limit.kind:
            ledger.remove(key, now)
        else:
            [there[key]] = definitions_of([state])
    for state in known:
        [limit] = definitions_of([state])
        if limit.key not in there:
            ledger.add(state, now)
        elif limit != there[limit.key]:
            ledger.define(limit, now)


@attrs.define(eq=False, repr=False)
class _FileLimits:
    """A `Backend` in memory, its file, and its journal."""

    _path: Path
    _ledger: LimitLedger
    now: Callable[[], float]
    """Returns the instant on the ledger's clock."""
    saved: list[LimitState] | None = attrs.field(init=False, default=None)
    """The content of the file; None before it exists."""
    _journal: LimitJournal = attrs.field(init=False)
    _saving: trio.StrictFIFOLock = attrs.field(init=False, factory=trio.StrictFIFOLock)
    """An older state must not be written over a newer one."""

    @_journal.default
    def _new_journal(self) -> LimitJournal:
        return LimitJournal(_journal_of(self._path), lambda: self._ledger.snapshot(self.now()))

    async def reserve(self, asks: Sequence[LeaseRequest], /) -> Sequence[Decision]:
        now = self.now()
        decisions = [self._ledger.reserve(ask, now) for ask in asks]
        for ask, decision in zip(asks, decisions, strict=True):
            if isinstance(decision, Granted):
                self._journal.append("reserve", now, ask.lease_id, amounts_data(ask.requirements))
        await self._commit()
        return decisions

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        now = self.now()
        for settlement in settlements:
            if self._ledger.complete(settlement, now):
                self._journal.append(
                    "complete", now, settlement.lease_id, amounts_data(settlement.actuals)
                )
        await self._commit()

    async def extend(self, lease_ids: Sequence[str], /) -> Sequence[bool]:
        now = self.now()
        extended = self._ledger.extend(lease_ids, now)
        if alive := [one for one, is_alive in zip(lease_ids, extended, strict=True) if is_alive]:
            self._journal.append("extend", now, alive)
        await self._commit()
        return extended

    async def states(self) -> Sequence[LimitState]:
        await trio.lowlevel.checkpoint()
        return self._ledger.states(self.now())

    async def define(self, limit: SharedLimit, /) -> LimitState:
        limit.check()
        now = self.now()
        state = self._ledger.define(limit, now)
        self._journal.append("define", now, limit_data(limit))
        await self._commit(limit.key, in_file=True)
        return state

    async def pause(self, key: str, seconds: float, /) -> LimitState:
        check_pause(key, seconds)
        now = self.now()
        state = self._ledger.pause(key, now + seconds, now)
        self._journal.append("pause", now, key, now + seconds)
        await self._commit(key)
        return state

    async def remove(self, key: str, /) -> None:
        now = self.now()
        self._ledger.remove(key, now)
        self._journal.append("remove", now, key)
        await self._commit(key, in_file=True)

    async def _commit(self, *keys: str, in_file: bool = False) -> None:
        """Wait until all changes are in the journal, and in the file if `in_file`. A checkpoint.

        Raises:
            LimitError: `limiter_unavailable`: they cannot be written.
        """
        try:
            await self._journal.commit()
            if in_file:
                await self.save()
        except OutputError as error:
            raise LimitError("limiter_unavailable", str(error), keys=keys) from error

    def standing(self) -> list[LimitState]:
        """Return the states to write into the file: all limits, without pauses."""
        states = self._ledger.states(self.now())
        return [attrs.evolve(state, paused_until=None) for state in states]

    async def save(self) -> None:
        """Write changes into the file of limits.

        Raises:
            OutputError: It cannot be written.
        """
        async with self._saving:
            states = self.standing()
            if states != self.saved:
                await trio.to_thread.run_sync(write_limits, self._path, states)
                self.saved = states

    async def keep(self, period: float) -> None:
        """Save periodically, until cancelled."""
        failed = False
        while True:
            await trio.sleep(period)
            try:
                await self._journal.commit()  # entries of cancelled requests
                await self.save()
            except OutputError as error:
                if not failed:  # it is retried; one warning is enough
                    _logger.warning("%s; usage is kept in memory", error)
                failed = True
            else:
                failed = False

    async def close(self) -> None:
        """Write all that is not written yet. A journal that adds nothing to the file is removed.

        Raises:
            OutputError: It cannot be written.
        """
        try:
            await self.save()
            if self._ledger.snapshot(self.now()).is_plain:
                self._journal.remove()
            else:
                await self._journal.commit()
        finally:
            self._journal.close()
