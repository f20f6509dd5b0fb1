"""`trioeval cache`: the output about the cache of replies."""

import json
from pathlib import Path

import pytest

from trioeval.cli.app import run_command_line
from trioeval.store.cache.entry import CacheEntry
from trioeval.store.cache.file import CACHE, keep_entry
from trioeval.store.database import open_database


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of three replies that were cached long ago."""
    path = tmp_path / "cache.db"
    file = open_database(path, CACHE)
    for number, name in enumerate(["openai:m", "openai:m", "http:host"]):
        key = number.to_bytes(32, "big") + name.encode()
        keep_entry(file, key, CacheEntry('{"output":"yes"}', 5.0, 1_000_000_000.0 + number))
    file.close()
    monkeypatch.setenv("TRIOEVAL_CACHE_PATH", str(tmp_path))
    return path


def test_stats_show_the_contents(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are shown by provider, as a table or as JSON."""
    assert run_command_line(["cache", "stats"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith(f"{path}: 3 replies, ")
    assert printed.err.endswith(", the oldest from 2001-09-09T01:46:40.000+00:00\n")
    assert "openai:m" in printed.out
    assert run_command_line(["cache", "stats", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["entries"] == 3
    assert data["providers"][0] == {"provider": "openai:m", "entries": 2, "bytes": 32}


def test_clear_removes_the_named_entries(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It removes replies by provider, by age, and all of them."""
    for flags, message in [
        (["--provider", "http"], "1 reply removed"),
        (["--older-than", "100000w"], "0 replies removed"),
        (["--older-than", "2d", "--provider", "openai:m"], "2 replies removed"),
        ([], "0 replies removed"),
    ]:
        assert run_command_line(["cache", "clear", *flags]) == 0
        assert capsys.readouterr().err == f"{path}: {message}\n"
    assert run_command_line(["cache", "clear", "--older-than", "soon"]) == 2
    assert "--older-than must be a duration" in capsys.readouterr().err


def test_export_writes_a_line_a_reply(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It refuses to overwrite the cache."""
    file = tmp_path / "out.jsonl"
    assert run_command_line(["cache", "export", str(file)]) == 0
    assert capsys.readouterr().err == f"wrote {file}: 3 replies\n"
    assert [json.loads(line)["provider"] for line in file.read_text().splitlines()] == [
        "openai:m",
        "openai:m",
        "http:host",
    ]
    assert run_command_line(["cache", "export", str(path)]) == 2
    assert "the suffix must be .jsonl" in capsys.readouterr().err


def test_a_missing_or_damaged_cache_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No file is created, and no traceback is shown."""
    monkeypatch.setenv("TRIOEVAL_CACHE_PATH", str(tmp_path))
    file = tmp_path / "cache.db"
    for command in ("stats", "clear"):
        assert run_command_line(["cache", command]) == 0
        assert capsys.readouterr().err == f"{file}: no replies are cached yet\n"
    assert not file.exists()
    file.write_text("notes")
    assert run_command_line(["cache", "stats"]) == 1
    assert "this is not an SQLite database" in capsys.readouterr().err
    monkeypatch.setenv("TRIOEVAL_CACHE_TYPE", "memory")
    assert run_command_line(["cache", "stats"]) == 2
    assert "CACHE_TYPE is memory" in capsys.readouterr().err
