# Apart from `cli.commands.bus`: loaded when it is used.
"""`trioeval bus read`: what stands on a bus."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from trioeval.agent.bus.messages import Message
from trioeval.agent.bus.reading import Reading, last_messages, read_parts
from trioeval.cli.commands.bus import BusFlags, is_wanted, message_text
from trioeval.cli.terminal import Exit, say, show


def read_messages(
    bus: str | None,
    *,
    since: str | None,
    last: int | None,
    types: Sequence[str],
    as_json: bool,
) -> int:
    """Print messages, oldest first; a bus of the environment that does not exist yet has none.

    Raises:
        UsageError: A flag says what cannot be, or names a folder that does not exist.
        BusError: The bus cannot be read, or not from there on.
        OutputError: The messages cannot be printed.
    """
    flags = BusFlags(os.environ)
    folder = flags.folder(bus)
    cursor = flags.cursor(since)
    wanted = flags.types("--type", types)
    if bus is not None and bus.strip() and not folder.is_dir():
        flags.mistakes.append(f"--bus {bus}: the folder does not exist")
    flags.check()
    if last is not None and cursor is None and not wanted:
        parts: Iterable[Reading] = [last_messages(folder, last)]
    else:
        parts = read_parts(folder, since=cursor)
    found = (message for message in _messages(parts) if is_wanted(message, wanted))
    for message in found if last is None else deque(found, maxlen=last):
        if not show(message_text(message, as_json=as_json)):
            break  # nobody reads on
    return Exit.OK


def _messages(parts: Iterable[Reading]) -> Iterator[Message]:
    """All messages, one by one; tells what is none."""
    for part in parts:
        for damage in part.corrupt:
            say(f"{damage.file}: bytes {damage.start} to {damage.end} are no message, and left out")
        yield from part.messages
