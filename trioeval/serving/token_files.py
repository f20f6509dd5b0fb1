"""Tokens of limit servers on this machine, stored where programs of the same user find them.

A page in a browser can send requests to any port of this machine, but cannot read files; so a server with a
token is closed to pages, and open without any settings to programs of its user. A token is valid only while
its server runs: the next one on that port creates another.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from trioeval.serving.private_folder import make_private, own_folders, why_not_private

_MOST_BYTES = 4096


def keep_token(port: int, token: str) -> Path:
    """Store the token of the server on a port, readable by this user alone.

    Raises:
        OSError: No folder exists that only this user can access.
    """
    problems: list[str] = []
    for folder in own_folders():
        path = _path(folder, port)
        made = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            make_private(folder)
            made.unlink(missing_ok=True)
            number = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(number, "w") as file:
                file.write(f"{token}\n")
            made.replace(path)
        except OSError as error:
            problems.append(f"{folder}: {error.strerror or error}")
        else:
            return path
    raise OSError("; ".join(problems) or "this system has no folder that only one user can access")


def read_token(port: int) -> str | None:
    """Return the token of the server on a port of this machine; None if no server of this user stored one."""
    for folder in own_folders():
        if why_not_private(folder) is None and (token := _read(_path(folder, port))) is not None:
            return token
    return None


def forget_token(path: Path, token: str) -> None:
    """Remove what `keep_token` wrote, unless another server uses the port by now."""
    if _read(path) == token:
        with suppress(OSError):  # the token is invalid anyway
            path.unlink()


def _read(path: Path) -> str | None:
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        found = os.fstat(number)
        is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if not is_ours or found.st_mode & 0o077:
            return None
        return os.read(number, _MOST_BYTES).decode("ascii", "replace").strip() or None
    finally:
        os.close(number)


def _path(folder: Path, port: int) -> Path:
    return folder / f"limits-{port}.token"
