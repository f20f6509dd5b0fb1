"""The tables of the cache file, and their statements."""

import json
import os
import re
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from filelock import FileLock, Timeout

from trioeval.providers.cache_key import name_in
from trioeval.store.cache.entry import CacheEntry
from trioeval.store.database import (
    DatabaseKind,
    RunLock,
    media_folder,
    open_database,
    open_reading,
    real_path,
    store_error,
)
from trioeval.store.records import read_text, stored_json

# The users of a cache file, such as holders of leases, and whether their processes still live.
#
# Each user has an id, and a file of that name beside the database that is locked for as long as the user has
# it open. The system frees the lock when the process ends, however it ends: so the leases of an id whose file
# exists and is not locked have no owner, and need not be waited for. If the file does not exist, locks are no
# evidence: the owner may live and its file have been deleted.
#
# Taking a lock creates its file, so a check of a file that is deleted at that moment finds one of its own
# making, which is free. Owners therefore write into theirs: an empty file is not evidence of a death.


_SHORT = 0.5  # seconds; a check for a free lock holds it for much less
_TRIES = 5
_NAME = re.compile(r"[0-9a-f]{32}")  # any other text in a file is not part of a path


@attrs.frozen
class Owners:
    """The lock files of those who have a cache open."""

    database: Path
    """The path of the cache, with links followed."""

    @classmethod
    def of(cls, path: Path) -> "Owners":
        """Return the lock files of a cache, by any name of it."""
        return cls(real_path(path))

    def path(self, owner: str) -> Path:
        """Return the file of an owner.

        Example:
            >>> Owners(Path("/x/cache.db")).path("0a").name
            'cache.db-0a.lock'
        """
        return self.database.with_name(f"{self.database.name}-{owner}.lock")

    def enter(self, owner: str) -> RunLock | None:
        """Lock the file of an owner, until the lock is released; None where nothing can be locked."""
        for _ in range(_TRIES):
            lock = self._locked(owner, _SHORT, _mark)
            if lock is None or lock.path.exists():
                return lock
            lock.release()  # another process removed the new file as that of a dead owner
        return None

    def is_gone(self, owner: str) -> bool:
        """Return whether an owner has died; False without evidence. Takes 0.2 ms."""
        lock = self._left_by(owner)
        if lock is None:
            return False
        lock.leave()
        return True

    def lives(self, owner: str) -> bool:
        """Return whether an owner holds its lock; False without evidence. Takes 0.2 ms."""
        if not _NAME.fullmatch(owner) or not self.path(owner).exists():
            return False
        lock = self._locked(owner, 0)
        if lock is None:
            return True
        lock.leave()
        return False

    def take(self, owner: str, *, is_silent: bool) -> RunLock | None:
        """Return the lock of an owner that has died; None if it lives, or without evidence of its death.

        Args:
            owner: Its id.
            is_silent: Whether it has shown no sign of life lately. It then counts as dead also if its file is
                gone.
        """
        if is_silent and _NAME.fullmatch(owner):
            return self._locked(owner, 0)
        return self._left_by(owner)

    def bury(self, forget: Callable[[str], None]) -> None:
        """Forget all dead owners, and remove their files.

        Raises:
            Exception: Any that `forget` raised; the file of that owner stays.
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
        """Return the lock that a dead owner left; None if it lives, or has no file of its own."""
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


LIFETIME = 1_209_600.0
"""Seconds that an entry may be used by default: 14 days."""

CACHE = DatabaseKind(
    name="cache of replies",
    application_id=0x74726361,  # "trca"
    migrations=(
        (
            """
            CREATE TABLE entry (
                entry INTEGER PRIMARY KEY,
                key BLOB NOT NULL UNIQUE,
                provider TEXT NOT NULL,
                utc_created REAL NOT NULL,
                latency_ms REAL NOT NULL,
                size INTEGER NOT NULL,
                checksum INTEGER NOT NULL,
                reply NOT NULL
            )
            """,
            "CREATE INDEX entry_created ON entry (utc_created)",
            """
            CREATE TABLE lease (
                key BLOB PRIMARY KEY,
                owner TEXT NOT NULL,
                beat INTEGER NOT NULL,
                utc_expires REAL NOT NULL
            ) WITHOUT ROWID
            """,
            """
            CREATE VIEW entries AS SELECT
                lower(hex(key)) AS key,
                provider,
                datetime(utc_created, 'unixepoch') AS utc_created,
                latency_ms,
                size,
                CASE typeof(reply) WHEN 'text' THEN json_extract(reply, '$.output') ELSE '[compressed]' END
                    AS output
            FROM entry
            """,
        ),
    ),
    hint="name another file with CACHE_PATH, or disable it with --no-cache",
)

_FIND = "SELECT reply, checksum, latency_ms, utc_created FROM entry WHERE key = ?"
_HAS = "SELECT 1 FROM entry WHERE key = ? AND abs(? - utc_created) < ?"
_KEEP = """
    INSERT OR REPLACE INTO entry (key, provider, utc_created, latency_ms, size, checksum, reply)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""
_CLAIM = """
    INSERT INTO lease SELECT ?1, ?2, 0, ?3
    WHERE NOT EXISTS (SELECT 1 FROM entry WHERE key = ?1 AND abs(?4 - utc_created) < ?5)
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, beat = 0, utc_expires = excluded.utc_expires
    WHERE substr(lease.owner, 1, 33) = substr(?2, 1, 33)
"""
# An owner is 32 hexadecimal digits, and a slash follows; see `lease_name`.
_HOLDS = "SELECT EXISTS (SELECT 1 FROM lease WHERE substr(owner, 1, 33) = ?)"
_RENEW = "UPDATE lease SET beat = beat + 1, utc_expires = ? WHERE substr(owner, 1, 33) = ?"
_GIVE_ALL = "DELETE FROM lease WHERE substr(owner, 1, 33) = ?"
_USED = """
    SELECT (page_count - freelist_count) * page_size
    FROM pragma_page_count, pragma_freelist_count, pragma_page_size
"""
_OLDEST = "DELETE FROM entry WHERE entry = (SELECT min(entry) FROM entry)"
_SWEEP = """
    DELETE FROM entry WHERE entry IN (SELECT entry FROM entry WHERE utc_created < ? LIMIT ?)
"""


@attrs.frozen
class LeaseHolder:
    """The process that makes a call at the moment."""

    lease: str
    """The unique name of its lease."""
    beat: int
    """Increases as long as it is alive."""
    utc_expires: float

    @property
    def owner(self) -> str:
        """The id of the owner."""
        return self.lease.partition("/")[0]


def find_entry(connection: sqlite3.Connection, key: bytes) -> CacheEntry | None:
    """Return an entry, however old.

    Raises:
        ValueError: The entry is damaged.
        sqlite3.Error: The database cannot be read.
    """
    row = connection.execute(_FIND, (key,)).fetchone()
    return None if row is None else _read(*row)


def has_entry(connection: sqlite3.Connection, key: bytes, now: float, ttl: float) -> bool:
    """Return whether a usable entry exists."""
    return connection.execute(_HAS, (key, now, ttl)).fetchone() is not None


def keep_entry(connection: sqlite3.Connection, key: bytes, entry: CacheEntry) -> None:
    """Write an entry, replacing an existing one."""
    stored = stored_json(entry.text)
    total = zlib.crc32(entry.text.encode("ascii"))
    values = (entry.utc_created, entry.latency_ms, len(stored), total, stored)
    connection.execute(_KEEP, (key, name_in(key), *values))


def drop_entry(connection: sqlite3.Connection, key: bytes) -> None:
    """Remove an entry."""
    connection.execute("DELETE FROM entry WHERE key = ?", (key,))


def sweep_entries(connection: sqlite3.Connection, before: float, most: int) -> int:
    """Remove at most `most` entries created before an instant, and return their number."""
    return connection.execute(_SWEEP, (before, most)).rowcount


def trim_entries(connection: sqlite3.Connection, most: int) -> None:
    """Remove the oldest entries until the pages in use have at most `most` bytes."""
    while connection.execute(_USED).fetchone()[0] > most and connection.execute(_OLDEST).rowcount:
        pass


def all_entries(connection: sqlite3.Connection) -> Iterator[tuple[bytes, str, CacheEntry | None]]:
    """Yield key, provider and entry of all entries, oldest first; None for a damaged entry."""
    rows: Iterator[Any] = connection.execute(
        "SELECT key, provider, reply, checksum, latency_ms, utc_created FROM entry ORDER BY utc_created"
    )
    for key, provider, *rest in rows:
        try:
            yield key, provider, _read(*rest)
        except ValueError:
            yield key, provider, None


def find_holder(connection: sqlite3.Connection, key: bytes) -> LeaseHolder | None:
    """Return the holder of the lease of a key."""
    query = "SELECT owner, beat, utc_expires FROM lease WHERE key = ?"
    row = connection.execute(query, (key,)).fetchone()
    return None if row is None else LeaseHolder(*row)


def lease_name(owner: str, number: int) -> str:
    """Return the name of a lease.

    It contains a number so that returning one late does not return a later one of the same owner.
    """
    return f"{owner}/{number}"


def claim_lease(
    connection: sqlite3.Connection, key: bytes, lease: str, *, now: float, life: float, ttl: float
) -> bool:
    """Take the lease of a key without a lease or a reply; return whether that succeeded."""
    return connection.execute(_CLAIM, (key, lease, now + life, now, ttl)).rowcount == 1


def take_lease(connection: sqlite3.Connection, key: bytes, lease: str, expires: float) -> None:
    """Take the lease of a key, from any holder."""
    row = (key, lease, 0, expires)
    connection.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)", row)


def has_leases(connection: sqlite3.Connection, owner: str) -> bool:
    """Return whether an owner has leases."""
    return bool(connection.execute(_HOLDS, (f"{owner}/",)).fetchone()[0])


def renew_leases(connection: sqlite3.Connection, owner: str, expires: float) -> None:
    """Renew the leases of a living owner."""
    connection.execute(_RENEW, (expires, f"{owner}/"))


def give_back(connection: sqlite3.Connection, key: bytes, lease: str) -> None:
    """Return a lease, if it is still the caller's."""
    connection.execute("DELETE FROM lease WHERE key = ? AND owner = ?", (key, lease))


def give_all_back(connection: sqlite3.Connection, owner: str) -> None:
    """Return all leases of an owner."""
    connection.execute(_GIVE_ALL, (f"{owner}/",))


def sweep_leases(connection: sqlite3.Connection, before: float) -> None:
    """Remove leases that expired before an instant."""
    connection.execute("DELETE FROM lease WHERE utc_expires < ?", (before,))


def _read(stored: Any, total: Any, latency_ms: Any, created: Any) -> CacheEntry:
    try:
        text = read_text(stored)
        if zlib.crc32(text.encode("ascii")) != total:
            raise ValueError("its checksum does not match")
        return CacheEntry(text, float(latency_ms), float(created))
    except (TypeError, AttributeError, zlib.error) as error:
        raise ValueError(str(error)) from error


# The contents of a cache file, for people: sizes, providers, and removal.


_PATIENCE = 5.0


@attrs.frozen
class ProviderShare:
    """The entries of one provider."""

    provider: str
    """`openai:gpt-4.1`; "" if the keys do not contain it."""
    entries: int
    bytes: int


@attrs.frozen(kw_only=True)
class CacheContents:
    """The contents of a cache."""

    entries: int
    bytes: int
    """Bytes of the entries as they are stored."""
    file_bytes: int
    """Bytes of the file, including its log."""
    utc_oldest: str | None
    """As ISO 8601; None without entries."""
    utc_newest: str | None
    providers: Sequence[ProviderShare]
    """The providers, largest first."""


def read_contents(path: Path) -> CacheContents:
    """Return the contents of a cache.

    Raises:
        StoreError: It does not exist, or cannot be read.
    """
    with _opened(path, writes=False) as file:
        shares = [
            ProviderShare(*row)
            for row in file.execute(
                "SELECT provider, count(*), sum(size) FROM entry GROUP BY provider ORDER BY 3 DESC, 1"
            )
        ]
        ends = file.execute("SELECT min(utc_created), max(utc_created) FROM entry").fetchone()
    real = real_path(path)
    files = (real, Path(f"{real}-wal"))
    return CacheContents(
        entries=sum(share.entries for share in shares),
        bytes=sum(share.bytes for share in shares),
        file_bytes=sum(one.stat().st_size for one in files if one.exists()),
        utc_oldest=None if ends[0] is None else _stamp(ends[0]),
        utc_newest=None if ends[1] is None else _stamp(ends[1]),
        providers=shares,
    )


def clear_cache(
    path: Path,
    *,
    older_than_s: float | None = None,
    provider: str | None = None,
    now: float | None = None,
) -> int:
    """Remove entries, free their space, and return their number.

    Args:
        path: The path of the file. Others may use it meanwhile.
        older_than_s: Only entries of at least this age; None takes all.
        provider: Only entries of this provider and its models: `openai` and `openai:gpt-4.1`.
        now: Seconds since 1970; None is now.

    Raises:
        StoreError: The cache does not exist, or cannot be written.
    """
    now = time.time() if now is None else now
    older = -1.0 if older_than_s is None else older_than_s
    with _opened(path, writes=False):
        pass  # fail if the file does not exist, instead of creating it
    with _opened(path, writes=True) as file:
        removed = file.execute(
            "DELETE FROM entry WHERE (?1 < 0 OR utc_created <= ?2)"
            " AND (?3 IS NULL OR provider = ?3 OR substr(provider, 1, length(?3) + 1) = ?3 || ':')",
            (older, now - older, provider),
        ).rowcount
        if removed:
            _remove_media(path, file)
            file.execute("VACUUM")
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return removed


def _remove_media(path: Path, connection: sqlite3.Connection) -> None:
    """Remove the files of media that no entry names."""
    from trioeval.providers.media import file_names
    from trioeval.store.media import remove_unnamed

    folder = media_folder(path)
    if not folder.is_dir():
        return
    connection.execute("BEGIN IMMEDIATE")
    entries = (entry for _, _, entry in all_entries(connection) if entry is not None)
    remove_unnamed(folder, {name for entry in entries for name in file_names(entry.text)})
    connection.execute("COMMIT")


def export_entries(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield all entries as JSON data, oldest first; damaged ones are left out.

    Raises:
        StoreError: The cache does not exist, or cannot be read.
    """
    with _opened(path, writes=False) as file:
        for key, provider, entry in all_entries(file):
            if entry is None:
                continue
            yield {
                "key": key[:32].hex(),
                "provider": provider,
                "utcCreated": _stamp(entry.utc_created),
                "latencyMs": entry.latency_ms,
                "reply": json.loads(entry.text),
            }


@contextmanager
def _opened(path: Path, *, writes: bool) -> Iterator[sqlite3.Connection]:
    open_it = open_database if writes else open_reading
    file = open_it(path, CACHE, busy_s=_PATIENCE)
    try:
        yield file
    except sqlite3.Error as error:
        raise store_error(path, CACHE, error) from error
    finally:
        file.close()


def _stamp(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):  # the clock was wrong by millennia
        return f"{seconds:.0f} s"
