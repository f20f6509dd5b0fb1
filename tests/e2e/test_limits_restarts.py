"""Limit servers that end in any way while leases are open, and are restarted: real processes."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from trioeval.serving.token_files import read_token

pytestmark = [pytest.mark.slow, pytest.mark.network]

LIMITS = [
    {"key": "slots", "kind": "concurrency", "capacity": 2, "timeoutSeconds": 600},
    {"key": "daily", "kind": "budget", "capacity": 1000, "resetSeconds": 86400},
    {"key": "tpm", "kind": "rolling", "capacity": 1000, "windowSeconds": 3600},
]
ENDS = [signal.SIGTERM, signal.SIGKILL]


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is connected directly, whatever the environment of the machine is."""
    monkeypatch.setenv("NO_PROXY", "*")


def environment(**more: str) -> dict[str, str]:
    """The environment of this test, with the folder of the tokens."""
    return {**os.environ, "NO_COLOR": "1", "NO_PROXY": "*", **more}


def headers_for(url: str) -> dict[str, str]:
    """The headers that any program of this user sends."""
    token = read_token(urlsplit(url).port or 0)
    return {"content-type": "application/json", "authorization": f"Bearer {token}"}


@contextmanager
def serving(path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run a server of a file, and return its URL; kill it at the end of the block if it still runs."""
    command = [sys.executable, "-m", "trioeval", "limits", "serve", "--port", "0", "--limits"]
    with subprocess.Popen(
        [*command, str(path)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            assert url, process.communicate(timeout=60)[1]
            yield url, process
        finally:
            process.kill()


def post(url: str, data: object) -> Any:
    body = json.dumps(data).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, headers_for(url))) as reply:
        return json.load(reply)


def reserve(url: str, lease_id: str, **amounts: int) -> Any:
    needs = [{"key": key, "amount": amount} for key, amount in amounts.items()]
    return post(f"{url}/v1/reserve", {"lease_id": lease_id, "requirements": needs})


def complete(url: str, lease_id: str, **used: int) -> None:
    actuals = [{"key": key, "actual_amount": amount} for key, amount in used.items()]
    answer = post(f"{url}/v1/complete", {"lease_id": lease_id, "actuals": actuals})
    assert answer == {"ok": True}


def states(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(
        urllib.request.Request(f"{url}/v1/admin/limits", None, headers_for(url))
    ) as reply:
        return {one["key"]: (one["used"], one["outstanding"]) for one in json.load(reply)["limits"]}


@pytest.mark.parametrize("end", ENDS)
def test_leases_survive_a_restart_of_their_server(tmp_path: Path, end: signal.Signals) -> None:
    """No limit is exceeded, completed leases free their slots, and no lease counts twice."""
    path = tmp_path / "limits.json"
    path.write_text(json.dumps(LIMITS))
    with serving(path) as (url, process):
        first = reserve(url, "a", slots=1, daily=300, tpm=300)
        assert first["granted"] is True
        assert reserve(url, "b", slots=1, daily=300, tpm=300)["granted"] is True
        assert reserve(url, "c", daily=200)["granted"] is True
        complete(url, "c", daily=50)
        assert states(url) == {"daily": (50, 600), "slots": (2, 0), "tpm": (600, 0)}
        process.send_signal(end)
        process.wait(60)
    with serving(path) as (url, process):
        assert states(url) == {"daily": (50, 600), "slots": (2, 0), "tpm": (600, 0)}
        assert reserve(url, "d", slots=1)["reason"] == "no_capacity"
        assert reserve(url, "e", daily=351)["reason"] == "no_capacity"
        assert reserve(url, "c", daily=200)["reason"] == "lease_completed"
        assert reserve(url, "a", slots=1, daily=300, tpm=300) == first
        complete(url, "a", daily=100, tpm=100)
        complete(url, "a", daily=100, tpm=100)
        assert states(url) == {"daily": (150, 300), "slots": (1, 0), "tpm": (400, 0)}
        assert reserve(url, "f", slots=1)["granted"] is True
        process.send_signal(end)
        process.wait(60)
    with serving(path) as (url, _):
        assert states(url) == {"daily": (150, 300), "slots": (2, 0), "tpm": (400, 0)}
        assert post(f"{url}/v1/extend", {"lease_ids": ["a", "b", "f"]}) == {
            "results": [{"ok": False}, {"ok": True}, {"ok": True}]
        }
        complete(url, "b")
        complete(url, "f")
        assert states(url) == {"daily": (450, 0), "slots": (0, 0), "tpm": (400, 0)}


def test_leases_granted_at_the_instant_of_a_kill_are_stored(tmp_path: Path) -> None:
    """The server is killed while it grants many leases: each confirmed one counts, and at most one more."""
    path = tmp_path / "limits.json"
    path.write_text(json.dumps([{"key": "daily", "kind": "budget", "capacity": 10**9}]))
    answered = 0
    with serving(path) as (url, process):
        try:
            for number in range(10**6):
                if number == 100:
                    process.send_signal(signal.SIGKILL)
                assert reserve(url, f"lease-{number}", daily=1)["granted"] is True
                answered += 1
        except (OSError, HTTPException):
            pass  # the server has ended
        process.wait(60)
    assert answered >= 99
    with serving(path) as (url, _):
        settled, outstanding = states(url)["daily"]
        assert settled == 0
        assert answered <= outstanding <= answered + 1
