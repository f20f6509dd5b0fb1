"""Reads a bus without its lock: whole messages only, whatever its writers do meanwhile."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from trioeval.agents.bus.framing import Record
from trioeval.agents.bus.messages import Message, parse_message
from trioeval.agents.bus.places import Place, find_place
from trioeval.agents.bus.records import Found, last_records, last_seq, walk
from trioeval.agents.bus.segments import reading, segment_numbers, segment_path, size_of


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
    while True:
        try:
            return read_on(folder, find_place(folder, since), limit)[0]
        except FileNotFoundError:
            continue  # an old file was removed meanwhile; there are newer ones


def last_messages(folder: Path, count: int) -> Reading:
    """The last messages of a bus, oldest first; all if it has fewer. Blocks on files.

    Args:
        folder: Of the bus; one that is not there is empty.
        count: Messages at most.

    Raises:
        BusError: It is no bus.
    """
    while True:
        try:
            return _last(folder, max(0, count))
        except FileNotFoundError:
            continue  # likewise


def read_on(folder: Path, place: Place, limit: int | None = None) -> tuple[Reading, Place]:
    """What stands behind a place, and the place behind that.

    Raises:
        FileNotFoundError: A file was removed meanwhile.
        BusError: It is no bus.
    """
    pile = _Pile(folder, limit)
    # The files are looked for first: what a file holds when there is a next one is all that it will hold.
    numbers = [number for number in segment_numbers(folder) if number >= place.number]
    if place.number and place.number not in numbers:
        raise FileNotFoundError(segment_path(folder, place.number))
    for number in numbers:
        start = place.start if number == place.number else 0
        with reading(folder, number) as file:
            place = Place(number, start, place.seq)
            for found in walk(file, start, size_of(file)):
                place = pile.take(found, place)
                if pile.is_full:
                    return pile.reading(place), place
                pile.rest(found, number, is_last=number == numbers[-1])
    return pile.reading(place), place


@attrs.define(eq=False)
class _Pile:
    """What was read so far."""

    folder: Path
    limit: int | None
    messages: list[Message] = attrs.field(init=False, factory=list)
    corrupt: list[CorruptRange] = attrs.field(init=False, factory=list)
"""
