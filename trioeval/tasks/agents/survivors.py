"""Processes of agents that live on when the program that started them has died, and their end."""

import platform
import re
import signal
from collections.abc import Collection, Iterable
from pathlib import Path

import trio

from trioeval.providers.programs.members import PROCESS_TABLE, Member, Root, find_survivors
from trioeval.providers.programs.signals import send_signal, wait_gone
from trioeval.providers.programs.trees import GRACE, KILLED_WITHIN
from trioeval.tasks.agents.agent_journal import ProcessIdentity

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
