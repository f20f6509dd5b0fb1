"""Replies that stand for equal calls: kept for days, shared by all who ask, and one call for all at once.

What a key is made of is the provider's affair. Here a key is bytes, and a cache is two things in this order:
a place to look (`cache_shelves`), and one call for all who find nothing there (`cache_flights`). Between
processes the right to make that call is a lease in the file.

A cache never fails a run. What is wrong with its file is told, once, and the run goes on with what memory
holds.
"""

import sqlite3
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from trioeval.errors import StoreError
from trioeval.store.cache_entry import to_entry
from trioeval.store.cache_flights import Flights
from trioeval.store.cache_shelves import FileShelf, MemoryShelf, Shelf, Waiting
from trioeval.store.cache_tables import CACHE, LIFETIME
from trioeval.store.cache_writer import CacheWriter, Stop, Written
from trioeval.store.database import open_database, open_reading
from trioeval.tasks.journal import Paid

LEASE = 15.0
"""Seconds after which a process that gives no sign of life does not ask any more."""

_LOOK = 0.05
"""Seconds that a look may wait: the event loop waits with it."""

CLOSE_GRACE = 30.0
"""Seconds that writing what is left may take at the end."""


@attrs.frozen
class CacheStatistics:
    """What a cache has done so far."""

    hits: int
    """Replies that were there."""
    shared: int
    """Replies of calls that others made at the same time."""
    calls: int
    """Calls that were made."""


@attrs.define(eq=False)
class Cache:
    """A `trioeval.tasks.caching.ReplyCache`; see `open_cache`."""

    _shelf: Shelf
    _wall: Callable[[], float]
    _flights: Flights[Paid] = attrs.field(factory=Flights)
    _hits: int = 0
    _shared: int = 0
    _calls: int = 0
    _renewed: set[int] = attrs.field(factory=set)
    """Hashes of the keys that were asked anew: what they got since is not asked for once more."""

    @property
    def error(self) -> StoreError | None:
        """Why it only uses its memory; None as long as all is well."""
        return self._shelf.error

    def has(self, key: bytes, /) -> bool:
        """See `ReplyCache`. Not a checkpoint."""
        return key in self._flights or self._shelf.has(key)

    async def reply(
        self,
        key: bytes,
        fetch: Callable[[], Awaitable[Paid]],
        waiting: Waiting,
        *,
        refresh: bool = False,
    ) -> Paid:
        """See `ReplyCache`. Always a checkpoint.

        `cached` is true of every reply that was not fetched by this very call. With `refresh`, equal
        calls are one as well: a reply that was asked anew since the cache was opened is not old.
        """
        await trio.lowlevel.checkpoint()
        refresh = refresh and hash(key) not in self._renewed
        if not refresh and (found := self._find(key)) is not None:
            self._hits += 1
            return found
        landing = await self._flights.join(
            key, partial(self._fetch, key, fetch, waiting, refresh=refresh), waiting
        )
        if landing.is_own:
            return landing.value
        self._shared += 1
        return attrs.evolve(landing.value, cached=True)

    def statistics(self) -> CacheStatistics:
        """A snapshot."""
        return CacheStatistics(hits=self._hits, shared=self._shared, calls=self._calls)

    def _find(self, key: bytes) -> Paid | None:
        entry = self._shelf.find(key)
        if entry is None:
            return None
        try:
            return entry.paid()
        except (ValueError, RecursionError) as error:
            self._shelf.drop(key, ValueError(str(error)))
            return None

    async def _fetch(
        self, key: bytes, fetch: Callable[[], Awaitable[Paid]], waiting: Waiting, *, refresh: bool
    ) -> Paid:
        if refresh:
            paid = await self._call(key, fetch)
            self._renewed.add(hash(key))
            return paid
        async with self._shelf.lead(key, waiting) as entry:
            if entry is not None and (found := self._find(key)) is not None:
                self._hits += 1
                return found
            return await self._call(key, fetch)

    async def _call(self, key: bytes, fetch: Callable[[], Awaitable[Paid]]) -> Paid:
        self._calls += 1
        paid = await fetch()
        entry = to_entry(paid, self._wall())
        if entry is not None:
            self._shelf.keep(key, entry)
        return paid


@asynccontextmanager
async def open_cache(
    path: Path | None,
    *,
    ttl_s: float = LIFETIME,
    lease_s: float = LEASE,
    wall: Callable[[], float] = time.time,
    told: Callable[[StoreError], None] | None = None,
) -> AsyncGenerator[Cache]:
    """Open a cache, and close it with everything written.

    Args:
        path: Of its file, which is made if it is not there; None is a cache in memory, without threads.
        ttl_s: Seconds that a reply may be used, ≥ 0. With 0 none is found that was there before; equal
            calls at the same time are one all the same.
        lease_s: Seconds after which another process that asked, and was killed, is not waited for.
        wall: Tells the time, in seconds since 1970; may jump.
        told: Hears what is wrong with the file, at most once, and once of damaged entries.
    """
    memory = MemoryShelf(ttl_s, wall)
    if path is None:
        yield Cache(memory, wall)
        return
    try:
        writing, reading = await trio.to_thread.run_sync(_open, path)
    except StoreError as error:
        memory.error = error
        if told is not None:
            told(error)
        yield Cache(memory, wall)
        return
    shelf = FileShelf(path, reading, memory, ttl_s, lease_s, wall, told or _nobody)
    token = trio.lowlevel.current_trio_token()

    def tell(written: Written) -> None:
        token.run_sync_soon(shelf.written, written)

    writer = CacheWriter(writing, uuid.uuid4().hex, ttl_s, lease_s, wall, tell)
    shelf.attach(writer)
    writer.start()
    try:
        yield Cache(shelf, wall)
    finally:
        writer.put(Stop())
        # What is paid for is to be kept also where the run was cancelled.
        with trio.move_on_after(CLOSE_GRACE, shield=True):
            await trio.to_thread.run_sync(writer.join, abandon_on_cancel=True)
        reading.close()


def _open(path: Path) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Connections that write, and read."""
    writing = open_database(path, CACHE)
    try:
        return writing, open_reading(path, CACHE, busy_s=_LOOK)
    except StoreError:
        writing.close()
        raise


def _nobody(_error: StoreError) -> None:
    """Hears what nobody wants to hear."""
