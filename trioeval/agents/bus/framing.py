r"""How a message stands in a file, so that whoever reads sees whole messages only.

A record is a line that begins with `MAGIC` and tells the length of the payload in bytes, a checksum and the
number of the message; then the payload, which is one line of JSON; then a newline. The checksum is the CRC-32
of zlib, in eight hex digits, of all that stands between it and the last newline: number, newline and payload.

The length makes every body legal. As a payload holds no newline (JSON writes `\n` in a text as two
characters), nothing in it can be taken for the header of another record. So a reader that finds something
broken goes on where magic, length and checksum agree again; and what is only the *beginning* of a record can
be told from what is broken.
"""

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias
from zlib import crc32

import attrs

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


Flaw: TypeAlias = Literal["begun", "bad"]
"""Why there is no record: it may be the beginning of one, or it cannot be one."""


@attrs.frozen(kw_only=True)
class Scan:
    """What stands in some bytes."""

    records: Sequence[Record]
    broken: Sequence[tuple[int, int]]
    """Parts before or between the records that are none: begin, and end."""
    end: int
    """Behind the last record."""
    torn: int
    """Where the beginning of a record stands at the very end; the number of bytes if there is none. What is
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


def scan(data: bytes, start: int = 0) -> Scan:
    """Find all records from a byte on."""
    records: list[Record] = []
    broken: list[tuple[int, int]] = []
    at = start
    while at < len(data):
        record = record_at(data, at)
        if not isinstance(record, Record):
            following = next_record(data, at)
            if following is None:
                break
            broken.append((at, following.start))
            record = following
        records.append(record)
        at = record.end
    torn = _torn(data, at)
    lines = data.count(b"\n", at, torn)  # two for each record
    return Scan(
        records=records,
        broken=broken,
        end=at,
        torn=torn,
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
