"""Limits on the size of a reply: bytes, and JSON marks, which are counted before anything is parsed.

Parsing one large document blocks the whole process, whatever the number of threads, and a document of
small values takes a hundred times its size in memory. Both grow with its marks: strings, opening
brackets and commas. Counting them takes a fraction of the time, and no memory.
"""

import re
from collections.abc import Mapping
from typing import Any

from trioeval.errors import ProviderError
from trioeval.providers.config import Key, is_integer, to_snake

MOST_BYTES = 8 * 1024 * 1024
"""Maximum size of a reply in bytes if the config sets none."""

MAX_RESPONSE = Key(
    "maxResponseBytes",
    "a whole number of at least 1",
    lambda value: is_integer(value) and value >= 1,
)
"""The config key of the maximum size of a reply."""

SLOW = 64 * 1024
"""Size in bytes from which a reply is read in a thread."""

_BOUNDS = (to_snake(MAX_RESPONSE.name), "max_output_bytes")
"""Config keys that limit the size of a reply; the second one is for programs."""
_BYTES_OF_A_MARK = 16
_BYTES_OF_A_LINE = 32
_ALWAYS = 20_000
"""Number of marks that any document may have."""

_MARK = re.compile(rb'"[^"]*+"?|[{\[,]')
"""A string without escapes, or the start of another value."""


def most_marks(most_bytes: int) -> int:
    """Return the maximum number of JSON marks of a document with a maximum size in bytes.

    Example:
        >>> most_marks(1), most_marks(MOST_BYTES)
        (20000, 524288)
    """
    return max(_ALWAYS, most_bytes // _BYTES_OF_A_MARK)


def most_lines(most_bytes: int) -> int:
    """Return the maximum number of lines of an event stream with a maximum size in bytes."""
    return max(_ALWAYS, most_bytes // _BYTES_OF_A_LINE)


def has_more_marks(document: bytes, most: int) -> bool:
    r"""Return whether a document has more than `most` JSON marks, in time linear in its length.

    Example:
        >>> has_more_marks(b'["a, b", {}]', 4), has_more_marks(b'["a, b", {}]', 3)
        (False, True)
    """
    if len(document) <= most or sum(map(document.count, (b'"', b"{", b"[", b","))) <= most:
        return False
    # Many escapes would be slow to match. They occur in strings; anything after one elsewhere is not parsed.
    plain = document.replace(rb"\\", b"").replace(rb"\"", b"")
    return any(number == most for number, _ in enumerate(_MARK.finditer(plain)))


def check_marks(
    body: bytes,
    most_bytes: int,
    *,
    source: str,
    is_stream: bool = False,
    key: str = MAX_RESPONSE.name,
) -> None:
    """Refuse a reply that would take too long to parse.

    Args:
        body: A JSON document, a stream of events with JSON data, or anything else.
        most_bytes: Maximum size in bytes.
        source: The place of the reply, which begins the message: `HTTP 200 from GET http://host/v1`.
        is_stream: Whether it is read as a stream of events; then its lines count as well.
        key: The config key of the limit.

    Raises:
        ProviderError: `malformed_reply`.
    """
    most = most_marks(most_bytes)
    if len(body) <= most:
        return
    documents = [body]
    if is_stream:
        body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if body.count(b"\n") > most_lines(most_bytes):
            raise too_many_lines(source, most_bytes)
        documents = body.split(b"\n\n")
    elif body[:64].lstrip()[:1] not in (b"{", b"["):
        return
    if any(has_more_marks(document, most) for document in documents):
        counted = f"more than {most:,} texts, brackets and commas"
        raise _too_many(source, counted, _BYTES_OF_A_MARK, most_bytes, key)


def reply_bound(config: Mapping[str, Any], default: int = MOST_BYTES) -> int:
    """Return the maximum size of a reply in bytes, by the config of a provider of any kind.

    Args:
        config: The provider's config.
        default: The maximum if the config sets none.

    Example:
        >>> reply_bound({"maxResponseBytes": 100}), reply_bound({}) == MOST_BYTES
        (100, True)
    """
    given = [value for key, value in config.items() if to_snake(str(key)) in _BOUNDS]
    return max((value for value in given if MAX_RESPONSE.check(value)), default=default)


def excess(value: Any, most_bytes: int) -> str | None:
    """Describe the limit that a value exceeds as JSON; None if it exceeds none.

    Visits no more values than are allowed, so that a value that contains itself is found as well.

    Example:
        >>> excess({"a": "b" * 100}, 100), excess({"a": "b" * 10}, 100)
        ('more than 100 bytes of JSON', None)
        >>> excess([[]] * 30_000, 100)
        'more than 20,000 texts, brackets and commas'
    """
    size, marks, most = 0, 0, most_marks(most_bytes)
    waiting: list[Any] = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            size += len(part) if part.isascii() else len(part.encode(errors="surrogatepass"))
            marks += 1
        elif isinstance(part, Mapping | list | tuple | set | frozenset):
            marks += max(1, len(part))
            if marks <= most:
                waiting += part
            if marks <= most and isinstance(part, Mapping):
                waiting += part.values()
        elif isinstance(part, bytes | bytearray):
            size += len(part)
        elif is_integer(part):
            size += part.bit_length() // 3
        if marks > most:
            return f"more than {most:,} texts, brackets and commas"
        if size > most_bytes:
            return f"more than {most_bytes} bytes of JSON"
    return None


def too_many_lines(source: str, most_bytes: int) -> ProviderError:
    """Return the error for a stream with too many lines."""
    return _too_many(
        source, f"more than {most_lines(most_bytes):,} lines", _BYTES_OF_A_LINE, most_bytes
    )


def _too_many(
    source: str, counted: str, each: int, most_bytes: int, key: str = MAX_RESPONSE.name
) -> ProviderError:
    return ProviderError(
        "malformed_reply",
        f"{source}: the reply has {counted}, the maximum that {key} allows: "
        f"one for each {each} bytes of {most_bytes:,}; shorten the reply, or raise {key}",
    )


def too_large(source: str, most_bytes: int) -> str:
    """Return the message for a reply with too many bytes.

    Example:
        >>> too_large("HTTP 200 from GET http://host/v1", 2 * 1024 * 1024)
        'HTTP 200 from GET http://host/v1: the reply is larger than 2 MiB (maxResponseBytes: 2097152)'
    """
    size = f"{most_bytes / 1024 / 1024:g} MiB"
    return f"{source}: the reply is larger than {size} (maxResponseBytes: {most_bytes})"
