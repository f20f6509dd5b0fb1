"""The files of media beside a database: named by their content, written before a row that names them.

A file is complete under its name, or not there: it is written under another name, flushed to the disk, and
renamed. Files are saved and removed only within a transaction of the database, so that no file is removed
between its writing and the commit of the row that names it.
"""

import contextlib
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from trioeval.providers.base import Media
from trioeval.providers.media import is_file_name

_UNFINISHED = ".unfinished"


def save(media: Iterable[Media], folder: Path) -> None:
    """Write the files of media, unless they exist, and release the bytes in memory.

    Raises:
        OSError: A file cannot be written.
        ValueError: The bytes are not available.
    """
    for one in media:
        path = folder / one.file
        if not _is_complete(path, one.size):
            _write(path, one.read())
        one.path = path
        one.data = None


def remove_unnamed(folder: Path, named: Collection[str]) -> int:
    """Remove files of media with other names, and unfinished ones; return their number.

    Other files in the folder are left alone. Call it in a transaction of the database.
    """
    removed = 0
    with contextlib.suppress(FileNotFoundError):
        for path in [*folder.iterdir()]:
            own = path.name.removesuffix(_UNFINISHED)
            if not is_file_name(own) or path.name in named:
                continue
            with contextlib.suppress(OSError):  # open in another program: removed the next time
                path.unlink()
                removed += 1
    with contextlib.suppress(OSError):
        folder.rmdir()  # only if it is empty
    return removed


def _is_complete(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + _UNFINISHED)
    with unfinished.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    if os.name == "posix":  # the name itself must be durable too
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
