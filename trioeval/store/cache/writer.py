"""The thread that writes to the cache: entries and leases, in group commits.

All pending items are written in one transaction, at once: a caller that requests a lease waits for it. The
thread also renews the leases of its process, so that a busy event loop loses none; it ends with the process,
and so do they.

It has one way to fail: the file cannot be written. Then it reports that once, and grants every requested
lease, so that no call waits for a disk.
"""

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs
import trio

from trioeval.store.cache.entry import CacheEntry
from trioeval.store.cache.file import (
    LIFETIME,
    LeaseHolder,
    Owners,
    drop_entry,
    find_holder,
    give_all_back,
    give_back,
    has_entry,
    has_leases,
    keep_entry,
    renew_leases,
    sweep_entries,
    sweep_leases,
    take_lease,
)
from trioeval.store.database import media_folder

MOST = 500
"""The most items of one transaction."""

PATIENCE = 10.0
"""Seconds that another program may keep the file locked."""

_SWEPT = 500
_SWEEPS = 40
_LEASES_KEPT = 3600.0


@attrs.frozen
class KeepEntry:
    """Write an entry."""

    key: bytes
    entry: CacheEntry


@attrs.frozen
class DropEntry:
    """Remove an entry."""

    key: bytes


@attrs.frozen
class ReleaseLease:
    """Return a lease."""

    key: bytes
    lease: str


@attrs.frozen
class SweepEntries:
    """Remove some entries that are too old."""

    left: int = _SWEEPS
    """The most repetitions."""


@attrs.frozen
class StopWriting:
    """Write all pending items, and end."""


@attrs.define(eq=False, repr=False)
class ClaimLease:
    """Request a lease."""

    key: bytes
    lease: str
    dead: LeaseHolder | None = None
    """The holder that shows no sign of life."""
    answered: trio.Event = attrs.field(factory=trio.Event)
    is_granted: bool = False
    holder: LeaseHolder | None = None
    """The holder, if the lease is not granted; None if the reply exists."""


Item: TypeAlias = KeepEntry | DropEntry | ReleaseLease | SweepEntries | StopWriting | ClaimLease


@attrs.frozen
class ClaimResult:
    """The result of a claim."""

    claim: ClaimLease
    is_granted: bool
    holder: LeaseHolder | None = None


@attrs.frozen
class WriteReport:
    """The results of some items."""

    done: Sequence[KeepEntry | DropEntry]
    answers: Sequence[ClaimResult]
    failure: Exception | None = None
    """The reason why nothing is written any more; reported once."""


@attrs.define(eq=False, repr=False)
class CacheWriter:
    """The thread, and its queue."""

    _connection: sqlite3.Connection
    _owner: str
    _owners: Owners
    _ttl: float
    _lease: float
    _wall: Callable[[], float]
    _tell: Callable[[WriteReport], None]
    """Called in the thread."""
    _path: Path
    """The path of the file."""
    _items: "queue.SimpleQueue[Item]" = attrs.field(factory=queue.SimpleQueue)
    _renewed_at: float = attrs.field(factory=time.monotonic)
    _failed: bool = False
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Start, by removing entries that are too old."""
        self.put(SweepEntries())
        self._thread = threading.Thread(target=self._run, name="trioeval cache", daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Queue an item. Never waits."""
        self._items.put(item)

    def join(self) -> None:
        """Wait for the end of the thread."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._bury()
            is_over = False
            while not is_over:
                batch = self._next()
                self._write(batch)
                is_over = any(isinstance(item, StopWriting) for item in batch)
            self._end()
        finally:
            self._connection.close()

    def _next(self) -> list[Item]:
        """Return all pending items; none when leases are to be renewed."""
        batch: list[Item] = []
        try:
            batch.append(self._items.get(timeout=self._lease / 3))
            while len(batch) < MOST:
                batch.append(self._items.get_nowait())
        except queue.Empty:
            pass
        return batch

    def _write(self, batch: list[Item]) -> None:
        answers: list[ClaimResult] = []
        failure: Exception | None = None
        give_up_at = time.monotonic() + PATIENCE
        while not self._failed:
            try:
                answers = self._commit(batch)
                break
            except Exception as error:  # noqa: BLE001 - any error must be reported, or callers wait for ever
                self._roll_back()
                if not _is_busy(error) or time.monotonic() > give_up_at:
                    self._failed, failure = True, error
        if self._failed:
            answers = [
                ClaimResult(item, is_granted=True) for item in batch if isinstance(item, ClaimLease)
            ]
        done = [
            item for item in batch if isinstance(item, KeepEntry | DropEntry) and not self._failed
        ]
        if answers or done or failure:
            with suppress(trio.RunFinishedError):  # no caller is left
                self._tell(WriteReport(done, answers, failure))

    def _commit(self, batch: list[Item]) -> list[ClaimResult]:
        now = self._wall()
        is_due = time.monotonic() - self._renewed_at >= self._lease / 3
        if is_due and not has_leases(self._connection, self._owner):
            is_due, self._renewed_at = False, time.monotonic()
        if not batch and not is_due:
            return []
        self._connection.execute("BEGIN IMMEDIATE")
        if is_due:
            renew_leases(self._connection, self._owner, now + self._lease)
        done = [self._apply(item, now) for item in batch]
        self._connection.execute("COMMIT")
        if is_due:
            self._renewed_at = time.monotonic()
        for item in done:
            if isinstance(item, SweepEntries):
                self.put(item)
        return [answer for answer in done if isinstance(answer, ClaimResult)]

    def _apply(self, item: Item, now: float) -> ClaimResult | SweepEntries | None:
        """Apply one item; return its result, or the work that is left of it."""
        match item:
            case KeepEntry(key, entry):
                if entry.media:
                    from trioeval.store.media import save

                    save(entry.media, media_folder(self._path))
                keep_entry(self._connection, key, entry)
            case DropEntry(key):
                drop_entry(self._connection, key)
            case ReleaseLease(key, lease):
                give_back(self._connection, key, lease)
            case SweepEntries():
                return self._sweep(item, now)
            case ClaimLease():
                return self._claim(item, now)
            case StopWriting():
                pass
        return None

    def _claim(self, claim: ClaimLease, now: float) -> ClaimResult:
        connection, key = self._connection, claim.key
        if has_entry(connection, key, now, self._ttl):
            return ClaimResult(claim, is_granted=False)
        holder = find_holder(connection, key)
        if holder is not None and holder.owner != self._owner:
            # A clock that was set forward ends no lease of a process that still holds its lock.
            is_late = holder.utc_expires <= now and not self._owners.lives(holder.owner)
            is_over = is_late or holder == claim.dead
            if not is_over and self._owners.is_gone(holder.owner):
                give_all_back(connection, holder.owner)
            elif not is_over:
                return ClaimResult(claim, is_granted=False, holder=holder)
        take_lease(connection, key, claim.lease, now + self._lease)
        return ClaimResult(claim, is_granted=True)

    def _sweep(self, sweep: SweepEntries, now: float) -> SweepEntries | None:
        """Remove some entries; those that are too old only for this run are left to others."""
        if sweep.left == _SWEEPS:
            sweep_leases(self._connection, now - _LEASES_KEPT)
        before = now - max(self._ttl, LIFETIME)
        removed = sweep_entries(self._connection, before, _SWEPT)
        return SweepEntries(sweep.left - 1) if removed == _SWEPT and sweep.left > 1 else None

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                self._failed = True

    def _bury(self) -> None:
        """Remove the leases of dead owners, so that none waits for them."""
        with suppress(sqlite3.Error):  # callers that wait for one of them will find out
            self._owners.bury(partial(give_all_back, self._connection))

    def _end(self) -> None:
        self._bury()
        try:
            if not self._failed:
                give_all_back(self._connection, self._owner)
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:  # others still use it, or it cannot be written: nothing depends on it
            pass


def _is_busy(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
