"""Follows a bus: what is there, and then each message as it comes.

What is written through the same `Bus` wakes a follower at once. What other processes write is seen by looking
at the sizes of files now and then.
"""

import logging
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import attrs
import trio

from trioeval.agents.bus.messages import Message
from trioeval.agents.bus.places import Place, find_place
from trioeval.agents.bus.reading import AT_ONCE, AT_ONCE_BYTES, CorruptRange, read_on
from trioeval.agents.bus.segments import segment_numbers, segment_path

POLL = 0.2  # seconds between looks at what other processes have written
_QUICK = 64 * 2**10  # bytes that are read without a thread

_logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class News:
    """That something was written, for those who wait for it in this process."""

    _event: trio.Event = attrs.field(init=False, factory=trio.Event)

    @property
    def next(self) -> trio.Event:
        """Set when something is written from now on."""
        return self._event

    def tell(self) -> None:
        """Something was written."""
        if self._event.statistics().tasks_waiting:
            self._event.set()
            self._event = trio.Event()


@attrs.frozen
class _State:
    """What shows that a bus was written to."""

    number: int
    """Of the newest file."""
    size: int
    """Of that, in bytes."""
    changed: int
    """When it was changed, in steps of the clock of the system: what is written may have the size of what it
    has replaced."""


def follow_bus(folder: Path, *, since: int | str | None = None) -> AsyncIterator[Message]:
    """As `Bus.follow`, of a bus that is not open here. The bus need not be there yet."""
    return Following(folder, since, News())


@attrs.define(eq=False)
class Following:
    """An iterator that never ends by itself, and holds nothing open between messages."""

    _folder: Path
    _since: int | str | None
    _news: News
    _place: Place | None = attrs.field(init=False, default=None)
    """None before the cursor is found."""
    _seen: _State | None = attrs.field(init=False, default=None)
    """The newest file, when all of it had been read."""
    _is_sure: bool = attrs.field(init=False, default=False)
    """Whether what was written since then must show."""
    _ready: deque[Message] = attrs.field(init=False, factory=deque)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """The next message. A checkpoint.

        Raises:
            CursorExpiredError: Messages after the cursor were removed.
            CursorNotFoundError: There is no such message.
            BusError: It cannot be read.
        """
        await trio.lowlevel.checkpoint()
        while not self._ready:
            written = self._news.next  # before looking: what comes afterwards sets it
            state = self._state()
            if state == self._seen and self._place is not None:
                with trio.move_on_after(POLL) as scope:
                    await written.wait()
                if self._is_sure:
                    continue
                # What changed it within one step of its clock shows at a second look.
                state = self._state()
                self._is_sure = scope.cancelled_caught and state == self._seen
            else:
                self._is_sure = False
            if self._is_quick(state):
                self._look(state)
            else:
                await trio.to_thread.run_sync(self._look, state)
        return self._ready.popleft()

    def _state(self) -> _State | None:
        """The newest file; None if there is none."""
        numbers = segment_numbers(self._folder)
        if not numbers:
            return None
        try:
            stat = segment_path(self._folder, numbers[-1]).stat()
        except FileNotFoundError:
            return None
        return _State(numbers[-1], stat.st_size, stat.st_mtime_ns)

    def _is_quick(self, state: _State | None) -> bool:
        """Whether little is to be read: a thread would take longer."""
        place = self._place if self._place is not None else Place()
        if state is None:
            return True
        rest = state.size
        if state.number == place.number:
            rest -= min(place.start, rest)
        elif place.number:
            try:
                older = segment_path(self._folder, place.number).stat().st_size
            except FileNotFoundError:
                return False
            rest += max(0, older - place.start)
        return state.number <= place.number + 1 and rest <= _QUICK

    def _look(self, state: _State | None) -> None:
        if self._place is None:
            self._place = self._found(self._since)
        try:
            reading, place = read_on(self._folder, self._place, AT_ONCE, AT_ONCE_BYTES)
        except FileNotFoundError:  # a file was removed meanwhile
            self._place = self._found(self._place.seq)
            return
        self._ready.extend(reading.messages)
        for corrupt in reading.corrupt:
            if _is_behind(corrupt, place, self._folder):
                _logger.warning(
                    "%s: bytes %d to %d are no message", corrupt.file, corrupt.start, corrupt.end
                )
        self._place = place
        self._seen = state if reading.is_all else None

    def _found(self, since: int | str | None) -> Place:
        while True:
            try:
                return find_place(self._folder, since)
            except FileNotFoundError:
                continue


def _is_behind(corrupt: CorruptRange, place: Place, folder: Path) -> bool:
    """Whether a place is behind a part that is broken; one at the end may yet be seen again."""
    path = segment_path(folder, place.number)
    return corrupt.end <= place.start if corrupt.file == path else True
