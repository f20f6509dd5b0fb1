"""Servers in separate processes, for end-to-end tests and benches.

Every server prints its URL as its first line once it accepts connections.
"""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def open_server(command: Sequence[str], cwd: Path | None = None) -> Iterator[str]:
    """Run a server for the time of the context and yield its first line, the URL."""
    with subprocess.Popen(
        command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@contextmanager
def fake_provider(*flags: str, cwd: Path | None = None) -> Iterator[str]:
    """Run `trioeval fake-provider` on a free port and yield its base URL."""
    command = [sys.executable, "-m", "trioeval", "fake-provider", "--port", "0", *flags]
    with open_server(command, cwd) as url:
        yield url


def stats_of(base_url: str) -> dict[str, Any]:
    """Return the counts of a fake provider."""
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/stats") as reply:
        stats: dict[str, Any] = json.load(reply)
        return stats


def reset(base_url: str) -> None:
    """Set the counts and limits of a fake provider back to their initial state."""
    home = base_url.removesuffix("/v1")
    urllib.request.urlopen(urllib.request.Request(f"{home}/reset", method="POST")).close()
