"""Files of a workspace, which is a folder that an agent fills: found and read within bounds.

An agent may leave anything there: links to elsewhere, pipes that nobody writes to, files of any size and in
any number. Links are followed before it is asked whether a file is inside, only what is a file is read, and
no more of it than a bound. Everything here blocks on files.
"""

import errno
import fnmatch
import functools
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from trioeval.errors import GradingError
from trioeval.text import quote

# Patterns of names: `*` stands for any text and `?` for any character; the case does not matter.


def matches(name: str, pattern: str) -> bool:
    """Whether a whole name fits a pattern. Takes time in the length of the name, whatever the pattern is.

    Example:
        >>> matches("Search_Orders", "search*"), matches("research", "search*")
        (True, False)
        >>> matches("a.b", "a?b"), matches("a", "a?")
        (True, False)
    """
    return _compiled(pattern).fullmatch(name) is not None


@functools.lru_cache(256)
def _compiled(pattern: str) -> re.Pattern[str]:
    head, *others = (_piece(piece) for piece in re.split(r"\*+", pattern))
    if not others:
        return re.compile(head, re.IGNORECASE | re.DOTALL)
    *middle, tail = others
    # Each piece between two stars where it comes first: if that does not do, no later place will.
    between = "".join(f"(?>.*?{piece})" for piece in middle)
    return re.compile(f"{head}{between}.*{tail}", re.IGNORECASE | re.DOTALL)


def _piece(piece: str) -> str:
    return re.escape(piece).replace(r"\?", ".")


LARGEST = 10 * 1024 * 1024
"""Bytes that a file may have that is read."""

LONGEST = 10.0
"""Seconds that may be looked for what a pattern names."""

_MAGIC = frozenset("*?[")
_ANY_DEPTH = "**"


class NoFileError(Exception):
    """There is no file to read at a path, as the agent has left things; the message says what is there."""


def path_fault(named: str) -> str | None:
    """Why a text is no path of a workspace, for the sentence "it …"; None if it is one.

    Example:
        >>> path_fault("src/calc.py"), path_fault("/etc/passwd"), path_fault("a/../../b")
        (None, 'is absolute', 'leads out of the workspace')
    """
    if not named.strip() or "\0" in named:
        return "is no path"
    if named.startswith("/"):
        return "is absolute"
    if ".." in PurePosixPath(named).parts:
        return "leads out of the workspace"
    return None


def is_pattern(named: str) -> bool:
    """Whether a path has marks that stand for other characters: `*`, `?` or `[…]`."""
    return not _MAGIC.isdisjoint(named)


def place_of(workspace: Path, named: str) -> Path:
    """Where a file of a workspace really is, absolute and without links; nothing need be there.

    Raises:
        GradingError: It is no path of a workspace.
        NoFileError: The agent has made a link there that leads out of the workspace.
    """
    fault = path_fault(named)
    if fault is not None:
        msg = f"{quote(named)} {fault}; write a path that is relative to the workspace"
        raise GradingError(msg)
    return _real_place(workspace, named)


def _real_place(workspace: Path, named: str) -> Path:
    try:
        real = Path(os.path.realpath(workspace / named))
        inside = real.is_relative_to(os.path.realpath(workspace))
    except (OSError, ValueError) as error:
        msg = f"{quote(named)} is no path: {error}"
        raise GradingError(msg) from None
    if not inside:
        msg = f"{quote(named)} is a link, or behind one, that leads out of the workspace"
        raise NoFileError(msg)
    return real


def read_file(workspace: Path, named: str) -> bytes:
    """What stands in a file of a workspace.

    Raises:
        GradingError: It is no path of a workspace.
        NoFileError: There is no file, it cannot be read, or has more than `LARGEST` bytes.
    """
    place = place_of(workspace, named)
    try:
        # A pipe must not wait for somebody who writes, and what became a link since is not followed.
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise NoFileError(_why_not(named, error)) from None
    try:
        check_file(named, descriptor)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise NoFileError(_why_not(named, error)) from None
    finally:
        os.close(descriptor)
    if len(data) > LARGEST:
        msg = f"{quote(named)} has more than {LARGEST:,} bytes, which is the most that is read"
        raise NoFileError(msg)
    return data


def check_file(named: str, descriptor: int) -> None:
    """See that what was opened is a file.

    Raises:
        NoFileError: It is a folder, a pipe or a device.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        msg = f"{quote(named)} is a folder"
        raise NoFileError(msg)
    if not stat.S_ISREG(mode):
        msg = f"{quote(named)} is no file but a pipe or a device"
        raise NoFileError(msg)


def _why_not(named: str, error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"there is no file {quote(named)}"
    return f"{quote(named)} cannot be read: {error.strerror}"


def find_file(
    workspace: Path,
    named: str,
    *,
    longest: float = LONGEST,
    now: Callable[[], float] = time.monotonic,
) -> str | None:
    """A file of a workspace that a path or a pattern names, relative to it; None if there is none.

    Args:
        workspace: The workspace.
        named: The path or the pattern.
        longest: Seconds that may be looked for what a pattern names: an agent may leave any number of files.
        now: A clock, in seconds.

    Raises:
        GradingError: It is no path of a workspace, or a pattern that cannot be used.
        NoFileError: All that it names are links out of the workspace, or that takes too long to find out.
    """
    if _is_file(place_of(workspace, named)):
        return named
    if not is_pattern(named):
        return None
    until = now() + longest

    def look() -> None:
        if now() > until:
            msg = f"looking for {quote(named)} took longer than {longest:g} seconds"
            raise NoFileError(msg)

    outside: NoFileError | None = None
    for match in _matches(workspace, _parts(named), look):
        try:
            place = _real_place(workspace, match)
        except NoFileError as error:
            outside = outside or error
        else:
            if _is_file(place):
                return match
    if outside is not None:
        raise outside
    return None


def _parts(pattern: str) -> Sequence[str]:
    """The parts of a pattern, one for each folder; of `**` in a row one is as good as all.

    Raises:
        GradingError: It cannot be used.
    """
    parts: list[str] = []
    for part in PurePosixPath(pattern).parts:
        if _ANY_DEPTH in part and part != _ANY_DEPTH:
            msg = (
                f'{quote(pattern)} is a pattern that cannot be used: "**" stands for whole folders'
            )
            raise GradingError(msg)
        if part != _ANY_DEPTH or parts[-1:] != [part]:
            parts.append(part)
    return [*parts, "*"] if parts[-1] == _ANY_DEPTH else parts


def _matches(workspace: Path, parts: Sequence[str], look: Callable[[], None]) -> Iterator[str]:
    """What a pattern names, each way to get there once; `look` is asked before each step."""
    todo = [("", 0)]
    seen = set(todo)
    while todo:
        here, number = todo.pop()
        part, is_last = parts[number], number + 1 == len(parts)
        found: list[tuple[str, int]] = []
        look()
        if part == _ANY_DEPTH:
            below = _inside(workspace / here, look)
            found = [
                (str(PurePosixPath(here, entry.name)), number)
                for entry in below
                if _is_folder(entry, links=False)
            ]
            found.append((here, number + 1))
        elif not is_pattern(part):
            found = [(str(PurePosixPath(here, part)), number + 1)]
        else:
            fits = re.compile(fnmatch.translate(part)).match
            found = [
                (str(PurePosixPath(here, entry.name)), number + 1)
                for entry in _inside(workspace / here, look)
                if fits(entry.name) and (is_last or _is_folder(entry, links=True))
            ]
        if is_last:
            yield from (name for name, _ in found)
            continue
        fresh = [one for one in found if one not in seen]
        seen.update(fresh)
        todo += reversed(fresh)


def _inside(folder: Path, look: Callable[[], None]) -> list["os.DirEntry[str]"]:
    """What is in a folder, by name; nothing where it is none, or nobody may look."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                look()
                found.append(entry)
    except OSError:
        return []
    return sorted(found, key=lambda entry: entry.name)


def _is_folder(entry: "os.DirEntry[str]", *, links: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=links)
    except OSError:
        return False


def _is_file(place: Path) -> bool:
    try:
        return stat.S_ISREG(place.lstat().st_mode)
    except OSError:
        return False
