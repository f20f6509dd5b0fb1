"""What is in the file of a cache, for people: how much, of whom, and away with it."""

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from trioeval.store.cache_tables import CACHE, all_entries
from trioeval.store.database import open_database, open_reading, real_path, store_error

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
