"""After two signals a run is over within five seconds, whatever its code does."""

import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import attrs
import pytest

pytestmark = [
    pytest.mark.attack("hang"),
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

WITHIN = 5.0
"""Seconds from the second signal."""

SLACK = 20.0
"""Seconds that a busy machine may need to run what is due, and to give notice of it."""

BLOCKERS = {
    "a search of a regular expression": "re.search('^(a|aa)+$', 'a' * 80 + 'b')",
    "a shielded wait": "await shielded()",
    "an error that is caught": """
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass""",
}

CODE = """
import re, time
from pathlib import Path
import trio

async def shielded():
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

async def call_api(prompt, options, context):
    while not Path("child").exists() or not Path("child").read_text().endswith("\\n"):
        await trio.sleep(0.01)
    while not Path("recorded").exists():
        await trio.sleep(0.01)
    Path("began").touch()
    {block}
"""

SUITE = """
providers:
  - echo
  - "exec:sh -c 'trap : TERM; sleep 600 & echo $$ $! > child; while :; do wait; done'"
  - id: python:block.py
    config: {mode: trio}
prompts: [hello]
tests: [{vars: {}}]
"""


@attrs.frozen
class Ended:
    """How a run ended."""

    code: int
    said: str
    seconds: float
    """From the second signal."""
    children: list[int]
    """Processes that it had started."""
    recorded: int
    """Rows whose results its database holds."""


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """All of them at once: each is mostly waiting."""
    folders = {name: tmp_path_factory.mktemp("blocked") for name in BLOCKERS}
    runs = {name: begin(folders[name], block) for name, block in BLOCKERS.items()}
    until = time.monotonic() + 90
    signalled, ended = dict[str, float](), dict[str, float]()
    try:
        while len(ended) < len(runs) and time.monotonic() < until:
            for name, run in runs.items():
                if run.poll() is not None:
                    ended.setdefault(name, time.monotonic())
                elif not (folders[name] / "recorded").exists():
                    if results(folders[name] / "runs.db"):
                        (folders[name] / "recorded").touch()
                elif name not in signalled and (folders[name] / "began").exists():
                    run.send_signal(signal.SIGINT)
                    time.sleep(0.05)  # two at the same instant may be one
                    run.send_signal(signal.SIGTERM)
                    signalled[name] = time.monotonic()
            time.sleep(0.02)
    finally:
        for run in runs.values():
            run.kill()
        said = {name: run.communicate()[1] for name, run in runs.items()}
    return {
        name: Ended(
            run.wait(),
            said[name],
            ended.get(name, math.inf) - signalled.get(name, math.inf),
            [int(one) for one in (folders[name] / "child").read_text().split()],
            results(folders[name] / "runs.db"),
        )
        for name, run in runs.items()
    }


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TRIOEVAL_CACHE_PATH": str(folder / "cache"), "NO_COLOR": "1"}


def begin(folder: Path, block: str) -> "subprocess.Popen[str]":
    (folder / "block.py").write_text(CODE.format(block=block))
    (folder / "suite.yaml").write_text(SUITE)
    command = [sys.executable, "-m", "trioeval", "suite.yaml", "--no-progress", "--db", "runs.db"]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def results(database: Path) -> int:
    """Rows whose results the database holds."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            (count,) = connection.execute("SELECT count(*) FROM result").fetchone()
            return int(count)
    except sqlite3.OperationalError:  # it is not there yet, or is being made
        return 0


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("blocker", BLOCKERS)
def test_the_process_is_gone_soon_after_the_second_signal(
    endings: dict[str, Ended], blocker: str
) -> None:
    """With the code of its first signal, all that it has started, and nothing that was recorded."""
    ended = endings[blocker]
    assert ended.seconds < WITHIN + SLACK, ended
    assert ended.code == 128 + signal.SIGINT, ended
    assert ended.said.rstrip().endswith("exit 130")
    assert len(ended.children) == 2
    assert not [pid for pid in ended.children if is_alive(pid)]
    assert ended.recorded >= 1
