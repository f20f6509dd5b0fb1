"""Missing packages of remote backends are reported with the command to install them, before a run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trioeval.limits.open import is_installed

_CHILD = '''
import json
import sys

BLOCKED = {"anyio", "coredis", "starlette"}


class Blocked:
    """Keeps packages from being found, as if they were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocked())

from random import Random

import trio

import trioeval
from trioeval.cli import run_command_line
from trioeval.limits.open import open_limits

prompts = []


async def pupil(request):
    prompts.append(request.prompt)
    return "yes"


def suite(**limits):
    providers = [{"id": "pupil", "lane": {"limits": ["m:rpm"]}}]
    return trioeval.parse_suite({"providers": providers, "prompts": ["a"], "limits": limits})


async def run(**limits):
    await trioeval.collect(suite(**limits), providers={"pupil": pupil})


async def opened():
    async with open_limits(backend="redis", url="redis://127.0.0.1:1", rng=Random(1)):
        print("opened")


def error_of(function, *arguments):
    try:
        function(*arguments)
    except trioeval.TrioevalError as error:
        return f"{type(error).__name__}: {error}"
    return None


limit = {"key": "m:rpm", "kind": "rolling", "capacity": 5, "windowSeconds": 60}
found = {
    "suite": error_of(trio.run, lambda: run(backend="redis", url="redis://127.0.0.1:1")),
    "prompts": len(prompts),
    "limits": error_of(trio.run, opened),
    "memory": error_of(trio.run, lambda: run(define=[limit])),
    "served": len(prompts),
    "plan": run_command_line(["suite.json", "--plan"]),
    "run": run_command_line(["suite.json"]),
    "show": run_command_line(["limits", "show", "--url", "redis://127.0.0.1:1"]),
    "serve": run_command_line(["limits", "serve", "--limits", "limits.json", "--port", "0"]),
}
print(json.dumps(found))
'''


@pytest.mark.slow
def test_a_missing_extra_is_reported_before_the_run_starts(tmp_path: Path) -> None:
    """A suite reports it with its path, other callers in one line; limits in memory need nothing."""
    limit = {"key": "m:rpm", "kind": "rolling", "capacity": 5, "windowSeconds": 60}
    (tmp_path / "limits.json").write_text(json.dumps([limit]))
    document = {
        "providers": [{"id": "echo", "lane": {"limits": ["m:rpm"]}}],
        "prompts": ["a"],
        "limits": {"backend": "redis", "url": "redis://127.0.0.1:1"},
    }
    (tmp_path / "suite.json").write_text(json.dumps(document, indent=1))
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    redis = "pip install 'trioeval[redis]'"
    needed = f'$.limits.backend: limits in Redis need the extra "redis"\n  {redis}'
    assert found == {
        "suite": f"SuiteError: {needed}",
        "prompts": 0,
        "limits": f"UsageError: No module named 'anyio': {redis}",
        "memory": None,
        "served": 1,
        "plan": 2,
        "run": 2,
        "show": 2,
        "serve": 2,
    }
    assert done.stderr.count(f"suite.json:16:14: {needed}") == 2
    assert f"\nNo module named 'anyio': {redis}\n" in done.stderr
    assert "pip install 'trioeval[serve]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("*.db"))


def test_installed_extras_are_found() -> None:
    """The extras are installed in the environment of these tests."""
    assert is_installed("redis")
    assert is_installed("serve")
