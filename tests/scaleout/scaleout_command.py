"""`trioeval … --on local:N` as a command, its processes, and a suite for it."""

import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from server_process import stats_of

WIDTH = 8
ROWS = 120


def suite(url: str) -> dict[str, Any]:
    config = {"apiBaseUrl": url, "apiKey": "k"}
    lane = {"maxConcurrency": WIDTH, "retryDelay": 0.02}
    return {
        "providers": [{"id": "openai:chat:m", "config": config, "lane": lane}],
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": f"word {number}"}} for number in range(ROWS)],
    }


def session_of(process: int) -> int | None:
    """Return the id of the session of a process; None if it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    state, _parent, _group, session = text.rpartition(")")[2].split()[:4]
    return None if state == "Z" else int(session)


def processes_of(session: int) -> list[int]:
    """Return the processes of a session, which its first process has given its id."""
    every = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [process for process in every if session_of(process) == session]


@contextmanager
def command(
    folder: Path, *words: str, mode: str | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """Run trioeval in a session of its own, and end everything in it.

    Args:
        folder: Its working directory.
        *words: The command line.
        mode: The mode of its progress; None shows none.
    """
    progress = ["--no-progress"] if mode is None else ["--progress-mode", mode]
    process = subprocess.Popen(
        [sys.executable, "-m", "trioeval", *words, *progress, "--no-table"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            for left in processes_of(process.pid):
                os.kill(left, signal.SIGKILL)


def wait_served(url: str, process: "subprocess.Popen[str]", count: int) -> None:
    """Wait until a fake provider has replied often enough."""
    while process.poll() is None and stats_of(url)["ok"] < count:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)


def wait_gone(session: int) -> None:
    """Wait until a session has no process."""
    for process in processes_of(session):
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(process)
            ended, _, _ = select.select([handle], [], [], 60)
            os.close(handle)
            assert ended, f"process {process} remains"


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "o.jsonl").read_text().splitlines()]


def check_every_row_was_paid(folder: Path, log: Path, *, repeated: int) -> None:
    """Check that all rows of a run have their outputs in order, and that few requests were made twice.

    Args:
        folder: The folder of the run.
        log: The log of the fake provider.
        repeated: The most requests that may have been made again: those in flight.
    """
    rows = rows_of(folder)
    assert [row["response"]["output"] for row in rows] == [
        f"say word {number}" for number in range(ROWS)
    ]
    served = [json.loads(line) for line in log.read_text().splitlines()]
    paid = Counter(one["prompt"] for one in served if one["ending"] == "sent")
    assert len(paid) == ROWS
    assert sum(paid.values()) - ROWS <= repeated, "only calls in flight are made again"
