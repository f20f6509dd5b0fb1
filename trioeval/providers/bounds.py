"""How large a reply may be: bytes, and marks of JSON, which are counted before anything is parsed.

Parsing one large document holds up everything else in the process, however many threads there are, and a
document of small values takes a hundred times its size in memory. Both grow with its marks: its texts,
opening brackets and commas. To count these takes a fraction of the time, and no memory.
"""

import re

from trioeval.errors import ProviderError
from trioeval.providers.config import Key, is_integer

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

_BYTES_OF_A_MARK = 16
_BYTES_OF_A_LINE = 32
_ALWAYS = 20_000
"""Marks that any document may have."""

_MARK = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{\[,]', re.DOTALL)


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
    return any(number == most for number, _ in enumerate(_MARK.finditer(document)))


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
