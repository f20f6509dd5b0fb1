"""Files where agents may have put something else: opened without waiting and without following links."""

import os
import stat
from pathlib import Path


def open_plain(path: Path, flags: int) -> int:
    """The descriptor of a regular file. Blocks on the file, never on anybody else.

    Args:
        path: Where it is.
        flags: As for `os.open`.

    Raises:
        OSError: It cannot be opened; or something else is there: a link, a folder, a named pipe.
    """
    safe = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags | safe, 0o666)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(None, "not a regular file", str(path))


def write_plain(path: Path, data: bytes, flags: int = os.O_TRUNC) -> None:
    """Write to a regular file, which is made if nothing is there.

    Args:
        path: Where it is; its folder is there.
        data: What is written.
        flags: What becomes of a file that is there: `os.O_TRUNC`, `os.O_APPEND` or `os.O_EXCL`.

    Raises:
        OSError: As for `open_plain`, or it cannot be written.
    """
    with open(open_plain(path, os.O_WRONLY | os.O_CREAT | flags), "wb") as file:
        file.write(data)


def read_plain(path: Path, limit: int, start: int = 0) -> bytes:
    """What stands in a regular file, as much as `limit` bytes from `start`.

    Raises:
        OSError: As for `open_plain`, or it cannot be read.
    """
    with open(open_plain(path, os.O_RDONLY), "rb") as file:
        file.seek(start)
        return file.read(limit)
