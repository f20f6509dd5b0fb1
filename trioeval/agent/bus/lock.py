# Apart from `agent.bus.bus`: the lock that several programs write under is a theory of its own.
"""The lock that all writers of a bus take, of whatever process.

It is on a file of its own that is never deleted: two who held "the lock" on two files of the same name would
both be let in. The system frees it when a process ends, however it ends. It is tried and not waited for, so
that whoever waits can be cancelled, and time is Trio's.

Whoever tries and sleeps is late where others write all the time: they free the lock, and take it again a
moment later. So a writer that has waited long says so, with a lock on another file, and those who come new
give way to it. Handing over every time would be fairer, but then each message cost a sleep. A writer that is
stopped while it says so delays others once a second, and does not keep them out: they have waited long, too.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path

import attrs
import trio
from filelock import lock_descriptor, unlock_descriptor

from trioeval.agent.bus.segments import is_at, open_file

FIRST_DELAY = 0.001  # seconds after the first look; doubled after each
LONGEST_DELAY = 0.01
PATIENCE = 0.02  # seconds after which others are to give way
DISTRUST = 1.0  # seconds for which nobody is given way to, after somebody who did not come
URGENT = 0.2  # seconds until which it is tried often: who holds it longer than that holds it long


@attrs.define(eq=False)
class LockFile:
    """A file that one writer at a time has locked."""

    path: Path
    _name: str = attrs.field(init=False)
    is_held: bool = attrs.field(init=False, default=False)
    _file: int | None = attrs.field(init=False, default=None)

    @_name.default
    def _make_name(self) -> str:
        return str(self.path)

    def take_nowait(self) -> bool:
        """Take it if nobody has it."""
        if self._file is None:
            self._file = open_file(self.path, os.O_RDWR | os.O_CREAT)
        if not lock_descriptor(self._file, blocking=False):
            return False
        self.is_held = True
        if not is_at(self._file, self._name):  # others lock another file of this name
            self.close()
            return False
        return True

    def release(self) -> None:
        """Give it back, if it is held; from any thread."""
        if self._file is not None and self.is_held:
            self.is_held = False
            unlock_descriptor(self._file)

    def close(self) -> None:
        """Give it back, and close it."""
        try:
            self.release()  # to close it is not enough where a child process has it, too
        finally:
            if self._file is not None:
                file, self._file = self._file, None
                os.close(file)


@attrs.define(eq=False)
class BusLock:
    """The lock of a bus, of one writer; that is, of one task at a time."""

    _folder: Path
    _rng: Callable[[], float] = attrs.field(repr=False)
    _lock: LockFile = attrs.field(init=False)
    _claim: LockFile = attrs.field(init=False)
    """Held by one of those who have waited long."""
    _trusts_from: float = attrs.field(init=False, default=-math.inf)
    """When others are given way to again."""
    _gave_way: bool = attrs.field(init=False, default=False)
    """Whether it was free at the last try, and left to somebody else."""

    @_lock.default
    def _make_lock(self) -> LockFile:
        return LockFile(self._folder / ".lock")

    @_claim.default
    def _make_claim(self) -> LockFile:
        return LockFile(self._folder / ".claim")

    async def take(self, timeout: float) -> None:  # noqa: ASYNC109 - declared data
        """Take it as soon as it is to be had; TimeoutError if others had it all the time.

        A checkpoint only if it has to wait.
        """
        if self._take_as_new(trio.current_time()):
            return
        try:
            await self._wait(timeout)
        finally:
            self._claim.release()

    def release(self) -> None:
        """Give it back."""
        self._lock.release()

    def close(self) -> None:
        """Close its files, which gives it back, too."""
        self._lock.close()
        self._claim.close()

    async def _wait(self, timeout: float) -> None:  # noqa: ASYNC109 - declared data
        begun = now = trio.current_time()
        until, delay = begun + timeout, FIRST_DELAY
        was_free = True  # whenever it was tried
        while now < until:
            # Sooner or later, so that those who have begun to wait together do not try in step.
            await trio.sleep_until(min(until, now + delay * (1 + self._rng()) / 2))
            now = trio.current_time()
            if now - begun < PATIENCE:
                if self._take_as_new(now):
                    return
                was_free &= self._gave_way
                delay = min(2 * delay, LONGEST_DELAY)
            else:
                if self._lock.take_nowait():
                    if was_free and not self._claim.is_held:
                        self._trusts_from = now + DISTRUST
                    return
                # Those give way who would be quicker: from now on it is soon to be had.
                self._claimed()
                delay = FIRST_DELAY if now - begun < URGENT else min(2 * delay, LONGEST_DELAY)
        raise TimeoutError(f"{self._lock.path}: others held the lock for {timeout:g} s")

    def _take_as_new(self, now: float) -> bool:
        """Take it, unless somebody has it, or says to have waited long."""
        self._gave_way = False
        if not self._lock.take_nowait():
            return False
        if now < self._trusts_from:
            return True
        if self._claimed():
            self._claim.release()
            return True
        self._lock.release()
        self._gave_way = True
        return False

    def _claimed(self) -> bool:
        """Whether this one is the one that others give way to, as nobody else is."""
        return self._claim.is_held or self._claim.take_nowait()
