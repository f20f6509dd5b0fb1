"""The tables of the cache, and what is asked of them."""

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
from trioeval.store.cache.entry import Entry
from trioeval.store.database import (
    DatabaseKind,
    RunLock,
    open_database,
    open_reading,
    real_path,
    store_error,
)
from trioeval.store.records import read_text, stored_json

# Who uses a database, such as one who has leases of a cache, and whether that process still lives.
#
# Whoever opens it has a name, and a file of that name beside the database that is locked for as long as
# it is open. The system frees the lock when the process ends, however it ends: so the leases of a name
# whose file is there and free belong to nobody, and nobody waits for them. Where there is no such file, locks
# say nothing: its owner may live and its file have been deleted.
#
# Taking a lock creates its file, so a look at a file that is deleted in that moment finds one of its own
# making, which is free. Owners therefore write into theirs: an empty file is not evidence of a death.


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


LIFETIME = 1_209_600.0
"""Seconds that an entry may be used where nobody says anything: 14 days."""

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
    hint="name another file with CACHE_PATH, or go without it with --no-cache",
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
class Holder:
    """Who asks a question just now, in whatever process."""

    lease: str
    """The name of its lease, which no other one ever has."""
    beat: int
    """Grows as long as it is alive."""
    utc_expires: float

    @property
    def owner(self) -> str:
        """Who it is."""
        return self.lease.partition("/")[0]


def find_entry(connection: sqlite3.Connection, key: bytes) -> Entry | None:
    """An entry, however old.

    Raises:
        ValueError: There is one that is damaged.
        sqlite3.Error: The database cannot be read.
    """
    row = connection.execute(_FIND, (key,)).fetchone()
    return None if row is None else _read(*row)


def has_entry(connection: sqlite3.Connection, key: bytes, now: float, ttl: float) -> bool:
    """Whether there is one that may be used."""
    return connection.execute(_HAS, (key, now, ttl)).fetchone() is not None


def keep_entry(connection: sqlite3.Connection, key: bytes, entry: Entry) -> None:
    """Write an entry, in place of the one that is there."""
    stored = stored_json(entry.text)
    total = zlib.crc32(entry.text.encode("ascii"))
    told = (entry.utc_created, entry.latency_ms, len(stored), total, stored)
    connection.execute(_KEEP, (key, name_in(key), *told))


def drop_entry(connection: sqlite3.Connection, key: bytes) -> None:
    """Remove an entry."""
    connection.execute("DELETE FROM entry WHERE key = ?", (key,))


def sweep_entries(connection: sqlite3.Connection, before: float, most: int) -> int:
    """Remove entries of before an instant, `most` of them at most, and say how many that were."""
    return connection.execute(_SWEEP, (before, most)).rowcount


def trim_entries(connection: sqlite3.Connection, most: int) -> None:
    """Remove the oldest entries until the pages in use have `most` bytes at most."""
    while connection.execute(_USED).fetchone()[0] > most and connection.execute(_OLDEST).rowcount:
        pass


def all_entries(connection: sqlite3.Connection) -> Iterator[tuple[bytes, str, Entry | None]]:
    """Key, provider and entry of all, oldest first; None for one that is damaged."""
    rows: Iterator[Any] = connection.execute(
        "SELECT key, provider, reply, checksum, latency_ms, utc_created FROM entry ORDER BY utc_created"
    )
    for key, provider, *rest in rows:
        try:
            yield key, provider, _read(*rest)
        except ValueError:
            yield key, provider, None


def find_holder(connection: sqlite3.Connection, key: bytes) -> Holder | None:
    """Who has the lease of a question."""
    asked = "SELECT owner, beat, utc_expires FROM lease WHERE key = ?"
    row = connection.execute(asked, (key,)).fetchone()
    return None if row is None else Holder(*row)


def lease_name(owner: str, number: int) -> str:
    """The name of a lease.

    It has a number so that one that is given back late takes no later one of its owner along.
    """
    return f"{owner}/{number}"


def claim_lease(
    connection: sqlite3.Connection, key: bytes, lease: str, *, now: float, life: float, ttl: float
) -> bool:
    """Take the lease of a question without a lease or a reply; return whether that worked."""
    return connection.execute(_CLAIM, (key, lease, now + life, now, ttl)).rowcount == 1


def take_lease(connection: sqlite3.Connection, key: bytes, lease: str, expires: float) -> None:
    """Take the lease of a question, from whoever has it."""
    row = (key, lease, 0, expires)
    connection.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)", row)


def has_leases(connection: sqlite3.Connection, owner: str) -> bool:
    """Whether an owner has any."""
    return bool(connection.execute(_HOLDS, (f"{owner}/",)).fetchone()[0])


def renew_leases(connection: sqlite3.Connection, owner: str, expires: float) -> None:
    """Say that their owner is alive."""
    connection.execute(_RENEW, (expires, f"{owner}/"))


def give_back(connection: sqlite3.Connection, key: bytes, lease: str) -> None:
    """Give back a lease, if it is still one's own."""
    connection.execute("DELETE FROM lease WHERE key = ? AND owner = ?", (key, lease))


def give_all_back(connection: sqlite3.Connection, owner: str) -> None:
    """Give back all leases of an owner."""
    connection.execute(_GIVE_ALL, (f"{owner}/",))


def sweep_leases(connection: sqlite3.Connection, before: float) -> None:
    """Remove those that ended before an instant."""
    connection.execute("DELETE FROM lease WHERE utc_expires < ?", (before,))


def _read(stored: Any, total: Any, latency_ms: Any, created: Any) -> Entry:
    try:
        text = read_text(stored)
        if zlib.crc32(text.encode("ascii")) != total:
            raise ValueError("its check sum is another one")
        return Entry(text, float(latency_ms), float(created))
    except (TypeError, AttributeError, zlib.error) as error:
        raise ValueError(str(error)) from error


# What is in the file of a cache, for people: how much, of whom, and away with it.


_PATIENCE = 5.0


@attrs.frozen
class ProviderShare:
    """The entries of one provider."""

    provider: str
    """`openai:gpt-4.1`; "" where the keys do not say."""
    entries: int
    bytes: int


@attrs.frozen(kw_only=True)
class CacheContents:
    """What a cache holds."""

    entries: int
    bytes: int
    """Of their texts as they are stored."""
    file_bytes: int
    """Of the file, and of its log."""
    utc_oldest: str | None
    """As ISO 8601; None where there is nothing."""
    utc_newest: str | None
    providers: Sequence[ProviderShare]
    """The largest first."""


def read_contents(path: Path) -> CacheContents:
    """Look through a cache.

    Raises:
        StoreError: It is not there, or cannot be read.
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
    """Remove entries, give their room back, and say how many they were.

    Args:
        path: Of the file. Others may use it meanwhile.
        older_than_s: Only those of at least this age; None takes all.
        provider: Only those of this one, and of its models: `openai` and `openai:gpt-4.1`.
        now: Seconds since 1970; None is now.

    Raises:
        StoreError: The cache is not there, or cannot be written.
    """
    now = time.time() if now is None else now
    older = -1.0 if older_than_s is None else older_than_s
    with _opened(path, writes=False):
        pass  # a file that is not there is not made
    with _opened(path, writes=True) as file:
        removed = file.execute(
            "DELETE FROM entry WHERE (?1 < 0 OR utc_created <= ?2)"
            " AND (?3 IS NULL OR provider = ?3 OR substr(provider, 1, length(?3) + 1) = ?3 || ':')",
            (older, now - older, provider),
        ).rowcount
        if removed:
            file.execute("VACUUM")
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return removed


def export_entries(path: Path) -> Iterator[Mapping[str, Any]]:
    """All entries as JSON data, oldest first; damaged ones are left out.

    Raises:
        StoreError: The cache is not there, or cannot be read.
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
    except (OverflowError, ValueError, OSError):  # a clock that was wrong by millennia
        return f"{seconds:.0f} s"
