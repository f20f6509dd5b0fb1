"""Who runs a run: a file beside the database that is locked as long as somebody does.

The system frees the lock when the process ends, however it ends. So a run that is not finished, and whose
lock is free, has died.
"""

import contextlib
from pathlib import Path

import attrs
from filelock import FileLock, Timeout

from trioeval.errors import StoreError, UsageError
from trioeval.store.database import real_path

_SHORT = 0.5  # seconds; whoever only looks whether it is free holds it for much less


@attrs.frozen(eq=False)
class RunLock:
    """A lock that is held."""

    _lock: FileLock = attrs.field(repr=False)
    path: Path

    def release(self) -> None:
        """Free it, and take its file away."""
        # While it is held: whoever waits for this very file sees that it is gone, and makes a new one.
        with contextlib.suppress(OSError):  # some systems keep open files
            self.path.unlink(missing_ok=True)
        self._lock.release()

    def leave(self) -> None:
        """Free it, and leave its file."""
        self._lock.release()


def lock_path(database: Path, run_id: str) -> Path:
    """The file that is locked.

    Example:
        >>> lock_path(Path("/x/results.db"), "eval-1").name
        'results.db-eval-1.lock'
    """
    real = real_path(database)
    return real.with_name(f"{real.name}-{_file_name(run_id)}.lock")


def lock_run(database: Path, run_id: str) -> RunLock:
    """Take the lock of a run.

    Raises:
        UsageError: Somebody else runs it.
        StoreError: The lock cannot be made.
    """
    path = lock_path(database, run_id)
    lock = FileLock(path, timeout=_SHORT, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise UsageError(
            f"{database}: the run {run_id} is being run by another process; wait until it is over, or end it"
        ) from error
    except OSError as error:
        raise StoreError(
            f"{database}: the run {run_id} cannot be locked: {error.strerror or error} ({path})"
        ) from error
    return RunLock(lock, path)


def is_running(database: Path, run_id: str) -> bool:
    """Whether somebody runs it now."""
    path = lock_path(database, run_id)
    if not path.exists():
        return False
    lock = FileLock(path, timeout=0, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        return True
    except OSError:  # it may not even be opened: nobody of ours has made it
        return False
    lock.release()
    return False


def _file_name(run_id: str) -> str:
    """The id of a run, as far as it may stand in the name of a file."""
    return "".join(one if one.isalnum() or one in "-_." else "_" for one in run_id)[:100]
