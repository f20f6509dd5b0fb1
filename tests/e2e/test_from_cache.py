"""Cached replies are reported as cached, without usage and waits."""

import json
from pathlib import Path

import pytest
from server_process import fake_provider, stats_of
from test_command_line import http_suite, write

from trioeval.cli import run_command_line
from trioeval.store.reader import read_store


def test_a_run_from_the_cache_uses_nothing_and_reports_this(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no tokens, latency or cost, and shows the number of cached replies; so do repetitions."""
    monkeypatch.chdir(tmp_path)
    with fake_provider("--latency", "0") as base_url:
        write(tmp_path / "s.json", http_suite(base_url, 3))
        command = ["s.json", "--no-progress", "--repeat", "2", "-o", "o.json"]
        assert run_command_line(command) == 0
        first = capsys.readouterr()
        assert "from cache" not in first.out + first.err
        requests = stats_of(base_url)["requests"]
        assert run_command_line(command) == 0
        printed = capsys.readouterr()
        assert stats_of(base_url)["requests"] == requests
    document = json.loads((tmp_path / "o.json").read_text())
    then = document["results"]["prompts"][0]["metrics"]["tokenUsage"]
    assert then["numRequests"] == 0
    assert then["total"] == then["cached"] > 0
    line = next(line for line in printed.err.splitlines() if line.startswith("used: "))
    assert line == f"used: 0 tokens; from cache: 6 replies of {then['total']} tokens"
    lines = printed.err.splitlines()
    *_, head = (line for line in lines if line.split()[:1] == ["provider"])
    *_, cells = (line for line in lines if line.split()[:1] == ["openai:chat:fake"])
    assert head.split()[-2:] == ["from", "cache"]
    assert cells.split()[-4:] == ["6", "of", "6", "replies"]
    assert "; 6 of 6 replies from cache, $0 spent; exit 0: " in lines[-1]
    assert run_command_line(["show", "latest", "0"]) == 0
    assert "from the cache" in capsys.readouterr().out.splitlines()[2]
    with read_store(tmp_path / ".trioeval" / "results.db") as reader:
        latest, before = reader.run("latest"), reader.run("latest~1")
        assert (latest.tokens, latest.cost) == (0, 0)
        assert before.tokens == then["total"]
