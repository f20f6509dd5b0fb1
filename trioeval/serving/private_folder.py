"""The folder in which programs of one user find each other: sockets of runs, and tokens of servers.

It is `$XDG_RUNTIME_DIR/trioeval`, or `trioeval-UID` where temporary files are. Other users cannot look into
it, and one that another user has made is not used.
"""

import errno
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def live_folders(environ: Mapping[str, str], user: int, temporary: str) -> list[Path]:
    """Where the folder of a user may be, the best place first.

    Args:
        environ: The environment.
        user: The user's number.
        temporary: The folder of temporary files.

    Example:
        >>> [str(one) for one in live_folders({"XDG_RUNTIME_DIR": "/run/user/7"}, 7, "/tmp")]
        ['/run/user/7/trioeval', '/tmp/trioeval-7']
    """
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    found = [Path(runtime, "trioeval")] if runtime.startswith("/") else []
    return [*found, Path(temporary, f"trioeval-{user}")]


def own_folders() -> list[Path]:
    """Those of this user; none on a system that has no users."""
    if not hasattr(os, "geteuid"):
        return []
    return live_folders(os.environ, os.geteuid(), tempfile.gettempdir())


def make_private(folder: Path) -> None:
    """Make the folder, unless it is there.

    Raises:
        OSError: It cannot be made, or is not ours alone.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    problem = why_not_private(folder)
    if problem is not None:
        raise OSError(errno.EPERM, problem)


def why_not_private(folder: Path) -> str | None:
    """What is wrong with a folder; None if it is this user's alone."""
    try:
        found, above = folder.lstat(), folder.parent.stat()
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISDIR(found.st_mode):
        return "is no folder"
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    if found.st_mode & 0o077:
        return "others may use it: chmod 700"
    if above.st_mode & 0o002 and not above.st_mode & stat.S_ISVTX:
        return "others may put theirs in its place"
    return None
