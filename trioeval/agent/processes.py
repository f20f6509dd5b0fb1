"""The processes of a case: processes that attempts start may outlive these, but not the case."""

import platform
import re
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import attrs
import trio

from trioeval.agent.attempts import DRAIN_SECONDS, AttemptLog
from trioeval.agent.journal import ProcessIdentity
from trioeval.agent.protocols import ChildFamily
from trioeval.nurseries import open_plain_nursery
from trioeval.providers.programs.members import PROCESS_TABLE, Member, TreeIdentity, find_survivors
from trioeval.providers.programs.processes import GRACE, KILLED_WITHIN, Tree, send_signal, wait_gone

# Processes of agents that survive the program that started them, and their end.


_MARK = re.compile(r"[0-9a-f]{32}")
"""A damaged mark must not be found in every environment."""


def identify(root: TreeIdentity, table: Path = PROCESS_TABLE) -> ProcessIdentity:
    """Return the identity by which the first process of a tree can be found after this program has died."""
    return ProcessIdentity(
        pid=root.pid, started=root.started, host=this_host(table), mark=root.mark.decode()
    )


def this_host(table: Path = PROCESS_TABLE) -> str:
    """Return the id of this machine and its boot; a container counts as its own machine."""
    try:
        boot = (table / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(table / 'self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


async def end_survivors(
    identities: Iterable[ProcessIdentity], grace: float = GRACE, table: Path = PROCESS_TABLE
) -> int:
    """End the remaining processes of trees whose program has died, and return their number.

    A checkpoint. Processes on another host, and reused process ids, are left alone. On a system without a
    process table, no process can be identified, and none is ended.
    """
    here = this_host(table)
    roots = [
        TreeIdentity(identity.pid, identity.mark.encode(), identity.started)
        for identity in identities
        if identity.host == here and _MARK.fullmatch(identity.mark)
    ]
    await trio.lowlevel.checkpoint()
    known: set[Member] = set()
    signalled: set[Member] = set()
    if not roots:
        return 0
    with trio.move_on_after(grace):
        # Each process once: for some programs a second request means "at once".
        while members := await _look(roots, known, table):
            send_signal(members - signalled, signal.SIGTERM, table)
            signalled |= members
            known |= members
            await wait_gone(members, table)
        return len(known)
    with trio.move_on_after(KILLED_WITHIN):
        while members := await _look(roots, known, table):
            known |= members
            send_signal(members, signal.SIGKILL, table)
            await wait_gone(members, table)
    return len(known)


async def _look(
    roots: Collection[TreeIdentity], known: Collection[Member], table: Path
) -> set[Member]:
    return await trio.to_thread.run_sync(find_survivors, roots, known, table) or set()


@attrs.frozen(eq=False)
class ProcessTree:
    """The processes of an attempt; obtained from `ProcessFamily.start` only."""

    tree: Tree
    stdout: AttemptLog
    stderr: AttemptLog
    _on_end: Callable[[], None] = attrs.field(repr=False)

    def alive(self) -> Sequence[str]:
        """Return the ids of the remaining processes, without those that another one of them has started."""
        return [str(pid) for pid in self.tree.left()]

    async def wait(self) -> None:
        """Wait until no process is left."""
        await self.tree.wait_left()

    async def stop(self) -> None:
        """End all remaining processes. Runs to its end also when cancelled."""
        await self.tree.end()
        self.bound()
        with trio.move_on_after(2 * DRAIN_SECONDS, shield=True):
            await self.stdout.finish()
            await self.stderr.finish()

    def leave(self) -> None:
        """Record the end if no process is left, when the family drops it."""
        self.bound()
        if self.tree.is_over:
            self._on_end()

    def bound(self) -> None:
        """Limit the reading of output to a moment: a process that hides from its tree may hold its pipes."""
        self.stdout.bound()
        self.stderr.bound()


@attrs.define(eq=False, repr=False)
class ProcessFamily(ChildFamily):
    """The programs that the attempts of a case have started; obtained from `open_family` only."""

    grace: float = GRACE

    # A Ctrl-C between the start of a program and its registration would leave it running: it is delayed.
    @trio.lowlevel.enable_ki_protection
    async def start(
        self,
        begin: Callable[[], Awaitable[Tree]],
        logs: tuple[AttemptLog, AttemptLog],
        on_end: Callable[[], None],
    ) -> ProcessTree:
        """Start a program. Always a checkpoint.

        Args:
            begin: Starts it, with pipes for its output.
            logs: Receive the output of it and all that it starts, and are closed when these have ended;
                unless this raises.
            on_end: Called when no process of it is left.
        """
        tree = await begin()
        stdout, stderr = logs
        started = ProcessTree(tree, stdout, stderr, on_end)
        self.relatives.append(started)
        for log, pipe in ((stdout, tree.process.stdout), (stderr, tree.process.stderr)):
            log.pipe = cast("trio.lowlevel.FdStream", pipe)  # it is a pipe, which was asked for
            self.nursery.start_soon(log.pump)
        return started


@asynccontextmanager
async def open_family(grace: float = GRACE) -> AsyncGenerator[ProcessFamily]:
    """Open a family whose processes have ended when the block has."""
    async with open_plain_nursery() as nursery:
        longest = grace + KILLED_WITHIN + 3 * DRAIN_SECONDS
        family = ProcessFamily(nursery, longest, grace)
        try:
            yield family
        finally:
            await family.end()  # noqa: ASYNC102 - shielded and bounded inside
            for relative in family.relatives:  # which could not be ended
                relative.leave()
