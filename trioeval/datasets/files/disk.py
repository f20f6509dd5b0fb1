"""What is done to files, one step at a time: the place where a crash may come between."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

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
