"""Replies that are reused for equal calls: stored for days, shared between runs, one call at a time.

The provider defines the parts of a key. Here a key is bytes, and a cache is two things in this order: a
lookup (`backends`), and one call for all callers that find nothing (`single_flight`). Between processes the
right to make that call is a lease in the file.

A cache never fails a run. A problem of its file is reported once, and the run continues with the tables in
memory.
"""

import sqlite3
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path

import attrs
import trio

from trioeval.errors import StoreError
from trioeval.evaluation.journal import RecordedReply
from trioeval.providers.bounds import MOST_BYTES
from trioeval.store.cache.backends import CacheBackend, FileBackend, MemoryBackend, Waiting
from trioeval.store.cache.entry import to_entry
from trioeval.store.cache.file import CACHE, LIFETIME, Owners
from trioeval.store.cache.single_flight import SingleFlight
from trioeval.store.cache.writer import PATIENCE, CacheWriter, StopWriting, WriteReport
from trioeval.store.database import RunLock, open_database, open_patiently, open_reading

LEASE = 15.0
"""Seconds after which a process without a sign of life loses its leases."""

_LOOK = 0.05
"""Seconds that a lookup may wait; the event loop waits with it."""

CLOSE_GRACE = 30.0
"""Seconds that writing may take at the end."""


@attrs.frozen
class CacheStatistics:
    """The statistics of a cache so far."""

    hits: int
    """Replies found in the cache."""
    shared: int
    """Replies of calls that others made at the same time."""
    calls: int
    """Calls made."""


@attrs.define(eq=False, repr=False)
class Cache:
    """A `trioeval.evaluation.provider_calls.ReplyCache`; see `open_cache`."""

    _shelf: CacheBackend
    _wall: Callable[[], float]
    _flights: SingleFlight[RecordedReply] = attrs.field(factory=SingleFlight)
    _hits: int = 0
    _shared: int = 0
    _calls: int = 0
    _renewed: set[int] = attrs.field(factory=set)
    """Hashes of the keys that were refreshed: their new replies are not refreshed once more."""

    @property
    def error(self) -> StoreError | None:
        """The reason why it only uses its memory; None if it uses the file."""
        return self._shelf.error

    def has(self, key: bytes, /) -> bool:
        """See `ReplyCache`. Not a checkpoint."""
        return key in self._flights or self._shelf.has(key)

    async def reply(
        self,
        key: bytes,
        fetch: Callable[[], Awaitable[RecordedReply]],
        waiting: Waiting,
        *,
        refresh: bool = False,
        most_bytes: int = MOST_BYTES,
    ) -> RecordedReply:
        """See `ReplyCache`. A checkpoint, unless nothing is found and `fetch` is not one.

        If no entry exists and no equal call is in progress, `fetch` is called in the same step. `cached` is
        true for every reply that was not fetched by this call. With `refresh`, equal calls are one as well: a
        reply that was fetched since the cache was opened is not old. The earlier entry is also removed if the
        new reply is not cacheable; it stays if the call fails.
        """
        refresh = refresh and hash(key) not in self._renewed
        if not refresh and (found := self._find(key, most_bytes)) is not None:
            await trio.lowlevel.checkpoint()
            self._hits += 1
            return found
        landing = await self._flights.join(
            key, partial(self._fetch, key, fetch, waiting, most_bytes, refresh=refresh), waiting
        )
        if landing.is_own:
            return landing.value
        self._shared += 1
        return attrs.evolve(landing.value, cached=True)

    def drop(self, key: bytes, /) -> None:
        """See `ReplyCache`. Not a checkpoint."""
        self._shelf.drop(key)

    def statistics(self) -> CacheStatistics:
        """Return a snapshot."""
        return CacheStatistics(hits=self._hits, shared=self._shared, calls=self._calls)

    def _find(self, key: bytes, most_bytes: int) -> RecordedReply | None:
        entry = self._shelf.find(key)
        if entry is None:
            return None
        try:
            found = entry.paid(most_bytes)
            if found.reply.media:
                found.reply = self._shelf.with_media(found.reply, entry)
        except (ValueError, RecursionError) as error:
            self._shelf.drop(key, ValueError(str(error)))
            return None
        return found

    async def _fetch(
        self,
        key: bytes,
        fetch: Callable[[], Awaitable[RecordedReply]],
        waiting: Waiting,
        most_bytes: int,
        *,
        refresh: bool,
    ) -> RecordedReply:
        if refresh:
            return await self._call(key, fetch, refresh=True)
        async with self._shelf.lead(key, waiting) as entry:
            if entry is not None and (found := self._find(key, most_bytes)) is not None:
                self._hits += 1
                return found
            return await self._call(key, fetch)

    async def _call(
        self, key: bytes, fetch: Callable[[], Awaitable[RecordedReply]], *, refresh: bool = False
    ) -> RecordedReply:
        self._calls += 1
        paid = await fetch()
        entry = to_entry(paid, self._wall())
        if entry is not None:
            self._shelf.keep(key, entry)
        if refresh and entry is not None:
            self._renewed.add(hash(key))
        elif refresh:
            self._shelf.drop(key)  # the earlier reply is not current any more
        return paid


@asynccontextmanager
async def open_cache(
    path: Path | None,
    *,
    ttl_s: float = LIFETIME,
    lease_s: float = LEASE,
    patience_s: float = PATIENCE,
    wal: bool = True,
    wall: Callable[[], float] = time.time,
    on_problem: Callable[[StoreError], None] | None = None,
) -> AsyncGenerator[Cache]:
    """Open a cache, and close it with everything written.

    Args:
        path: The path of its file, which is created if it does not exist; None is a cache in memory,
            without threads.
        ttl_s: Seconds that a reply may be used, ≥ 0. With 0 no earlier reply is used; equal calls at the
            same time are still one.
        lease_s: Seconds after which another process that makes the call, and was killed, is not waited for.
        patience_s: Seconds that another program may keep the file locked while it is opened.
        wal: Whether the file has a write-ahead log, see `open_store`.
        wall: Returns the time, in seconds since 1970; may jump.
        on_problem: Called with problems of the file, at most once, and once with damaged entries; before
            that, with a notice if another program keeps the file locked for long.
    """
    if path is None:
        with closing(MemoryBackend(ttl_s, wall)) as memory:
            yield Cache(memory, wall)
        return
    owner = uuid.uuid4().hex
    on_problem = on_problem or _nobody
    try:
        files = await open_patiently(
            partial(_Files.open, path, owner, wal=wal),
            path,
            CACHE,
            patience_s=patience_s,
            on_warning=lambda message: on_problem(StoreError(message)),
        )
    except StoreError as error:
        on_problem(error)
        with closing(MemoryBackend(ttl_s, wall, error)) as memory:
            yield Cache(memory, wall)
        return
    owners = Owners.of(path)
    shelf = FileBackend(
        path,
        files.reading,
        files.claiming,
        owner,
        owners,
        ttl_s,
        lease_s,
        wall,
        on_problem,
    )
    token = trio.lowlevel.current_trio_token()

    def on_written(written: WriteReport) -> None:
        token.run_sync_soon(shelf.written, written)

    writer = CacheWriter(files.writing, owner, owners, ttl_s, lease_s, wall, on_written, path)
    shelf.attach(writer)
    writer.start()
    try:
        yield Cache(shelf, wall)
    finally:
        files.close_claiming()
        writer.put(StopWriting())
        # Paid replies must be stored even if the run was cancelled.
        with trio.move_on_after(CLOSE_GRACE, shield=True):
            await trio.to_thread.run_sync(writer.join, abandon_on_cancel=True)
        files.close()
        shelf.close()


@attrs.frozen
class _Files:
    """The connections of an open cache."""

    lock: RunLock | None
    writing: sqlite3.Connection
    """Closed by the writer."""
    reading: sqlite3.Connection
    claiming: sqlite3.Connection | None
    """None where a commit may wait for the disk."""

    @classmethod
    def open(cls, path: Path, owner: str, *, wal: bool) -> "_Files":
        with ExitStack() as opened:
            writing = opened.enter_context(closing(open_database(path, CACHE, wal=wal)))
            reading = opened.enter_context(closing(open_reading(path, CACHE, busy_s=_LOOK)))
            claiming = opened.enter_context(closing(open_database(path, CACHE)))
            lock = Owners.of(path).enter(owner)
            opened.pop_all()
        has_log = claiming.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        if not has_log:
            claiming.close()
            return cls(lock, writing, reading, None)
        claiming.execute("PRAGMA busy_timeout = 0")
        claiming.execute("PRAGMA wal_autocheckpoint = 0")  # the writer does it
        return cls(lock, writing, reading, claiming)

    def close_claiming(self) -> None:
        if self.claiming is not None:
            self.claiming.close()

    def close(self) -> None:
        self.reading.close()
        if self.lock is not None:
            self.lock.release()


def _nobody(_error: StoreError) -> None:
    """Ignore an error."""
