"""Printing that outlives its reader: results and exit code are worth more than their picture.

All that the program prints goes through here, and all of it is made harmless here, from every source: nothing
gets to a terminal but text, and the colours of tables. Callers need not know which texts are foreign.
"""

import enum
import io
import os
import select
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from trioeval.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# Exit codes.


class Exit(enum.IntEnum):
    """What the process tells its caller; the last line on stderr says why."""

    OK = 0
    """Every row passed."""
    FAULT = 1
    """A result could not be written, or trioeval itself is at fault."""
    USAGE = 2
    """The suite or the command line is wrong; nothing was called."""
    FAILED = 100
    """Some rows failed, ended as errors or have no verdict."""
    SIGNAL = 128
    """Ended by a signal; its number is added: 130 for SIGINT, 143 for SIGTERM."""


FILE_WIDTH = 120
"""Characters of tables that do not go to a terminal, which has a width of its own."""


def take_all_characters(stream: TextIO | None) -> None:
    """Let a stream write others in place of characters that its encoding has not, as stderr always does.

    Half of a surrogate pair, which UTF-8 has not, becomes its escape; what another encoding has not is told
    by a question mark, which leaves tables as wide as they were.
    """
    # Where the locale is C it is another way that fails: it writes bytes of file names alone.
    if isinstance(stream, io.TextIOWrapper) and stream.errors in {"strict", "surrogateescape"}:
        stream.reconfigure(errors="backslashreplace" if _is_utf(stream) else "replace")


def say(line: object) -> None:
    """Print a line on stderr; where nobody can read it, nothing happens."""
    if sys.stderr is None:  # it was closed before the program began; stdout is not in its place
        return
    try:
        print(_harmless(line), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        _silence(sys.stderr)


def show(line: object) -> bool:
    """Print a line of the results on stdout. A reader who has gone is no error.

    Returns:
        Whether there was one.

    Raises:
        OutputError: It cannot be written for another reason, such as a full disk.
    """
    try:
        print(_harmless(line), file=sys.stdout, flush=True)
    except (OSError, ValueError) as error:
        _give_up(sys.stdout, error)
        return False
    return True


async def show_in_time(line: object) -> bool:
    """As `show`, but a reader who is slow is waited for by Trio, so that it can be cancelled. A checkpoint.

    Raises:
        OutputError: It cannot be written.
    """
    import trio  # noqa: PLC0415 - most commands do without it

    number = _number_of(sys.stdout)
    if number is None:
        await trio.lowlevel.checkpoint()
        return show(line)
    try:
        left = f"{_harmless(line)}\n".encode(sys.stdout.encoding, sys.stdout.errors or "strict")
        while left:
            try:
                await trio.lowlevel.wait_writable(number)
            except PermissionError:  # a file, which never makes anybody wait
                await trio.lowlevel.checkpoint()
            left = left[os.write(number, left[: select.PIPE_BUF]) :]  # so much there is room for
    except (OSError, ValueError) as error:
        _give_up(sys.stdout, error)
        return False
    return True


def has_reader(stream: TextIO) -> bool:
    """Whether what is written there may still be read; only of a pipe it is known that nobody does."""
    number = _number_of(stream)
    if number is None:
        return True
    poll = select.poll()
    poll.register(number, 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def pour(chunks: Iterable[str]) -> None:
    """Write text on stdout, piece by piece; errors are those of `show`.

    Raises:
        OutputError: It cannot be written.
    """
    for chunk in chunks:
        try:
            sys.stdout.write(_harmless(chunk))
        except (OSError, ValueError) as error:
            _give_up(sys.stdout, error)


@contextmanager
def printing() -> Iterator[None]:
    """Report failed writes of a library that prints on stdout, as `show` does.

    Raises:
        OutputError: It cannot be written.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        _give_up(sys.stdout, error)


def draw(picture: "RenderableType", stream: TextIO | None) -> None:
    """Draw a table on stdout or stderr; errors are those of `show` and `say`.

    Raises:
        OutputError: It was for stdout, and cannot be written.
    """
    if stream is None:  # rich would draw it on stdout
        return
    try:
        with _of_equal_width(stream):
            open_console(stream).print(picture)
            stream.flush()
    except (OSError, ValueError) as error:
        if stream is sys.stdout:
            _give_up(stream, error)
        else:
            _silence(stream)


@contextmanager
def _of_equal_width(stream: TextIO) -> Iterator[None]:
    """Let what takes the place of a character be no wider, as stderr has it: tables keep their lines."""
    errors = getattr(stream, "errors", None)
    if errors != "backslashreplace" or _is_utf(stream) or not hasattr(stream, "reconfigure"):
        yield
        return
    stream.reconfigure(errors="replace")
    try:
        yield
    finally:
        stream.reconfigure(errors=errors)


def _is_utf(stream: TextIO) -> bool:
    return stream.encoding.lower().startswith("utf")


def open_console(stream: TextIO | None) -> "Console":
    """A rich console on a stream."""
    from rich.console import Console, ConsoleOptions, RenderableType  # noqa: PLC0415 - only for who draws
    from rich.segment import Segment  # noqa: PLC0415

    class PlainConsole(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else _harmless(text), style, control)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # to be dealt with here, not by leaving the process

    wide = None if stream is not None and stream.isatty() else FILE_WIDTH
    return PlainConsole(file=stream, width=wide)


def _harmless(line: object) -> str:
    text = str(line)
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    from trioeval.inert import escaped  # noqa: PLC0415 - most of what is printed is plain

    return escaped(text)


def _number_of(stream: TextIO | None) -> int | None:
    """The descriptor of a stream; None if it is no file, or was closed before the program began."""
    try:
        return None if stream is None else stream.fileno()
    except (OSError, ValueError):
        return None


def _give_up(stream: TextIO, error: Exception) -> None:
    _silence(stream)
    if not isinstance(error, BrokenPipeError):
        reason = getattr(error, "strerror", None) or error
        raise OutputError(f"the results cannot be written to stdout: {reason}") from error


def _silence(stream: TextIO | None) -> None:
    # What is still in the buffer, and all that follows, goes nowhere instead of failing again.
    if stream is None or stream.closed:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
