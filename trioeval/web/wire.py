"""What goes over the connection between a run and whoever watches it: JSON, one message a line.

The run says first `{"type": "hello", "version": 1, "run": id}`, then a few times a second

* `{"type": "state", "state": …}`: what `RunState.json` says;
* `{"type": "rows", "rows": [{"index": …, "task": …}, …], "missed": …}`: what is new since the last one.

The other side sends commands, `{"id": 7, "do": "pause", "lane": "gpt"}`, and gets for each
`{"type": "answer", "id": 7, "ok": true}`, or `"ok": false` and an `error`.
"""

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

import attrs
import trio

VERSION = 1

LONGEST_COMMAND = 64 * 1024
"""Bytes of a line that a run reads."""
LONGEST_NEWS = 64 * 1024 * 1024
"""Bytes of a line that a watcher reads: the state of a run has all its lanes."""
MOST_ROWS = 1000
"""Rows that are named; whoever was told of none while there were more is to look at the store."""

_CHUNK = 64 * 1024


class NotAMessageError(ValueError):
    """A line that cannot be read; the text says why. Never leaves `trioeval.web`."""


def to_line(message: Mapping[str, Any]) -> bytes:
    """A message as it is sent: pure ASCII, so that half characters in names do no harm."""
    return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def to_message(line: bytes) -> dict[str, Any]:
    """What a line says.

    Raises:
        NotAMessageError: It is no JSON object.
    """
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise NotAMessageError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise NotAMessageError("a message is a JSON object")
    return found


@attrs.define(eq=False)
class Lines:
    """Reads a stream line by line.

    Args:
        stream: What is read.
        longest: Bytes of a line at most.
    """

    _stream: trio.abc.ReceiveStream
    _longest: int
    _read: bytearray = attrs.field(init=False, factory=bytearray)
    _searched: int = attrs.field(init=False, default=0)

    async def next(self) -> bytes | None:
        """The next line; None at the end, where half a line is none. A checkpoint, unless it is there.

        Raises:
            NotAMessageError: It is too long; nothing after it can be read.
            BrokenResourceError: The connection is gone.
        """
        while (end := self._read.find(b"\n", self._searched)) < 0:
            self._searched = len(self._read)
            if self._searched > self._longest:
                raise NotAMessageError(f"a line has at most {self._longest} bytes")
            more = await self._stream.receive_some(_CHUNK)
            if not more:
                return None
            self._read += more
        line = bytes(self._read[:end])
        del self._read[: end + 1]
        self._searched = 0
        return line


@attrs.define(eq=False)
class NewRows:
    """The last rows, for readers who each come when they like; one who comes late misses some.

    Example:
        >>> rows = NewRows()
        >>> rows.add(3, None)
        >>> rows.since(0)
        ([{'index': 3, 'task': None}], False)
        >>> rows.since(rows.count)
        ([], False)
    """

    count: int = 0
    """Rows until now. A reader keeps it, and asks for those since."""
    _last: deque[tuple[int | None, str | None]] = attrs.field(
        factory=lambda: deque(maxlen=MOST_ROWS)
    )

    def add(self, index: int | None, task: str | None) -> None:
        """There is a new row."""
        self.count += 1
        self._last.append((index, task))

    def skip(self) -> None:
        """There were rows that nobody can name."""
        self.count += 1
        self._last.clear()

    def since(self, count: int) -> tuple[list[dict[str, Any]], bool]:
        """Those since there were so many, the oldest first, and whether some are missing."""
        new = self.count - count
        known = list(self._last)[-new:] if new else []
        return [{"index": index, "task": task} for index, task in known], new > len(known)
