"""Streamed replies: server-sent events, and texts that arrive in parts."""

import json
import re
from collections.abc import Iterator
from typing import Any

import attrs

# Server-sent events: how services stream a reply.
#
# Pure. A stream is lines that end in LF, CR or both; an empty line ends an event. Only what providers use is
# kept of the format: the event's name and its data. Other than a browser, who reads a whole stream takes its
# end for the end of an event: services leave the last empty line out.
#
# Source: the "Server-sent events" section of the HTML standard.


_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@attrs.frozen
class ServerEvent:
    """One event of a stream."""

    data: str
    name: str = "message"


@attrs.define
class EventReader:
    r"""Cuts a stream into events, however its parts arrive, in time that grows with its length alone.

    Example:
        >>> reader = EventReader()
        >>> list(reader.feed(b"data: 1\n\nda"))
        [ServerEvent(data='1', name='message')]
        >>> list(reader.feed(b"ta: 2\r\n\r\n"))
        [ServerEvent(data='2', name='message')]
    """

    _open: list[bytes] = attrs.field(factory=list)
    """The line whose end has not come, in the parts it came in."""
    _is_first: bool = True
    """Whether no line has ended yet."""
    _after_cr: bool = False
    """Whether the last part ended in a CR, the LF of which may come with the next."""
    _data: list[str] = attrs.field(factory=list)
    _name: str = ""

    def feed(self, part: bytes) -> Iterator[ServerEvent]:
        """The events that are complete with this part of the stream."""
        if self._after_cr:
            if not part:
                return
            part = part.removeprefix(b"\n")
        self._after_cr = part.endswith(b"\r")
        *ended, rest = _LINE_END.split(part)
        if ended:
            ended[0] = b"".join((*self._open, ended[0]))
            self._open.clear()
        if rest:
            self._open.append(rest)
        for line in ended:
            if (event := self._line(line)) is not None:
                yield event

    def finish(self) -> Iterator[ServerEvent]:
        """The event that the end of the stream completes, if one is open."""
        # The first LF ends an open line, or is taken for that of a CRLF.
        return self.feed(b"\n\n")

    def _line(self, line: bytes) -> ServerEvent | None:
        if self._is_first:
            line, self._is_first = line.removeprefix(_BYTE_ORDER_MARK), False
        if not line:
            event = ServerEvent("\n".join(self._data), self._name or "message")
            found = bool(self._data)
            self._data, self._name = [], ""
            return event if found else None
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None


def read_events(body: bytes) -> tuple[ServerEvent, ...]:
    r"""The events of a whole stream.

    Example:
        >>> read_events(b"data: 1")
        (ServerEvent(data='1', name='message'),)
    """
    reader = EventReader()
    return (*reader.feed(body), *reader.finish())


def load_event(event: ServerEvent) -> Any:
    """The parsed data of an event, None if it is no JSON; halves of surrogate pairs stay."""
    try:
        return json.loads(event.data)
    except (ValueError, RecursionError):
        return None


# Replies that came as a stream, as they would have come without one.
#
# A stream has as many parts as the answer has words, and the run waits while they are put together. So lists
# grow in place, and texts are joined once, at the end.


@attrs.define
class Texts:
    """Members of objects that are texts, and grow.

    Example:
        >>> block, texts = {"text": "Fo"}, Texts()
        >>> texts.add(block, "text", "ur")
        >>> texts.join()
        >>> block
        {'text': 'Four'}
    """

    _parts: dict[tuple[int, str], tuple[dict[str, Any], list[str]]] = attrs.field(factory=dict)
    """By object and member: the object, and the parts of its text, the first of which it holds."""

    def add(self, whole: dict[str, Any], name: str, part: str) -> None:
        """Put a part behind a text that is there."""
        _, parts = self._parts.get((id(whole), name), (whole, []))
        if not parts or parts[0] is not whole[name]:
            parts = [whole[name]]
            self._parts[id(whole), name] = whole, parts
        parts.append(part)

    def join(self) -> None:
        """Write the texts to where they belong, unless something else came to stand there."""
        for (_, name), (whole, parts) in self._parts.items():
            if whole[name] is parts[0]:
                whole[name] = "".join(parts)
        self._parts.clear()
