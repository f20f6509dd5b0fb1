"""One user at a time of a file that is replaced whenever it is written.

The lock is on another file beside it: that one stays the same.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from trioeval.errors import OutputError


@contextmanager
def only_user(path: Path) -> Iterator[None]:
    """Be the only one that uses a file so, of all processes of this machine, for as long as the block.

    A process that is killed is no user any more; an empty file `.NAME.lock` is left of it.

    Args:
        path: The file; it need not be there.

    Raises:
        OutputError: Somebody uses it, or its folder cannot be written.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():  # the lock would make it
        msg = f"{path}: the limits cannot be written: there is no folder {target.parent}"
        raise OutputError(msg)
    beside = target.with_name(f".{target.name}.lock")
    lock = FileLock(beside, timeout=0, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        msg = f"{path} is open in another process: if it serves the limits, ask it with --url"
        raise OutputError(msg) from None
    except OSError as error:
        msg = f"{path}: the limits cannot be written: {error.strerror or error}"
        raise OutputError(msg) from error
    try:
        yield
    finally:
        # While it is held: whoever waits for this very file sees that it is gone, and makes a new one.
        with suppress(OSError):  # some systems keep open files
            beside.unlink()
        lock.release()
