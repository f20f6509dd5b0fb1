"""Files of a workspace, which is a folder that an agent fills: found and read within bounds.

An agent may leave anything there: links to elsewhere, pipes that nobody writes to, files of any size. Links
are followed before it is asked whether a file is inside, only what is a file is read, and no more of it than
a bound. Everything here blocks on files.
"""

import errno
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from trioeval.errors import GradingError
from trioeval.grading.text import quote

LARGEST = 10 * 1024 * 1024
"""Bytes that a file may have that is read."""

_MATCHES = 100_000
"""What a pattern may match of which none is a file."""
_MAGIC = frozenset("*?[")


class NoFileError(Exception):
    """There is no file to read at a path; the message says what is there."""


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
        GradingError: It is outside of the workspace.
    """
    fault = path_fault(named)
    if fault is not None:
        msg = f"{quote(named)} {fault}; write a path that is relative to the workspace"
        raise GradingError(msg)
    try:
        real = Path(os.path.realpath(workspace / named))
        inside = real.is_relative_to(os.path.realpath(workspace))
    except (OSError, ValueError) as error:
        msg = f"{quote(named)} is no path: {error}"
        raise GradingError(msg) from None
    if not inside:
        msg = f"{quote(named)} is a link, or behind one, that leads out of the workspace"
        raise GradingError(msg)
    return real


def read_file(workspace: Path, named: str) -> bytes:
    """What stands in a file of a workspace.

    Raises:
        GradingError: It is outside of the workspace, or has more than `LARGEST` bytes.
        NoFileError: There is no file, or it cannot be read.
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
        raise GradingError(msg)
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


def find_file(workspace: Path, named: str) -> str | None:
    """The first file of a workspace that a path or a pattern names, relative to it; None if there is none.

    Raises:
        GradingError: It is outside of the workspace, or all that match are; or the pattern cannot be used.
    """
    if _is_file(place_of(workspace, named)):
        return named
    if not is_pattern(named):
        return None
    outside: GradingError | None = None
    for match in itertools.islice(_matches(workspace, named), _MATCHES):
        try:
            if _is_file(place_of(workspace, match)):
                return match
        except GradingError as error:
            outside = outside or error
    if outside is not None:
        raise outside
    return None


def _matches(workspace: Path, pattern: str) -> Iterator[str]:
    try:
        for path in workspace.glob(pattern):
            yield str(path.relative_to(workspace))
    except (ValueError, NotImplementedError, OSError) as error:
        msg = f"{quote(pattern)} is a pattern that cannot be used: {error}"
        raise GradingError(msg) from None


def _is_file(place: Path) -> bool:
    try:
        return stat.S_ISREG(place.lstat().st_mode)
    except OSError:
        return False
