"""A program and everything it starts, as one thing that is sure to end.

The program opens a session of its own, and carries a mark in its environment by which what it starts is
known. To end the tree is to ask all of it to terminate, to wait for a grace, and then to kill it. Used as
a context manager it is also ended when its first process has ended by itself: what a program leaves behind
is not wanted. Where it is, `look`, `left` and `wait_left` tell of it.

What is not ended: a process that left the session, cleared its environment and outlived its parent before
the end began; one that changed its user; and, where the system shows no process table, whatever left the
process group. If this process is itself killed, nobody is there to end its trees.
"""

import os
import signal
import subprocess
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

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
from trioeval.providers.programs.signals import send_signal, wait_gone

MARK = "TRIOEVAL_TREE"
"""The environment variable that tells which trees a process belongs to, the outermost first."""

GRACE = 1.5
"""Seconds between the request to terminate and the kill."""

KILLED_WITHIN = 5.0
"""Seconds in which the system should be able to remove what was killed."""

_LOOK_AGAIN = 0.25


@attrs.define(eq=False)
class Tree(trio.abc.AsyncResource):
    """A running program with its descendants; obtained from `start_tree` only.

    As an async context manager it is sure to end with its block:

        async with await start_tree(["make"], cwd=cwd, environ=environ) as tree:
            code = await tree.wait()
    """

    process: trio.Process
    """The first process, with its pipes."""
    root: Root = attrs.field(repr=False)
    """What it is known by."""
    _grace: float = GRACE
    _table: Path = attrs.field(default=PROCESS_TABLE, repr=False)
    _thread: trio.CapacityLimiter = attrs.field(
        init=False, repr=False, factory=lambda: trio.CapacityLimiter(1)
    )
    """Of its own: the end must not wait for whoever has taken all threads."""
    _seen: Collection[Member] = attrs.field(init=False, repr=False, default=())
    """What was left of it when somebody last looked."""
    is_over: bool = attrs.field(init=False, repr=False, default=False)
    """Whether all of it is known to have ended."""

    async def wait(self) -> int:
        """Wait for the first process; returns its exit code, or minus the signal that ended it."""
        return await self.process.wait()

    async def look(self) -> bool:
        """Whether anything is left of it. A checkpoint unless all of it is known to have ended."""
        if self.is_over:
            return False
        members = await self._members(self._seen)
        self._seen = members or ()
        has_group = members is None and self._has_group()
        # Where nothing is alive, nothing is started any more.
        self.is_over = self.process.returncode is not None and not members and not has_group
        return not self.is_over

    def left(self) -> Sequence[int]:
        """The processes that are left, without those that another one of them has started.

        Looks only at those that were there before, as long as one of them is. No checkpoint, and no thread:
        for a tree of which little is left.
        """
        if self.is_over:
            return ()
        members = {member for member in self._seen if is_alive(member, self._table)}
        if not members:
            found = find_members(self.root, (), self._table)
            if found is None:
                return (self.process.pid,) if self._has_group() else ()
            self._seen = members = found
        numbers = {member.pid for member in members}
        return sorted(member.pid for member in members if member.parent not in numbers)

    async def wait_left(self) -> None:
        """Wait until nothing is left of it, whoever started what. A checkpoint.

        Also for the first process; ends nothing.
        """
        await self.process.wait()
        while await self.look():
            if self._seen:
                await wait_gone(self._seen, self._table, _LOOK_AGAIN)
            else:
                await trio.sleep(_LOOK_AGAIN)

    async def end(self) -> None:
        """End every process that is left. Takes no longer than the grace and `KILLED_WITHIN`.

        Runs to its end also when it is cancelled. Output that was not read stays readable.
        """
        if self.is_over:
            return
        known = set(self._seen)
        asked: set[Member] = set()
        with trio.move_on_after(self._grace, shield=True):
            # Each process once: a second request means "at once" to some programs.
            while members := await self._members(known):
                send_signal(members - asked, signal.SIGTERM, self._table)
                asked |= members
                known |= members
                await wait_gone(members, self._table)
            if members is None:
                self._signal_group(signal.SIGTERM)
            await self.process.wait()
            if members is not None:
                self.is_over = True  # where nothing is alive, nothing is started any more
                return
        with trio.move_on_after(KILLED_WITHIN, shield=True):
            # Again and again: a process may be started while the others are killed.
            while members := await self._members(known):
                known |= members
                if any(one.group == self.process.pid for one in members):
                    self._signal_group(signal.SIGKILL)  # in one step: no more is started there
                send_signal(members, signal.SIGKILL, self._table)
                await wait_gone(members, self._table)
            if members is None:
                self._signal_group(signal.SIGKILL)
            await self.process.wait()
            self.is_over = members is not None

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
            find_members, self.root, known, self._table, limiter=self._thread
        )

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _has_group(self) -> bool:
        """Whether anything is left of its process group: all that can be told without a table."""
        try:
            os.killpg(self.process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


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
    mark: str | None = None,
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
        mark: What it is known by, from `make_mark`; None makes one.

    Raises:
        OSError: It cannot be started.
        ValueError: An argument holds a NUL character.
    """
    mark = mark or make_mark()
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


def make_mark() -> str:
    """What a tree can be known by: 32 hexadecimal digits that no other has."""
    return uuid.uuid4().hex


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
