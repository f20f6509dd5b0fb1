"""Code of a suite that runs during loading ends with its loader, however that ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from test_cancellation import family
from test_command_line import ENV, write

from trioeval.run import run_suite

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="counts processes by /proc"),
]

GENERATOR = """
import os, signal, subprocess, time

def generate_tests():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen(["sleep", "600"])
    open(os.environ["STARTED"], "w").close()
    while True:
        pass

def get_transform(vars, context):
    return generate_tests()

def beforeAll(context, options):
    return generate_tests()
"""


def suite(folder: Path, where: str) -> Path:
    """A suite whose code never ends."""
    (folder / "gen.py").write_text(GENERATOR)
    more: dict[str, dict[str, Any]] = {
        "generator": {"tests": "file://gen.py"},
        "transform": {"tests": [{"options": {"transformVars": "file://gen.py"}}]},
        "hook": {"extensions": ["file://gen.py:beforeAll"]},
    }
    return write(folder / "s.json", {"providers": ["echo"], "prompts": ["x"], **more[where]})


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A marker in the environment of all processes of a test."""
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    return f"STARTED={tmp_path / 'started'}"


def _check_ended(marker: str) -> None:
    """Check that all of them are killed, which may take the system some time."""
    deadline = time.monotonic() + 60
    while family(marker):
        assert time.monotonic() < deadline


@pytest.mark.parametrize("where", ["generator", "transform", "hook"])
def test_cancelling_a_run_that_is_loaded_ends_its_code(
    tmp_path: Path, marker: str, where: str
) -> None:
    """When the call returns, all of its processes are killed."""

    def wait_started() -> None:
        while not (tmp_path / "started").exists() or len(family(marker)) < 2:
            trio.from_thread.check_cancelled()

    async def cancel_when_started(scope: trio.CancelScope) -> None:
        await trio.to_thread.run_sync(wait_started)
        scope.cancel()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_when_started, nursery.cancel_scope)
            await run_suite(suite(tmp_path, where), emit=trio.lowlevel.checkpoint)  # type: ignore[arg-type]

    async def bounded() -> None:
        with trio.fail_after(60):
            await main()
        _check_ended(marker)

    trio.run(bounded)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("where", ["generator", "hook"])
def test_a_signal_to_the_command_ends_its_loading_code(
    tmp_path: Path, marker: str, number: signal.Signals, where: str
) -> None:
    """This includes a signal that the command cannot handle."""
    command = [sys.executable, "-m", "trioeval", str(suite(tmp_path, where))]
    environ = {**ENV, "STARTED": os.environ["STARTED"]}
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.DEVNULL) as run:
        try:
            # The command, the function, and the function's child.
            while not (tmp_path / "started").exists() or len(family(marker)) < 3:
                assert run.poll() is None
            run.send_signal(number)
            run.wait(timeout=60)
        finally:
            run.kill()
    _check_ended(marker)
