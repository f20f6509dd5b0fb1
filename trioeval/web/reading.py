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
    _threads: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(4))

    async def read(self, look: Callable[[Reader], T]) -> T:
        """What `look` finds. A checkpoint; a thread of which nobody waits for any more is left behind.

        Raises:
            StoreError: The database cannot be read.
        """

        def work() -> T:
            with read_store(self.path) as reader:
                return look(reader)

        return await trio.to_thread.run_sync(work, limiter=self._threads, abandon_on_cancel=True)
