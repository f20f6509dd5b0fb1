"""Which processes belong to a tree, read from the process table.

A process belongs to it if it is of the tree's session, has the tree's mark in its environment, or was
started by one that belongs. So what left the session is still found, by its mark; and what lost its mark
as well, by its parent. Only what did both and outlived its parent is not.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import attrs

PROCESS_TABLE = Path("/proc")

_OVER = frozenset({b"Z", b"X", b"x"})
"""States of a process that has ended, and that nobody has taken notice of yet."""


@attrs.frozen
class Member:
    """A process that is alive."""

    pid: int
    parent: int
    group: int
    session: int


def find_members(session: int, mark: bytes, table: Path = PROCESS_TABLE) -> list[Member] | None:
    """The live processes of a tree, in no order; None on a system that cannot tell.

    Takes some 0.03 ms for each process of the machine.

    Args:
        session: The process id of the tree's first process, which opened the session.
        mark: What the environment of its processes holds.
        table: Where the system shows its processes.
    """
    if not table.is_dir():
        return None
    everyone = {member.pid: member for member in _read(table)}
    found = {
        pid
        for pid, member in everyone.items()
        if member.session == session or mark in _environment(table, pid)
    }
    todo = list(found)
    while todo:
        parent = todo.pop()
        started = {pid for pid, member in everyone.items() if member.parent == parent} - found
        found |= started
        todo += started
    return [everyone[pid] for pid in found]


def _read(table: Path) -> Iterator[Member]:
    for name in os.listdir(table):  # noqa: PTH208 - a path object for each process would cost more
        if name.isdigit() and (stat := _content(table, name, "stat")):
            # The name of the program stands in brackets, and may itself hold brackets and spaces.
            state, parent, group, session, *_rest = stat.rpartition(b")")[2].split()
            if state not in _OVER:
                yield Member(int(name), int(parent), int(group), int(session))


def _environment(table: Path, pid: int) -> bytes:
    return _content(table, str(pid), "environ")


def _content(table: Path, *names: str) -> bytes:
    """A file of the table; nothing for a process that has ended meanwhile or belongs to somebody else."""
    path = "/".join((str(table), *names))
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - half the time of a path object
            return file.read()
    except OSError:
        return b""
