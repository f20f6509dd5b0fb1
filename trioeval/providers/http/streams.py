"""Streamed replies: server-sent events, and texts that arrive in parts."""

import json
import re
from collections.abc import Iterator
from typing import Any

import attrs

# Server-sent events, the format in which services stream replies.
#
# Pure. A stream is lines that end in LF, CR or both; an empty line ends an event. Only the parts of the
# format that providers use are read: the event's name and its data. Unlike in a browser, the end of the
# stream also ends an event: services omit the last empty line.
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
    r"""Splits a stream into events, however its parts arrive, in time linear in its length.

    Example:
        >>> reader = EventReader()
        >>> list(reader.feed(b"data: 1\n\nda"))
        [ServerEvent(data='1', name='message')]
        >>> list(reader.feed(b"ta: 2\r\n\r\n"))
        [ServerEvent(data='2', name='message')]
    """

    _open: list[bytes] = attrs.field(factory=list)
    """The unfinished line, in the parts in which it arrived."""
    _is_first: bool = True
    """True if no line has ended yet."""
    _after_cr: bool = False
    """True if the last part ended in a CR, whose LF may come with the next part."""
    _data: list[str] = attrs.field(factory=list)
    _name: str = ""

    def feed(self, part: bytes) -> Iterator[ServerEvent]:
        """Yield the events that this part of the stream completes."""
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
        """Yield the event that the end of the stream completes, if one is unfinished."""
        # The first LF ends an unfinished line, or counts as that of a CRLF.
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
    r"""Return the events of a complete stream.

    Example:
        >>> read_events(b"data: 1")
        (ServerEvent(data='1', name='message'),)
    """
    reader = EventReader()
    return (*reader.feed(body), *reader.finish())


def load_event(event: ServerEvent) -> Any:
    """Return the parsed data of an event, None if it is not JSON; halves of surrogate pairs remain."""
    try:
        return json.loads(event.data)
    except (ValueError, RecursionError):
        return None


# Conversion of a streamed reply to the form that it has without streaming.
#
# A stream has as many parts as the reply has words, and joining them blocks the run. So lists grow in place,
# and texts are joined once, at the end.


@attrs.define
class Texts:
    """Text members of objects that grow part by part.

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
        """Append a part to an existing text."""
        _, parts = self._parts.get((id(whole), name), (whole, []))
        if not parts or parts[0] is not whole[name]:
            parts = [whole[name]]
            self._parts[id(whole), name] = whole, parts
        parts.append(part)

    def join(self) -> None:
        """Write each text to its object, unless the member has been replaced."""
        for (_, name), (whole, parts) in self._parts.items():
            if whole[name] is parts[0]:
                whole[name] = "".join(parts)
        self._parts.clear()
