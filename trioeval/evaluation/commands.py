"""Commands that run in the workspace of an agent: those of assertions, and those that a model calls."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from trioeval.grading.services import MAX_PROCESSES
from trioeval.providers.programs.entries import find_secrets
from trioeval.providers.programs.processes import GRACE
from trioeval.providers.secrets import is_secret_name, longest_first, surely_keys

if TYPE_CHECKING:
    from trioeval.providers.programs.exec import OutputTail

_DRAIN_SECONDS = 1.0
"""Seconds for reading the rest of a command's output after all of its processes have ended."""


def without_key_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for code that an agent wrote, without variables whose names suggest a key.

    Example:
        >>> without_key_variables({"PATH": "/bin", "OPENAI_API_KEY": "sk-1"})
        {'PATH': '/bin'}
    """
    return {name: text for name, text in environ.items() if not is_secret_name(name)}


def secrets_to_hide(
    environ: Mapping[str, str], given: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the texts to blank out in the output of a command, longest first.

    Args:
        environ: Inherited variables. Many have names like keys but hold ordinary words (`DESKTOP_SESSION`):
            only values that are surely keys count.
        given: Variables set for this command: all with names like keys count.

    Example:
        >>> secrets_to_hide({"A_KEY": "sk-0123456789", "SESSION": "user"}, {"B_KEY": "word"})
        ('sk-0123456789', 'word')
    """
    inherited = surely_keys(find_secrets({}, environ))
    return longest_first((*inherited, *find_secrets(given or {}, {})))


@trio.lowlevel.enable_ki_protection  # as for `start_tree`
async def run_command(
    command: Sequence[str],
    folder: Path,
    environ: Mapping[str, str],
    limit: float,
    written: OutputTail,
    *,
    grace: float = GRACE,
    max_processes: int = MAX_PROCESSES,
) -> int | None:
    """Run a command to its end, and end all processes that it leaves behind. Always a checkpoint.

    Args:
        command: The program and its arguments; no shell is involved.
        folder: Its working directory.
        environ: Its whole environment.
        limit: Timeout in seconds, > 0.
        written: Receives its standard output and error as they arrive.
        grace: Seconds between the request to end and the kill, ≥ 0.
        max_processes: Maximum number of processes at once; with more, all of them are killed and `written`
            gets a message; 0 means no limit.

    Returns:
        Its exit code, or minus the signal that ended it; None if it timed out.

    Raises:
        OSError: It cannot be started.
        ValueError: An argument holds a NUL character.
    """
    from trioeval.providers.programs.exec import read_stream
    from trioeval.providers.programs.processes import start_tree

    code: int | None = None
    started = await start_tree(
        command,
        cwd=folder,
        environ=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        grace=grace,
        supervised=True,
        max_processes=max_processes,
    )
    async with started as tree, trio.open_nursery() as nursery:
        if tree.process.stdout is not None:
            nursery.start_soon(read_stream, tree.process.stdout, written.feed)
        with trio.move_on_after(limit):
            code = await tree.wait()
        # Processes that it left behind may hold its pipe open for ever; that does not count as its time.
        await tree.end()
        nursery.cancel_scope.deadline = trio.current_time() + _DRAIN_SECONDS
    if tree.exceeded:
        written.feed(f"\n{too_many_processes(max_processes)}\n".encode())
    return code


def too_many_processes(processes: int) -> str:
    """Return the message for a program that exceeded the maximum number of processes.

    Example:
        >>> too_many_processes(256)
        'had more than 256 processes at once (maxProcesses); all of them were killed'
    """
    return f"had more than {processes} processes at once (maxProcesses); all of them were killed"
