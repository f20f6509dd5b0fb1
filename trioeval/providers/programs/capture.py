"""What a program wrote, as text: all of it up to a limit, or the end of it."""

import re
from collections.abc import Callable, Sequence

import attrs
import trio

from trioeval.providers.secrets import hide

EXCERPT_BYTES = 2048
"""Most that an error shows of what a program wrote."""

_LINE = 200
_WIDEST = 6
"""Bytes of a quoted text for each of its own, as a rule."""

_ESCAPES = re.compile(
    r"\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]"  # colours, movements
    r"|[]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links and other strings, with their ends
    r"|[ -/]*[0-~])"
)


def to_text(data: bytes) -> str:
    r"""UTF-8 without escape sequences of terminals and without space around it.

    Example:
        >>> to_text(b"\x1b[32mgreen\x1b[0m \xff\n")
        'green \ufffd'
    """
    return _ESCAPES.sub("", data.decode("utf-8", "replace")).strip()


@attrs.define(eq=False)
class Whole:
    """Everything that was written, as long as it is not too much."""

    limit: int
    """Bytes."""
    _data: bytearray = attrs.field(init=False, repr=False, factory=bytearray)

    @property
    def overflown(self) -> bool:
        """Whether it was more than the limit."""
        return len(self._data) > self.limit

    @property
    def data(self) -> bytes:
        """What was written."""
        return bytes(self._data)

    @property
    def text(self) -> str:
        """What was written, as text."""
        return to_text(self.data)

    def feed(self, part: bytes) -> bool:
        """Keep what was written now; whether more of it is wanted."""
        self._data += part[: self.limit + 1 - len(self._data)]
        return not self.overflown


@attrs.define(eq=False)
class Tail:
    """The end of what was written: enough to see what happened."""

    limit: int = EXCERPT_BYTES
    """Bytes that are shown, ≥ 1."""
    secrets: Sequence[str] = attrs.field(default=(), repr=False)
    """What is blanked, longest first."""
    _data: bytearray = attrs.field(init=False, repr=False, factory=bytearray)
    _written: int = attrs.field(init=False, repr=False, default=0)
    """Bytes, in all."""
    _margin: int = attrs.field(init=False, repr=False)
    """Bytes that are kept and not shown: they may be the end of a secret whose beginning is forgotten."""

    @_margin.default
    def _find_margin(self) -> int:
        longest = max((len(text.encode("utf-8", "replace")) for text in self.secrets), default=0)
        return _WIDEST * longest

    def feed(self, part: bytes) -> bool:
        """Keep what was written now, and forget what is too old; more of it is always wanted."""
        kept = self.limit + self._margin
        self._written += len(part)
        self._data += part[-kept:]
        del self._data[:-kept]
        return True

    def clear(self) -> None:
        """Forget everything."""
        self._data.clear()
        self._written = 0

    @property
    def is_cut(self) -> bool:
        """Whether more was written than is shown."""
        return self._written > self.limit

    @property
    def text(self) -> str | None:
        """What was written last, from the beginning of a line if there is one; None if nothing was."""
        data = bytes(self._data)
        if self.secrets:
            shown = hide(data.decode("utf-8", "surrogateescape"), self.secrets)
            data = shown.encode("utf-8", "surrogateescape")
        if self._written > len(self._data):
            data = data[self._margin :]
        if self.is_cut:
            data = data[-self.limit :]
            data = data.partition(b"\n")[2] or data
        return to_text(data) or None


async def read_stream(stream: trio.abc.ReceiveStream, feed: Callable[[bytes], bool]) -> None:
    """Feed what arrives until the stream ends or no more is wanted. Always a checkpoint."""
    async for part in stream:
        if not feed(bytes(part)):
            return


def last_line(text: str | None) -> str:
    r"""The last line of an excerpt, shortened, as the end of a message; nothing if there is none.

    Example:
        >>> last_line("Traceback …\nValueError: no luck\n")
        ': ValueError: no luck'
    """
    lines = (text or "").strip().splitlines()
    return f": {lines[-1].strip()[:_LINE]}" if lines else ""
