# Separate from `serving.conversation`: bytes to requests, without a socket.
r"""The framing of HTTP/1 requests, read strictly. Pure.

Two parsers that disagree on the end of a message let a client hide a request in the body of another one. h11
reads what is found valid here; it is lenient where servers in front of ours may be too, but differently
(lines that end in a lone `\n`, headers over several lines, a length beside chunks, two lengths). All of that
is refused, so there is exactly one way to read a request, or none.
"""

import re
from collections import Counter

import attrs
import h11

MOST_HEADERS = 100

_END = b"\r\n\r\n"
_STRAY = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?=[^\n])")
"""Bytes that are not allowed in a head: control characters, and incomplete line ends."""
_FIRST = re.compile(rb"[A-Z]{1,32} (\S+) HTTP/([0-9])\.([0-9])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)")
_LENGTH = re.compile(rb"[0-9]{1,15}")


class UnsoundRequestError(Exception):
    """A request that is refused.

    Args:
        status: The status of the response.
        reason: What is wrong with it, for the developer of the client.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@attrs.frozen
class SoundHead:
    """A request head that can be read in one way only."""

    raw: bytes
    """Its bytes, including the blank line at its end."""
    length: int | None
    """Bytes of the body; None if it comes in chunks."""


def take_head(buffer: bytearray, most: int, seen: int = 0) -> SoundHead | None:
    r"""Remove and return the head at the start of a buffer; None if it is not complete yet.

    Args:
        buffer: The bytes received.
        most: The most bytes of a head.
        seen: Bytes of the buffer that were examined before, so that clients that send single bytes cost no
            more.

    Raises:
        UnsoundRequestError: It is invalid, or ambiguous. This may be found before it is complete.

    Example:
        >>> buffer = bytearray(b"GET / HTTP/1.1\r\nhost: x\r\n\r\nmore")
        >>> take_head(buffer, 100).length, bytes(buffer)
        (0, b'more')
    """
    if buffer.startswith(b"\r\n"):  # old clients send one after a body
        del buffer[:2]
    begin = max(0, seen - len(_END) - 2)
    end = buffer.find(_END, begin)
    head = bytes(buffer if end < 0 else buffer[: end + len(_END)])
    if (stray := _STRAY.search(head, begin)) is not None:
        raise UnsoundRequestError(400, f"the head contains an invalid {stray[0]!r}")
    if len(head) > most:
        raise UnsoundRequestError(431, f"the head is longer than {most} bytes")
    if end < 0:
        return None
    del buffer[: len(head)]
    return SoundHead(head, _length(head))


def _length(head: bytes) -> int | None:
    """Return the bytes of the body of a complete head; None if it comes in chunks."""
    first, *lines = head.removesuffix(_END).split(b"\r\n")
    version = _check_first(first)
    if len(lines) > MOST_HEADERS:
        raise UnsoundRequestError(431, f"there are more than {MOST_HEADERS} headers")
    values: dict[bytes, bytes] = {}
    counts: Counter[bytes] = Counter()
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise UnsoundRequestError(400, f"{line[:40]!r} is not a valid header on one line")
        name = found[1].lower()
        counts[name] += 1
        values[name] = found[2].strip(b" \t")
    for name in (b"host", b"content-length", b"transfer-encoding"):
        if counts[name] > 1:
            raise UnsoundRequestError(400, f"{name.decode()} occurs more than once")
    return _framed(values.get(b"content-length"), values.get(b"transfer-encoding"), version)


def _framed(length: bytes | None, coding: bytes | None, version: tuple[int, int]) -> int | None:
    """Return the bytes of a body according to two headers; None if it comes in chunks."""
    if coding is not None:
        if length is not None:
            raise UnsoundRequestError(
                400, "content-length and transfer-encoding exclude each other"
            )
        if coding.lower() != b"chunked" or version == (1, 0):
            raise UnsoundRequestError(400, "transfer-encoding must be `chunked`, of HTTP/1.1")
        return None
    if length is None:
        return 0
    if not _LENGTH.fullmatch(length):
        raise UnsoundRequestError(400, f"content-length must be one number, got {length[:40]!r}")
    return int(length)


def _check_first(first: bytes) -> tuple[int, int]:
    """Return the version in a request line."""
    found = _FIRST.fullmatch(first)
    if found is None:
        raise UnsoundRequestError(400, f"{first[:40]!r} is not a valid request line")
    version = int(found[2]), int(found[3])
    if version not in {(1, 0), (1, 1)}:
        raise UnsoundRequestError(505, "only HTTP/1.1 is supported")
    if not found[1].startswith(b"/"):
        # A complete URL would name a second host beside the header.
        raise UnsoundRequestError(400, "the target must be a path")
    return version


def read_request(head: SoundHead, connection: h11.Connection) -> h11.Request:
    """Return h11's reading of a valid head.

    Raises:
        UnsoundRequestError: h11 rejects it.
    """
    try:
        connection.receive_data(head.raw)
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise UnsoundRequestError(400, str(error)) from None
    if not isinstance(request, h11.Request):
        raise UnsoundRequestError(400, "this is not a valid request")
    return request
