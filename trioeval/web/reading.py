"""The database of runs, read in threads: a slow disk or a large run keeps no other page waiting."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import attrs
import trio

from trioeval.store import Reader, read_store

T = TypeVar("T")


@attrs.frozen
class StoreReading:
    """Reads with a connection of its own each time, so that nothing is held while nobody looks."""

    path: Path
    """It need not be there yet."""
    _threads: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(4))
    _long_ones: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))

    async def is_there(self) -> bool:
        """Whether there is a database: the first run makes it. A checkpoint."""
        return await trio.to_thread.run_sync(self.path.exists, limiter=self._threads)

    async def read(self, look: Callable[[Reader], T], *, takes_long: bool = False) -> T:
        """What `look` finds. A checkpoint; a thread for which nobody waits any more is left behind.

        Args:
            look: Called in a thread.
            takes_long: Whether it takes its turn among others like it, and keeps none but those waiting.

        Raises:
            StoreError: The database cannot be read.
        """

        def work() -> T:
            with read_store(self.path) as reader:
                return look(reader)

        threads = self._long_ones if takes_long else self._threads
        return await trio.to_thread.run_sync(work, limiter=threads, abandon_on_cancel=True)
