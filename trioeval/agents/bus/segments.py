"""The files of a bus: which there are, and how they are opened. Blocks on files."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trioeval.errors import BusError

_NAME = re.compile(r"bus-(\d{8,})\.log")
# A link may lead anywhere, and a pipe would wait for somebody at its other end.
_FLAGS = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def segment_path(folder: Path, number: int) -> Path:
    """The file with a number.

    Example:
        >>> segment_path(Path("bus"), 7).name
        'bus-00000007.log'
    """
    return folder / f"bus-{number:08}.log"


def segment_numbers(folder: Path) -> list[int]:
    """Numbers of the files that are there, ascending; none of a folder that is not there.

    Raises:
        BusError: It is no folder, leads somewhere else, or cannot be read.
    """
    try:
        if not is_folder(folder):
            return []
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    except BusError:
        raise
    except OSError as error:
        raise trouble(folder, "read", error) from error
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))


def is_folder(folder: Path) -> bool:
    """Whether there is a folder; False if there is nothing.

    Raises:
        BusError: There is something else.
    """
    try:
        mode = folder.lstat().st_mode
    except FileNotFoundError:
        return False
    except OSError as error:
        raise trouble(folder, "read", error) from error
    if not stat.S_ISDIR(mode):
        what = "a symbolic link" if stat.S_ISLNK(mode) else "no folder"
        raise BusError(f"{folder}: this is {what}; a message bus is a folder")
    return True


def open_file(path: Path, flags: int) -> int:
    """Open a file that is no link and nothing but a file.

    Raises:
        FileNotFoundError: It is not there.
        BusError: It is something else.
        OSError: It cannot be opened.
    """
    try:
        file = os.open(path, flags | _FLAGS, 0o666)
    except OSError as error:
        if path.is_symlink() or path.is_dir():
            raise _no_file(path) from error
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _no_file(path)
    return file


@contextmanager
def reading(folder: Path, number: int) -> Iterator[int]:
    """A file, open for reading.

    Raises:
        FileNotFoundError: It is not there any more.
        BusError: It cannot be read, or is something else.
    """
    path = segment_path(folder, number)
    try:
        file = open_file(path, os.O_RDONLY)
    except (FileNotFoundError, BusError):
        raise
    except OSError as error:
        raise trouble(path, "read", error) from error
    try:
        yield file
    finally:
        os.close(file)


def read_range(file: int, start: int, end: int) -> bytes:
    """The bytes between two places, as far as there are any."""
    parts: list[bytes] = []
    while start < end:
        part = os.pread(file, end - start, start)
        if not part:
            break
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def size_of(file: int) -> int:
    """Bytes of an open file."""
    return os.fstat(file).st_size


def is_at(file: int, path: str) -> bool:
    """Whether an open file still has its name. A text: this is looked at for each batch."""
    try:
        return os.path.samestat(os.fstat(file), os.lstat(path))
    except FileNotFoundError:
        return False


def trouble(path: Path, doing: str, error: OSError) -> BusError:
    """An error of the system, told of a bus."""
    return BusError(f"{path}: the message bus cannot be {doing}: {error.strerror or error}")


def _no_file(path: Path) -> BusError:
    return BusError(f"{path}: this is a link, a folder or a device; a message bus has plain files")
