"""One process at a time in a folder."""

from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from trioeval.errors import DatasetError

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
