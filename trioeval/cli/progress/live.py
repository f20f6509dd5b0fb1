# Apart from `cli.progress.progress`: loaded when it is used.
"""Progress on a terminal: a picture below all that is printed, drawn again and again in its place.

The terminal may become narrower, or go away, while it is drawn on; neither is an error of the run. Drawing
must not hold it up either: nothing is written while the terminal takes nothing, and what a picture costs
decides how often one is drawn.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import attrs
import trio
from rich.console import COLOR_SYSTEMS, Console

from trioeval.cli.progress.progress import Progress
from trioeval.cli.progress.streams import making_room
from trioeval.cli.progress.table import Line, Room, picture
from trioeval.cli.terminal import open_console
from trioeval.report.run_state import RunState

_OFTEN = 0.125  # seconds between two pictures at the least
_SELDOM = 5.0  # at the most
_SHARE = 0.01  # of the time that drawing may take
_OTHERS = 4  # lines that are left to others
_SIZE = os.terminal_size((80, 24))  # of one that does not tell it


class LiveProgress(Progress):
    """Draws on a terminal."""

    async def show(
        self, state: Callable[[], RunState], more: Callable[[], Sequence[str]], /
    ) -> None:
        """Draw until cancelled, or until the terminal is gone; nothing of it is left then."""
        region = Region.on(sys.stderr)
        with making_room(region.clear), _halts_told(region.forget):
            try:
                while not region.is_gone:
                    began = time.perf_counter()
                    if region.is_ready():
                        region.draw(picture(state(), more(), region.room()))
                    await trio.sleep(pause(time.perf_counter() - began))
            finally:
                region.clear()


@contextmanager
def _halts_told(forget: Callable[[], None]) -> Iterator[None]:
    """After a halt (Ctrl-Z) others have written below what was drawn; told before anything else goes on."""

    def goes_on(_number: int, _frame: object) -> None:
        forget()

    before = signal.signal(signal.SIGCONT, goes_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, before)


def pause(cost: float) -> float:
    """Seconds until the next picture, so that all of them together take a hundredth of the time.

    Args:
        cost: Seconds that the last one took.

    Example:
        >>> pause(0.0001), pause(0.004), pause(1.0)
        (0.125, 0.4, 5.0)
    """
    return min(max(_OFTEN, cost / _SHARE), _SELDOM)


@attrs.define
class Region:
    """The last lines of a terminal."""

    stream: TextIO
    number: int
    """Its descriptor."""
    console: Console
    """Knows of what colours there are."""
    is_gone: bool = False
    """Whether nothing can be written there any more."""
    _drawn: list[int] = attrs.field(factory=list)
    """Cells of each line that stands there; below them is the cursor."""

    @classmethod
    def on(cls, stream: TextIO) -> "Region":
        """One that is empty."""
        return cls(stream, stream.fileno(), open_console(stream))

    def room(self) -> Room:
        """How much of the terminal it may take; what was told last is to be seen above it."""
        width, height = self._size()
        # A line as long as the terminal would leave the cursor between two.
        plain = {} if self.console.encoding.startswith("utf") else {"bar": ("#", "-")}
        return Room(width=max(width - 1, 1), height=max(height - _OTHERS, 1), **plain)

    def is_ready(self) -> bool:
        """Whether it takes what is written: somebody may hold it, or read it slowly, or have closed it."""
        poll = select.poll()
        poll.register(self.number, select.POLLOUT)
        events = [event for _, event in poll.poll(0)]
        self.is_gone = self.is_gone or any(event & select.POLLNVAL for event in events)
        return any(event & (select.POLLOUT | select.POLLERR | select.POLLHUP) for event in events)

    def draw(self, lines: Sequence[Line]) -> None:
        """Draw in place of what stands there."""
        begin, self._drawn = self._up(), [sum(len(text) for text, _ in line) for line in lines]
        drawn = "".join(f"{self._styled(line)}\x1b[K\n" for line in lines)
        self._write(f"{begin}{drawn}\x1b[J")

    def clear(self) -> None:
        """Leave nothing of it, and the cursor where it began."""
        if self._drawn:
            begin, self._drawn = self._up(), []
            self._write(f"{begin}\x1b[J")

    def forget(self) -> None:
        """What stands there is not the last any more."""
        self._drawn = []

    def _up(self) -> str:
        """What takes the cursor to the first line of it."""
        if not self._drawn:
            return "\r"
        width, height = self._size()
        # Most terminals wrap what stands there when they become narrower.
        rows = sum(max(1, -(-cells // width)) for cells in self._drawn)
        return f"\r\x1b[{min(rows, height - 1)}A" if height > 1 else "\r"

    def _styled(self, line: Line) -> str:
        return "".join(self._painted(text, name) if name else text for text, name in line)

    def _painted(self, text: str, name: str) -> str:
        style, system = self.console.get_style(name), self.console.color_system
        if self.console.no_color:
            style = style.without_color
        return style.render(text, color_system=None if system is None else COLOR_SYSTEMS[system])

    def _size(self) -> os.terminal_size:
        try:
            found = os.get_terminal_size(self.number)
        except OSError:
            return _SIZE
        return os.terminal_size(own or usual for own, usual in zip(found, _SIZE, strict=True))

    def _write(self, text: str) -> None:
        encoding = self.console.encoding
        try:
            self.stream.write(text.encode(encoding, "replace").decode(encoding))
            self.stream.flush()
        except (OSError, ValueError):
            self.is_gone = True
