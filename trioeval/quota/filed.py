"""Limits whose definitions, and what is used of them, outlive their server in a file.

A definition is in the file before it is told to be made. What is used is written now and then, and at the
end: of a server that is killed the last moments are missing, as they are of a loss of power. The periods of
budgets stand there in Unix time, so they go on while there is no server.
"""

import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

from trioeval.errors import OutputError, QuotaError
from trioeval.quota.backend import Backend
from trioeval.quota.file_lock import only_user
from trioeval.quota.leases import Ask, Decision, Settlement
from trioeval.quota.limits import Limit, LimitState
from trioeval.quota.limits_file import read_limits, shifted, write_limits
from trioeval.quota.memory import MemoryQuota

PERIOD = 5.0
"""Seconds between two looks whether there is something to write."""

LAST_GRACE = 5.0
"""Seconds that the last writing may take."""

_logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_filed(path: Path, *, period: float = PERIOD) -> AsyncGenerator[Backend]:
    """Limits of a file, kept in memory and written back to it.

    While it is open the file is its own: what others write there is lost, and nobody else can open it so.

    Args:
        path: The file; it is made if it is not there.
        period: Seconds between two looks whether there is something to write.

    Raises:
        SuiteError: It cannot be read, with everything that is wrong with it.
        OutputError: It is open elsewhere; or what was used could not be written at the end.
    """
    with only_user(path):
        async with _open(path, period) as filed:
            yield filed


@asynccontextmanager
async def _open(path: Path, period: float) -> AsyncGenerator[Backend]:
    known = read_limits(path, missing_ok=True)
    ahead = time.time() - trio.current_time()
    filed = _FiledLimits(path, MemoryQuota(shifted(known, -ahead)), ahead)
    periods_known = all(one.limit.reset is None or one.began_at is not None for one in known)
    if periods_known and path.exists():  # noqa: ASYNC240 - a moment, as reading it is
        filed.saved = await filed.standing()
    else:
        await filed.save()  # where it cannot be written that is told now
    failure: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(filed.keep, period)
            try:
                yield filed
            except Exception as error:  # noqa: BLE001 - raised below, where no nursery wraps it
                failure = error
            nursery.cancel_scope.cancel("closed")
    finally:
        # What was used counts when it is opened again, also where this was cancelled.
        with trio.move_on_after(LAST_GRACE, shield=True):
            await filed.save()
    if failure is not None:
        raise failure


@attrs.define(eq=False)
class _FiledLimits:
    """A `Backend` in memory, and its file."""

    _path: Path
    _limits: MemoryQuota
    _ahead: float = 0.0
    """Seconds from Trio's clock to Unix time."""
    saved: list[LimitState] | None = attrs.field(init=False, default=None)
    """What stands in the file; None before it is there."""
    _writing: trio.StrictFIFOLock = attrs.field(init=False, factory=trio.StrictFIFOLock)
    """An older state must not be written over a newer one."""

    async def reserve(self, asks: Sequence[Ask], /) -> Sequence[Decision]:
        return await self._limits.reserve(asks)

    async def complete(self, settlements: Sequence[Settlement], /) -> None:
        await self._limits.complete(settlements)

    async def extend(self, lease_ids: Sequence[str], /) -> Sequence[bool]:
        return await self._limits.extend(lease_ids)

    async def states(self) -> Sequence[LimitState]:
        return await self._limits.states()

    async def define(self, limit: Limit, /) -> LimitState:
        state = await self._limits.define(limit)
        try:
            await self.save()
        except OutputError as error:
            raise QuotaError("limiter_unavailable", str(error), keys=(limit.key,)) from error
        return state

    async def pause(self, key: str, seconds: float, /) -> LimitState:
        return await self._limits.pause(key, seconds)

    async def remove(self, key: str, /) -> None:
        await self._limits.remove(key)
        try:
            await self.save()
        except OutputError as error:
            raise QuotaError("limiter_unavailable", str(error), keys=(key,)) from error

    async def standing(self) -> list[LimitState]:
        """What is to stand in the file: all limits, without pauses."""
        return [attrs.evolve(state, paused_until=None) for state in await self._limits.states()]

    async def save(self) -> None:
        """Write what has changed.

        Raises:
            OutputError: It cannot be written.
        """
        async with self._writing:
            states = await self.standing()
            if states != self.saved:
                there = shifted(states, self._ahead)
                await trio.to_thread.run_sync(write_limits, self._path, there)
                self.saved = states

    async def keep(self, period: float) -> None:
        """Save now and then, until cancelled."""
        failed = False
        while True:
            await trio.sleep(period)
            try:
                await self.save()
            except OutputError as error:
                if not failed:  # it is tried again; once told is enough
                    _logger.warning("%s; what is used is kept in memory", error)
                failed = True
            else:
                failed = False
