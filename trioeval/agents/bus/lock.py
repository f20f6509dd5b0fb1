"""The lock that all writers of a bus take, of whatever process.

It is on a file of its own that is never deleted: two who held "the lock" on two files of the same name would
both be let in. The system frees it when a process ends, however it ends. It is tried and not waited for, so
that whoever waits can be cancelled, and time is Trio's.
"""

import os
from collections.abc import Callable
from pathlib import Path

import attrs
import trio
from filelock import lock_descriptor, unlock_descriptor

from trioeval.agents.bus.segments import open_file

FIRST_DELAY = 0.001  # seconds after the first look; doubled after each
LONGEST_DELAY = 0.01


@attrs.define(eq=False)
class BusLock:
    """The lock of a bus, of one writer; that is, of one task at a time."""

    path: Path
    _file: int | None = None

    def take_nowait(self) -> bool:
        """Take it if nobody has it.

        Raises:
            BusError: Its file is something else.
            OSError: It cannot be locked.
        """
        if self._file is None:
            self._file = open_file(self.path, os.O_RDWR | os.O_CREAT)
        if not lock_descriptor(self._file, blocking=False):
            return False
        if os.fstat(self._file).st_nlink == 0:  # others lock another file of this name
            self.close()
            return False
        return True

    async def take(self, timeout: float, *, rng: Callable[[], float]) -> None:  # noqa: ASYNC109 - declared data
        """Take it as soon as nobody has it. A checkpoint only if it has to wait.

        Args:
            timeout: Seconds, at most.
            rng: Numbers from 0 to 1.

        Raises:
            TimeoutError: Others had it all the time.
            BusError: Its file is something else.
            OSError: It cannot be locked.
        """
        until = trio.current_time() + timeout
        delay = FIRST_DELAY
        while not self.take_nowait():
            left = until - trio.current_time()
            if left <= 0:
                raise TimeoutError(f"{self.path}: others held the lock for {timeout:g} s")
            await trio.sleep(min(left, delay * (1 + rng()) / 2))
            delay = min(2 * delay, LONGEST_DELAY)

    def release(self) -> None:
        """Give it back; from any thread."""
        if self._file is not None:
            unlock_descriptor(self._file)

    def close(self) -> None:
        """Close its file, which gives it back, too."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
