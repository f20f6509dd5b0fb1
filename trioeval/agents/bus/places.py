"""Where in the files of a bus a cursor is. Blocks on files."""

import os
from collections.abc import Sequence
from pathlib import Path

import attrs

from trioeval.agents.bus.messages import parse_message, seq_of
from trioeval.agents.bus.records import first_record, last_seq, place_behind, walk
from trioeval.agents.bus.segments import reading, segment_numbers, size_of
from trioeval.errors import CursorExpiredError, CursorNotFoundError


@attrs.frozen
class Place:
    """A place between two messages."""

    number: int = 0
    """Of the file; 0 is before all of them."""
    start: int = 0
    """Byte at which the next record begins."""
    seq: int = 0
    """Of the message before it."""


def find_place(folder: Path, since: int | str | None) -> Place:
    """The place of a cursor.

    Args:
        folder: Of the bus.
        since: A `seq` or a `msg_id`; None is the beginning.

    Raises:
        CursorExpiredError: Messages behind it were removed.
        CursorNotFoundError: There is no such message.
        FileNotFoundError: A file was removed meanwhile.
        BusError: It is no bus.
    """
    if since is None:
        return Place()
    numbers = segment_numbers(folder)
    seq = seq_of(since) if isinstance(since, str) else since
    if seq is None or not 0 <= seq <= last_seq(folder, numbers):
        raise _unknown(folder, since)
    place = _place_of(folder, numbers, seq, since)
    if isinstance(since, str) and not _is_message(folder, numbers, since, seq):
        raise _unknown(folder, since)
    return place


def _place_of(folder: Path, numbers: Sequence[int], seq: int, since: int | str) -> Place:
    oldest = None
    for number in reversed(numbers):
        with reading(folder, number) as file:
            size = size_of(file)
            first = first_record(file, size)
            if first is None:
                continue
            oldest = first.seq - 1
            if first.seq <= seq:
                return Place(number, place_behind(file, size, seq), seq)
            if oldest == seq and first.start == 0:
                return Place(number, 0, seq)
    if not numbers or numbers[0] == 1:  # what is missing at the beginning is broken, not removed
        return Place(0, 0, seq)
    if oldest is None:
        oldest = last_seq(folder, numbers)  # nothing that is left can be read
    if oldest > seq:
        raise CursorExpiredError(
            f"{folder}: messages after {since} were removed; what is left begins after {oldest}",
            oldest=oldest,
        )
    return Place(0, 0, seq)


def _is_message(folder: Path, numbers: Sequence[int], msg_id: str, seq: int) -> bool:
    """Whether a message has this id, among those that are left."""
    before = _place_of(folder, numbers, seq - 1, msg_id)
    for number in numbers:
        if number < before.number:
            continue
        with reading(folder, number) as file:
            start = before.start if number == before.number else 0
            for found in walk(file, start, size_of(file)):
                for record in found.records:
                    if record.seq >= seq:
                        return record.seq == seq and _id(record.payload) == msg_id
    return False


def _id(payload: bytes) -> str | None:
    try:
        return parse_message(payload).msg_id
    except ValueError:
        return None


def _unknown(folder: Path, since: int | str) -> CursorNotFoundError:
    return CursorNotFoundError(f"{os.fspath(folder)}: the message bus has no message {since}")
