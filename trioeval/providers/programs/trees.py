"""A program and everything it starts, as one thing that is sure to end.

The program opens a session of its own, and carries a mark in its environment by which what it starts is
known. To end the tree is to ask all of it to terminate, to wait for a grace, and then to kill it. A tree
is also ended when its first process has ended by itself: what a program leaves behind is not wanted.

What is not ended: a process that left the session, cleared its environment and outlived its parent; one
that changed its user; and, where the system shows no process table, whatever left the process group. If
this process is itself killed, nobody is there to end its trees.
"""

import os
import signal
import subprocess
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import attrs
import trio

from trioeval.providers.programs.members import PROCESS_TABLE, Member, find_members

MARK = "TRIOEVAL_TREE"
"""The environment variable that tells which tree a process belongs to."""

GRACE = 1.5
"""Seconds between the request to terminate and the kill."""

KILLED_WITHIN = 5.0
"""Seconds in which the system should be able to remove what was killed."""

_LOOK_AGAIN = 0.01


@attrs.define(eq=False)
class Tree(trio.abc.AsyncResource):
    """A running program with its descendants; obtained from `start_tree` only.

    As an async context manager it is sure to end with its block:

        async with await start_tree(["make"], cwd=cwd, environ=environ) as tree:
            code = await tree.wait()
    """

    process: trio.Process
    """The first process, with its pipes."""
    _mark: bytes = attrs.field(repr=False)
    _grace: float = GRACE
    _table: Path = attrs.field(default=PROCESS_TABLE, repr=False)
    _thread: trio.CapacityLimiter = attrs.field(
        init=False, repr=False, factory=lambda: trio.CapacityLimiter(1)
    )
    """Of its own: the end must not wait for whoever has taken all threads."""

    async def wait(self) -> int:
        """Wait for the first process; returns its exit code, or minus the signal that ended it."""
        return await self.process.wait()

    async def end(self) -> None:
        """End every process that is left. Takes no longer than the grace and `KILLED_WITHIN`.

        Runs to its end also when it is cancelled. Output that was not read stays readable.
        """
        asked: set[int] = set()
        with trio.move_on_after(self._grace, shield=True):
            # Each process once: a second request means "at once" to some programs.
            while members := await self._members():
                _signal([one.pid for one in members if one.pid not in asked], signal.SIGTERM)
                asked.update(one.pid for one in members)
                await _wait_gone(members)
            if members is None:
                self._signal_group(signal.SIGTERM)
            await self.process.wait()
        with trio.move_on_after(KILLED_WITHIN, shield=True):
            # Again and again: a process may be started while the others are killed.
            while members := await self._members():
                if any(one.group == self.process.pid for one in members):
                    self._signal_group(signal.SIGKILL)  # in one step: no more is started there
                _signal([one.pid for one in members], signal.SIGKILL)
                await _wait_gone(members)
            if members is None:
                self._signal_group(signal.SIGKILL)
            await self.process.wait()

    async def aclose(self) -> None:
        """End every process that is left, and close the pipes; also when it is cancelled."""
        await self.end()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                await trio.aclose_forcefully(pipe)

    async def _members(self) -> Collection[Member] | None:
        # In a thread: reading the table of a busy machine takes as long as many steps of a scheduler.
        return await trio.to_thread.run_sync(
            find_members, self.process.pid, self._mark, self._table, limiter=self._thread
        )

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


async def start_tree(
    command: Sequence[str | bytes],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
    grace: float = GRACE,
) -> Tree:
    """Start a program that the caller closes. Always a checkpoint.

    Args:
        command: The program and its arguments; no shell is involved.
        cwd: Where it starts.
        environ: Its whole environment; the mark is added.
        stdin: As for `subprocess.Popen`, and so the others.
        stdout: What is `subprocess.PIPE` is a stream of the tree's process.
        stderr: May be `subprocess.STDOUT`.
        pass_fds: Descriptors that the program inherits, under the same numbers.
        grace: Seconds between the request to terminate and the kill, ≥ 0.

    Raises:
        OSError: It cannot be started.
        ValueError: An argument holds a NUL character.
    """
    mark = uuid.uuid4().hex
    process = await trio.lowlevel.open_process(
        command,
        cwd=cwd,
        env={**environ, MARK: mark},
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        pass_fds=pass_fds,
    )
    return Tree(process, f"{MARK}={mark}".encode(), grace)


def describe_end(code: int) -> str:
    """How a process ended, from what `Tree.wait` returned.

    Example:
        >>> describe_end(3), describe_end(-9)
        ('ended with exit code 3', 'was ended by SIGKILL')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"was ended by {known.get(-code, f'signal {-code}')}"


def _signal(processes: Iterable[int], number: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


async def _wait_gone(members: Collection[Member]) -> None:
    """Wait until processes have ended, whoever started them."""
    for member in members:
        try:
            handle = os.pidfd_open(member.pid)
        except OSError:  # it is gone; or the system has no such handles, and is looked at again
            await trio.sleep(_LOOK_AGAIN)
            continue
        try:
            await trio.lowlevel.wait_readable(handle)
        finally:
            os.close(handle)
