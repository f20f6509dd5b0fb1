# Apart from `cli.run.command`: loaded when it is used.
"""Runs again whenever a file of the suite changes.

Files are looked at twice a second: that works on every system and in every folder, and costs nothing that
anybody would notice.
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
"""Seconds between two looks."""

Mark: TypeAlias = tuple[int, int, int] | None
"""What changes when a file does: time, size and identity; None where there is none."""


@attrs.frozen
class Watched:
    """A run that is over, and what it was made of."""

    code: int
    """Its exit code."""
    marks: Mapping[Path, Mark]
    """How the files that it was made of were when it began."""


def watch(run_once: Callable[[], Watched], interrupts: Interrupts) -> int:
    """Run, wait for a change, and run again, until a signal comes.

    Args:
        run_once: Runs the suite as it is now; says itself what is wrong.
        interrupts: The signals that end it.

    Returns:
        The exit code of the run in which the signal came; between runs 0 for SIGINT, as that is how one
        stops watching, and for others what they ask for.
    """
    while True:
        interrupts.begin_loading()
        done = run_once()
        interrupts.begin_run()
        if interrupts.received:
            return done.code
        files = sum(not path.is_dir() for path in done.marks)
        say(f"watching {files} files; interrupt to stop")
        changed = interrupts.run(partial(wait_changed, done.marks))
        if changed is None:
            return Exit.OK if interrupts.received[0] is signal.SIGINT else interrupts.code
        say(f"{changed} has changed")


async def wait_changed(marks: Mapping[Path, Mark], period: float = PERIOD) -> Path:
    """Wait until a file is not as it was, and return it. A checkpoint.

    Args:
        marks: How the files were.
        period: Seconds between two looks.
    """
    while True:
        await trio.sleep(period)
        for path, mark in marks.items():
            if mark_of(path) != mark:
                return path


def marks_of(files: Collection[Path]) -> dict[Path, Mark]:
    """How some files are now."""
    return {path: mark_of(path) for path in files}


def mark_of(path: Path) -> Mark:
    """How a file is now."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
