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

from trioeval.agent.attempts import LAST_WORDS, AttemptLog, Pump
from trioeval.agent.journal import ProcessIdentity
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

    Args:
        identities: The trees.
        grace: Seconds between the request to terminate and the kill, ≥ 0.
        table: Where the system shows its processes.
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


@attrs.frozen(kw_only=True)
class Started:
    """What is started for an attempt."""

    command: Sequence[str | bytes]
    cwd: Path
    environ: Mapping[str, str]
    """All of it; the mark is added."""
    mark: str
    """What its processes are known by, from `make_mark`."""
    has_input: bool = False
    """Whether it has a standard input that is written to."""
    gone: Callable[[], None]
    """Told when nothing of it is left."""
    max_processes: int = 0
    """That it may have at once, ≥ 0; 0 does not bound them."""


@attrs.frozen(eq=False)
class Relative:
    """What was started for an attempt; obtained from `ProcessFamily.start` only."""

    tree: Tree
    stdout: Pump
    stderr: Pump
    _gone: Callable[[], None] = attrs.field(repr=False)

    async def end(self) -> None:
        """End all that is left of it. Runs to its end also when it is cancelled."""
        await self.tree.end()
        self.bound()
        with trio.move_on_after(2 * LAST_WORDS, shield=True):
            await self.stdout.finish()
            await self.stderr.finish()

    def bound(self) -> None:
        """Read what it wrote for a moment only: somebody who hides from its tree may hold its pipes."""
        self.stdout.bound()
        self.stderr.bound()

    def tell_gone(self) -> None:
        """Say so if nothing of it is left."""
        if self.tree.is_over:
            self._gone()


@attrs.define(eq=False)
class ProcessFamily(trio.abc.AsyncResource):
    """What the attempts of a case have started; obtained from `open_family` only. The loop's `Children`."""

    _nursery: trio.Nursery = attrs.field(repr=False)
    _grace: float
    _relatives: list[Relative] = attrs.field(init=False, factory=list)

    # A Ctrl-C between the start of a program and its place here would leave it running: it comes later.
    @trio.lowlevel.enable_ki_protection
    async def start(self, what: Started, stdout: AttemptLog, stderr: AttemptLog) -> Relative:
        """Start a program. Always a checkpoint.

        Args:
            what: The program.
            stdout: Gets what it and all that it starts write, and is closed when they have ended; unless
                this raises.
            stderr: Likewise.

        Raises:
            OSError: It cannot be started.
            ValueError: An argument holds a NUL character.
        """
        tree = await start_tree(
            what.command,
            cwd=what.cwd,
            environ=what.environ,
            stdin=subprocess.PIPE if what.has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            grace=self._grace,
            mark=what.mark,
            supervised=True,
            max_processes=what.max_processes,
        )
        out, errors = _pump(stdout, tree.process.stdout), _pump(stderr, tree.process.stderr)
        relative = Relative(tree, out, errors, what.gone)
        self._relatives.append(relative)
        self._nursery.start_soon(out.run)
        self._nursery.start_soon(errors.run)
        return relative

    async def settle(self, relative: Relative) -> None:
        """Look whether the first process of an attempt, which has ended, has left anything behind.

        A checkpoint.
        """
        await trio.lowlevel.checkpoint()
        if not await relative.tree.look():
            self._drop(relative)

    async def end_one(self, relative: Relative) -> None:
        """End everything that an attempt has started. Runs to its end also when it is cancelled."""
        await relative.end()
        self._drop(relative)

    def alive(self) -> Sequence[str]:
        """The numbers of the processes that are left, without those that another one of them has started."""
        return [str(pid) for relative in self._relatives for pid in relative.tree.left()]

    async def wait(self) -> None:
        """Return when none is left. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while self._relatives:
            relative = self._relatives[0]
            await relative.tree.wait_left()
            self._drop(relative)

    async def end(self) -> None:
        """End all of them, gently and then by force. Runs to its end also when it is cancelled."""
        longest = self._grace + KILLED_WITHIN + 3 * LAST_WORDS
        with trio.move_on_after(longest, shield=True):
            async with trio.open_nursery() as nursery:
                for relative in self._relatives:
                    nursery.start_soon(self.end_one, relative)

    async def aclose(self) -> None:
        """End all of them; also when it is cancelled."""
        try:
            await self.end()
        finally:
            for relative in self._relatives:  # which could not be ended
                relative.bound()

    def _drop(self, relative: Relative) -> None:
        relative.bound()
        if relative in self._relatives:
            self._relatives.remove(relative)
            relative.tell_gone()


def _pump(log: AttemptLog, pipe: object) -> Pump:
    stream = cast("trio.lowlevel.FdStream", pipe)  # it is a pipe, which was asked for
    return Pump(log, stream, stream.fileno())


@asynccontextmanager
async def open_family(grace: float = GRACE) -> AsyncGenerator[ProcessFamily]:
    """A family that has ended when the block has.

    Args:
        grace: Seconds between the request to terminate and the kill, ≥ 0.
    """
    failure: Exception | None = None
    async with trio.open_nursery() as nursery, ProcessFamily(nursery, grace) as family:
        try:
            yield family
        except Exception as error:  # noqa: BLE001 - raised below, where no nursery wraps it
            failure = error
    if failure is not None:
        raise failure
