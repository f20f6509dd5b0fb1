"""A bus that is open for writing: who appends puts a message down, and one task writes what has gathered."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from trioeval.agents.bus.messages import Draft, Message
from trioeval.agents.bus.settings import BusSettings
from trioeval.agents.bus.stats import BusStats


class Bus:
    """A bus that is open for writing; obtained from `open_bus` only."""

    path: Path
    """Its folder, absolute."""
    stats: BusStats

    async def append(self, draft: Draft, /) -> Message:
        """Write a message, and return when that is as durable as it is to be. A checkpoint.

        Cancelled, the message is either written whole, once, or not at all.

        Raises:
            BusLockedError: Others held the lock all the time.
            BusError: It cannot be written.
        """
        raise NotImplementedError

    def follow(self, since: int | str | None = None) -> AsyncIterator[Message]:
        """All messages after a cursor, those that are there and then each as it comes; never ends by itself.

        Args:
            since: A `seq` or a `msg_id`; None is the beginning.

        Raises:
            CursorExpiredError: Messages after the cursor were removed.
            CursorNotFoundError: There is no such message.
        """
        raise NotImplementedError


@asynccontextmanager
async def open_bus(
    folder: Path,
    settings: BusSettings | None = None,
    *,
    rng: Callable[[], float],
) -> AsyncGenerator[Bus]:
    """Open a bus for writing; the folder is made if there is none.

    Args:
        folder: Of its files, which nobody else keeps files in.
        settings: How it is written; None is `BusSettings()`.
        rng: Numbers from 0 to 1, so that writers do not try in step.

    Raises:
        BusError: It is no folder, or leads somewhere else.
    """
    await trio.lowlevel.checkpoint()
    yield Bus()
