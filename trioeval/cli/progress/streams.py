"""Streams before stdout and stderr that see whatever is written there, by whomever.

What is printed passes through many hands: tables, warnings, tracebacks, functions of a suite. What has to
hold of all of it is seen to where all of it comes by.
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


@attrs.define(eq=False)
class Layer:
    """A stream before another one, which it is but for what is written."""

    stream: TextIO

    def write(self, text: str) -> int:
        """Write it, or something in its place."""
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@attrs.define(eq=False)
class Above(Layer):
    """Writes nothing before something else has made room for it."""

    make_room: Callable[[], None]

    def write(self, text: str) -> int:
        """Write it where there is room."""
        self.make_room()
        return self.stream.write(text)


_LATER_COMMAND = re.compile(r"([\r\n]\s*):")
_FIRST_COMMAND = re.compile(r"(\s*):")
_OLD_COMMAND = re.compile(r"(##)\[")
_LINE_BREAKS = re.compile(r"[\r\n]")


@attrs.define(eq=False)
class Guarded(Layer):
    r"""What no workflow command of GitHub can be in: a backslash stands before what would begin one.

    The runner takes a line for a command if it begins with `::`, blanks aside, or has `##[` in it. It reads
    stdout and stderr each on its own, so commands that stop commands would not hold for both.

    Example:
        >>> import io
        >>> stream = io.StringIO()
        >>> Guarded(stream).write("a\n  ::error::x\nb ##[group]")
        26
        >>> stream.getvalue()
        'a\n  \\::error::x\nb ##\\[group]'
    """

    is_blank: bool = True
    """Whether there is nothing but blanks on the line that is being written."""
    _hashes: str = ""
    """Those at its end, two at most."""

    def write(self, text: str) -> int:
        """Write it, harmless."""
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


@attrs.define(eq=False)
class Messages(Layer):
    """Each line that is written becomes an object of JSON, which says that it is a message to people."""

    _begun: str = ""

    def write(self, text: str) -> int:
        """Write the lines that are whole by now."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._tell(line)
        return len(text)

    def isatty(self) -> bool:
        """Objects are for programs."""
        return False

    def _tell(self, line: str) -> None:
        if text := line.rstrip():
            self.stream.write(json_line({"type": "message", "text": text}) + "\n")


def json_line(fact: Mapping[str, Any]) -> str:
    r"""An object as JSON on one line, in ASCII, and with no workflow command of GitHub in it.

    Example:
        >>> json_line({"text": "ä ##[group]"})
        '{"text": "\\u00e4 ##\\u005bgroup]"}'
    """
    # Outside of texts nothing of the kind can stand.
    return json.dumps(fact).replace("##[", "##\\u005b")


def say_beneath(line: str) -> None:
    """As `say`, but past the layer that is before stderr: for whoever writes what it keeps others from."""
    stream = cast("object", sys.stderr)
    if not isinstance(stream, Layer):
        say(line)
        return
    if isinstance(stream, Guarded) and not stream.is_blank:
        say("")
    with redirect_stderr(stream.stream):
        say(line)


def is_github(environ: Mapping[str, str]) -> bool:
    """Whether GitHub Actions reads what is printed.

    Example:
        >>> is_github({"GITHUB_ACTIONS": "true"}), is_github({})
        (True, False)
    """
    return environ.get("GITHUB_ACTIONS") == "true"


@contextmanager
def guarded(*, stdout: bool) -> Iterator[None]:
    """Let nothing that is printed be read as a command by GitHub, for as long as the block.

    Args:
        stdout: Whether that holds of stdout too, where it is for people and not for programs.
    """
    with ExitStack() as stack:
        if _wants(sys.stderr):
            stack.enter_context(redirect_stderr(_as_stream(Guarded(sys.stderr))))
        if stdout and _wants(sys.stdout):
            stack.enter_context(redirect_stdout(_as_stream(Guarded(sys.stdout))))
        yield


def _wants(stream: TextIO | None) -> bool:
    # It may have been closed before the program began.
    return stream is not None and not isinstance(cast("object", stream), Guarded)


@contextmanager
def layered(mode: ProgressMode | None, environ: Mapping[str, str]) -> Iterator[None]:
    """Put before stdout and stderr what the way of telling needs, for as long as the block."""
    with ExitStack() as stack:
        if mode == "github" or is_github(environ):
            stack.enter_context(guarded(stdout=True))
        if mode == "json" and sys.stderr is not None:
            stack.enter_context(redirect_stderr(_as_stream(Messages(sys.stderr))))
            stack.callback(say, "")  # ends a line that somebody has only begun
        yield


@contextmanager
def making_room(make_room: Callable[[], None]) -> Iterator[None]:
    """For as long as the block, call this before anything is written on a terminal."""
    with ExitStack() as stack:
        stack.enter_context(redirect_stderr(_as_stream(Above(sys.stderr, make_room))))
        if sys.stdout is not None and sys.stdout.isatty():
            stack.enter_context(redirect_stdout(_as_stream(Above(sys.stdout, make_room))))
        yield


def _as_stream(layer: Layer) -> TextIO:
    return cast("TextIO", layer)
