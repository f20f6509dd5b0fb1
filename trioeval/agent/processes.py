"""The processes of a case: what attempts start lives on after them, and not longer than the case."""

import platform
import re
import signal
import subprocess
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import attrs
import trio

from trioeval.agent.attempts import LAST_WORDS, AttemptLog
from trioeval.agent.journal import ProcessIdentity
from trioeval.agent.protocols import Family
from trioeval.nurseries import open_plain_nursery
from trioeval.providers.programs.members import PROCESS_TABLE, Member, Root, find_survivors
from trioeval.providers.programs.processes import (
    GRACE,
    KILLED_WITHIN,
    Tree,
    send_signal,
    start_tree,
    wait_gone,
)

# Processes of agents that live on when the program that started them has died, and their end.


_MARK = re.compile(r"[0-9a-f]{32}")
"""A damaged one must not be found in every environment."""


def identify(root: Root, table: Path = PROCESS_TABLE) -> ProcessIdentity:
    """What the first process of a tree is known by, when this program has died."""
    return ProcessIdentity(
        pid=root.pid, started=root.started, host=this_host(table), mark=root.mark.decode()
    )


def this_host(table: Path = PROCESS_TABLE) -> str:
    """This machine, since it was started; a container is a machine of its own."""
    try:
        boot = (table / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(table / 'self/ns/pid').readlink()}"
    except OSError:
        return platform.node()


async def end_survivors(
    identities: Iterable[ProcessIdentity], grace: float = GRACE, table: Path = PROCESS_TABLE
) -> int:
    """End what still runs of trees whose program has died, and return how many processes that were.

    A checkpoint. Leaves alone whatever runs on another host, and whoever has got a number since. Where the
    system has no process table nothing can be told from anything, and nothing is ended.
    """
    here = this_host(table)
    roots = [
        Root(identity.pid, identity.mark.encode(), identity.started)
        for identity in identities
        if identity.host == here and _MARK.fullmatch(identity.mark)
    ]
    await trio.lowlevel.checkpoint()
    known: set[Member] = set()
    asked: set[Member] = set()
    if not roots:
        return 0
    with trio.move_on_after(grace):
        # Each process once: a second request means "at once" to some programs.
        while members := await _look(roots, known, table):
            send_signal(members - asked, signal.SIGTERM, table)
            asked |= members
            known |= members
            await wait_gone(members, table)
        return len(known)
    with trio.move_on_after(KILLED_WITHIN):
        while members := await _look(roots, known, table):
            known |= members
            send_signal(members, signal.SIGKILL, table)
            await wait_gone(members, table)
    return len(known)


async def _look(roots: Collection[Root], known: Collection[Member], table: Path) -> set[Member]:
    return await trio.to_thread.run_sync(find_survivors, roots, known, table) or set()


@attrs.frozen(eq=False)
class ProcessTree:
    """The processes of an attempt; obtained from `ProcessFamily.start` only."""

    tree: Tree
    stdout: AttemptLog
    stderr: AttemptLog
    _gone: Callable[[], None] = attrs.field(repr=False)

    def alive(self) -> Sequence[str]:
        """The numbers of the processes that are left, without those that another one of them has started."""
        return [str(pid) for pid in self.tree.left()]

    async def wait(self) -> None:
        """Return when nothing of it is left."""
        await self.tree.wait_left()

    async def stop(self) -> None:
        """End all that is left of it. Runs to its end also when it is cancelled."""
        await self.tree.end()
        self.bound()
        with trio.move_on_after(2 * LAST_WORDS, shield=True):
            await self.stdout.finish()
            await self.stderr.finish()

    def leave(self) -> None:
        """Take note that the family has let go of it: if nothing of it is left, that is recorded."""
        self.bound()
        if self.tree.is_over:
            self._gone()

    def bound(self) -> None:
        """Read what it wrote for a moment only: a process that hides from its tree may hold its pipes."""
        self.stdout.bound()
        self.stderr.bound()


@attrs.define(eq=False)
class ProcessFamily(Family):
    """The programs that the attempts of a case have started; obtained from `open_family` only."""

    grace: float = GRACE

    # A Ctrl-C between the start of a program and its place here would leave it running: it comes later.
    @trio.lowlevel.enable_ki_protection
    async def start(
        self,
        command: Sequence[str | bytes],
        stdout: AttemptLog,
        stderr: AttemptLog,
        *,
        cwd: Path,
        environ: Mapping[str, str],
        mark: str,
        gone: Callable[[], None],
        has_input: bool = False,
        max_processes: int = 0,
    ) -> ProcessTree:
        """Start a program. Always a checkpoint.

        Args:
            command: Its words.
            stdout: Gets what it and all that it starts write, and is closed when they have ended; unless
                this raises.
            stderr: Likewise.
            cwd: Its folder.
            environ: All of it; the mark is added.
            mark: What its processes are known by, from `make_mark`.
            gone: Called when nothing of it is left.
            has_input: Whether it has a standard input that is written to.
            max_processes: That it may have at once, ≥ 0; 0 does not bound them.

        Raises:
            OSError: It cannot be started.
            ValueError: An argument holds a NUL character.
        """
        tree = await start_tree(
            command,
            cwd=cwd,
            environ=environ,
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            grace=self.grace,
            mark=mark,
            supervised=True,
            max_processes=max_processes,
        )
        started = ProcessTree(tree, stdout, stderr, gone)
        self.relatives.append(started)
        for log, pipe in ((stdout, tree.process.stdout), (stderr, tree.process.stderr)):
            log.pipe = cast("trio.lowlevel.FdStream", pipe)  # it is a pipe, which was asked for
            self.nursery.start_soon(log.pump)
        return started


@asynccontextmanager
async def open_family(grace: float = GRACE) -> AsyncGenerator[ProcessFamily]:
    """A family that has ended when the block has."""
    async with open_plain_nursery() as nursery:
        longest = grace + KILLED_WITHIN + 3 * LAST_WORDS
        family = ProcessFamily(nursery, longest, grace)
        try:
            yield family
        finally:
            await family.end()  # noqa: ASYNC102 - shielded and bounded inside
            for relative in family.relatives:  # which could not be ended
                relative.leave()
