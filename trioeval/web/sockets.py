"""Where runs under way can be reached: sockets in a folder that belongs to one user.

The system identifies the client of a connection, where it can.
"""

import errno
import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from trioeval.errors import NotLiveError
from trioeval.serving.private_folder import make_private, own_folders, why_not_private

_SUFFIX = ".sock"
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+-]{0,79}")
_LONGEST = 103  # bytes of a path: what the narrowest system takes
_FORGOTTEN = 60.0  # seconds after which a socket on which nobody listens was left behind
_BACKLOG = 128


def listen_for(run_id: str) -> tuple[socket.socket, Path]:
    """A socket on which a run can be reached, and its place. What killed runs left there is removed.

    Raises:
        NotLiveError: It cannot be made; the text says why.
    """
    _require_sockets()
    problems: list[str] = []
    for folder in own_folders():
        try:
            path = _place(folder, run_id)  # no folder is made where its sockets could have no name
            make_private(folder)
            _sweep(folder)
            return _listen(path, run_id), path
        except OSError as error:
            problems.append(f"{folder}: {error.strerror or error}")
    raise NotLiveError("; ".join(problems))


def connect_to(run_id: str) -> socket.socket:
    """A connection to a run. Blocks shortly.

    Raises:
        NotLiveError: Nobody listens under that name, or too many connect at this moment.
    """
    _require_sockets()
    for path in _places(run_id):
        try:
            found = _connect(path)
        except BlockingIOError as error:
            raise NotLiveError(f"run {run_id}: too many wish to watch it at once") from error
        except OSError:
            continue
        if is_same_user(found):
            return found
        found.close()
    raise NotLiveError(
        f"run {run_id}: nobody listens: it is over, or was started with --no-live, by another user, or on"
        " another machine"
    )


def reachable_runs() -> list[str]:
    """The runs of this user that can be reached now, in the order in which they began. Blocks shortly."""
    if not hasattr(socket, "AF_UNIX"):
        return []
    found: dict[str, float] = {}
    for folder in own_folders():
        for path, began_at in _sockets(folder):
            if _is_taken(path):
                found.setdefault(path.name.removesuffix(_SUFFIX), began_at)
    return sorted(found, key=lambda run_id: (found[run_id], run_id))


class _Connected(Protocol):
    """A socket of the standard library or of Trio."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes:
        """What the system knows of it."""


def is_same_user(connected: _Connected) -> bool:
    """Whether who is at the other end runs as this user; True where the system does not tell."""
    told = _peer(connected)
    # Where it is not told, the folder's rights are what keeps others out.
    return told is None or told[1] == os.geteuid()


def process_of(connected: _Connected) -> int | None:
    """The number of the process at the other end; None where the system does not tell."""
    told = _peer(connected)
    return None if told is None else told[0] or None  # 0 is one that cannot be seen from here


def _peer(connected: _Connected) -> tuple[int, int] | None:
    """The process and the user at the other end, by their numbers."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    kind = "3i"
    told = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(kind))
    process, user, _group = struct.unpack(kind, told)
    return process, user


def remove(path: Path) -> None:
    """Remove a socket, unless it is gone."""
    with suppress(OSError):  # nothing could be done about it, and the next run sweeps
        path.unlink()


def _require_sockets() -> None:
    if not hasattr(socket, "AF_UNIX"):
        raise NotLiveError("this system has no sockets in its file system")


def _place(folder: Path, run_id: str) -> Path:
    """The socket of a run.

    Raises:
        NotLiveError: The run's id is no good name of a file.
        OSError: The path is too long.
    """
    if _ID.fullmatch(run_id) is None:
        msg = f"a run that can be watched is called by letters, digits and -_.:@+, got {run_id!r}"
        raise NotLiveError(msg)
    path = folder / f"{run_id}{_SUFFIX}"
    if len(os.fsencode(path)) > _LONGEST:
        raise OSError(errno.ENAMETOOLONG, f"a socket's path has at most {_LONGEST} bytes")
    return path


def _places(run_id: str) -> Iterator[Path]:
    """Where the socket of a run may be."""
    for folder in own_folders():
        try:
            path = _place(folder, run_id)
        except OSError:
            continue
        if why_not_private(folder) is None:
            yield path


def _listen(path: Path, run_id: str) -> socket.socket:
    """Listen there; a socket on which nobody listens is replaced.

    Raises:
        NotLiveError: Somebody listens there.
        OSError: It cannot be made.
    """
    if _is_taken(path):
        raise NotLiveError(f"a run {run_id} listens already")
    remove(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(str(path))
        path.chmod(0o600)
        made.listen(_BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def _connect(path: Path) -> socket.socket:
    """A connection to who listens there.

    Raises:
        OSError: Nobody does, or so many connect at this moment that they cannot be served.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(0)
        made.connect(str(path))
    except OSError:
        made.close()
        raise
    return made


def _is_taken(path: Path) -> bool:
    """Whether somebody listens there."""
    try:
        _connect(path).close()
    except BlockingIOError:
        return True  # and others knock
    except OSError:
        return False
    return True


def _sockets(folder: Path) -> list[tuple[Path, float]]:
    """Those in a folder, and when each was made, in Unix time."""
    if why_not_private(folder) is not None:
        return []
    found: list[tuple[Path, float]] = []
    for path in folder.glob(f"*{_SUFFIX}"):
        try:
            found.append((path, path.lstat().st_mtime))
        except OSError:
            continue  # gone since
    return found


def _sweep(folder: Path) -> None:
    """Remove what killed runs left behind; a socket that was just made may be about to be listened on."""
    before = time.time() - _FORGOTTEN
    for path, made_at in _sockets(folder):
        if made_at < before and not _is_taken(path):
            remove(path)
