# Separate from `store.cache.cache`: where replies are kept is independent of who waits for them.
"""The backends of a cache: tables in memory, or a file that other processes use too.

Lookups are synchronous: a point read of a database costs a few microseconds, and a thread would cost forty.
Entries that are not in the file yet are found among the pending writes. Entries that cannot be written to the
file go to tables in memory.
"""

import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs
import trio

from trioeval.errors import StoreError
from trioeval.providers import Reply
from trioeval.store.cache.entry import CacheEntry
from trioeval.store.cache.file import (
    CACHE,
    LeaseHolder,
    Owners,
    claim_lease,
    drop_entry,
    find_entry,
    find_holder,
    has_entry,
    keep_entry,
    lease_name,
    trim_entries,
)
from trioeval.store.cache.writer import (
    CacheWriter,
    ClaimLease,
    DropEntry,
    KeepEntry,
    ReleaseLease,
    WriteReport,
)
from trioeval.store.database import BusyError, media_folder, open_memory, store_error

Waiting: TypeAlias = Callable[[], AbstractContextManager[object]]

MEMORY = 256 * 2**20
"""Bytes of tables in memory; the oldest entries are dropped first."""

FIRST_LOOK, LONGEST_LOOK = 0.01, 0.5
"""Seconds between two checks for the reply of another process: the first and the longest delay."""


@attrs.define(eq=False, repr=False)
class MemoryBackend:
    """The tables of a cache in memory, for one event loop."""

    _ttl: float
    _wall: Callable[[], float]
    error: StoreError | None = None
    """The reason why they replace a file."""
    _tables: sqlite3.Connection = attrs.field(init=False, factory=partial(open_memory, CACHE))

    def find(self, key: bytes) -> CacheEntry | None:
        """Return a usable entry."""
        try:
            entry = find_entry(self._tables, key)
        except ValueError:  # it unpacks to more than the largest text
            return None
        return entry if entry is not None and entry.is_fresh(self._wall(), self._ttl) else None

    def has(self, key: bytes) -> bool:
        """Return whether a usable entry exists."""
        return has_entry(self._tables, key, self._wall(), self._ttl)

    def keep(self, key: bytes, entry: CacheEntry) -> None:
        """Store an entry, and drop the oldest ones if room is lacking; media need a file, and stay out."""
        if entry.media:
            return
        with suppress(sqlite3.Error):  # larger than any value of a database
            keep_entry(self._tables, key, entry)
            trim_entries(self._tables, MEMORY)

    def drop(self, key: bytes, fault: ValueError | None = None) -> None:  # noqa: ARG002 - see `FileBackend`
        """Remove an entry."""
        drop_entry(self._tables, key)

    def with_media(self, reply: Reply, entry: CacheEntry) -> Reply:  # noqa: ARG002 - see `FileBackend`
        """Refuse a reply with media, which is never kept."""
        raise ValueError("its media are not in memory")

    @asynccontextmanager
    async def lead(self, key: bytes, waiting: Waiting) -> AsyncGenerator[CacheEntry | None]:  # noqa: ARG002
        """Grant the right to call at once: no other process shares the tables."""
        yield None

    def close(self) -> None:
        """Release everything."""
        self._tables.close()


@attrs.define(eq=False, repr=False)
class FileBackend:
    """A cache file."""

    path: Path
    _reader: sqlite3.Connection
    _claimer: sqlite3.Connection | None
    """Takes leases in the event loop without waiting; None where a commit would wait for the disk."""
    _owner: str
    """The id of this user of the file; see `Owners`."""
    _owners: Owners
    _ttl: float
    _lease: float
    _wall: Callable[[], float]
    _on_problem: Callable[[StoreError], None]
    _writer: CacheWriter = attrs.field(init=False)
    error: StoreError | None = attrs.field(default=None, init=False)
    """The reason why the file is not written any more; entries are stored in memory from then on."""
    _pending: dict[bytes, CacheEntry] = attrs.field(factory=dict, init=False)
    """Entries that are not in the file yet."""
    _memory: MemoryBackend | None = attrs.field(default=None, init=False)
    """Entries that cannot be written to the file."""
    _is_readable: bool = True
    _is_damaged: bool = False
    _dropped: dict[bytes, DropEntry] = attrs.field(factory=dict, init=False)
    """Entries that must not be found any more, though they may still be in the file."""
    _leases: int = 0
    """Number of leases requested."""
    _seen: dict[str, float] = attrs.field(factory=dict, init=False)
    """When another owner was last seen alive, on Trio's clock."""

    def attach(self, writer: CacheWriter) -> None:
        """Set the writer."""
        self._writer = writer

    def find(self, key: bytes) -> CacheEntry | None:
        """Return a usable entry."""
        entry = self._pending.get(key)
        if entry is None and self._memory is not None:
            entry = self._memory.find(key)
        if entry is None and self._is_readable and key not in self._dropped:
            try:
                entry = find_entry(self._reader, key)
            except ValueError as fault:
                self.drop(key, fault)
            except sqlite3.Error as error:
                self._failed(error)
        return entry if entry is not None and entry.is_fresh(self._wall(), self._ttl) else None

    def has(self, key: bytes) -> bool:
        """Return whether a usable entry exists."""
        entry = self._pending.get(key)
        if entry is not None:
            return entry.is_fresh(self._wall(), self._ttl)
        if self._memory is not None and self._memory.has(key):
            return True
        if not self._is_readable or key in self._dropped:
            return False
        try:
            return has_entry(self._reader, key, self._wall(), self._ttl)
        except sqlite3.Error as error:
            self._failed(error)
            return False

    def keep(self, key: bytes, entry: CacheEntry) -> None:
        """Write an entry, replacing an existing one."""
        if self._memory is not None:
            self._memory.keep(key, entry)
            return
        self._pending[key] = entry
        self._writer.put(KeepEntry(key, entry))

    def with_media(self, reply: Reply, entry: CacheEntry) -> Reply:
        """Return a reply with the bytes of its media.

        They are read at once, so that nothing depends on a file that another program may remove.

        Raises:
            ValueError: They cannot be read.
        """
        if entry.media:
            return attrs.evolve(reply, media=entry.media)
        from trioeval.providers.media import locate

        try:
            locate(reply.media, media_folder(self.path))
            for one in reply.media:
                one.data = one.read()
        except OSError as error:
            raise ValueError(str(error)) from error
        return reply

    def drop(self, key: bytes, fault: ValueError | None = None) -> None:
        """Remove an entry; report it if it is damaged."""
        self._pending.pop(key, None)
        dropped = self._dropped[key] = DropEntry(key)
        if self._memory is not None:
            self._memory.drop(key)
            return
        self._writer.put(dropped)
        if fault is not None and not self._is_damaged:
            self._is_damaged = True
            message = f"{self.path}: an entry of the {CACHE.name} is damaged; its call is made again: {fault}"
            self._on_problem(StoreError(message))

    @asynccontextmanager
    async def lead(self, key: bytes, waiting: Waiting) -> AsyncGenerator[CacheEntry | None]:
        """Grant the right to make a call among all processes; or return the entry stored meanwhile.

        Without a lifetime there is nothing to wait for: no entry could be used.

        No checkpoint if the lease is free: an admitted job makes its call in that step. If it waited for a
        thread, it would hold no slot meanwhile, and the lane would admit others.
        """
        if self._ttl <= 0 or self.error is not None:
            yield None
            return
        self._leases += 1
        lease = lease_name(self._owner, self._leases)
        try:
            yield None if self._take(key, lease) else await self._wait_turn(key, lease, waiting)
        finally:
            # Pending entries go before it, in the same order and mostly in the same transaction.
            self._writer.put(ReleaseLease(key, lease))

    def written(self, report: WriteReport) -> None:
        """Handle a report of the writer, in the event loop."""
        for one in report.done:
            if isinstance(one, KeepEntry):
                if self._pending.get(one.key) is one.entry:
                    del self._pending[one.key]
            elif self._dropped.get(one.key) is one:
                del self._dropped[one.key]
        if isinstance(report.failure, sqlite3.Error):
            self._give_up(store_error(self.path, CACHE, report.failure))
        elif report.failure is not None:
            self._give_up(StoreError(f"{self.path}: the {CACHE.name} failed: {report.failure!r}"))
        for answer in report.answers:
            answer.claim.is_granted, answer.claim.holder = answer.is_granted, answer.holder
            answer.claim.answered.set()

    def _take(self, key: bytes, lease: str) -> bool:
        """Take a lease that is free; False if it is not, or the file is busy or faulty."""
        if self._claimer is None:
            return False
        try:
            return claim_lease(
                self._claimer, key, lease, now=self._wall(), life=self._lease, ttl=self._ttl
            )
        except sqlite3.Error:  # the writer reports what is wrong
            return False

    async def _wait_turn(self, key: bytes, lease: str, waiting: Waiting) -> CacheEntry | None:
        """Wait for the right to make the call; or return the entry that exists by then."""
        dead: LeaseHolder | None = None
        while True:
            claim = ClaimLease(key, lease, dead)
            self._writer.put(claim)
            with waiting():
                await claim.answered.wait()
                if claim.is_granted:
                    return None
                entry, dead = await self._watch(key, claim.holder)
            if entry is not None or self.error is not None:
                return entry

    async def _watch(
        self, key: bytes, holder: LeaseHolder | None
    ) -> tuple[CacheEntry | None, LeaseHolder | None]:
        """Wait until the entry exists, or the lease's holder has ended or shows no sign of life.

        Its signs are timed by Trio's clock: the wall clock may jump.
        """
        pause, since = FIRST_LOOK, trio.current_time()
        while True:
            entry = self.find(key)
            if entry is not None or self.error is not None:
                return entry, None
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_LOOK)
            now = trio.current_time()
            try:
                seen = find_holder(self._reader, key)
            except sqlite3.Error as error:
                self._failed(error)
                continue
            if seen is None or self._is_over(seen) or self._is_gone(seen.owner, now):
                return self.find(key), None
            if seen != holder:
                holder, since = seen, now
            elif now - since >= self._lease:
                return None, holder

    def _is_over(self, seen: LeaseHolder) -> bool:
        """Return whether a lease has expired.

        The wall clock alone is not proof, as it may have been set forward.
        """
        return seen.utc_expires <= self._wall() and not self._owners.lives(seen.owner)

    def _is_gone(self, owner: str, now: float) -> bool:
        """Return whether an owner has died; not checked by every caller that waits for one of its replies."""
        if now - self._seen.get(owner, -LONGEST_LOOK) < LONGEST_LOOK / 2:
            return False
        self._seen[owner] = now
        return self._owners.is_gone(owner)

    def _failed(self, error: sqlite3.Error) -> None:
        failure = store_error(self.path, CACHE, error)
        # A lookup during recovery of the file finds nothing; that is not a fault of the file.
        if not isinstance(failure, BusyError):
            self._is_readable = False
            self._give_up(failure)

    def _give_up(self, failure: StoreError) -> None:
        if self._memory is None:
            self.error, self._memory = failure, MemoryBackend(self._ttl, self._wall)
            for key, entry in self._pending.items():
                self._memory.keep(key, entry)
            self._pending.clear()
            self._on_problem(failure)

    def close(self) -> None:
        """Release the memory."""
        if self._memory is not None:
            self._memory.close()


CacheBackend: TypeAlias = MemoryBackend | FileBackend
"""A place of entries."""
