"""The folder in which programs of one user find each other: sockets of runs, and tokens of servers.

It is `$XDG_RUNTIME_DIR/trioeval`, or `trioeval-UID` in the folder of temporary files. Other users cannot read
it, and a folder that another user has made is not used.
"""

import errno
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def live_folders(environ: Mapping[str, str], user: int, temporary: str) -> list[Path]:
    """Return the possible folders of a user, best first.

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
    """Return the folders of this user; none on a system without users."""
    if not hasattr(os, "geteuid"):
        return []
    return live_folders(os.environ, os.geteuid(), tempfile.gettempdir())


def make_private(folder: Path) -> None:
    """Create the folder unless it exists.

    Raises:
        OSError: It cannot be created, or other users have access.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    problem = why_not_private(folder)
    if problem is not None:
        raise OSError(errno.EPERM, problem)


def why_not_private(folder: Path) -> str | None:
    """Return what is wrong with a folder; None if only this user has access."""
    try:
        found, above = folder.lstat(), folder.parent.stat()
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISDIR(found.st_mode):
        return "is not a folder"
    if found.st_uid != os.geteuid():
        return "belongs to another user"
    if found.st_mode & 0o077:
        return "other users have access: chmod 700"
    if above.st_mode & 0o002 and not above.st_mode & stat.S_ISVTX:
        return "other users may replace it"
    return None
