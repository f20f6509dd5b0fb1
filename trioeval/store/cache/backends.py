# Apart from `store.cache.cache`: where replies are kept is independent of who waits for them.
"""Where a cache keeps its entries: in tables in memory, or in a file that other processes use too.

Looking is synchronous: a point read of a database costs some microseconds, and a thread would cost forty.
What is not in the file yet is found among what its writer was given. What cannot be put into the file goes to
tables in memory.
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
from trioeval.store.cache.entry import Entry
from trioeval.store.cache.file import (
    CACHE,
    Holder,
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
from trioeval.store.cache.writer import CacheWriter, Claim, Drop, Keep, Release, Written
from trioeval.store.database import BusyError, open_memory, store_error

Waiting: TypeAlias = Callable[[], AbstractContextManager[object]]

MEMORY = 256 * 2**20
"""Bytes of tables in memory; the oldest entries go first."""

FIRST_LOOK, LONGEST_LOOK = 0.01, 0.5
"""Seconds between two looks at what another process asks: the first, and the longest."""


@attrs.define(eq=False)
class MemoryTables:
    """The tables of a cache in memory, for one event loop."""

    _ttl: float
    _wall: Callable[[], float]
    error: StoreError | None = None
    """Why they take the place of a file that was to be used."""
    _tables: sqlite3.Connection = attrs.field(init=False, factory=partial(open_memory, CACHE))

    def find(self, key: bytes) -> Entry | None:
        """Return the entry that may be used."""
        try:
            entry = find_entry(self._tables, key)
        except ValueError:  # it unpacks to more than is ever read
            return None
        return entry if entry is not None and entry.is_fresh(self._wall(), self._ttl) else None

    def has(self, key: bytes) -> bool:
        """Return whether there is one."""
        return has_entry(self._tables, key, self._wall(), self._ttl)

    def keep(self, key: bytes, entry: Entry) -> None:
        """Hold an entry, in place of the oldest ones where there is no room."""
        with suppress(sqlite3.Error):  # larger than any value of a database
            keep_entry(self._tables, key, entry)
            trim_entries(self._tables, MEMORY)

    def drop(self, key: bytes, fault: ValueError | None = None) -> None:  # noqa: ARG002 - see `FileShelf`
        """Remove an entry."""
        drop_entry(self._tables, key)

    @asynccontextmanager
    async def lead(self, key: bytes, waiting: Waiting) -> AsyncGenerator[Entry | None]:  # noqa: ARG002
        """Give the right to ask at once: no other process is there."""
        yield None

    def close(self) -> None:
        """Let everything go."""
        self._tables.close()


@attrs.define(eq=False)
class FileShelf:
    """Entries in a file."""

    path: Path
    _reader: sqlite3.Connection
    _claimer: sqlite3.Connection | None
    """Takes leases in the event loop, and waits for nothing; None where that would wait for the disk."""
    _owner: str
    """Who one is; see `Owners`."""
    _owners: Owners
    _ttl: float
    _lease: float
    _wall: Callable[[], float]
    _told: Callable[[StoreError], None]
    _writer: CacheWriter = attrs.field(init=False)
    error: StoreError | None = attrs.field(default=None, init=False)
    """Why the file is not written any more; entries are held in memory from then on."""
    _pending: dict[bytes, Entry] = attrs.field(factory=dict, init=False)
    """What is not in the file yet."""
    _memory: MemoryTables | None = attrs.field(default=None, init=False)
    """What cannot be put into the file."""
    _is_readable: bool = True
    _is_damaged: bool = False
    _dropped: dict[bytes, Drop] = attrs.field(factory=dict, init=False)
    """What is not to be found in the file any more, though it may still be there."""
    _leases: int = 0
    """How many were asked for."""
    _seen: dict[str, float] = attrs.field(factory=dict, init=False)
    """When another owner was last seen alive, on Trio's clock."""

    def attach(self, writer: CacheWriter) -> None:
        """Name who writes."""
        self._writer = writer

    def find(self, key: bytes) -> Entry | None:
        """Return the entry that may be used."""
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
        """Return whether there is one."""
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

    def keep(self, key: bytes, entry: Entry) -> None:
        """Write an entry, in place of the one that is there."""
        if self._memory is not None:
            self._memory.keep(key, entry)
            return
        self._pending[key] = entry
        self._writer.put(Keep(key, entry))

    def drop(self, key: bytes, fault: ValueError | None = None) -> None:
        """Remove an entry; a fault of it is reported."""
        self._pending.pop(key, None)
        dropped = self._dropped[key] = Drop(key)
        if self._memory is not None:
            self._memory.drop(key)
            return
        self._writer.put(dropped)
        if fault is not None and not self._is_damaged:
            self._is_damaged = True
            message = f"{self.path}: an entry of the {CACHE.name} is damaged, and asked for again: {fault}"
            self._told(StoreError(message))

    @asynccontextmanager
    async def lead(self, key: bytes, waiting: Waiting) -> AsyncGenerator[Entry | None]:
        """Give the right to ask among all processes; or what another one has found out meanwhile.

        Without a life time there is nothing to wait for: nothing could be found.

        No checkpoint where the lease is free: a job that was let in makes its call in that step. If it
        waited for a thread, it would hold no slot meanwhile, and the lane would let in others.
        """
        if self._ttl <= 0 or self.error is not None:
            yield None
            return
        self._leases += 1
        lease = lease_name(self._owner, self._leases)
        try:
            yield None if self._take(key, lease) else await self._wait_turn(key, lease, waiting)
        finally:
            # Whatever was kept goes before it, in the same order and mostly the same transaction.
            self._writer.put(Release(key, lease))

    def written(self, told: Written) -> None:
        """What the writer tells, in the event loop."""
        for one in told.done:
            if isinstance(one, Keep):
                if self._pending.get(one.key) is one.entry:
                    del self._pending[one.key]
            elif self._dropped.get(one.key) is one:
                del self._dropped[one.key]
        if isinstance(told.failure, sqlite3.Error):
            self._give_up(store_error(self.path, CACHE, told.failure))
        elif told.failure is not None:
            self._give_up(StoreError(f"{self.path}: the {CACHE.name} failed: {told.failure!r}"))
        for answer in told.answers:
            answer.claim.is_granted, answer.claim.holder = answer.is_granted, answer.holder
            answer.claim.answered.set()

    def _take(self, key: bytes, lease: str) -> bool:
        """Take a lease that is free; False where it is not, or the file is busy, or at fault."""
        if self._claimer is None:
            return False
        try:
            return claim_lease(
                self._claimer, key, lease, now=self._wall(), life=self._lease, ttl=self._ttl
            )
        except sqlite3.Error:  # the writer tells what is wrong
            return False

    async def _wait_turn(self, key: bytes, lease: str, waiting: Waiting) -> Entry | None:
        """Wait until one may ask; or the entry that is there by then."""
        dead: Holder | None = None
        while True:
            claim = Claim(key, lease, dead)
            self._writer.put(claim)
            with waiting():
                await claim.answered.wait()
                if claim.is_granted:
                    return None
                entry, dead = await self._watch(key, claim.holder)
            if entry is not None or self.error is not None:
                return entry

    async def _watch(self, key: bytes, holder: Holder | None) -> tuple[Entry | None, Holder | None]:
        """Look until the entry is there, or whoever asks has gone, or gives no sign of life.

        Its signs are counted on Trio's clock: the one on the wall may jump.
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

    def _is_over(self, seen: Holder) -> bool:
        """Whether a lease has run out; the clock alone does not say so, as it may have been set forward."""
        return seen.utc_expires <= self._wall() and not self._owners.lives(seen.owner)

    def _is_gone(self, owner: str, now: float) -> bool:
        """Whether an owner has died; not looked at by each who waits for one of its replies."""
        if now - self._seen.get(owner, -LONGEST_LOOK) < LONGEST_LOOK / 2:
            return False
        self._seen[owner] = now
        return self._owners.is_gone(owner)

    def _failed(self, error: sqlite3.Error) -> None:
        failure = store_error(self.path, CACHE, error)
        # A look that comes while the file is put in order finds nothing; that is no fault of the file.
        if not isinstance(failure, BusyError):
            self._is_readable = False
            self._give_up(failure)

    def _give_up(self, failure: StoreError) -> None:
        if self._memory is None:
            self.error, self._memory = failure, MemoryTables(self._ttl, self._wall)
            for key, entry in self._pending.items():
                self._memory.keep(key, entry)
            self._pending.clear()
            self._told(failure)

    def close(self) -> None:
        """Let go what is held in memory."""
        if self._memory is not None:
            self._memory.close()


Shelf: TypeAlias = MemoryTables | FileShelf
"""Where entries are."""
