"""What a program wrote, as text: all of it up to a limit, or the end of it."""

import re
from collections.abc import Callable

import attrs
import trio

EXCERPT_BYTES = 2048
"""Most that an error shows of what a program wrote."""

_LINE = 200

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
    def text(self) -> str:
        """What was written."""
        return to_text(bytes(self._data))

    def feed(self, part: bytes) -> bool:
        """Keep what was written now; whether more of it is wanted."""
        self._data += part[: self.limit + 1 - len(self._data)]
        return not self.overflown


@attrs.define(eq=False)
class Tail:
    """The end of what was written: enough to see what happened."""

    limit: int = EXCERPT_BYTES
    """Bytes, ≥ 1."""
    _data: bytearray = attrs.field(init=False, repr=False, factory=bytearray)
    _cut: bool = attrs.field(init=False, repr=False, default=False)

    def feed(self, part: bytes) -> bool:
        """Keep what was written now, and forget what is too old; more of it is always wanted."""
        self._cut |= len(self._data) + len(part) > self.limit
        self._data += part[-self.limit :]
        del self._data[: -self.limit]
        return True

    def clear(self) -> None:
        """Forget everything."""
        self._data.clear()
        self._cut = False

    @property
    def is_cut(self) -> bool:
        """Whether more was written than is kept."""
        return self._cut

    @property
    def text(self) -> str | None:
        """What was written last, from the beginning of a line if there is one; None if nothing was."""
        data = bytes(self._data)
        if self._cut:
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
