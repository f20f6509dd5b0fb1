"""`trioeval bus read`: what stands on a bus."""

import os
from collections.abc import Sequence
from pathlib import Path

from trioeval.agents.bus.messages import Message
from trioeval.agents.bus.reading import Reading, last_messages, read_bus
from trioeval.cli.bus import BusFlags, is_wanted, message_text
from trioeval.cli.exits import Exit
from trioeval.cli.terminal import say, show


def read_messages(
    bus: Path | None,
    *,
    since: str | None,
    last: int | None,
    types: Sequence[str],
    as_json: bool,
) -> int:
    """Print messages, oldest first; a bus that is not there has none.

    Raises:
        UsageError: A flag says what cannot be.
        BusError: The bus cannot be read, or not from there on.
        OutputError: The messages cannot be printed.
    """
    flags = BusFlags(os.environ)
    folder = flags.folder(bus)
    cursor = flags.cursor(since)
    wanted = flags.types("--type", types)
    flags.check()
    if last is not None and cursor is None and not wanted:
        reading = last_messages(folder, last)
    else:
        reading = read_bus(folder, since=cursor)
    for found in reading.corrupt:
        say(f"{found.file}: bytes {found.start} to {found.end} are no message, and left out")
    for message in _chosen(reading, wanted, last):
        if not show(message_text(message, as_json=as_json)):
            break  # nobody reads on
    return Exit.OK


def _chosen(reading: Reading, types: Sequence[str], last: int | None) -> Sequence[Message]:
    wanted = [message for message in reading.messages if is_wanted(message, types)]
    return wanted if last is None else wanted[max(0, len(wanted) - last) :]
