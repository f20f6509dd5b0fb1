"""Files of a workspace, the folder of an agent, found and read within bounds.

An agent may leave anything there: links to elsewhere, pipes without a writer, files of any size and number.
Links are resolved before checking whether a file is inside, only regular files are read, and no more of them
than a bound. Everything here blocks on files.
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

# Patterns of names: `*` stands for any text and `?` for any character; case is ignored.


def matches(name: str, pattern: str) -> bool:
    """Return whether a whole name matches a pattern. Linear in the length of the name, whatever the pattern.

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
    # Each piece between two stars at its first match: if that does not work, no later one will.
    between = "".join(f"(?>.*?{piece})" for piece in middle)
    return re.compile(f"{head}{between}.*{tail}", re.IGNORECASE | re.DOTALL)


def _piece(piece: str) -> str:
    return re.escape(piece).replace(r"\?", ".")


LARGEST = 10 * 1024 * 1024
"""Most bytes of a file that is read."""

LONGEST = 10.0
"""Most seconds of a search for a pattern."""

_MAGIC = frozenset("*?[")
_ANY_DEPTH = "**"


class NoFileError(Exception):
    """The file at a path is missing or not readable; the message names what the path is."""


def path_fault(named: str) -> str | None:
    """Return the reason why a text is not a path in a workspace, for the sentence "it …"; None if it is.

    Example:
        >>> path_fault("src/calc.py"), path_fault("/etc/passwd"), path_fault("a/../../b")
        (None, 'is absolute', 'leads out of the workspace')
    """
    if not named.strip() or "\0" in named:
        return "is not a path"
    if named.startswith("/"):
        return "is absolute"
    if ".." in PurePosixPath(named).parts:
        return "leads out of the workspace"
    return None


def is_pattern(named: str) -> bool:
    """Return True for a path with wildcards: `*`, `?` or `[…]`."""
    return not _MAGIC.isdisjoint(named)


def place_of(workspace: Path, named: str) -> Path:
    """Return the real path of a file in a workspace, absolute and without links; it need not exist.

    Raises:
        GradingError: It is not a path in the workspace.
        NoFileError: A link there leads out of the workspace.
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
        msg = f"{quote(named)} is not a path: {error}"
        raise GradingError(msg) from None
    if not inside:
        msg = f"{quote(named)} is a link, or beneath one, that leads out of the workspace"
        raise NoFileError(msg)
    return real


def read_file(workspace: Path, named: str) -> bytes:
    """Return the content of a file in a workspace.

    Raises:
        GradingError: It is not a path in the workspace.
        NoFileError: The file is not found, cannot be read, or has more than `LARGEST` bytes.
    """
    place = place_of(workspace, named)
    try:
        # A pipe must not wait for a writer, and a file replaced by a link since then is not followed.
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
        msg = f"{quote(named)} has more than {LARGEST:,} bytes, the largest size that is read"
        raise NoFileError(msg)
    return data


def check_file(named: str, descriptor: int) -> None:
    """Raise unless an open file is a regular file.

    Raises:
        NoFileError: It is a folder, a pipe or a device.
    """
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISDIR(mode):
        msg = f"{quote(named)} is a folder"
        raise NoFileError(msg)
    if not stat.S_ISREG(mode):
        msg = f"{quote(named)} is not a file but a pipe or a device"
        raise NoFileError(msg)


def _why_not(named: str, error: OSError) -> str:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"file {quote(named)} not found"
    return f"{quote(named)} cannot be read: {error.strerror}"


def find_file(
    workspace: Path,
    named: str,
    *,
    longest: float = LONGEST,
    now: Callable[[], float] = time.monotonic,
) -> str | None:
    """Find a file of a workspace by a path or a pattern; return its relative path, or None.

    Args:
        workspace: The workspace.
        named: The path or the pattern.
        longest: Most seconds of the search: an agent may leave any number of files.
        now: A clock, in seconds.

    Raises:
        GradingError: The path is not in the workspace, or the pattern is invalid.
        NoFileError: All matches are links out of the workspace, or the search takes too long.
    """
    if _is_file(place_of(workspace, named)):
        return named
    if not is_pattern(named):
        return None
    until = now() + longest

    def look() -> None:
        if now() > until:
            msg = f"the search for {quote(named)} took longer than {longest:g} seconds"
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
    """Split a pattern into parts, one per folder; several `**` in a row count as one.

    Raises:
        GradingError: It is invalid.
    """
    parts: list[str] = []
    for part in PurePosixPath(pattern).parts:
        if _ANY_DEPTH in part and part != _ANY_DEPTH:
            msg = f'{quote(pattern)} is not a valid pattern: "**" stands for whole folders'
            raise GradingError(msg)
        if part != _ANY_DEPTH or parts[-1:] != [part]:
            parts.append(part)
    return [*parts, "*"] if parts[-1] == _ANY_DEPTH else parts


def _matches(workspace: Path, parts: Sequence[str], look: Callable[[], None]) -> Iterator[str]:
    """Yield the matches of a pattern, each path to them once; `look` is called before each step."""
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
    """Return the entries of a folder by name; none for anything else, or without permission."""
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
