"""Streams in front of stdout and stderr that process everything that is written there.

Output comes from many places: tables, warnings, tracebacks, functions of a suite. Rules for all output are
applied here, where all of it passes.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

import attrs

from trioeval.cli.flags import ProgressMode
from trioeval.cli.terminal import say


@attrs.define(eq=False, repr=False)
class Layer:
    """A stream in front of another one; only writing differs."""

    stream: TextIO

    def write(self, text: str) -> int:
        """Write a text, or its replacement."""
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@attrs.define(eq=False, repr=False)
class Above(Layer):
    """A stream that clears the picture before it writes."""

    make_room: Callable[[], None]

    def write(self, text: str) -> int:
        """Clear the picture, then write."""
        self.make_room()
        return self.stream.write(text)


_LATER_COMMAND = re.compile(r"([\r\n]\s*):")
_FIRST_COMMAND = re.compile(r"(\s*):")
_OLD_COMMAND = re.compile(r"(##)\[")
_LINE_BREAKS = re.compile(r"[\r\n]")


@attrs.define(eq=False, repr=False)
class Guarded(Layer):
    r"""A stream without workflow commands of GitHub: a backslash breaks what would be one.

    The runner executes a line that begins with `::`, after blanks, or that contains `##[`. It reads stdout
    and stderr separately, so the commands that stop commands would not hold for both.

    Example:
        >>> import io
        >>> stream = io.StringIO()
        >>> Guarded(stream).write("a\n  ::error::x\nb ##[group]")
        26
        >>> stream.getvalue()
        'a\n  \\::error::x\nb ##\\[group]'
    """

    is_blank: bool = True
    """True if the current line has only blanks so far."""
    _hashes: str = ""
    """The last characters of the line, two at most."""

    def write(self, text: str) -> int:
        """Write a text without commands."""
        plain = _LATER_COMMAND.sub(r"\1\\:", text)
        if self.is_blank:
            plain = (
                _FIRST_COMMAND.sub(r"\1\\:", plain, count=1) if plain.lstrip()[:1] == ":" else plain
            )
        joined = _OLD_COMMAND.sub(r"\1\\[", self._hashes + plain)
        self.stream.write(joined[len(self._hashes) :])
        whole = self._hashes + text
        self._hashes = whole[len(whole.rstrip("#")) :][-2:]
        *before, last = _LINE_BREAKS.split(text)
        self.is_blank = (self.is_blank or bool(before)) and not last.strip()
        return len(text)


@attrs.define(eq=False, repr=False)
class Messages(Layer):
    """A stream that writes each line as a JSON object of the type message."""

    _partial: str = ""

    def write(self, text: str) -> int:
        """Write the complete lines."""
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._write_line(line)
        return len(text)

    def isatty(self) -> bool:
        """JSON is for programs."""
        return False

    def _write_line(self, line: str) -> None:
        if text := line.rstrip():
            self.stream.write(json_line({"type": "message", "text": text}) + "\n")


def json_line(fact: Mapping[str, Any]) -> str:
    r"""Return an object as JSON on one line, in ASCII, and without workflow commands of GitHub.

    Example:
        >>> json_line({"text": "ä ##[group]"})
        '{"text": "\\u00e4 ##\\u005bgroup]"}'
    """
    # Only strings can contain them.
    return json.dumps(fact).replace("##[", "##\\u005b")


def say_beneath(line: str) -> None:
    """Print to stderr without the layer in front of it, for output that the layer would change."""
    stream = cast("object", sys.stderr)
    if not isinstance(stream, Layer):
        say(line)
        return
    if isinstance(stream, Guarded) and not stream.is_blank:
        say("")
    with redirect_stderr(stream.stream):
        say(line)


def is_github(environ: Mapping[str, str]) -> bool:
    """Return whether GitHub Actions reads the output.

    Example:
        >>> is_github({"GITHUB_ACTIONS": "true"}), is_github({})
        (True, False)
    """
    return environ.get("GITHUB_ACTIONS") == "true"


@contextmanager
def guarded(*, stdout: bool) -> Iterator[None]:
    """Prevent workflow commands in all output for the duration of the block.

    Args:
        stdout: Whether this includes stdout, if it is for people and not for programs.
    """
    with ExitStack() as stack:
        if _wants(sys.stderr):
            stack.enter_context(redirect_stderr(_as_stream(Guarded(sys.stderr))))
        if stdout and _wants(sys.stdout):
            stack.enter_context(redirect_stdout(_as_stream(Guarded(sys.stdout))))
        yield


def _wants(stream: TextIO | None) -> bool:
    # It may have been closed before the program started.
    return stream is not None and not isinstance(cast("object", stream), Guarded)


@contextmanager
def layered(mode: ProgressMode | None, environ: Mapping[str, str]) -> Iterator[None]:
    """Install the streams that a mode of progress needs for the duration of the block."""
    with ExitStack() as stack:
        if mode == "github" or is_github(environ):
            stack.enter_context(guarded(stdout=True))
        if mode == "json" and sys.stderr is not None:
            stack.enter_context(redirect_stderr(_as_stream(Messages(sys.stderr))))
            stack.callback(say, "")  # ends a line that was begun
        yield


@contextmanager
def making_room(make_room: Callable[[], None]) -> Iterator[None]:
    """Call a function before each write to a terminal, for the duration of the block."""
    with ExitStack() as stack:
        stack.enter_context(redirect_stderr(_as_stream(Above(sys.stderr, make_room))))
        if sys.stdout is not None and sys.stdout.isatty():
            stack.enter_context(redirect_stdout(_as_stream(Above(sys.stdout, make_room))))
        yield


def _as_stream(layer: Layer) -> TextIO:
    return cast("TextIO", layer)
