"""The processes of a process tree, read from the process table.

A process belongs to a tree if it is in the tree's session, has the tree's mark in its environment, was
started by a member, or was a member at the last check. So a process that has left the session is found by its
mark, and one that has lost its mark as well by its parent. If a supervisor adopts orphaned processes, these
rules find all; otherwise a process that did both and outlived its parent before the next check is not found.
If the supervisor was killed, the processes that it had adopted are found by their tag; see `make_tag`.

Reading a process's entry in the table costs the system much more than reading the age of the entry. An entry
is created when it is first accessed, so it is never older than its process: an entry that is older than the
tree need not be read.
"""

import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import attrs

from trioeval.open_files import TOO_MANY

# Tags of processes that survive an emptied environment, a new session and the death of every parent.
#
# The tag of a tree is the hard limit of file locks (`ulimit -x`) of its processes. Linux has not enforced
# that limit since version 2.4, but processes inherit it, across `fork` and `exec`, and only root may raise
# it.


RLIMIT_LOCKS = 10
"""Linux's number on all machines that Python has wheels for; the module `resource` has no name for it."""

_LINE = b"Max file locks"
_TOP = 2**62
_RANGE = 2**40


def make_tag(mark: str) -> int:
    """Return a tag for the processes of a tree; 0 if the limit of this process leaves no room for one.

    Args:
        mark: The mark of the tree: hexadecimal digits.
    """
    import resource

    _, hard = resource.getrlimit(RLIMIT_LOCKS)
    top = _TOP if hard == resource.RLIM_INFINITY else min(hard, _TOP)
    return top - 1 - int(mark, 16) % _RANGE if top > _RANGE else 0


def has_tag(limits: bytes, tag: int) -> bool:
    """Return whether a process has a tag.

    Args:
        limits: The content of the process's file `limits`.
        tag: The tag, not 0.

    Example:
        >>> has_tag(
        ...     b"Max file locks            17                   17                   locks", 17
        ... )
        True
    """
    lines = (line for line in limits.splitlines() if line.startswith(_LINE))
    return any(line.split()[4] == str(tag).encode() for line in lines)


PROCESS_TABLE = Path("/proc")

SUPERVISES = "TRIOEVAL_SUPERVISES"
"""The environment variable of a supervisor: the mark of its tree, to which it does not itself belong."""

_OVER = frozenset({b"Z", b"X", b"x"})
"""States of a process that has ended, but has not been waited for."""

_LOOKS = 2
_SLACK = 0.1
"""Maximum inaccuracy of clocks in seconds."""

_STARTED = 19
"""Index of the start time in a line of the process table, counted from the state."""


@attrs.frozen
class Member:
    """A process, identified by its id and start time, because ids are reused."""

    pid: int
    started: int
    """Start time in clock ticks since the system's start."""
    parent: int = attrs.field(eq=False)
    group: int = attrs.field(eq=False)
    session: int = attrs.field(eq=False)
    is_over: bool = attrs.field(eq=False, default=False)


@attrs.frozen
class Clocks:
    """An instant by the wall clock, which may be set, and by the monotonic clock, which may not."""

    wall: float = attrs.field(factory=time.time)
    steady: float = attrs.field(factory=time.monotonic)

    @property
    def was_set_back(self) -> bool:
        """True if the wall clock was set back since the instant, or nearly so."""
        return time.time() - self.wall < time.monotonic() - self.steady - _SLACK / 2


@attrs.frozen
class TreeIdentity:
    """The identification of a tree."""

    pid: int
    """Id of its first process, which opened the session."""
    mark: bytes
    """Text in the environment of its processes, and of no others."""
    started: int = 0
    """Start time of the first process, in ticks as in `Member`; older processes do not belong."""
    before: Clocks | None = None
    """An instant before its start; None if the table does not show the age of its entries."""
    supervisor: Member | None = None
    """The process that adopts the tree's orphans; None if there is none."""
    tag: int = 0
    """The tag of all its processes below the supervisor, from `make_tag`; 0 if they have none."""


def find_root(pid: int, mark: bytes, before: Clocks, table: Path = PROCESS_TABLE) -> TreeIdentity:
    """Return the identification of a tree whose first process was just started, and not waited for yet."""
    first = read_member(pid, table)
    if first is None:
        return TreeIdentity(pid, mark)
    tells_age = before.wall - _SLACK <= _entered_at(str(table), str(pid)) <= time.time() + _SLACK
    return TreeIdentity(pid, mark, first.started, before if tells_age else None)


def read_member(pid: int, table: Path = PROCESS_TABLE) -> Member | None:
    """Return a process, even one that has ended but was not waited for; None if it is not visible."""
    try:
        return _read(str(table), str(pid))
    except OSError:
        return None


def is_alive(member: Member, table: Path = PROCESS_TABLE) -> bool:
    """Return whether a process has not ended; its id may have been reused."""
    now = read_member(member.pid, table)
    return now == member and not now.is_over


def find_members(
    root: TreeIdentity, known: Collection[Member] = (), table: Path = PROCESS_TABLE
) -> set[Member] | None:
    """Return the live processes of a tree; None on a system without a process table.

    If there are none, none will follow: a process that ended while the table was read may have started one
    that was not listed yet, so in this case the table is read once more. Takes about 0.003 ms for each
    process of the machine, and 0.02 ms for each that is younger than the tree.

    Args:
        root: The identification of the tree.
        known: Earlier members.
        table: The system's process table.

    Raises:
            OSError: This process has too many open files.
    """
    if not table.is_dir():
        return None
    for _ in range(_LOOKS):
        found, is_sure = _look(root, known, str(table))
        if found or is_sure:
            break
    return found


def find_survivors(
    roots: Collection[TreeIdentity], known: Collection[Member] = (), table: Path = PROCESS_TABLE
) -> set[Member] | None:
    """Return the live processes of trees that another, dead program has started; None if unknown.

    A process belongs to one of them if it has the tree's mark, is its first process, is in the session of a
    member, or was started by a member or by the supervisor, which is not a member. This process is not a
    member either. Ids alone prove nothing, because they may have been reused.

    Args:
        roots: The identifications of the trees.
        known: Earlier members.
        table: The system's process table.
    """
    if not table.is_dir():
        return None
    for _ in range(_LOOKS):
        found = _look_for_survivors(roots, known, table)
        if found:
            break
    return found


def find_started(pid: int, table: Path = PROCESS_TABLE) -> set[Member]:
    """Return the live processes that a process has started, their descendants, and their sessions.

    Args:
        pid: Id of the process, which is not included.
        table: The system's process table; without one the result is empty.
    """
    if not table.is_dir():
        return set()
    listed = (_read(str(table), number) for number in _numbers(table))
    candidates = {member for member in listed if member is not None and not member.is_over}
    found = set(_walk([pid], _by_parent(candidates)))
    own = {member.session for member in candidates if member.pid == pid}
    sessions = {member.session for member in found} - own
    return found | {member for member in candidates if member.session in sessions}


def _look_for_survivors(
    roots: Collection[TreeIdentity], known: Collection[Member], table: Path
) -> set[Member]:
    marks = [root.mark for root in roots]
    supervising = [SUPERVISES.encode() + b"=" + mark for mark in marks]
    firsts = {(root.pid, root.started) for root in roots if root.started}
    listed = (_read(str(table), pid) for pid in _numbers(table) if int(pid) != os.getpid())
    candidates = {member for member in listed if member is not None and not member.is_over}
    found, supervisors = set(), set()
    for member in candidates:
        environ = _content(str(table), str(member.pid), "environ")
        if any(text in environ for text in supervising):
            supervisors.add(member)
        elif (
            member in known
            or (member.pid, member.started) in firsts
            or any(mark in environ for mark in marks)
        ):
            found.add(member)
    sessions = {root.pid for root in roots} & {member.session for member in found}
    found |= {member for member in candidates if member.session in sessions}
    return (found | _descendants(found | supervisors, candidates)) - supervisors


def _numbers(table: Path | str) -> Iterator[str]:
    return filter(str.isdigit, os.listdir(table))  # noqa: PTH208 - costs half of a path object


def _look(root: TreeIdentity, known: Collection[Member], table: str) -> tuple[set[Member], bool]:
    """Return the live processes of a tree, and whether all that were listed could be read."""
    candidates: dict[int, Member] = {}
    is_sure = True
    before = None if root.before is None or root.before.was_set_back else root.before.wall - _SLACK
    for pid in _numbers(table):
        if before is not None and 0.0 < _entered_at(table, pid) < before:
            continue
        member = _read(table, pid)
        if member is None:
            is_sure = False
        elif member.started >= root.started:
            if not member.is_over:
                candidates[member.pid] = member
            elif member.session == root.pid or member.parent != os.getpid():
                is_sure = False
    leader = candidates.get(root.pid)
    # The id of the first process may have been reused by one with its own session.
    is_ours = leader is None or leader.started == root.started or not root.started
    found = {
        member
        for member in candidates.values()
        if (is_ours and member.session == root.pid)
        or member in known
        or root.mark in _content(table, str(member.pid), "environ")
    }
    above = set(found)
    if root.supervisor is not None:
        if is_alive(root.supervisor, Path(table)):
            above.add(root.supervisor)
        elif root.tag:  # perhaps killed by the program
            found |= {
                member
                for member in candidates.values()
                if has_tag(_content(table, str(member.pid), "limits"), root.tag)
            }
            above |= found
    return (found | _descendants(above, candidates.values())) - {root.supervisor}, is_sure


def _descendants(found: Collection[Member], candidates: Collection[Member]) -> set[Member]:
    return set(_walk([member.pid for member in found], _by_parent(candidates)))


def _by_parent(candidates: Collection[Member]) -> dict[int, list[Member]]:
    children: dict[int, list[Member]] = {}
    for member in candidates:
        children.setdefault(member.parent, []).append(member)
    return children


def _walk(todo: list[int], children: dict[int, list[Member]]) -> Iterator[Member]:
    while todo:
        for member in children.pop(todo.pop(), ()):
            yield member
            todo.append(member.pid)


def _read(table: str, pid: str) -> Member | None:
    stat = _content(table, pid, "stat")
    if not stat:
        return None
    # The name of the program is in parentheses, and may itself contain parentheses and spaces.
    state, parent, group, session, *rest = stat.rpartition(b")")[2].split()
    started = int(rest[_STARTED - 4])
    return Member(int(pid), started, int(parent), int(group), int(session), state in _OVER)


def _entered_at(table: str, pid: str) -> float:
    """Return the time at which an entry was created, by the wall clock; 0 if there is none."""
    try:
        return os.stat(f"{table}/{pid}").st_ctime  # noqa: PTH116 - a third of the time of a path object
    except OSError:
        return 0.0


def _content(table: str, pid: str, name: str) -> bytes:
    """Return a file of the table; empty if the process has ended or belongs to another user.

    Raises:
        OSError: This process has too many open files.
    """
    try:
        with open(f"{table}/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 - half the time
            return file.read()
    except OSError as error:
        if error.errno in TOO_MANY:
            raise
        return b""
