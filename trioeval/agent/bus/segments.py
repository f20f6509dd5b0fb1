"""The files of a bus: how a record is written, which files there are, and how records are found."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias
from zlib import crc32

import attrs

from trioeval.errors import BusError

# How a message stands in a file, so that whoever reads sees whole messages only.
#
# A record is a line that begins with `MAGIC` and tells the length of the payload in bytes, a checksum and
# the number of the message; then the payload, which is one line of JSON; then a newline. The checksum is the
# CRC-32 of zlib, in eight hex digits, of all that stands between it and the last newline: number, newline
# and payload.
#
# The length makes every body legal. As a payload holds no newline (JSON writes `\n` in a text as two
# characters), nothing in it can be taken for the header of another record. So a reader that finds something
# broken goes on where magic, length and checksum agree again; and what is only the *beginning* of a record
# can be told from what is broken.


MAGIC = b"@trioeval-bus/1 "
LARGEST = 64 * 2**20
"""Bytes of a payload at most."""
LAST_SEQ = 10**18 - 1
"""The largest number of a message."""
_HEADER = re.compile(rb"@trioeval-bus/1 (\d{1,8}) ([0-9a-f]{8}) (\d{1,18})\n")
_HEADER_BEGUN = re.compile(rb"(\d{1,8}( ([0-9a-f]{1,8}|[0-9a-f]{8} \d{0,18})?)?)?")
_LONGEST_HEADER = len(MAGIC) + 8 + 1 + 8 + 1 + 18 + 1  # bytes


@attrs.frozen
class Record:
    """A record that is whole."""

    start: int
    """Byte at which it begins."""
    end: int
    """Byte behind it."""
    seq: int
    payload: bytes = attrs.field(repr=False)

    def moved(self, base: int) -> "Record":
        """The same in a file in which the bytes begin at a place."""
        return Record(self.start + base, self.end + base, self.seq, self.payload) if base else self


Flaw: TypeAlias = Literal["begun", "bad"]
"""Why there is no record: it may be the beginning of one, or it cannot be one."""


@attrs.frozen(kw_only=True)
class Found:
    """What stands in a part of a file; all places are those of the file."""

    records: Sequence[Record]
    broken: Sequence[tuple[int, int]]
    """Parts before or between the records that are none: begin, and end."""
    end: int
    """Behind the last record."""
    torn: int
    """Where the beginning of a record stands at the very end; the end of the part if there is none. What is
    between `end` and here is broken."""
    lost: int
    """Records that seem to have stood between `end` and `torn`."""


def frame(seq: int, payload: bytes) -> bytes:
    r"""The record of a payload, which holds no newline.

    Example:
        >>> frame(7, b"{}")
        b'@trioeval-bus/1 2 a350376e 7\n{}\n'
    """
    checked = b"%d\n%b" % (seq, payload)
    return b"%b%d %08x %b\n" % (MAGIC, len(payload), crc32(checked), checked)


def record_at(data: bytes, start: int) -> Record | Flaw:
    """The record that begins at a byte, or why there is none."""
    header = _HEADER.match(data, start)
    if header is None:
        return "begun" if _may_become_header(data[start : start + _LONGEST_HEADER]) else "bad"
    begin, length = header.end(), int(header[1])
    end = begin + length
    if length > LARGEST:
        return "bad"
    if end >= len(data):
        return "begun" if data.find(b"\n", begin) in {-1, end} else "bad"
    checked = memoryview(data)[header.start(3) : end]
    if data[end] != ord("\n") or crc32(checked) != int(header[2], 16):
        return "bad"
    return Record(start, end + 1, int(header[3]), data[begin:end])


def next_record(data: bytes, start: int) -> Record | None:
    """The first record that begins behind a byte. Also in a line: the newline before it may be broken."""
    # A body may be full of what begins a header; a whole one ends a line, which no body does.
    found = _HEADER.search(data, start + 1)
    while found is not None:
        record = record_at(data, found.start())
        if isinstance(record, Record):
            return record
        found = _HEADER.search(data, found.start() + 1)
    return None


def scan(data: bytes, start: int = 0, base: int = 0) -> Found:
    """Find all records from a byte on, in a part of a file that begins at `base`."""
    records: list[Record] = []
    broken: list[tuple[int, int]] = []
    at = start
    while at < len(data):
        record = record_at(data, at)
        if not isinstance(record, Record):
            following = next_record(data, at)
            if following is None:
                break
            broken.append((at + base, following.start + base))
            record = following
        records.append(record.moved(base))
        at = record.end
    torn = _torn(data, at)
    lines = data.count(b"\n", at, torn)  # two for each record
    return Found(
        records=records,
        broken=broken,
        end=at + base,
        torn=torn + base,
        lost=max(1, (lines + 1) // 2) if torn > at else 0,
    )


def _torn(data: bytes, start: int) -> int:
    """Where the beginning of a record stands at the end of bytes that hold no whole one."""
    header, last = data.rfind(MAGIC, start), data.rfind(b"\n", start) + 1
    for line in sorted({start, max(start, header), max(start, last)}):
        if line < len(data) and record_at(data, line) == "begun":
            return line
    return len(data)


def _may_become_header(begun: bytes) -> bool:
    if len(begun) <= len(MAGIC):
        return MAGIC.startswith(begun)
    return begun.startswith(MAGIC) and _HEADER_BEGUN.fullmatch(begun, len(MAGIC)) is not None


_NAME = re.compile(r"bus-(\d{8,})\.log")
# The files of a bus: which there are, and how they are opened. Blocks on files.
#
# A link may lead anywhere, and a pipe would wait for somebody at its other end.
_FLAGS = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def segment_path(folder: Path, number: int) -> Path:
    """The file with a number.

    Example:
        >>> segment_path(Path("bus"), 7).name
        'bus-00000007.log'
    """
    return folder / f"bus-{number:08}.log"


def segment_numbers(folder: Path) -> list[int]:
    """Numbers of the files that are there, ascending; none of a folder that is not there.

    Raises:
        BusError: It is no folder, leads somewhere else, or cannot be read.
    """
    try:
        if not is_folder(folder):
            return []
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except BusError:
        raise
    except OSError as error:
        raise trouble(folder, "read", error) from error
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def is_folder(folder: Path) -> bool:
    """Whether there is a folder; False if there is nothing."""
    try:
        mode = folder.lstat().st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise trouble(folder, "read", error) from error
    if not stat.S_ISDIR(mode):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "no folder"
        raise BusError(f"{folder}: this is {what}; a message bus is a folder")
    return True


def open_file(path: Path, flags: int) -> int:
    """Open a file that is no link and nothing but a file.

    Raises:
        FileNotFoundError: It is not there.
        BusError: It is something else.
        OSError: It cannot be opened.
    """
    try:
        file = os.open(path, flags | _FLAGS, 0o666)
    except OSError as error:
        if path.is_symlink() or path.is_dir():
            raise _no_file(path) from error
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _no_file(path)
    return file


@contextmanager
def reading(folder: Path, number: int) -> Iterator[int]:
    """A file, open for reading."""
    path = segment_path(folder, number)
    try:
        file = open_file(path, os.O_RDONLY)
    except (FileNotFoundError, BusError):
        raise
    except OSError as error:
        raise trouble(path, "read", error) from error
    try:
        yield file
    finally:
        os.close(file)


def read_range(file: int, start: int, end: int) -> bytes:
    """The bytes between two places, as far as there are any."""
    parts: list[bytes] = []
    while start < end:
        part = os.pread(file, end - start, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def size_of(file: int) -> int:
    """Bytes of an open file."""
    return os.fstat(file).st_size


def is_at(file: int, path: str) -> bool:
    """Whether an open file still has its name. A text: this is looked at for each batch."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def trouble(path: Path, doing: str, error: OSError) -> BusError:
    """An error of the system, told of a bus."""
    return BusError(f"{path}: the message bus cannot be {doing}: {error.strerror or error}")


def _no_file(path: Path) -> BusError:
    return BusError(f"{path}: this is a link, a folder or a device; a message bus has plain files")


# Finds records in files, without reading more of them than needed. Blocks on files.


WINDOW = 64 * 2**10  # bytes that are read at once where little is looked for
CHUNK = 2**20  # bytes that are read at once where much is
_GROWTH = 4  # a record may be larger than what is read


def walk(file: int, start: int, size: int) -> Iterator[Found]:
    """All records from a place on, some at a time; the last `Found` ends at the size."""
    span = CHUNK
    while True:
        stop = min(size, start + span)
        found = scan(read_range(file, start, stop), base=start)
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
    """The last records of a file, read from its end; fewer only if there are fewer behind `floor`."""
    span = WINDOW
    while True:
        start = max(floor, size - span)
        data = read_range(file, start, size)
        first = next_record(data, 0) if start > floor else None
        if start == floor or first is not None:
            found = scan(data, first.start if first is not None else 0, start)
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
            return record.moved(start)
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
    """The number of the last message in some files of a bus, also if it cannot be read any more; or 0."""
    lost = 0
    for number in reversed(numbers):
        with reading(folder, number) as file:
            found = last_records(file, size_of(file))
        lost += found.lost
        if found.records:
            return max(record.seq for record in found.records) + lost
    return lost
