"""Which processes belong to a tree, read from the process table.

A process belongs to it if it is of the tree's session, has the tree's mark in its environment, was started
by one that belongs, or belonged at the last look. So what left the session is still found, by its mark; and
what lost its mark as well, by its parent. Where a supervisor adopts what has lost its parent, that is all;
otherwise what did both and outlived its parent before the next look is not found. If the supervisor was
killed, what it had adopted is found by its tag; see `make_tag`.

To read what the table says of a process costs the system much more than to tell how old its entry is. An
entry is made when somebody first looks at it, so it is never older than its process: one that was there
before the tree was started needs no reading.
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
# that limit since version 2.4, but processes inherit it, over `fork` and `exec`, and only root may raise it.


RLIMIT_LOCKS = 10
"""Of Linux, on all machines that Python has wheels for; the module `resource` has no name for it."""

_LINE = b"Max file locks"
_TOP = 2**62
_RANGE = 2**40


def make_tag(mark: str) -> int:
    """A tag for the processes of a tree; 0 if the limit of this process leaves no room for one.

    Args:
        mark: Of the tree: hexadecimal digits.
    """
    import resource  # noqa: PLC0415 - not on Windows

    _, hard = resource.getrlimit(RLIMIT_LOCKS)
    top = _TOP if hard == resource.RLIM_INFINITY else min(hard, _TOP)
    return top - 1 - int(mark, 16) % _RANGE if top > _RANGE else 0


def has_tag(limits: bytes, tag: int) -> bool:
    """Whether a process has a tag.

    Args:
        limits: The file `limits` of the process.
        tag: Not 0.

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
"""States of a process that has ended, and that nobody has taken notice of yet."""

_LOOKS = 2
_SLACK = 0.1
"""Seconds by which clocks may be wrong."""

_STARTED = 19
"""Where a line of the table tells when the process started, counted from its state."""


@attrs.frozen
class Member:
    """A process. The same one as another if number and start are: numbers are given again."""

    pid: int
    started: int
    """Clock ticks since the system was started."""
    parent: int = attrs.field(eq=False)
    group: int = attrs.field(eq=False)
    session: int = attrs.field(eq=False)
    is_over: bool = attrs.field(eq=False, default=False)


@attrs.frozen
class Clocks:
    """An instant, by the clock that may be set and by the one that may not."""

    wall: float = attrs.field(factory=time.time)
    steady: float = attrs.field(factory=time.monotonic)

    @property
    def was_set_back(self) -> bool:
        """Whether what happens now seems to be before the instant, or nearly."""
        return time.time() - self.wall < time.monotonic() - self.steady - _SLACK / 2


@attrs.frozen
class Root:
    """What a tree is known by."""

    pid: int
    """Of its first process, which opened the session."""
    mark: bytes
    """What the environment of its processes holds, and no other's."""
    started: int = 0
    """When the first process did, in the ticks of `Member`; nothing older belongs."""
    before: Clocks | None = None
    """An instant before; None if the entries of the table do not tell how old they are."""
    supervisor: Member | None = None
    """What adopts the orphans of the tree; None if nothing does."""
    tag: int = 0
    """What all its processes have that are below the supervisor, from `make_tag`; 0 if they have none."""


def find_root(pid: int, mark: bytes, before: Clocks, table: Path = PROCESS_TABLE) -> Root:
    """What a tree is known by whose first process was started just now, and was not waited for yet."""
    first = read_member(pid, table)
    if first is None:
        return Root(pid, mark)
    tells_age = before.wall - _SLACK <= _entered_at(str(table), str(pid)) <= time.time() + _SLACK
    return Root(pid, mark, first.started, before if tells_age else None)


def read_member(pid: int, table: Path = PROCESS_TABLE) -> Member | None:
    """A process, also one that has ended and was not waited for; None if there is none to be seen."""
    try:
        return _read(str(table), str(pid))
    except OSError:
        return None


def is_alive(member: Member, table: Path = PROCESS_TABLE) -> bool:
    """Whether it has not ended; another one may have its number by now."""
    now = read_member(member.pid, table)
    return now == member and not now.is_over


def find_members(
    root: Root, known: Collection[Member] = (), table: Path = PROCESS_TABLE
) -> set[Member] | None:
    """The live processes of a tree; None on a system that cannot tell.

    If there is none, none will come: what ended while the table was read may have started one that was not
    listed yet, so then it is read once more. Takes some 0.003 ms for each process of the machine, and 0.02
    ms for each that is younger than the tree.

    Args:
        root: What the tree is known by.
        known: Processes that belonged to it before.
        table: Where the system shows its processes.

    Raises:
        OSError: This process has too many open files to look.
    """
    if not table.is_dir():
        return None
    for _ in range(_LOOKS):
        found, is_sure = _look(root, known, str(table))
        if found or is_sure:
            break
    return found


def find_survivors(
    roots: Collection[Root], known: Collection[Member] = (), table: Path = PROCESS_TABLE
) -> set[Member] | None:
    """The live processes of trees that another program has started, which died; None if nobody can tell.

    A process is of one of them if it has its mark, is its first process, is of a session that one of these
    is of, or was started by one that is or by its supervisor, which is none. This process is none. Numbers
    alone tell nothing: they may be somebody else's by now.

    Args:
        roots: What the trees are known by.
        known: Processes that belonged to them before.
        table: Where the system shows its processes.
    """
    if not table.is_dir():
        return None
    for _ in range(_LOOKS):
        found = _look_for_survivors(roots, known, table)
        if found:
            break
    return found


def find_started(pid: int, table: Path = PROCESS_TABLE) -> set[Member]:
    """The live processes that a process has started, what these have started, and their sessions.

    Args:
        pid: Of the process, which does not belong.
        table: Where the system shows its processes; nothing is found on a system that does not.
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
    roots: Collection[Root], known: Collection[Member], table: Path
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


def _look(root: Root, known: Collection[Member], table: str) -> tuple[set[Member], bool]:
    """The live processes of a tree, and whether all that were listed could be read."""
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
    # The number of the first process may be somebody else's by now, with a session of his own.
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
        elif root.tag:  # the program has killed it, perhaps
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
    # The name of the program stands in brackets, and may itself hold brackets and spaces.
    state, parent, group, session, *rest = stat.rpartition(b")")[2].split()
    started = int(rest[_STARTED - 4])
    return Member(int(pid), started, int(parent), int(group), int(session), state in _OVER)


def _entered_at(table: str, pid: str) -> float:
    """When the entry of a process was made, by the wall clock; 0 if there is none."""
    try:
        return os.stat(f"{table}/{pid}").st_ctime  # noqa: PTH116 - a third of the time of a path object
    except OSError:
        return 0.0


def _content(table: str, pid: str, name: str) -> bytes:
    """A file of the table; nothing for a process that has ended meanwhile or belongs to another user.

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
