# Separate from `providers.http.client`: its bound on decompressed bytes is an idea of its own.
"""Decompression of replies that are compressed although this was not requested, up to a maximum size."""

import zlib

import attrs

from trioeval.errors import ProviderError

_PLAIN = frozenset({"", "identity"})
_ZLIB = frozenset({"gzip", "x-gzip", "deflate"})
_ANY_HEADER = zlib.MAX_WBITS | 32
"""Detects gzip and zlib by their first bytes."""


@attrs.define
class Unpacker:
    """The body of one reply, decompressed as it arrives.

    Args:
        encoding: The reply's `content-encoding`.
        most: Maximum bytes of the decompressed body.
        source: Status, method and URL, which begin error messages.

    Raises:
        ProviderError: `malformed_reply`, if the encoding is unknown.

    Example:
        >>> body = Unpacker("gzip", most=100)
        >>> body.feed(zlib.compress(b"Hello")), body.is_too_large
        (b'Hello', False)
    """

    encoding: str
    most: int
    source: str = "the reply"
    size: int = 0
    """Bytes decompressed so far."""
    _fed: bool = attrs.field(init=False, default=False)
    _zlib: "zlib._Decompress | None" = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        encoding = self.encoding.strip().lower()
        if encoding in _ZLIB:
            self._zlib = zlib.decompressobj(_ANY_HEADER)
        elif encoding not in _PLAIN:
            fault = f"content-encoding {encoding[:40]!r}, which was not requested"
            msg = f"{self.source}: {fault}; configure the server to send replies uncompressed"
            raise ProviderError("malformed_reply", msg)

    @property
    def is_too_large(self) -> bool:
        """True if the body exceeds the maximum."""
        return self.size > self.most

    @property
    def is_whole(self) -> bool:
        """True if the body may end here."""
        return self._zlib is None or self._zlib.eof or not self._fed

    def feed(self, part: bytes) -> bytes:
        """Return the decompressed content of a part; at most one byte more than the maximum in total.

        Raises:
            ProviderError: `malformed_reply`, if it cannot be decompressed.
        """
        self._fed = self._fed or bool(part)
        if self._zlib is not None:
            try:
                part = self._unpacked(part)
            except zlib.error as error:
                msg = f"{self.source}: the reply cannot be decompressed: {error}"
                raise ProviderError("malformed_reply", msg) from error
        self.size += len(part)
        return part

    def _unpacked(self, part: bytes) -> bytes:
        """Decompress a part. A body may be several compressed ones in a row."""
        room = max(1, self.most + 1 - self.size)
        found = bytearray()
        while part and len(found) < room:
            if self._zlib is None or self._zlib.eof:
                self._zlib = zlib.decompressobj(_ANY_HEADER)
            found += self._zlib.decompress(part, room - len(found))
            part = self._zlib.unused_data
        return bytes(found)
