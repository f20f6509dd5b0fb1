"""Progress on a terminal: a picture below all printed lines, redrawn in place.

The terminal may become narrower or disappear; neither is an error of the run. Drawing must not slow the run
down either: nothing is written while the terminal is not ready, and the cost of a picture determines how
often one is drawn.
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

from trioeval.cli.progress.progress import RunProgress
from trioeval.cli.progress.streams import making_room
from trioeval.cli.progress.table import Line, Room, picture
from trioeval.cli.terminal import open_console
from trioeval.report.run_state import RunSnapshot

_OFTEN = 0.125  # the least seconds between two pictures
_SELDOM = 5.0  # the most seconds between two pictures
_SHARE = 0.01  # of the time that drawing may take
_OTHERS = 4  # lines that are left to other output
_SIZE = os.terminal_size((80, 24))  # of a terminal that does not report its size


class LiveProgress(RunProgress):
    """Progress that draws on a terminal."""

    async def show(
        self, state: Callable[[], RunSnapshot], more: Callable[[], Sequence[str]], /
    ) -> None:
        """Draw until cancelled, or until the terminal is gone; then remove the picture."""
        region = TerminalRegion.on(sys.stderr)
        with making_room(region.clear), _on_halts(region.forget):
            try:
                while not region.is_gone:
                    began = time.perf_counter()
                    if region.is_ready():
                        region.draw(picture(state(), more(), region.room()))
                    await trio.sleep(pause(time.perf_counter() - began))
            finally:
                region.clear()


@contextmanager
def _on_halts(forget: Callable[[], None]) -> Iterator[None]:
    """After a stop (Ctrl-Z) other programs have written below the picture; notified before all else runs."""

    def goes_on(_number: int, _frame: object) -> None:
        forget()

    before = signal.signal(signal.SIGCONT, goes_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGCONT, before)


def pause(cost: float) -> float:
    """Return the seconds until the next picture, so that drawing takes a hundredth of the time.

    Args:
        cost: The seconds that the last picture took.

    Example:
        >>> pause(0.0001), pause(0.004), pause(1.0)
        (0.125, 0.4, 5.0)
    """
    return min(max(_OFTEN, cost / _SHARE), _SELDOM)


@attrs.define
class TerminalRegion:
    """The last lines of a terminal."""

    stream: TextIO
    number: int
    """Its file descriptor."""
    console: Console
    """The console, which knows the colours."""
    is_gone: bool = False
    """True if nothing can be written there any more."""
    _drawn: list[int] = attrs.field(factory=list)
    """The cells of each drawn line; the cursor is below them."""

    @classmethod
    def on(cls, stream: TextIO) -> "TerminalRegion":
        """Return an empty region."""
        return cls(stream, stream.fileno(), open_console(stream))

    def room(self) -> Room:
        """Return the room for a picture; some lines above it stay visible."""
        width, height = self._size()
        # A line as long as the terminal would leave the cursor position undefined.
        plain = {} if self.console.encoding.startswith("utf") else {"bar": ("#", "-")}
        return Room(width=max(width - 1, 1), height=max(height - _OTHERS, 1), **plain)

    def is_ready(self) -> bool:
        """Return whether the terminal accepts output: it may be stopped, slow, or closed."""
        poll = select.poll()
        poll.register(self.number, select.POLLOUT)
        events = [event for _, event in poll.poll(0)]
        self.is_gone = self.is_gone or any(event & select.POLLNVAL for event in events)
        return any(event & (select.POLLOUT | select.POLLERR | select.POLLHUP) for event in events)

    def draw(self, lines: Sequence[Line]) -> None:
        """Draw in place of the last picture."""
        begin, self._drawn = self._up(), [sum(len(text) for text, _ in line) for line in lines]
        drawn = "".join(f"{self._styled(line)}\x1b[K\n" for line in lines)
        self._write(f"{begin}{drawn}\x1b[J")

    def clear(self) -> None:
        """Remove the picture, with the cursor where it began."""
        if self._drawn:
            begin, self._drawn = self._up(), []
            self._write(f"{begin}\x1b[J")

    def forget(self) -> None:
        """Forget the picture: other lines follow it."""
        self._drawn = []

    def _up(self) -> str:
        """Return the sequence that moves the cursor to the first line."""
        if not self._drawn:
            return "\r"
        width, height = self._size()
        # Most terminals wrap lines when they become narrower.
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
