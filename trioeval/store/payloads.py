"""JSON texts as they stand in the database: most of them as they are, so that anybody can read them.

A text of 16 KiB or more is compressed, and so is one that holds what no database can show, which are halves
of surrogate pairs and zeros: SQLite would take it apart wrongly. A text that is compressed is a blob.
"""

import zlib

LONG = 16 * 1024
"""Bytes from which on a text is compressed."""

LARGEST = 256 * 2**20
"""Bytes of a text that is read."""
_ANY_RATIO = 16 * 2**20
"""Bytes up to which it does not matter how well a text was compressed; beyond that:"""
_RATIO = 100
"""How many times larger than what is stored a text may be."""

_LEVEL = 1  # three times as quick as the usual one, and hardly larger


def stored_json(text: str) -> str | bytes:
    r"""JSON text as it is stored.

    Example:
        >>> stored_json('{"a": "ü"}')
        '{"a": "ü"}'
        >>> type(stored_json('{"a": "\ud800"}')), type(stored_json('"\\u0000"'))
        (<class 'bytes'>, <class 'bytes'>)
        >>> len(stored_json('"' + 100_000 * "x" + '"')) < 1000
        True
    """
    if "\\u" in text and ("\\u0000" in text or "\\ud" in text.lower()):
        return _compressed(text)
    if text.isascii():
        return text if len(text) < LONG else _compressed(text)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:  # the halves of pairs
        return _compressed(text)
    return text if size < LONG else _compressed(text)


def read_text(stored: str | bytes) -> str:
    r"""The text again; what stood there as half of a pair is the escape that JSON has for it.

    Raises:
        ValueError: It is damaged, or unpacks to more than any text that is written.

    Example:
        >>> read_text(stored_json('"\ud800"'))
        '"\\ud800"'
        >>> read_text(stored_json("x" * 20_000)) == "x" * 20_000
        True
    """
    if isinstance(stored, str):
        return stored
    most = min(LARGEST, max(_ANY_RATIO, _RATIO * len(stored)))
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(stored, most + 1)
    except (zlib.error, TypeError) as error:
        raise ValueError(str(error)) from error
    if len(text) > most:
        raise ValueError(f"{len(stored):,} bytes unpack to more than {most:,}")
    if not unpacker.eof:
        raise ValueError("it was cut off")
    return text.decode()


def plain(text: str) -> str:
    r"""A short text for a column that people read: what a database cannot hold is escaped.

    Example:
        >>> plain("a\0\ud800")
        'a\\x00\\ud800'
    """
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def _compressed(text: str) -> bytes:
    data = text.encode("utf-8", "backslashreplace")
    packed = zlib.compress(data, _LEVEL)
    if len(data) > max(_ANY_RATIO, _RATIO * len(packed)):
        return zlib.compress(data, 0)  # so that it is not taken for what it is not
    return packed
