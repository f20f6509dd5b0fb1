"""Reading of a bus without its lock: complete messages only, whatever its writers do meanwhile."""

import logging
import math
import os
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Self, TypeAlias

import attrs
import trio

from trioeval.agent.bus.messages import Message, parse_message, seq_of
from trioeval.agent.bus.segments import (
    ScanResult,
    first_record,
    last_records,
    last_seq,
    position_after,
    reading,
    segment_numbers,
    segment_path,
    size_of,
    walk,
)
from trioeval.errors import CursorExpiredError, CursorNotFoundError

AT_ONCE = 5000  # messages that are read at once, which limits the memory of a reader
AT_ONCE_BYTES = 4 * 2**20  # bytes of messages after which no more are read at once


@attrs.frozen
class CorruptRange:
    """A part of a file that is not a message."""

    file: Path
    start: int
    """Index of its first byte."""
    end: int
    """Index after its last byte."""


@attrs.frozen(kw_only=True)
class BusReading:
    """The result of reading."""

    messages: Sequence[Message]
    corrupt: Sequence[CorruptRange] = ()
    cursor: int = 0
    """The `seq` after which to continue."""
    is_all: bool = True
    """True if no limit has ended it."""


@attrs.frozen
class BusPosition:
    """A position between two messages."""

    number: int = 0
    """The number of the file; 0 is before all of them."""
    start: int = 0
    """The byte at which the next record starts."""
    seq: int = 0
    """The number of the message before it."""


_Item: TypeAlias = CorruptRange | tuple[int, int, Message]
"""A corrupt part, or the start, the end and the message of a record."""


def read_bus(
    folder: Path, *, since: int | str | None = None, limit: int | None = None
) -> BusReading:
    """Return the messages of a bus after a cursor. Blocks on files.

    Args:
        folder: The folder of the bus; a missing one is an empty bus.
        since: A `seq` or a `msg_id`; None is the beginning.
        limit: Maximum number of messages.

    Raises:
        CursorExpiredError: Messages after the cursor were removed.
        CursorNotFoundError: The message does not exist.
        BusError: It is not a bus.
    """
    while True:
        try:
            return read_from(folder, find_position(folder, since), limit)[0]
        except FileNotFoundError:
            continue  # an old file was removed meanwhile; there are newer ones


def read_parts(folder: Path, *, since: int | str | None = None) -> Iterator[BusReading]:
    """Yield the messages of `read_bus` in parts; new ones may be missing. Blocks on files."""
    place: BusPosition | None = None
    while True:
        try:
            if place is None:
                place = find_position(folder, since)
                last = last_seq(folder, segment_numbers(folder))
            part, place = read_from(folder, place, AT_ONCE, AT_ONCE_BYTES)
        except FileNotFoundError:
            since, place = since if place is None else place.seq, None
            continue
        yield part
        if part.is_all or part.cursor >= last:
            return


def last_messages(folder: Path, count: int) -> BusReading:
    """Return the last messages of a bus, oldest first; all if it has fewer. Blocks on files."""
    records = count = max(0, count)
    while True:
        try:
            cursor = last_seq(folder, segment_numbers(folder))
            place = _position_of_last(folder, records)
            found, _ = read_from(folder, place)
        except FileNotFoundError:
            continue  # see `read_bus`
        more = len(found.messages) - count
        if more >= 0 or not place.number:
            # Writers may have continued; and lost records at the end have numbers as well.
            cursor = max(cursor, found.cursor)
            return attrs.evolve(found, messages=found.messages[max(0, more) :], cursor=cursor)
        records *= 2


def _position_of_last(folder: Path, count: int) -> BusPosition:
    """Return the position of the last records of a bus; its beginning, if it has fewer."""
    for number in reversed(segment_numbers(folder)):
        with reading(folder, number) as file:
            size = size_of(file)
            found = last_records(file, size, count=count)
        if not count:
            return BusPosition(number, size, found.records[-1].seq if found.records else 0)
        if count <= len(found.records):
            first = found.records[-count]
            return BusPosition(number, first.start, first.seq - 1)
        count -= len(found.records)
    return BusPosition()


def read_from(
    folder: Path, place: BusPosition, limit: int | None = None, limit_bytes: float = math.inf
) -> tuple[BusReading, BusPosition]:
    """Return the messages after a position, and the position after them; its file may have become shorter.

    After `limit_bytes` of messages it also stops in the middle of a file.

    Raises:
        FileNotFoundError: A file was removed meanwhile.
        BusError: It is not a bus.
    """
    messages: list[Message] = []
    corrupt: list[CorruptRange] = []
    path = segment_path(folder, place.number)
    if place.number and place.start > path.stat().st_size:  # the file was truncated
        place = BusPosition(place.number, 0, place.seq)
    last = place.seq if place.start else 0
    taken = 0

    def found(*, is_all: bool) -> tuple[BusReading, BusPosition]:
        reading = BusReading(messages=messages, corrupt=corrupt, cursor=place.seq, is_all=is_all)
        return reading, place

    # The files are listed first: a file that has a successor in the list will not grow any more.
    numbers = [number for number in segment_numbers(folder) if number >= place.number]
    if place.number and place.number not in numbers:
        raise FileNotFoundError(path)
    for number in numbers:
        place = place if number == place.number else BusPosition(number, 0, place.seq)
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
                place = BusPosition(number, end, last)
    return found(is_all=True)


def _items(folder: Path, place: BusPosition, last: int, *, is_last: bool) -> Iterator[_Item]:
    """Yield the items of a file after a position; their numbers are larger than the last one before it."""
    path = segment_path(folder, place.number)
    with reading(folder, place.number) as file:
        size = size_of(file)
        for found in walk(file, place.start, size):
            for item in _sorted_items(path, found, last):
                if not isinstance(item, CorruptRange):
                    last = item[2].seq
                yield item
        # An incomplete record at the very end is being written, or will be removed by the next writer.
        end = found.torn if is_last else size
        if end > found.end:
            yield CorruptRange(path, found.end, end)


def _sorted_items(path: Path, found: ScanResult, last: int = 0) -> Iterator[_Item]:
    """Yield found items in order. Numbers ascend: a record with another number was not written by a bus."""
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


# The position of a cursor in the files of a bus. Blocks on files.


def find_position(folder: Path, since: int | str | None) -> BusPosition:
    """Return the position of a cursor: of a `seq` or a `msg_id`; None is the beginning.

    Raises:
        CursorExpiredError: Messages after it were removed.
        CursorNotFoundError: The message does not exist.
        FileNotFoundError: A file was removed meanwhile.
        BusError: It is not a bus.
    """
    if since is None:
        return BusPosition()
    numbers = segment_numbers(folder)
    seq = seq_of(since) if isinstance(since, str) else since
    if seq is None or not 0 <= seq <= last_seq(folder, numbers):
        raise _unknown(folder, since)
    place = _position_of(folder, numbers, seq, since)
    if isinstance(since, str) and not _is_message(folder, numbers, since, seq):
        raise _unknown(folder, since)
    return place


def _position_of(folder: Path, numbers: Sequence[int], seq: int, since: int | str) -> BusPosition:
    oldest = None
    for number in reversed(numbers):
        with reading(folder, number) as file:
            size = size_of(file)
            first = first_record(file, size)
            if first is None:
                continue
            oldest = first.seq - 1
            if first.seq <= seq:
                return BusPosition(number, position_after(file, size, seq), seq)
            if oldest == seq and first.start == 0:
                return BusPosition(number, 0, seq)
    if not numbers or numbers[0] == 1:  # messages missing at the beginning are corrupt, not removed
        return BusPosition(0, 0, seq)
    if oldest is None:
        oldest = last_seq(folder, numbers)  # no remaining message can be read
    if oldest > seq:
        raise CursorExpiredError(
            f"{folder}: messages after {since} were removed; the remaining ones start after {oldest}",
            oldest=oldest,
        )
    return BusPosition(0, 0, seq)


def _is_message(folder: Path, numbers: Sequence[int], msg_id: str, seq: int) -> bool:
    """Return whether one of the remaining messages has this id."""
    found, _ = read_from(folder, _position_of(folder, numbers, seq - 1, msg_id), limit=1)
    return [one.msg_id for one in found.messages] == [msg_id]


def _unknown(folder: Path, since: int | str) -> CursorNotFoundError:
    return CursorNotFoundError(f"{os.fspath(folder)}: the message bus has no message {since}")


# Follows a bus: existing messages, and then each new one.
#
# Messages written through the same `Bus` wake a follower at once. Those of other processes are found by
# polling the sizes of the files.


POLL = 0.2  # seconds between polls for messages of other processes
_QUICK = 64 * 2**10  # bytes that are read without a thread

_logger = logging.getLogger(__name__)


@attrs.define(eq=False, repr=False)
class WriteSignal:
    """Notification of new messages for waiters in this process."""

    _event: trio.Event = attrs.field(init=False, factory=trio.Event)

    @property
    def next(self) -> trio.Event:
        """The event that is set at the next message."""
        return self._event

    def notify(self) -> None:
        """Wake all waiters."""
        if self._event.statistics().tasks_waiting:
            self._event.set()
            self._event = trio.Event()


@attrs.frozen
class _FileState:
    """The properties of the files that change when a bus is written."""

    number: int
    """The number of the newest file."""
    size: int
    """Its size in bytes."""
    changed: int
    """Its modification time, in ticks of the system clock: new content may have the size of the content that
    it replaced."""


def follow_bus(folder: Path, *, since: int | str | None = None) -> AsyncIterator[Message]:
    """Follow a bus that is not open here; see `Bus.follow`. The bus need not exist yet."""
    return BusFollower(folder, since, WriteSignal())


@attrs.define(eq=False, repr=False)
class BusFollower:
    """An iterator that never ends by itself, and keeps no file open between messages."""

    _folder: Path
    _since: int | str | None
    _news: WriteSignal
    _place: BusPosition | None = attrs.field(init=False, default=None)
    """None before the cursor is found."""
    _seen: _FileState | None = attrs.field(init=False, default=None)
    """The state when the newest file had been read completely."""
    _is_sure: bool = attrs.field(init=False, default=False)
    """True if any later write must change the state."""
    _ready: deque[Message] = attrs.field(init=False, factory=deque)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Return the next message. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while not self._ready:
            written = self._news.next  # before reading: later messages set it
            state = self._state()
            if state == self._seen and self._place is not None:
                with trio.move_on_after(POLL) as scope:
                    await written.wait()
                if self._is_sure:
                    continue
                # A change within one tick of the clock is found by a second poll.
                state = self._state()
                self._is_sure = scope.cancelled_caught and state == self._seen
            else:
                self._is_sure = False
            if self._is_quick(state):
                self._look(state)
            else:
                await trio.to_thread.run_sync(self._look, state)
        return self._ready.popleft()

    def _state(self) -> _FileState | None:
        """Return the state of the newest file; None without any."""
        numbers = segment_numbers(self._folder)
        if not numbers:
            return None
        try:
            stat = segment_path(self._folder, numbers[-1]).stat()
        except FileNotFoundError:
            return None
        return _FileState(numbers[-1], stat.st_size, stat.st_mtime_ns)

    def _is_quick(self, state: _FileState | None) -> bool:
        """Return whether there is little to read, so that a thread would take longer."""
        place = self._place if self._place is not None else BusPosition()
        if state is None:
            return True
        rest = state.size
        if state.number == place.number:
            rest -= min(place.start, rest)
        elif place.number:
            try:
                older = segment_path(self._folder, place.number).stat().st_size
            except FileNotFoundError:
                return False
            rest += max(0, older - place.start)
        return state.number <= place.number + 1 and rest <= _QUICK

    def _look(self, state: _FileState | None) -> None:
        if self._place is None:
            self._place = self._found(self._since)
        try:
            reading, place = read_from(self._folder, self._place, AT_ONCE, AT_ONCE_BYTES)
        except FileNotFoundError:  # a file was removed meanwhile
            self._place = self._found(self._place.seq)
            return
        self._ready.extend(reading.messages)
        for corrupt in reading.corrupt:
            if _is_after(corrupt, place, self._folder):
                _logger.warning(
                    "%s: bytes %d to %d are not a message", corrupt.file, corrupt.start, corrupt.end
                )
        self._place = place
        self._seen = state if reading.is_all else None

    def _found(self, since: int | str | None) -> BusPosition:
        while True:
            try:
                return find_position(self._folder, since)
            except FileNotFoundError:
                continue


def _is_after(corrupt: CorruptRange, place: BusPosition, folder: Path) -> bool:
    """Return whether a position is after a corrupt part; one at the end may be found again."""
    path = segment_path(folder, place.number)
    return corrupt.end <= place.start if corrupt.file == path else True
