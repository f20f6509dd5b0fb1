"""The names in the folder of a dataset."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from trioeval.errors import DatasetError

# What is done to files, one step at a time: the place where a crash may come between.


_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)


class Disk:
    """The disk. Each method is one step: a process that is killed has done it, has not, or did part of it.

    All of them raise OSError where the system refuses.
    """

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it, where they are missing."""
        path.mkdir(parents=True, exist_ok=True)

    def fill(self, path: Path, write: Callable[[Path], None]) -> None:
        """Let somebody write a file, and return when its bytes are safe."""
        write(path)
        descriptor = os.open(path, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def append(self, path: Path, line: bytes) -> None:
        """Add a line to a file, which is made if need be, and return when it is safe.

        What stands there is never part of the line, also if its own end was lost.
        """
        with path.open("ab+") as file:
            if file.tell() and not _ends_a_line(file.fileno(), file.tell()):
                line = b"\n" + line
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, in place of whatever file has it; or a folder a name that nothing has."""
        old.replace(new)

    def settle(self, folder: Path) -> None:
        """Return when the names in a folder are safe, where the system can say so."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_FOLDER_SYNC:
                raise
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with all that is in it; nothing is no error."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _ends_a_line(descriptor: int, size: int) -> bool:
    return os.pread(descriptor, 1, size - 1) == b"\n"


# One process at a time in a folder.


LOCK = ".lock"
"""The name of the file; it is gone when nobody writes to the folder, unless they were killed."""


def lock_folder(path: Path) -> FileLock:
    """Be the only one of all processes of this machine that writes to a folder, until `unlock_folder`.

    Raises:
        DatasetError: Somebody does.
        OSError: The folder cannot be written.
    """
    lock = FileLock(path / LOCK, timeout=0, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise DatasetError(
            f"{path}: another process writes this dataset; wait for its end, or name another folder"
        ) from None
    return lock


def unlock_folder(lock: FileLock, path: Path) -> None:
    """Let others write to a folder, which may have another name now."""
    # While it is held: whoever waits for this very file sees that it is gone, and makes a new one.
    with suppress(OSError):  # some systems keep open files
        (path / LOCK).unlink()
    lock.release()


NOTE = "dataset.json"
LINES = "groups.jsonl"
ASIDE = "aside"
FINAL = "final"
"""A folder of all rows as they are after the whole dataset was processed."""

_PART = ".part"
_OLD_FINAL = f".old-{FINAL}{_PART}"


def batch_name(group: int, file_format: str) -> str:
    """The name of the file of a group.

    Example:
        >>> batch_name(3, "parquet")
        'batch_00003.parquet'
    """
    return f"batch_{group:05d}.{file_format}"


def part_name(name: str) -> str:
    """What something is called until it is whole."""
    return f".{name}{_PART}"


def is_ours(name: str) -> bool:
    """Whether it is only of use while somebody writes: a killed process leaves it."""
    return name == LOCK or is_part(name)


def is_part(name: str) -> bool:
    """Whether something is not whole."""
    return name.startswith(".") and name.endswith(_PART)


def old_final(path: Path) -> Path:
    """What the processed rows of a dataset are called while others take their place."""
    return path / _OLD_FINAL


def processed_folder(path: Path) -> Path | None:
    """Where the processed rows of a dataset stand now; None if there are none."""
    final = path / FINAL
    # Once more at the end: another process may have renamed both in between.
    for one in (final, old_final(path), final):
        if (one / NOTE).exists():
            return one
    return None


def data_folder(path: Path) -> Path:
    """Where the rows of a dataset stand now."""
    return processed_folder(path) or path


def names_beside(path: Path) -> Iterator[Path]:
    """Names for a folder that must make room, one after the other."""
    number = 1
    while True:
        yield path.with_name(f"{path.name}-old-{number}")
        number += 1


def make_safely(path: Path, disk: Disk) -> None:
    """Make a folder and those above it, where they are missing, and return when their names are safe."""
    made = [one for one in (path, *path.parents) if not one.exists()]
    disk.make_folder(path)
    for one in made:
        disk.settle(one.parent)


def put_file(path: Path, content: bytes | Callable[[Path], None], disk: Disk) -> None:
    """Write a file so that it is there as it was or as it should be, whatever comes between.

    Args:
        path: The file.
        content: Its bytes, or what writes them to another path.
        disk: The disk.
    """
    part = path.with_name(part_name(path.name))

    def write(to: Path) -> None:
        if isinstance(content, bytes):
            to.write_bytes(content)
        else:
            content(to)

    try:
        disk.fill(part, write)
        disk.rename(part, path)
    except OSError:
        disk.remove(part)
        raise
    disk.settle(path.parent)


def unwritable(path: Path, error: OSError) -> DatasetError:
    """What an error of the system means for a person."""
    return DatasetError(f"{path}: the dataset cannot be written: {error.strerror or error}")
