"""Printing that outlives its reader: a closed pipe must not cost the run its results or its exit code."""

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

FILE_WIDTH = 120
"""Characters of tables that do not go to a terminal, which has a width of its own."""


def say(line: object, *, stream: TextIO | None = None) -> None:
    """Print a line, on stderr if no stream is given; say nothing more where nobody reads."""
    target = sys.stderr if stream is None else stream
    try:
        print(line, file=target, flush=True)
    except BrokenPipeError:
        _silence(target)


def open_console(stream: TextIO) -> "Console":
    """A rich console on a stream, with the same manners."""
    from rich.console import Console  # noqa: PLC0415 - only for who draws

    class LastingConsole(Console):
        def on_broken_pipe(self) -> None:
            _silence(stream)

    return LastingConsole(file=stream, width=None if stream.isatty() else FILE_WIDTH)


def _silence(stream: TextIO) -> None:
    # What is still in the buffer, and all that follows, goes nowhere instead of failing again.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
