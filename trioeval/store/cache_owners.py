"""Who uses a database, such as one who has leases of a cache, and whether that process still lives.

Whoever opens it has a name, and a file of that name beside the database that is locked for as long as
it is open. The system frees the lock when the process ends, however it ends: so the leases of a name
whose file is there and free belong to nobody, and nobody waits for them. Where there is no such file, locks
say nothing: its owner may live and its file have been deleted.

Taking a lock creates its file, so a look at a file that is deleted in that moment finds one of its own
making, which is free. Owners therefore write into theirs: an empty file is not evidence of a death.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import attrs
from filelock import FileLock, Timeout

from trioeval.store.database import real_path
from trioeval.store.locks import RunLock

_SHORT = 0.5  # seconds; whoever only looks whether it is free holds it for much less
_TRIES = 5
_NAME = re.compile(r"[0-9a-f]{32}")  # what else stands in a file is no part of a path


@attrs.frozen
class Owners:
    """The files of those who have a cache open."""

    database: Path
    """The cache; links were followed."""

    @classmethod
    def of(cls, path: Path) -> "Owners":
        """Those of a cache, by whatever name it is opened."""
        return cls(real_path(path))

    def path(self, owner: str) -> Path:
        """The file of one.

        Example:
            >>> Owners(Path("/x/cache.db")).path("0a").name
            'cache.db-0a.lock'
        """
        return self.database.with_name(f"{self.database.name}-{owner}.lock")

    def enter(self, owner: str) -> RunLock | None:
        """Say that one lives, until the lock is released; None where nothing can be locked."""
        for _ in range(_TRIES):
            lock = self._locked(owner, _SHORT, _mark)
            if lock is None or lock.path.exists():
                return lock
            lock.release()  # another one took the file for that of somebody who died, as it was made
        return None

    def is_gone(self, owner: str) -> bool:
        """Whether the one of that name has died; False where nothing says so. Some 0.2 ms."""
        lock = self._left_by(owner)
        if lock is None:
            return False
        lock.leave()
        return True

    def lives(self, owner: str) -> bool:
        """Whether the one of that name holds its lock; False where nothing says so. Some 0.2 ms."""
        if not _NAME.fullmatch(owner) or not self.path(owner).exists():
            return False
        lock = self._locked(owner, 0)
        if lock is None:
            return True
        lock.leave()
        return False

    def take(self, owner: str, *, is_silent: bool) -> RunLock | None:
        """The lock of one that has died; None where it lives, or where nothing proves its death.

        Args:
            owner: Its id.
            is_silent: Whether it has given no sign of life lately. It has then died also if its file is gone.
        """
        if is_silent and _NAME.fullmatch(owner):
            return self._locked(owner, 0)
        return self._left_by(owner)

    def bury(self, forget: Callable[[str], None]) -> None:
        """Forget all who have died, and remove their files.

        Raises:
            Exception: What `forget` raised; the file of whom it concerned stays.
        """
        start, end = f"{self.database.name}-", ".lock"
        try:
            names = [one.name for one in self.database.parent.iterdir()]
        except OSError:
            return
        for name in names:
            owner = name.removeprefix(start).removesuffix(end)
            if name != f"{start}{owner}{end}" or not _NAME.fullmatch(owner):
                continue
            lock = self._left_by(owner)
            if lock is None:
                continue
            try:
                forget(owner)
            except Exception:
                lock.leave()
                raise
            lock.release()

    def _left_by(self, owner: str) -> RunLock | None:
        """The lock that one who died left; None where it lives, or where there is no file of its own."""
        if not _NAME.fullmatch(owner) or not self.path(owner).exists():
            return None
        sizes: list[int] = []
        lock = self._locked(owner, 0, lambda file: sizes.append(os.fstat(file).st_size))
        if lock is not None and not sizes[0]:
            lock.release()
            return None
        return lock

    def _locked(
        self, owner: str, patience_s: float, on_locked: Callable[[int], None] | None = None
    ) -> RunLock | None:
        path = self.path(owner)
        lock = FileLock(
            path,
            timeout=patience_s,
            thread_local=False,
            fallback_to_soft=False,
            on_acquired=on_locked,
        )
        try:
            lock.acquire()
        except (Timeout, OSError, NotImplementedError):
            return None
        return RunLock(lock, path)


def _mark(file: int) -> None:
    os.write(file, b"locked while its process lives\n")
