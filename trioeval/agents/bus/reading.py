"""Reads a bus without its lock: whole messages only, whatever its writers do meanwhile."""

from collections.abc import Sequence
from pathlib import Path

import attrs

from trioeval.agents.bus.messages import Message


@attrs.frozen
class CorruptRange:
    """A part of a file that is no message."""

    file: Path
    start: int
    """Byte."""
    end: int
    """Byte behind it."""


@attrs.frozen(kw_only=True)
class Reading:
    """What was read."""

    messages: Sequence[Message]
    corrupt: Sequence[CorruptRange] = ()
    cursor: int = 0
    """The `seq` after which to read on."""


def read_bus(folder: Path, *, since: int | str | None = None, limit: int | None = None) -> Reading:
    """The messages of a bus after a cursor. Blocks on files.

    Args:
        folder: Of the bus; one that is not there is empty.
        since: A `seq` or a `msg_id`; None is the beginning.
        limit: Messages at most.

    Raises:
        CursorExpiredError: Messages after the cursor were removed.
        CursorNotFoundError: There is no such message.
        BusError: It is no bus.
    """
    raise NotImplementedError


def last_messages(folder: Path, count: int) -> Reading:
    """The last messages of a bus, oldest first; all if it has fewer. Blocks on files."""
    raise NotImplementedError
