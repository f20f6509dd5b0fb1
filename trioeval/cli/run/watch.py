"""Running a suite again whenever one of its files changes.

Files are polled twice a second, which works on every system and in every folder at a negligible cost.
"""

import signal
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

import attrs
import trio

from trioeval.cli.interrupts import Interrupts
from trioeval.cli.terminal import Exit, say

PERIOD = 0.5
"""Seconds between two polls."""

Mark: TypeAlias = tuple[int, int, int] | None
"""The time, size and inode of a file, which change when it does; None without a file."""


@attrs.frozen
class WatchedRun:
    """A run that has ended, and its files."""

    code: int
    """The exit code of the run."""
    marks: Mapping[Path, Mark]
    """The marks of its files when it started."""


def watch(run_once: Callable[[], WatchedRun], interrupts: Interrupts) -> int:
    """Run, wait for a change, and run again, until a signal is received.

    Args:
        run_once: Runs the suite as it is now, and reports errors itself.
        interrupts: The signals that end it.

    Returns:
        The exit code of the run during which the signal was received. Between runs it is 0 for SIGINT, which
        is the usual way to stop watching, and the code of the signal for others.
    """
    while True:
        interrupts.begin_loading()
        done = run_once()
        interrupts.begin_run()
        if interrupts.received:
            return done.code
        files = sum(not path.is_dir() for path in done.marks)
        say(f"watching {files} {'file' if files == 1 else 'files'}; interrupt to stop")
        changed = interrupts.run(partial(wait_changed, done.marks))
        if changed is None:
            return Exit.OK if interrupts.received[0] is signal.SIGINT else interrupts.code
        say(f"{changed} has changed")


async def wait_changed(marks: Mapping[Path, Mark], period: float = PERIOD) -> Path:
    """Wait until a file has changed, and return it. A checkpoint.

    Args:
        marks: The marks of the files before.
        period: Seconds between two polls.
    """
    while True:
        await trio.sleep(period)
        for path, mark in marks.items():
            if mark_of(path) != mark:
                return path


def marks_of(files: Collection[Path]) -> dict[Path, Mark]:
    """Return the present marks of some files."""
    return {path: mark_of(path) for path in files}


def mark_of(path: Path) -> Mark:
    """Return the present mark of a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
