"""Printing that survives the loss of its reader: results and exit code matter more than their display.

The program prints only through this module, which makes all text harmless: a terminal receives nothing but
text and the colours of tables. Callers need not know which texts are foreign.
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
    """The exit code of the process; the last line on stderr gives the reason."""

    OK = 0
    """Every row passed."""
    FAULT = 1
    """A result could not be written, or trioeval has a bug."""
    USAGE = 2
    """The suite or the command line is wrong; no provider was called."""
    FAILED = 100
    """Some rows failed, ended in an error or have no verdict."""
    SIGNAL = 128
    """Ended by a signal, whose number is added: 130 for SIGINT, 143 for SIGTERM."""


FILE_WIDTH = 120
"""The width of tables that are not written to a terminal."""


def replace_unencodable(stream: TextIO | None) -> None:
    """Let a stream replace characters that its encoding lacks, as stderr always does.

    A lone surrogate, which UTF-8 lacks, becomes an escape. Characters that another encoding lacks become
    question marks, so that tables keep their width.
    """
    # In the C locale the error handler is surrogateescape, which also fails for other characters.
    if isinstance(stream, io.TextIOWrapper) and stream.errors in {"strict", "surrogateescape"}:
        stream.reconfigure(errors="backslashreplace" if _is_utf(stream) else "replace")


def say(line: object) -> None:
    """Print a line on stderr; without a reader it is dropped."""
    if sys.stderr is None:  # closed before the program started; stdout is not a substitute
        return
    try:
        print(_harmless(line), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        _silence(sys.stderr)


def show(line: object) -> bool:
    """Print a line of the results on stdout. A closed pipe is not an error.

    Returns:
        Whether the line was written.

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
    """Print a line like `show`, but wait for a slow reader in Trio, which is a checkpoint.

    Raises:
        OutputError: It cannot be written.
    """
    import trio

    number = _number_of(sys.stdout)
    if number is None:
        await trio.lowlevel.checkpoint()
        return show(line)
    try:
        left = f"{_harmless(line)}\n".encode(sys.stdout.encoding, sys.stdout.errors or "strict")
        while left:
            try:
                await trio.lowlevel.wait_writable(number)
            except PermissionError:  # a file, which is always writable
                await trio.lowlevel.checkpoint()
            left = left[os.write(number, left[: select.PIPE_BUF]) :]  # what fits for sure
    except (OSError, ValueError) as error:
        _give_up(sys.stdout, error)
        return False
    return True


def has_reader(stream: TextIO) -> bool:
    """Return whether a stream may still have a reader; only a pipe is known to have none."""
    number = _number_of(stream)
    if number is None:
        return True
    poll = select.poll()
    poll.register(number, 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def pour(chunks: Iterable[str]) -> None:
    """Write text to stdout in chunks; errors are those of `show`.

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
    """Report failed writes of a library that prints to stdout, as `show` does.

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
        OutputError: It cannot be written to stdout.
    """
    if stream is None:  # rich would use stdout
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
    """Keep replacement characters the same width, so that tables on stderr stay aligned."""
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
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class PlainConsole(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else _harmless(text), style, control)

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # handled here, instead of ending the process

    wide = None if stream is not None and stream.isatty() else FILE_WIDTH
    # Texts are shown as they are; the table of emoji would be imported for names such as :ok: in them.
    return PlainConsole(file=stream, width=wide, emoji=False)


def _harmless(line: object) -> str:
    text = str(line)
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    from trioeval.text_safety import escaped

    return escaped(text)


def _number_of(stream: TextIO | None) -> int | None:
    """Return the descriptor of a stream; None if it has none, or was closed before the program started."""
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
    # Discard the buffer and all further output, instead of failing again.
    if stream is None or stream.closed:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
