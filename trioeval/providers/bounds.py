"""How large a reply may be: bytes, and marks of JSON, which are counted before anything is parsed.

Parsing one large document holds up everything else in the process, however many threads there are, and a
document of small values takes a hundred times its size in memory. Both grow with its marks: its texts,
opening brackets and commas. To count these takes a fraction of the time, and no memory.
"""

import re
from collections.abc import Mapping
from typing import Any

from trioeval.errors import ProviderError
from trioeval.providers.config import Key, is_integer, to_snake

MOST_BYTES = 8 * 1024 * 1024
"""Bytes that a reply may have where the config says nothing."""

MAX_RESPONSE = Key(
    "maxResponseBytes",
    "a whole number of at least 1",
    lambda value: is_integer(value) and value >= 1,
)
"""The key of a provider that says how many bytes a reply of it may have."""

SLOW = 64 * 1024
"""Bytes of a reply from which on it is read in a thread."""

_BOUNDS = (to_snake(MAX_RESPONSE.name), "max_output_bytes")
"""The keys of configs that bound what is answered, the latter of programs."""
_BYTES_OF_A_MARK = 16
_BYTES_OF_A_LINE = 32
_ALWAYS = 20_000
"""Marks that any document may have."""

_MARK = re.compile(rb'"[^"]*+"?|[{\[,]')
"""A text without escapes, or the sign of another value."""


def most_marks(most_bytes: int) -> int:
    """Marks of JSON that a document may have which may have so many bytes.

    Example:
        >>> most_marks(1), most_marks(MOST_BYTES)
        (20000, 524288)
    """
    return max(_ALWAYS, most_bytes // _BYTES_OF_A_MARK)


def most_lines(most_bytes: int) -> int:
    """Lines that a stream of events may have which may have so many bytes."""
    return max(_ALWAYS, most_bytes // _BYTES_OF_A_LINE)


def has_more_marks(document: bytes, most: int) -> bool:
    r"""Whether a document has more marks of JSON than allowed. Takes time that grows with its length alone.

    Example:
        >>> has_more_marks(b'["a, b", {}]', 4), has_more_marks(b'["a, b", {}]', 3)
        (False, True)
    """
    if len(document) <= most or sum(map(document.count, (b'"', b"{", b"[", b","))) <= most:
        return False
    # Many escapes would be slow to match. They stand in texts; what follows one elsewhere is never parsed.
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
    """Refuse a reply that would take long to parse.

    Args:
        body: A document of JSON, a stream of events that are such, or anything else.
        most_bytes: Bytes that it may have.
        source: What replied, for the message.
        is_stream: Whether it is read as a stream of events; their lines count as well.
        key: The suite key of the bound.

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
    """The bytes that a reply may have by the config of its provider, whatever kind of provider that is.

    Args:
        config: Of the provider.
        default: What holds where the config says nothing.

    Example:
        >>> reply_bound({"maxResponseBytes": 100}), reply_bound({}) == MOST_BYTES
        (100, True)
    """
    given = [value for key, value in config.items() if to_snake(str(key)) in _BOUNDS]
    return max((value for value in given if MAX_RESPONSE.check(value)), default=default)


def excess(value: Any, most_bytes: int) -> str | None:
    """What a value has more of than JSON of a number of bytes may have; None if it has less.

    Visits no more values than are allowed, so that one which holds itself is found as well.

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
    """What is raised of a stream with more lines than it may have."""
    return _too_many(
        source, f"more than {most_lines(most_bytes):,} lines", _BYTES_OF_A_LINE, most_bytes
    )


def _too_many(
    source: str, counted: str, each: int, most_bytes: int, key: str = MAX_RESPONSE.name
) -> ProviderError:
    return ProviderError(
        "malformed_reply",
        f"the reply of {source} has {counted}, which is what {key} allows: "
        f"one for each {each} bytes of {most_bytes:,}",
    )


def too_large(source: str, most_bytes: int) -> str:
    """What is said of a reply that has too many bytes.

    Example:
        >>> too_large("host:80", 2 * 1024 * 1024)
        'the reply of host:80 is larger than 2 MiB (maxResponseBytes: 2097152)'
    """
    size = f"{most_bytes / 1024 / 1024:g} MiB"
    return f"the reply of {source} is larger than {size} (maxResponseBytes: {most_bytes})"
