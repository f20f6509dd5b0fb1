# Separate from `agent.bus.bus`: the lock between several programs has its own theory.
"""The lock that all writers of a bus take, in any process.

It is on a separate file that is never deleted: with two files of the same name, two processes could hold "the
lock". The system releases it when a process ends, for any reason. It is polled, not awaited, so that a
waiting writer can be cancelled, and time is Trio's.

A writer that polls would lose against others that write all the time: they release the lock, and take it
again a moment later. So a writer that has waited long signals that with a lock on another file, and new
writers let it go first. Handing over every time would be fairer, but then each message would cost a sleep. A
writer that is stopped while it signals delays others once a second, but does not keep them out: they also
wait long.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path

import attrs
import trio
from filelock import lock_descriptor, unlock_descriptor

from trioeval.agent.bus.segments import is_at, open_file

FIRST_DELAY = 0.001  # seconds after the first poll; doubled after each
LONGEST_DELAY = 0.01
PATIENCE = 0.02  # seconds of waiting after which others must let this writer go first
DISTRUST = 1.0  # seconds for which claims are ignored after one whose writer did not take the lock
URGENT = 0.2  # seconds for which it is polled often: a lock held for longer is a long one


@attrs.define(eq=False, repr=False)
class LockFile:
    """A file that one writer at a time can lock."""

    path: Path
    _name: str = attrs.field(init=False)
    is_held: bool = attrs.field(init=False, default=False)
    _file: int | None = attrs.field(init=False, default=None)

    @_name.default
    def _make_name(self) -> str:
        return str(self.path)

    def take_nowait(self) -> bool:
        """Take the lock if it is free; return whether it was."""
        if self._file is None:
            self._file = open_file(self.path, os.O_RDWR | os.O_CREAT)
        if not lock_descriptor(self._file, blocking=False):
            return False
        self.is_held = True
        if not is_at(self._file, self._name):  # another file has this name now
            self.close()
            return False
        return True

    def release(self) -> None:
        """Release the lock, if it is held; from any thread."""
        if self._file is not None and self.is_held:
            self.is_held = False
            unlock_descriptor(self._file)

    def close(self) -> None:
        """Release the lock, and close the file."""
        try:
            self.release()  # closing is not enough if a child process has inherited the file
        finally:
            if self._file is not None:
                file, self._file = self._file, None
                os.close(file)


@attrs.define(eq=False, repr=False)
class BusLock:
    """The lock of a bus, for one writer, and one task at a time."""

    _folder: Path
    _rng: Callable[[], float]
    _lock: LockFile = attrs.field(init=False)
    _claim: LockFile = attrs.field(init=False)
    """Held by one of the writers that have waited long."""
    _trusts_from: float = attrs.field(init=False, default=-math.inf)
    """The time from which claims of others are respected again."""
    _gave_way: bool = attrs.field(init=False, default=False)
    """True if it was free at the last poll, and left to another writer."""

    @_lock.default
    def _make_lock(self) -> LockFile:
        return LockFile(self._folder / ".lock")

    @_claim.default
    def _make_claim(self) -> LockFile:
        return LockFile(self._folder / ".claim")

    async def take(self, timeout: float) -> None:  # noqa: ASYNC109 - declared data
        """Take the lock as soon as it is available; raise TimeoutError if others held it all the time.

        A checkpoint only if it has to wait.
        """
        if self._take_as_new(trio.current_time()):
            return
        try:
            await self._wait(timeout)
        finally:
            self._claim.release()

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()

    def close(self) -> None:
        """Release the lock, and close its files."""
        self._lock.close()
        self._claim.close()

    async def _wait(self, timeout: float) -> None:  # noqa: ASYNC109 - declared data
        started_at = now = trio.current_time()
        until, delay = started_at + timeout, FIRST_DELAY
        was_free = True  # at every poll so far
        while now < until:
            # At random times, so that writers that start to wait together do not poll in step.
            await trio.sleep_until(min(until, now + delay * (1 + self._rng()) / 2))
            now = trio.current_time()
            if now - started_at < PATIENCE:
                if self._take_as_new(now):
                    return
                was_free &= self._gave_way
                delay = min(2 * delay, LONGEST_DELAY)
            else:
                if self._lock.take_nowait():
                    if was_free and not self._claim.is_held:
                        self._trusts_from = now + DISTRUST
                    return
                # The claim makes faster writers wait: from now on the lock is available soon.
                self._claimed()
                delay = FIRST_DELAY if now - started_at < URGENT else min(2 * delay, LONGEST_DELAY)
        raise TimeoutError(f"{self._lock.path}: others held the lock for {timeout:g} s")

    def _take_as_new(self, now: float) -> bool:
        """Take the lock, unless it is held, or claimed by a writer that has waited long."""
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
        """Return whether this writer has the claim, which only one can have."""
        return self._claim.is_held or self._claim.take_nowait()
