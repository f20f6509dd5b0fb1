"""The tables of the cache, and what is asked of them."""

import sqlite3
import zlib
from collections.abc import Iterator
from typing import Any

import attrs

from trioeval.providers.cacheable import name_in
from trioeval.store.cache_entry import Entry
from trioeval.store.database import DatabaseKind
from trioeval.store.payloads import read_text, stored_json

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
