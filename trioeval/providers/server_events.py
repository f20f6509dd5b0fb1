r"""Server-sent events: how services stream a reply.

Pure. A stream is lines; an empty line ends an event. Only what providers use is kept of the format: the
event's name and its data.

Source: the "Server-sent events" section of the HTML standard.
"""

from collections.abc import Iterator

import attrs


@attrs.frozen
class ServerEvent:
    """One event of a stream."""

    data: str
    name: str = "message"


@attrs.define
class EventReader:
    r"""Cuts a stream into events, however its parts arrive.

    Example:
        >>> reader = EventReader()
        >>> list(reader.feed(b"data: 1\n\nda"))
        [ServerEvent(data='1', name='message')]
        >>> list(reader.feed(b"ta: 2\r\n\r\n"))
        [ServerEvent(data='2', name='message')]
    """

    _rest: bytes = b""
    _data: list[str] = attrs.field(factory=list)
    _name: str = ""

    def feed(self, part: bytes) -> Iterator[ServerEvent]:
        """The events that are complete with this part of the stream."""
        whole, line_end, self._rest = (self._rest + part).rpartition(b"\n")
        if not line_end:
            return
        for line in whole.decode("utf-8", "replace").split("\n"):
            event = self._line(line.removesuffix("\r"))
            if event is not None:
                yield event

    def _line(self, line: str) -> ServerEvent | None:
        if not line:
            event = ServerEvent("\n".join(self._data), self._name or "message")
            found = bool(self._data)
            self._data, self._name = [], ""
            return event if found else None
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None


def read_events(body: bytes) -> tuple[ServerEvent, ...]:
    """The events of a whole stream; an event that its end cuts off is none."""
    return tuple(EventReader().feed(body))
