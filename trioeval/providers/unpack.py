"""Unpacking replies that come compressed although nobody asked for that, without growing past a bound."""

import zlib

import attrs

from trioeval.errors import ProviderError

_PLAIN = frozenset({"", "identity"})
_ZLIB = frozenset({"gzip", "x-gzip", "deflate"})
_ANY_HEADER = zlib.MAX_WBITS | 32
"""Recognise gzip and zlib by their first bytes."""


@attrs.define
class Unpacker:
    """The body of one reply, as it arrives.

    Args:
        encoding: The reply's `content-encoding`.
        most: Bytes that the unpacked body may have.

    Raises:
        ProviderError: `malformed_reply`, if the encoding is not known.

    Example:
        >>> body = Unpacker("gzip", most=100)
        >>> body.feed(zlib.compress(b"Hello")), body.is_too_large
        (b'Hello', False)
    """

    encoding: str
    most: int
    size: int = 0
    """Bytes unpacked so far."""
    _fed: bool = attrs.field(init=False, default=False)
    _zlib: "zlib._Decompress | None" = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        encoding = self.encoding.strip().lower()
        if encoding in _ZLIB:
            self._zlib = zlib.decompressobj(_ANY_HEADER)
        elif encoding not in _PLAIN:
            msg = f"the reply is packed as {encoding[:40]!r}, which was not asked for"
            raise ProviderError("malformed_reply", msg)

    @property
    def is_too_large(self) -> bool:
        """Whether there is more than allowed."""
        return self.size > self.most

    @property
    def is_whole(self) -> bool:
        """Whether the body may end here."""
        return self._zlib is None or self._zlib.eof or not self._fed

    def feed(self, part: bytes) -> bytes:
        """What a part holds; at most one byte more than what is allowed in all.

        Raises:
            ProviderError: `malformed_reply`, if it cannot be unpacked.
        """
        self._fed = self._fed or bool(part)
        if self._zlib is not None:
            try:
                part = self._unpacked(part)
            except zlib.error as error:
                msg = f"the reply cannot be unpacked: {error}"
                raise ProviderError("malformed_reply", msg) from error
        self.size += len(part)
        return part

    def _unpacked(self, part: bytes) -> bytes:
        """Like `feed`. A body may be several packed ones, one after another."""
        room = max(1, self.most + 1 - self.size)
        found = bytearray()
        while part and len(found) < room:
            if self._zlib is None or self._zlib.eof:
                self._zlib = zlib.decompressobj(_ANY_HEADER)
            found += self._zlib.decompress(part, room - len(found))
            part = self._zlib.unused_data
        return bytes(found)
