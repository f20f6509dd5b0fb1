"""The sockets of running runs, in a folder that belongs to one user.

The system identifies the client of a connection if it can.
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
_LONGEST = 103  # bytes of a path: the limit of the strictest system
_FORGOTTEN = 60.0  # seconds after which a socket without a listener counts as abandoned
_BACKLOG = 128


def listen_for(run_id: str) -> tuple[socket.socket, Path]:
    """Create the socket of a run. Sockets of killed runs are removed.

    Raises:
        NotLiveError: It cannot be created; the text states why.
    """
    _require_sockets()
    problems: list[str] = []
    for folder in own_folders():
        try:
            path = _place(folder, run_id)  # before a folder is created that could not hold the name
            make_private(folder)
            _sweep(folder)
            return _listen(path, run_id), path
        except OSError as error:
            problems.append(f"{folder}: {error.strerror or error}")
    raise NotLiveError("; ".join(problems))


def connect_to(run_id: str) -> socket.socket:
    """Connect to a run. Blocks shortly.

    Raises:
        NotLiveError: No run listens under this id, or too many clients connect at this moment.
    """
    _require_sockets()
    for path in _places(run_id):
        try:
            found = _connect(path)
        except BlockingIOError as error:
            raise NotLiveError(f"run {run_id}: too many watchers") from error
        except OSError:
            continue
        if is_same_user(found):
            return found
        found.close()
    raise NotLiveError(
        f"run {run_id}: not reachable: it is over, or was started with --no-live, by another user, or on"
        " another machine"
    )


def reachable_runs() -> list[str]:
    """Return the runs of this user that can be reached now, in the order of their starts. Blocks shortly."""
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
        """Return a socket option."""


def is_same_user(connected: _Connected) -> bool:
    """Return whether the other end runs as this user; True if the system does not report it."""
    peer = _peer(connected)
    # Without a report, the permissions of the folder keep other users out.
    return peer is None or peer[1] == os.geteuid()


def process_of(connected: _Connected) -> int | None:
    """Return the process at the other end; None if the system does not report it."""
    peer = _peer(connected)
    return None if peer is None else peer[0] or None  # 0 is a process in another namespace


def _peer(connected: _Connected) -> tuple[int, int] | None:
    """Return the numbers of the process and the user at the other end."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    kind = "3i"
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize(kind))
    process, user, _group = struct.unpack(kind, credentials)
    return process, user


def remove(path: Path) -> None:
    """Remove a socket if it exists."""
    with suppress(OSError):  # the next run cleans up again
        path.unlink()


def _require_sockets() -> None:
    if not hasattr(socket, "AF_UNIX"):
        raise NotLiveError("this system does not support sockets in its file system")


def _place(folder: Path, run_id: str) -> Path:
    """Return the path of the socket of a run.

    Raises:
        NotLiveError: The id of the run is not valid as a file name.
        OSError: The path is too long.
    """
    if _ID.fullmatch(run_id) is None:
        msg = f"the id of a watched run must consist of letters, digits and -_.:@+, got {run_id!r}"
        raise NotLiveError(msg)
    path = folder / f"{run_id}{_SUFFIX}"
    if len(os.fsencode(path)) > _LONGEST:
        raise OSError(errno.ENAMETOOLONG, f"a socket's path has at most {_LONGEST} bytes")
    return path


def _places(run_id: str) -> Iterator[Path]:
    """Yield the possible folders of sockets."""
    for folder in own_folders():
        try:
            path = _place(folder, run_id)
        except OSError:
            continue
        if why_not_private(folder) is None:
            yield path


def _listen(path: Path, run_id: str) -> socket.socket:
    """Listen on a path; a socket without a listener is replaced.

    Raises:
        NotLiveError: Another process listens there.
        OSError: The socket cannot be created.
    """
    if _is_taken(path):
        raise NotLiveError(f"a run {run_id} is running already")
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
    """Connect to a path.

    Raises:
        OSError: No process listens there, or too many clients connect at this moment.
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
    """Return whether a process listens on a path."""
    try:
        _connect(path).close()
    except BlockingIOError:
        return True  # too many clients connect
    except OSError:
        return False
    return True


def _sockets(folder: Path) -> list[tuple[Path, float]]:
    """Return the sockets in a folder with their creation times, in Unix time."""
    if why_not_private(folder) is not None:
        return []
    found: list[tuple[Path, float]] = []
    for path in folder.glob(f"*{_SUFFIX}"):
        try:
            found.append((path, path.lstat().st_mtime))
        except OSError:
            continue  # removed in the meantime
    return found


def _sweep(folder: Path) -> None:
    """Remove sockets of killed runs; a new socket may be about to be listened on."""
    before = time.time() - _FORGOTTEN
    for path, made_at in _sockets(folder):
        if made_at < before and not _is_taken(path):
            remove(path)
