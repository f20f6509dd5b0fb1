"""Reads a bus without its lock: whole messages only, whatever its writers do meanwhile."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs

from trioeval.agents.bus.messages import Message, parse_message
from trioeval.agents.bus.places import Place, find_place
from trioeval.agents.bus.records import Found, last_records, last_seq, walk
from trioeval.agents.bus.segments import reading, segment_numbers, segment_path, size_of

AT_ONCE = 5000  # messages that are read at once, so that a reader of a large bus stays small
AT_ONCE_BYTES = 4 * 2**20  # of them, after which no more are


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
    is_all: bool = True
    """Whether no limit has ended it."""


_Item: TypeAlias = CorruptRange | tuple[int, int, Message]
"""A part that is no message, or where one begins, where it ends, and what it says."""


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


def read_parts(folder: Path, *, since: int | str | None = None) -> Iterator[Reading]:
    """As `read_bus`, some messages at a time; those that come meanwhile may be missing. Blocks on files.

    Raises:
        CursorExpiredError: Messages after the cursor were removed, also while others were read.
        CursorNotFoundError: There is no such message.
        BusError: It is no bus.
    """
    place: Place | None = None
    while True:
        try:
            if place is None:
                place = find_place(folder, since)
                last = last_seq(folder, segment_numbers(folder))
            part, place = read_on(folder, place, AT_ONCE, AT_ONCE_BYTES)
        except FileNotFoundError:
            since, place = since if place is None else place.seq, None
            continue
        yield part
        if part.is_all or part.cursor >= last:
            return


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


def read_on(
    folder: Path, place: Place, limit: int | None = None, limit_bytes: float = math.inf
) -> tuple[Reading, Place]:
    """What stands behind a place, and the place behind that.

    Args:
        folder: Of the bus.
        place: Where; its file may have become shorter.
        limit: Messages at most.
        limit_bytes: Bytes of messages after which to stop, also in the middle of a file.

    Raises:
        FileNotFoundError: A file was removed meanwhile.
        BusError: It is no bus.
    """
    messages: list[Message] = []
    corrupt: list[CorruptRange] = []
    path = segment_path(folder, place.number)
    if place.number and place.start > path.stat().st_size:  # somebody has cut it off
        place = Place(place.number, 0, place.seq)
    last = place.seq if place.start else 0
    taken = 0

    def found(*, is_all: bool) -> tuple[Reading, Place]:
        reading = Reading(messages=messages, corrupt=corrupt, cursor=place.seq, is_all=is_all)
        return reading, place

    # The files are looked for first: what a file holds when there is a next one is all that it will hold.
    numbers = [number for number in segment_numbers(folder) if number >= place.number]
    if place.number and place.number not in numbers:
        raise FileNotFoundError(path)
    for number in numbers:
        place = place if number == place.number else Place(number, 0, place.seq)
        for item in _items(folder, place, last, is_last=number == numbers[-1]):
            if len(messages) == limit or taken >= limit_bytes:
                return found(is_all=False)
            if isinstance(item, CorruptRange):
                corrupt.append(item)
                continue
            begin, end, message = item
            last = message.seq
            if last > place.seq:
                messages.append(message)
                taken += end - begin
                place = Place(number, end, last)
    return found(is_all=True)


def _items(folder: Path, place: Place, last: int, *, is_last: bool) -> Iterator[_Item]:
    """What stands in a file behind a place; its messages have larger numbers than the last one before."""
    path = segment_path(folder, place.number)
    with reading(folder, place.number) as file:
        size = size_of(file)
        for found in walk(file, place.start, size):
            for item in _sorted_items(path, found, last):
                if not isinstance(item, CorruptRange):
                    last = item[2].seq
                yield item
        # The beginning of a message at the very end is being written, or will be cut off by the next one.
        end = found.torn if is_last else size
        if end > found.end:
            yield CorruptRange(path, found.end, end)


def _sorted_items(path: Path, found: Found, last: int = 0) -> Iterator[_Item]:
    """What was found, in its order. Numbers rise: what has another one was put there by somebody else."""
    broken = iter([*found.broken, (found.end, found.end)])
    begin, end = next(broken)
    for record in found.records:
        if begin < record.start:
            yield CorruptRange(path, begin, end)
            begin, end = next(broken)
        try:
            message = parse_message(record.payload)
        except ValueError:
            message = None
        if message is None or message.seq != record.seq or message.seq <= last:
            yield CorruptRange(path, record.start, record.end)
        else:
            last = message.seq
            yield record.start, record.end, message


def _last(folder: Path, count: int) -> Reading:
    items: list[_Item] = []
    missing = count
    numbers = segment_numbers(folder)
    cursor = last_seq(folder, numbers)
    for number in reversed(numbers if count else []):
        found, some = _last_of(folder, number, missing)
        if found.torn > found.end:
            some.append(CorruptRange(segment_path(folder, number), found.end, found.torn))
        while some and missing:
            items.append(some.pop())
            missing -= not isinstance(items[-1], CorruptRange)
        if not missing:
            break
    items.reverse()
    messages = [item[2] for item in items if not isinstance(item, CorruptRange)]
    return Reading(
        messages=messages,
        corrupt=[item for item in items if isinstance(item, CorruptRange)],
        cursor=max([cursor, *(message.seq for message in messages[-1:])]),  # others go on writing
    )


def _last_of(folder: Path, number: int, count: int) -> tuple[Found, list[_Item]]:
    """The end of a file, with so many messages, if it has them."""
    path, records = segment_path(folder, number), count
    with reading(folder, number) as file:
        while True:
            found = last_records(file, size_of(file), count=records)
            items = [*_sorted_items(path, found)]
            messages = sum(not isinstance(item, CorruptRange) for item in items)
            if messages >= count or len(found.records) < records:
                return found, items
            records *= 2
