"""The functions of the cache commands: statistics, clearing, export."""

import json
import sqlite3
from pathlib import Path

import pytest

from trioeval.errors import StoreError
from trioeval.store.cache.entry import CacheEntry
from trioeval.store.cache.file import CACHE, clear_cache, export_entries, keep_entry, read_contents
from trioeval.store.database import open_database

NOW = 1_000_000_000.0
DAY = 86_400.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A cache of five entries, each a day older than the one before."""
    path = tmp_path / "c.db"
    names = ["openai:a", "openai:a", "openai:b", "openaix:a", "http:host"]
    file = open_database(path, CACHE)
    for number, name in enumerate(names):
        text = json.dumps({"output": "x" * 40_000 if number == 4 else f"text {number}"})
        key = number.to_bytes(32, "big") + name.encode()
        keep_entry(file, key, CacheEntry(text, 5.0, NOW - number * DAY))
    file.close()
    return path


def test_contents_are_counted_by_provider(path: Path) -> None:
    """The contents are counted by provider, with sizes and dates."""
    found = read_contents(path)
    assert found.entries == 5
    assert {share.provider: share.entries for share in found.providers} == {
        "openai:a": 2,
        "openai:b": 1,
        "openaix:a": 1,
        "http:host": 1,
    }
    assert found.bytes == sum(share.bytes for share in found.providers) < 500
    assert found.file_bytes >= path.stat().st_size
    assert (found.utc_oldest, found.utc_newest) == (
        "2001-09-05T01:46:40.000+00:00",
        "2001-09-09T01:46:40.000+00:00",
    )


@pytest.mark.parametrize(
    ("older_than_s", "provider", "removed"),
    [
        (None, None, 5),
        (2 * DAY, None, 3),
        (None, "openai", 3),
        (None, "openai:a", 2),
        (DAY, "openai:a", 1),
    ],
)
def test_clearing_removes_the_selected_entries(
    path: Path, older_than_s: float | None, provider: str | None, removed: int
) -> None:
    """Entries are selected by age, by provider, or by both; the others stay."""
    assert clear_cache(path, older_than_s=older_than_s, provider=provider, now=NOW) == removed
    assert read_contents(path).entries == 5 - removed


def test_clearing_frees_disk_space(tmp_path: Path) -> None:
    """The file is smaller afterwards."""
    path = tmp_path / "c.db"
    file = open_database(path, CACHE)
    for number in range(100):
        keep_entry(file, number.to_bytes(32, "big"), CacheEntry('"' + "x" * 10_000 + '"', 1.0, NOW))
    file.close()
    before = path.stat().st_size
    assert clear_cache(path) == 100
    assert path.stat().st_size < before / 10


def test_an_export_has_a_line_for_each_intact_entry(path: Path) -> None:
    """Lines are in order of age, including compressed entries."""
    with sqlite3.connect(path) as file:
        file.execute("UPDATE entry SET checksum = 0 WHERE provider = 'openai:b'")
    lines = list(export_entries(path))
    assert [line["provider"] for line in lines] == [
        "http:host",
        "openaix:a",
        "openai:a",
        "openai:a",
    ]
    assert lines[0]["reply"] == {"output": "x" * 40_000}
    assert lines[-1] == {
        "key": "00" * 32,
        "provider": "openai:a",
        "utcCreated": "2001-09-09T01:46:40.000+00:00",
        "latencyMs": 5.0,
        "reply": {"output": "text 0"},
    }


def test_a_missing_cache_is_not_created(tmp_path: Path) -> None:
    """All functions report it."""
    path = tmp_path / "c.db"
    for use in (read_contents, clear_cache, lambda it: list(export_entries(it))):
        with pytest.raises(StoreError, match="cache of replies not found"):
            use(path)
    assert not path.exists()


def test_the_view_is_readable(path: Path) -> None:
    """It has keys in hexadecimal, times as text, and outputs unchanged."""
    with sqlite3.connect(path) as file:
        rows = file.execute("SELECT key, utc_created, output FROM entries").fetchall()
    assert rows[0] == ("00" * 32 + b"openai:a".hex(), "2001-09-09 01:46:40", "text 0")
    assert rows[-1][2] == "[compressed]"
