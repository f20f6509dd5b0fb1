"""Finds records in files, without reading more of them than needed. Blocks on files."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from trioeval.agents.bus.framing import Record, Scan, next_record, scan
from trioeval.agents.bus.segments import read_range, reading, size_of

WINDOW = 64 * 2**10  # bytes that are read at once where little is looked for
CHUNK = 2**20  # bytes that are read at once where much is
_GROWTH = 4  # a record may be larger than what is read


@attrs.frozen(kw_only=True)
class Found:
    """Records of a part of a file; all places are those of the file."""

    records: Sequence[Record]
    broken: Sequence[tuple[int, int]]
    end: int
    """Behind the last record."""
    torn: int
    """Where the beginning of a record stands at the end, or the size."""
    lost: int
    """Records that seem to have stood between them."""


def walk(file: int, start: int, size: int) -> Iterator[Found]:
    """All records from a place on, some at a time; the last `Found` ends at the size.

    Args:
        file: Open for reading.
        start: Where a record begins.
        size: Where to stop.
    """
    span = CHUNK
    while True:
        stop = min(size, start + span)
        found = _placed(scan(read_range(file, start, stop)), start)
        if stop == size:
            yield found
            return
        if found.end == start:
            span *= _GROWTH
            continue
        # What is behind its last record is looked at again, together with what follows it.
        yield attrs.evolve(found, torn=found.end, lost=0)
        start, span = found.end, CHUNK


def last_records(file: int, size: int, *, floor: int = 0, count: int = 1) -> Found:
    """The last records of a file, read from its end; fewer only if there are fewer behind `floor`.

    Args:
        file: Open for reading.
        size: Of it.
        floor: Where a record begins that is not looked behind.
        count: Records that are wanted at least.
    """
    span = WINDOW
    while True:
        start = max(floor, size - span)
        data = read_range(file, start, size)
        first = next_record(data, 0) if start > floor else None
        if start == floor or first is not None:
            found = _placed(scan(data, first.start if first is not None else 0), start)
            if start == floor or len(found.records) >= count:
                return found
        span *= _GROWTH


def first_record(file: int, size: int, start: int = 0) -> Record | None:
    """The first record whose line begins behind a place; or at it, if that is the beginning of the file."""
    span = WINDOW
    while True:
        data = read_range(file, start, min(size, start + span))
        found = scan(data).records[:1] if start == 0 else ()
        record = found[0] if found else next_record(data, 0)
        if record is not None:
            return attrs.evolve(record, start=record.start + start, end=record.end + start)
        if start + span >= size:
            return None
        span *= _GROWTH


def place_behind(file: int, size: int, seq: int) -> int:
    """The end of the last record with at most this number; 0 if there is none. Bisects the file."""
    low, high = 0, size
    while high - low > WINDOW:
        middle = (low + high) // 2
        record = first_record(file, high, middle)
        if record is None or record.seq > seq:
            high = middle
        else:
            low = record.end
    for found in walk(file, low, size):
        for record in found.records:
            if record.seq > seq:
                return low
            low = record.end
    return low


def last_seq(folder: Path, numbers: Sequence[int]) -> int:
    """The number of the last message in some files of a bus, also if it cannot be read any more; or 0.

    Raises:
        FileNotFoundError: One of them is gone.
    """
    lost = 0
    for number in reversed(numbers):
        with reading(folder, number) as file:
            found = last_records(file, size_of(file))
        lost += found.lost
        if found.records:
            return max(record.seq for record in found.records) + lost
    return lost


def _placed(found: Scan, start: int) -> Found:
    return Found(
        records=[
            attrs.evolve(one, start=one.start + start, end=one.end + start) for one in found.records
        ]
        if start
        else found.records,
        broken=[(begin + start, end + start) for begin, end in found.broken],
        end=found.end + start,
        torn=found.torn + start,
        lost=found.lost,
    )
