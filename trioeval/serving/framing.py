# Apart from `serving.conversation`: bytes to requests, without a socket.
r"""Where a request of HTTP/1 ends, read strictly. Pure.

Two readers that find different ends of one message let a client hide a request in another one's body. h11
reads what is here found to be sound; it is lenient where servers in front of ours may be too, and differently
(lines that end in a lone `\n`, headers over several lines, a length beside chunks, two lengths). All of that
is refused, so there is one way to read a request or none.
"""

import re
from collections import Counter

import attrs
import h11

MOST_HEADERS = 100

_END = b"\r\n\r\n"
_STRAY = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r(?=[^\n])")
"""What is in no head: control characters, and half ends of lines."""
_FIRST = re.compile(rb"[A-Z]{1,32} (\S+) HTTP/([0-9])\.([0-9])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)")
_LENGTH = re.compile(rb"[0-9]{1,15}")


class UnsoundRequestError(Exception):
    """A request that is not read.

    Args:
        status: Of the answer.
        reason: What is wrong with it, for the author of the client.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@attrs.frozen
class SoundHead:
    """A head that can be read in one way only."""

    raw: bytes
    """With the blank line at its end."""
    length: int | None
    """Bytes of the body; None if it comes in chunks."""


def take_head(buffer: bytearray, most: int, seen: int = 0) -> SoundHead | None:
    r"""The head that a buffer begins with, taken out of it; None if it is not whole yet.

    Args:
        buffer: What has been received.
        most: Bytes that a head may have.
        seen: How many bytes of the buffer were looked at before: who sends single bytes costs no more.

    Raises:
        UnsoundRequestError: It is none, or can be read in two ways. That is found before it is whole.

    Example:
        >>> buffer = bytearray(b"GET / HTTP/1.1\r\nhost: x\r\n\r\nmore")
        >>> take_head(buffer, 100).length, bytes(buffer)
        (0, b'more')
    """
    if buffer.startswith(b"\r\n"):  # old clients send one behind a body
        del buffer[:2]
    begin = max(0, seen - len(_END) - 2)
    end = buffer.find(_END, begin)
    head = bytes(buffer if end < 0 else buffer[: end + len(_END)])
    if (stray := _STRAY.search(head, begin)) is not None:
        raise UnsoundRequestError(400, f"the head has a stray {stray[0]!r} in it")
    if len(head) > most:
        raise UnsoundRequestError(431, f"the head is longer than {most} bytes")
    if end < 0:
        return None
    del buffer[: len(head)]
    return SoundHead(head, _length(head))


def _length(head: bytes) -> int | None:
    """Bytes of the body of a whole head; None if it comes in chunks."""
    first, *lines = head.removesuffix(_END).split(b"\r\n")
    version = _check_first(first)
    if len(lines) > MOST_HEADERS:
        raise UnsoundRequestError(431, f"there are more than {MOST_HEADERS} headers")
    values: dict[bytes, bytes] = {}
    counts: Counter[bytes] = Counter()
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise UnsoundRequestError(400, f"{line[:40]!r} is no header; none goes over two lines")
        name = found[1].lower()
        counts[name] += 1
        values[name] = found[2].strip(b" \t")
    for name in (b"host", b"content-length", b"transfer-encoding"):
        if counts[name] > 1:
            raise UnsoundRequestError(400, f"{name.decode()} is there more than once")
    return _framed(values.get(b"content-length"), values.get(b"transfer-encoding"), version)


def _framed(length: bytes | None, coding: bytes | None, version: tuple[int, int]) -> int | None:
    """Bytes of a body, as two headers tell them; None if it comes in chunks."""
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
    """The version that a first line tells."""
    found = _FIRST.fullmatch(first)
    if found is None:
        raise UnsoundRequestError(400, f"{first[:40]!r} is no request")
    version = int(found[2]), int(found[3])
    if version not in {(1, 0), (1, 1)}:
        raise UnsoundRequestError(505, "only HTTP/1.1 is spoken here")
    if not found[1].startswith(b"/"):
        # A whole address would name a second host beside the header.
        raise UnsoundRequestError(400, "the target must be a path")
    return version


def read_request(head: SoundHead, connection: h11.Connection) -> h11.Request:
    """What h11 reads of a sound head.

    Raises:
        UnsoundRequestError: h11 finds something else wrong with it.
    """
    try:
        connection.receive_data(head.raw)
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise UnsoundRequestError(400, str(error)) from None
    if not isinstance(request, h11.Request):
        raise UnsoundRequestError(400, "this is no request")
    return request
