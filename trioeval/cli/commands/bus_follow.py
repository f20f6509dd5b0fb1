# Apart from `cli.commands.bus`: loaded when it is used.
"""`trioeval bus follow`: each message of a bus as it comes."""

import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import attrs
import trio

from trioeval.agent.bus.reading import POLL, follow_bus
from trioeval.cli.commands.bus import BusFlags, is_wanted, message_text
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.terminal import Exit, has_reader, say, show_in_time
from trioeval.errors import BusError, OutputError


@attrs.frozen(kw_only=True)
class Following:
    """What the command line says of it."""

    bus: str | None = None
    since: str | None = None
    types: Sequence[str] = ()
    until: Sequence[str] = ()
    timeout: float = 0.0
    """Seconds; 0 is no limit."""
    as_json: bool = False


def follow_messages(following: Following, interrupts: Interrupts) -> int:
    """Print messages until one ends it, time is up, nobody reads them any more, or a signal comes.

    Returns:
        `Exit.FAILED` where time was up before the message that is waited for.

    Raises:
        UsageError: A flag says what cannot be.
        BusError: The bus cannot be read, or not from there on.
        OutputError: The messages cannot be printed.
    """
    flags = BusFlags(os.environ)
    folder = flags.folder(following.bus)
    since = flags.cursor(following.since)
    flags.types("--type", following.types)
    flags.types("--until", following.until)
    flags.check()
    interrupts.begin_run()
    ending = trio.run(_follow, folder, since, following, interrupts)
    if isinstance(ending, BusError | OutputError):
        raise ending
    if ending is not None:
        return ending
    if interrupts.received:
        return interrupts.code
    if not following.until:
        return Exit.OK
    say(f"no {' or '.join(following.until)} within {following.timeout:g} s")
    return Exit.FAILED


async def _follow(
    folder: Path, since: int | str | None, following: Following, interrupts: Interrupts
) -> Exit | BusError | OutputError | None:
    """How it ended; None if a signal came or time was up."""
    failure: BusError | OutputError | None = None
    with trio.move_on_after(following.timeout or math.inf) as scope:
        with interrupts.told_to(lambda number: scope.cancel(number.name)):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_notice_leaving, nursery.cancel_scope)
                try:
                    await _print(folder, since, following)
                except (BusError, OutputError) as error:
                    failure = error  # raised where no nursery wraps it
                nursery.cancel_scope.cancel("over")
        return failure or Exit.OK
    return None


async def _print(folder: Path, since: int | str | None, following: Following) -> None:
    """Print messages until one is the last, or nobody reads them any more."""
    async for message in follow_bus(folder, since=since):
        if is_wanted(message, following.types):
            text = message_text(message, as_json=following.as_json)
            if not await show_in_time(text):
                return
        if message.draft.type in following.until:
            return


async def _notice_leaving(scope: trio.CancelScope) -> None:
    """End it when nobody reads any more, also where nothing comes that could be printed."""
    while has_reader(sys.stdout):  # noqa: ASYNC110 - a pipe wakes nobody for that
        await trio.sleep(POLL)
    scope.cancel("nobody reads")
