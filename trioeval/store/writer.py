"""A thread that writes to one connection, in group commits.

A caller queues a write and continues: that takes a microsecond. The thread prepares what is queued and
commits it. What is queued meanwhile is the next commit.

A commit costs the event loop processor time as well, because each of its statements takes the interpreter
lock and gives it back, and it costs about the same for one write as for fifty. So after `BURST` commits in a
row the thread pauses before the next one, up to 25 ms, and gathers more: that is little compared to the time
of a request, and a row that waits for its reply holds no slot. An urgent write ends the pause, and so does a
long queue. A reply is urgent if no other call is in flight.

When the database cannot be written any more, the running program loses nothing: each write is notified that
it will not happen, and callers stop waiting for it. Writing is not tried again in this execution; the next
execution of the run does so.
"""

import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import trio

from trioeval.errors import StoreError
from trioeval.providers.base import Media
from trioeval.store.database import BusyError, media_folder, store_error
from trioeval.store.schema import RUNS
from trioeval.store.writes import PendingWrite, RunPlace, StepWrite, write_batch

_log = logging.getLogger("trioeval.store")

RATE = 40.0  # commits per second, apart from urgent ones and those of a long queue
BURST = 20.0  # commits without a pause after a quiet time
LARGEST = 500  # writes per commit
LARGEST_SIZE = 8 * 2**20  # approximate bytes per commit
LONGEST = 0.05  # seconds of preparation for one commit
_WARN_AFTER = 2.0  # seconds that another program has kept the database locked
_RETRY = 0.05  # seconds between attempts, beyond the wait of the database itself


@attrs.define(eq=False, repr=False)
class CommitPace:
    """Decides when the next commit is due: a token bucket.

    Example:
        >>> pace = CommitPace(now=0.0)
        >>> for _ in range(20):
        ...     pace.spend(now=0.0)
        >>> pace.pause(now=0.0), pace.pause(now=1.0)
        (0.025, 0.0)
    """

    _now: float
    """The time of the last update, in seconds of any clock."""
    _saved: float = BURST
    """Commits that may follow without a pause."""

    def spend(self, now: float) -> None:
        """Count a commit, also one before its time."""
        self._save(now)
        self._saved = max(self._saved - 1, 0.0)

    def pause(self, now: float) -> float:
        """Return the seconds until the next commit is due."""
        self._save(now)
        return max(0.0, (1 - self._saved) / RATE)

    def _save(self, now: float) -> None:
        self._saved = min(BURST, self._saved + RATE * (now - self._now))
        self._now = now


class Writer:
    """The thread, and its queue. It is created, started and closed in Trio.

    Args:
        connection: Used exclusively by the thread, and closed at the end.
        path: The path of its file, for messages.
        patience_s: Seconds that another program may keep the database locked.
        on_error: Called in the event loop when nothing can be written any more.
        on_warning: Called in the event loop with problems that may be temporary.
        after_commit: Called in the thread after each commit.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        *,
        patience_s: float,
        on_error: Callable[[StoreError], None] | None = None,
        on_warning: Callable[[str], None] | None = None,
        after_commit: Callable[[], None] | None = None,
    ) -> None:
        self.error: StoreError | None = None
        """The reason why nothing is written any more."""
        self._connection = connection
        self.path = path
        """The path of the file."""
        self._patience = patience_s
        self._on_error = on_error
        self._on_warning = on_warning
        self._after_commit = after_commit
        self._queue: queue.SimpleQueue[PendingWrite | None] = queue.SimpleQueue()
        self._put = 0  # writes; counted by the callers
        self._done = 0  # writes; counted by the thread
        self._pace = CommitPace(time.monotonic())
        self._urgent = 0  # the last write that does not wait for others; set in the event loop
        self._urged = threading.Event()
        self._is_awaited = False
        self._changed = trio.Event()
        self._loop = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(target=self._run, name="trioeval store", daemon=True)

    @property
    def done(self) -> int:
        """The number of the last write that is committed or lost."""
        return self._done

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, work: PendingWrite) -> int:
        """Queue a write; return its number, to wait for it."""
        self._queue.put(work)
        self._put += 1
        return self._put

    async def wait_done(self, number: int | None = None, *, urgent: bool = True) -> None:
        """Return when a write is committed or lost, and all before it; None is the last one until now.

        A checkpoint only if it has to wait.

        Args:
            number: The number of the write, as `put` returned it.
            urgent: Whether the commit begins at once; otherwise it may wait for others.
        """
        number = self._put if number is None else number
        if urgent and number > max(self._done, self._urgent):
            # After everything that is ready to run: writes that arrive together are one commit.
            await trio.lowlevel.checkpoint()
            self._urgent = self._put
            self._urged.set()
        while self._done < number:
            changed = self._changed
            # Register before checking: the thread counts before it checks.
            self._is_awaited = True
            if self._done >= number:
                return
            await changed.wait()

    async def aclose(self) -> None:
        """Write what is left, and close the connection. Waits for it even when cancelled."""
        self._queue.put(None)
        self._urgent = self._put
        self._urged.set()
        # The thread is bounded by its patience; its writes are paid replies.
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._thread.join)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            works, is_over = self._gather()
            try:
                self._write(works)
            except Exception as error:  # noqa: BLE001 - an internal error must not leave the loop waiting
                _log.exception("the store failed")
                self._fail(
                    StoreError(
                        f"{self.path}: the {RUNS.name} cannot be written: "
                        f"{type(error).__name__}: {error}; this is a fault of trioeval"
                    )
                )
                for work in works:
                    work.lose()
            self._pace.spend(time.monotonic())
            self._done += len(works)
            if self._is_awaited:
                self._call_back(self._wake)
        self._close()

    def _gather(self) -> tuple[list[PendingWrite], bool]:
        """Return prepared writes for one commit, and whether they are the last ones."""
        first = self._queue.get()
        if first is None:
            return [], True
        self._urged.clear()  # before the check: the loop counts before it sets the event
        if self._queue.qsize() < LARGEST // 4 and self._urgent <= self._done:
            self._urged.wait(self._pace.pause(time.monotonic()))
        works: list[PendingWrite] = []
        started_at, size = time.monotonic(), 0
        work: PendingWrite | None = first
        while work is not None:
            works.append(work)
            size += self._make(work)
            if (
                len(works) >= LARGEST
                or size >= LARGEST_SIZE
                or time.monotonic() - started_at >= LONGEST
            ):
                return works, False
            try:
                work = self._queue.get_nowait()
            except queue.Empty:
                return works, False
        return works, True

    def _make(self, work: PendingWrite) -> int:
        try:
            return work.make()
        except Exception as error:  # noqa: BLE001 - as above
            _log.exception("a write could not be prepared")
            self._fail(
                StoreError(
                    f"{self.path}: a write could not be prepared: {type(error).__name__}: {error}; "
                    "this is a fault of trioeval"
                )
            )
            return 0

    def _write(self, works: Sequence[PendingWrite]) -> None:
        if self.error is None and works:
            try:
                self._commit(works)
            except sqlite3.Error as error:
                self._fail(store_error(self.path, RUNS, error))
            except OSError as error:
                fault = f"a file of media cannot be written: {error}"
                self._fail(StoreError(f"{self.path}: {fault}"))
        if self.error is not None:
            for work in works:
                work.lose()

    def _commit(self, works: Sequence[PendingWrite]) -> None:
        connection = self._connection
        self._begin()
        try:
            for work in works:
                if work.media:
                    _save(work.media, self.path)
            write_batch(connection, works)
            connection.execute("COMMIT")
        except Exception:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if self._after_commit is not None:
            self._after_commit()

    def _begin(self) -> None:
        """Begin a transaction when other programs release their locks."""
        started_at = time.monotonic()
        has_warned = False
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                waited = time.monotonic() - started_at
                if not isinstance(store_error(self.path, RUNS, error), BusyError):
                    raise
                if waited >= self._patience:
                    raise
                if waited >= _WARN_AFTER and not has_warned:
                    has_warned = True
                    self.warn(
                        f"{self.path}: the {RUNS.name} is locked by another program; "
                        f"waiting for it, at most {self._patience:g} s"
                    )
                time.sleep(_RETRY)
            else:
                return

    def _close(self) -> None:
        try:
            if self.error is None:
                # All data in one file: no other file has to be copied with it.
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            _log.debug("the log was not truncated: %s", error)  # other readers will do it
        try:
            self._connection.close()
        except sqlite3.Error as error:
            _log.debug("the connection was not closed: %s", error)

    def _fail(self, error: StoreError) -> None:
        if self.error is not None:
            return
        self.error = error
        if self._on_error is not None:
            self._call_back(self._on_error, error)

    def warn(self, text: str) -> None:
        """Report a problem that may be temporary; from any thread."""
        _log.warning(text)
        if self._on_warning is not None:
            self._call_back(self._on_warning, text)

    def _call_back(self, callback: Callable[..., object], *args: object) -> None:
        try:
            self._loop.run_sync_soon(callback, *args)
        except trio.RunFinishedError:
            _log.debug("the event loop has ended")

    def _wake(self) -> None:
        self._is_awaited = False
        changed, self._changed = self._changed, trio.Event()
        changed.set()


def _save(media: Sequence[Media], path: Path) -> None:
    from trioeval.store.media import save  # most runs have none

    save(media, media_folder(path))


@attrs.define(eq=False, repr=False, slots=False)
class StoredTask:
    """The journal of a task of a run: written during the run, read when the run is resumed."""

    _writer: Writer
    _place: RunPlace
    _task: str | None
    """The id of the task."""
    _part: int | None
    """Its number in an earlier execution; None if there was none."""
    _read: Callable[[], sqlite3.Connection]
    """Returns a connection for reading."""

    def _step(self, write: Callable[[sqlite3.Connection], None]) -> None:
        self._writer.put(StepWrite(write))

    async def durable(self) -> None:
        """Return when everything until now is durable, or has failed. A checkpoint if it has to wait."""
        await self._writer.wait_done()
