"""A program and everything it starts, as one thing that is sure to end.

The program opens a session of its own, and carries a mark in its environment by which what it starts is
known. To end the tree is to ask all of it to terminate, to wait for a grace, and then to kill it. A tree
is also ended when its first process has ended by itself: what a program leaves behind is not wanted.

What is not ended: a process that left the session, cleared its environment and outlived its parent before
the end began; one that changed its user; and, where the system shows no process table, whatever left the
process group. If this process is itself killed, nobody is there to end its trees.
"""

import os
import signal
import subprocess
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import attrs
import trio

from trioeval.providers.programs.members import (
    PROCESS_TABLE,
    Clocks,
    Member,
    Root,
    find_members,
    find_root,
    is_alive,
)

MARK = "TRIOEVAL_TREE"
"""The environment variable that tells which trees a process belongs to, the outermost first."""

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
    _root: Root = attrs.field(repr=False)
    _grace: float = GRACE
    _table: Path = attrs.field(default=PROCESS_TABLE, repr=False)
    _thread: trio.CapacityLimiter = attrs.field(
        init=False, repr=False, factory=lambda: trio.CapacityLimiter(1)
    )
    """Of its own: the end must not wait for whoever has taken all threads."""
    _is_over: bool = attrs.field(init=False, repr=False, default=False)
    """Whether all of it is known to have ended."""

    async def wait(self) -> int:
        """Wait for the first process; returns its exit code, or minus the signal that ended it."""
        return await self.process.wait()

    async def end(self) -> None:
        """End every process that is left. Takes no longer than the grace and `KILLED_WITHIN`.

        Runs to its end also when it is cancelled. Output that was not read stays readable.
        """
        if self._is_over:
            return
        known: set[Member] = set()
        with trio.move_on_after(self._grace, shield=True):
            # Each process once: a second request means "at once" to some programs.
            while members := await self._members(known):
                self._signal(members - known, signal.SIGTERM)
                known |= members
                await self._wait_gone(members)
            if members is None:
                self._signal_group(signal.SIGTERM)
            await self.process.wait()
            if members is not None:
                self._is_over = True  # where nothing is alive, nothing is started any more
                return
        with trio.move_on_after(KILLED_WITHIN, shield=True):
            # Again and again: a process may be started while the others are killed.
            while members := await self._members(known):
                known |= members
                if any(one.group == self.process.pid for one in members):
                    self._signal_group(signal.SIGKILL)  # in one step: no more is started there
                self._signal(members, signal.SIGKILL)
                await self._wait_gone(members)
            if members is None:
                self._signal_group(signal.SIGKILL)
            await self.process.wait()

    async def aclose(self) -> None:
        """End every process that is left, and close the pipes; also when it is cancelled."""
        try:
            await self.end()
        finally:
            with trio.move_on_after(KILLED_WITHIN, shield=True):  # to close by force takes no time
                for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                    if pipe is not None:
                        await trio.aclose_forcefully(pipe)

    async def _members(self, known: Collection[Member]) -> set[Member] | None:
        # In a thread: reading the table of a busy machine takes as long as many steps of a scheduler.
        return await trio.to_thread.run_sync(
            find_members, self._root, known, self._table, limiter=self._thread
        )

    def _signal(self, members: Iterable[Member], number: signal.Signals) -> None:
        for member in members:
            with suppress(ProcessLookupError, PermissionError), _Handle(member.pid) as handle:
                # Asked after the handle was opened: then the signal reaches this one or none.
                if is_alive(member, self._table):
                    handle.send(number)

    async def _wait_gone(self, members: Iterable[Member]) -> None:
        """Wait until processes have ended, whoever started them."""
        for member in members:
            with suppress(ProcessLookupError), _Handle(member.pid) as handle:
                if is_alive(member, self._table):
                    await handle.wait()

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


# A Ctrl-C between the start of a program and its tree would leave it running: it comes later.
@trio.lowlevel.enable_ki_protection
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
        environ: Its whole environment; the mark is added to those of the trees around it.
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
    before = Clocks()
    process = await trio.lowlevel.open_process(
        command,
        cwd=cwd,
        env={**environ, MARK: ",".join(filter(None, (environ.get(MARK), mark)))},
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        pass_fds=pass_fds,
    )
    return Tree(process, find_root(process.pid, mark.encode(), before), grace)


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


@attrs.define(eq=False)
class _Handle:
    """A process under a number that nobody else gets meanwhile, if the system has such handles."""

    _pid: int
    _descriptor: int | None = attrs.field(init=False, default=None)

    def __enter__(self) -> Self:
        """Open the handle.

        Raises:
            ProcessLookupError: There is no such process.
        """
        try:
            self._descriptor = os.pidfd_open(self._pid)
        except ProcessLookupError:
            raise
        except OSError:  # an old system, or no more descriptors
            self._descriptor = None
        return self

    def __exit__(self, *_error: object) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def send(self, number: signal.Signals) -> None:
        if self._descriptor is None:
            os.kill(self._pid, number)
        else:
            signal.pidfd_send_signal(self._descriptor, number)

    async def wait(self) -> None:
        """Until it has ended, or for a moment: then it has to be looked at again."""
        if self._descriptor is None:
            await trio.sleep(_LOOK_AGAIN)
        else:
            await trio.lowlevel.wait_readable(self._descriptor)
