"""Reads a bus without its lock: whole messages only, whatever its writers do meanwhile."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

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
    last = place.seq if place.start else 0
    taken = 0

    def found(*, is_all: bool) -> tuple[Reading, Place]:
        reading = Reading(messages=messages, corrupt=corrupt, cursor=place.seq, is_all=is_all)
        return reading, place

    # The files are looked for first: what a file holds when there is a next one is all that it will hold.
    numbers = [number for number in segment_numbers(folder) if number >= place.number]
    if place.number and place.number not in numbers:
        raise FileNotFoundError(segment_path(folder, place.number))
    for number in numbers:
        place = place if number == place.number else Place(number, 0, place.seq)
        for item in _items(folder, place, is_last=number == numbers[-1]):
            if len(messages) == limit or taken >= limit_bytes:
                return found(is_all=False)
            if isinstance(item, CorruptRange):
                corrupt.append(item)
            elif item[1].seq > place.seq:
                messages.append(item[1])
                place = Place(number, item[0], item[1].seq)
    return found(is_all=True)


def _items(
    folder: Path, place: Place, *, is_last: bool
) -> Iterator[CorruptRange | tuple[int, Message]]:
    """What stands in a file behind a place: parts that are no message, and messages with their ends."""
    path = segment_path(folder, place.number)
    with reading(folder, place.number) as file:
        size = size_of(file)
        for found in walk(file, place.start, size):
            yield from _sorted_items(path, found)
        # The beginning of a message at the very end is being written, or will be cut off by the next one.
        end = found.torn if is_last else size
        if end > found.end:
            yield CorruptRange(path, found.end, end)


def _sorted_items(path: Path, found: Found) -> Iterator[CorruptRange | tuple[int, Message]]:
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
        if message is None or message.seq != record.seq:
            yield CorruptRange(path, record.start, record.end)
        else:
            yield record.end, message


def _last(folder: Path, count: int) -> Reading:
    items: list[CorruptRange | tuple[int, Message]] = []
    missing = count
    numbers = segment_numbers(folder)
    cursor = last_seq(folder, numbers)
    for number in reversed(numbers if count else []):
        with reading(folder, number) as file:
            found = last_records(file, size_of(file), count=missing)
        some = [*_sorted_items(segment_path(folder, number), found)]
        if found.torn > found.end:
            some.append(CorruptRange(segment_path(folder, number), found.end, found.torn))
        while some and missing:
            items.append(some.pop())
            missing -= not isinstance(items[-1], CorruptRange)
        if not missing:
            break
    items.reverse()
    return Reading(
        messages=[item[1] for item in items if not isinstance(item, CorruptRange)],
        corrupt=[item for item in items if isinstance(item, CorruptRange)],
        cursor=cursor,
    )
