"""The files of a bus: the format of a record, the list of files, and the search for records."""

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

# The format of a message in a file, which lets readers see complete messages only.
#
# A record is a line that starts with `MAGIC` and contains the length of the payload in bytes, a checksum and
# the number of the message; then the payload, which is one line of JSON; then a newline. The checksum is the
# CRC-32 of zlib, in eight hex digits, of everything between it and the last newline: number, newline and
# payload.
#
# The length allows any body. As a payload contains no newline (JSON writes `\n` in a text as two characters),
# nothing in it can be mistaken for the header of another record. So after a corrupt part a reader continues
# where magic, length and checksum are valid again; and the incomplete *start* of a record can be
# distinguished from a corrupt one.


MAGIC = b"@trioeval-bus/1 "
LARGEST = 64 * 2**20
"""Maximum size of a payload in bytes."""
LAST_SEQ = 10**18 - 1
"""The largest message number."""
_HEADER = re.compile(rb"@trioeval-bus/1 (\d{1,8}) ([0-9a-f]{8}) (\d{1,18})\n")
_HEADER_BEGUN = re.compile(rb"(\d{1,8}( ([0-9a-f]{1,8}|[0-9a-f]{8} \d{0,18})?)?)?")
_LONGEST_HEADER = len(MAGIC) + 8 + 1 + 8 + 1 + 18 + 1  # bytes


@attrs.frozen
class Record:
    """A complete record."""

    start: int
    """Index of its first byte."""
    end: int
    """Index after its last byte."""
    seq: int
    payload: bytes = attrs.field(repr=False)

    def moved(self, base: int) -> "Record":
        """Return the record with its position shifted to that in the file."""
        return Record(self.start + base, self.end + base, self.seq, self.payload) if base else self


Flaw: TypeAlias = Literal["begun", "bad"]
"""The reason why a record is not valid: it may be the start of one, or it cannot be one."""


@attrs.frozen(kw_only=True)
class ScanResult:
    """The contents of a part of a file; all positions are those in the file."""

    records: Sequence[Record]
    broken: Sequence[tuple[int, int]]
    """Parts before or between the records that are not records: start, and end."""
    end: int
    """The end of the last record."""
    torn: int
    """The position of an incomplete record at the very end; the end of the part without one. The bytes
    between `end` and here are corrupt."""
    lost: int
    """Estimated number of records between `end` and `torn`."""


def frame(seq: int, payload: bytes) -> bytes:
    r"""Return the record of a payload, which must not contain a newline.

    Example:
        >>> frame(7, b"{}")
        b'@trioeval-bus/1 2 a350376e 7\n{}\n'
    """
    checked = b"%d\n%b" % (seq, payload)
    return b"%b%d %08x %b\n" % (MAGIC, len(payload), crc32(checked), checked)


def record_at(data: bytes, start: int) -> Record | Flaw:
    """Return the record that starts at a byte, or the reason why it is not valid."""
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
    """Return the first record that starts after a byte, also within a line: the newline may be corrupt."""
    # A body may contain starts of headers; a whole header ends with a newline, which no body contains.
    found = _HEADER.search(data, start + 1)
    while found is not None:
        record = record_at(data, found.start())
        if isinstance(record, Record):
            return record
        found = _HEADER.search(data, found.start() + 1)
    return None


def scan(data: bytes, start: int = 0, base: int = 0) -> ScanResult:
    """Find all records from a byte on, in a part of a file that starts at `base`."""
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
    return ScanResult(
        records=records,
        broken=broken,
        end=at + base,
        torn=torn + base,
        lost=max(1, (lines + 1) // 2) if torn > at else 0,
    )


def _torn(data: bytes, start: int) -> int:
    """Return the position of an incomplete record at the end of bytes without a whole one."""
    header, last = data.rfind(MAGIC, start), data.rfind(b"\n", start) + 1
    for line in sorted({start, max(start, header), max(start, last)}):
        if line < len(data) and record_at(data, line) == "begun":
            return line
    return len(data)


def _may_become_header(prefix: bytes) -> bool:
    if len(prefix) <= len(MAGIC):
        return MAGIC.startswith(prefix)
    return prefix.startswith(MAGIC) and _HEADER_BEGUN.fullmatch(prefix, len(MAGIC)) is not None


_NAME = re.compile(r"bus-(\d{8,})\.log")
# The files of a bus: listing and opening. Blocks on files.
#
# A link may point anywhere, and opening a pipe would wait for its other end.
_FLAGS = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def segment_path(folder: Path, number: int) -> Path:
    """Return the path of the file with a number.

    Example:
        >>> segment_path(Path("bus"), 7).name
        'bus-00000007.log'
    """
    return folder / f"bus-{number:08}.log"


def segment_numbers(folder: Path) -> list[int]:
    """Return the numbers of the existing files, ascending; empty for a missing folder.

    Raises:
        BusError: It is not a folder, is a link, or cannot be read.
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
        raise bus_error(folder, "read", error) from error
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def is_folder(folder: Path) -> bool:
    """Return whether a folder exists; False if nothing exists there."""
    try:
        mode = folder.lstat().st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise bus_error(folder, "read", error) from error
    if not stat.S_ISDIR(mode):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else "not a folder"
        raise BusError(f"{folder} is {kind}; a message bus must be a folder")
    return True


def open_file(path: Path, flags: int) -> int:
    """Open a regular file, without following a link.

    Raises:
        FileNotFoundError: It does not exist.
        BusError: It is not a regular file.
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
    """Open a file for reading, for the duration of the block."""
    path = segment_path(folder, number)
    try:
        file = open_file(path, os.O_RDONLY)
    except (FileNotFoundError, BusError):
        raise
    except OSError as error:
        raise bus_error(path, "read", error) from error
    try:
        yield file
    finally:
        os.close(file)


def read_range(file: int, start: int, end: int) -> bytes:
    """Return the bytes between two positions, as far as they exist."""
    parts: list[bytes] = []
    while start < end:
        part = os.pread(file, end - start, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def size_of(file: int) -> int:
    """Return the size of an open file in bytes."""
    return os.fstat(file).st_size


def is_at(file: int, path: str) -> bool:
    """Return whether an open file still has its name. A text, because this is called for each batch."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def bus_error(path: Path, doing: str, error: OSError) -> BusError:
    """Return the bus error for an error of the system."""
    return BusError(f"{path}: the message bus cannot be {doing}: {error.strerror or error}")


def _no_file(path: Path) -> BusError:
    return BusError(f"{path} is a link, a folder or a device; a message bus has regular files")


# The search for records in files, without reading more than necessary. Blocks on files.


WINDOW = 64 * 2**10  # bytes that are read at once for a single record
CHUNK = 2**20  # bytes that are read at once for all records
_GROWTH = 4  # factor of the bytes read, if a record is larger


def walk(file: int, start: int, size: int) -> Iterator[ScanResult]:
    """Yield all records from a position on, some at a time; the last `ScanResult` ends at the size."""
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
        # The bytes after its last record are read again, together with the following ones.
        yield attrs.evolve(found, torn=found.end, lost=0)
        start, span = found.end, CHUNK


def last_records(file: int, size: int, *, floor: int = 0, count: int = 1) -> ScanResult:
    """Return the last records of a file, read from its end; fewer only if there are fewer after `floor`."""
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
    """Return the first record that starts after a position; or at it, if that is the start of the file."""
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


def position_after(file: int, size: int, seq: int) -> int:
    """Return the end of the last record with at most this number; 0 without any. Bisects the file."""
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
    """Return the number of the last message in files of a bus, also if it is corrupt; 0 without any."""
    lost = 0
    for number in reversed(numbers):
        with reading(folder, number) as file:
            found = last_records(file, size_of(file))
        lost += found.lost
        if found.records:
            return max(record.seq for record in found.records) + lost
    return lost
