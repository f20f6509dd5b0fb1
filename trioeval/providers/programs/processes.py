"""A program with all its descendants, as one unit that is guaranteed to end.

The program opens its own session, and has a mark in its environment that its descendants inherit. Ending the
tree means to ask all of it to terminate, to wait for a grace period, and then to kill it. As a context
manager it is also ended after its first process has ended by itself, because processes that a program leaves
behind are usually unwanted. Otherwise `look`, `left` and `wait_left` report them.

On Linux a tree may have a supervisor: a small process above the program that adopts orphaned processes, and
ends when nothing is left. It costs about 10 ms, and a few megabytes while it runs.

If a program kills its supervisor, its processes are found by a tag that they inherit (`make_tag`). If this
process is killed, the supervisor ends the tree.

Not ended are: without a supervisor, a process that left the session, cleared its environment and outlived its
parent before the end began; one that did so, killed the supervisor and changed its tag; one that changed its
user; and, on a system without a process table, all processes that left the process group. If this process is
killed, trees without a supervisor are not ended.
"""

import errno
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Self

import attrs
import trio

from trioeval.open_files import TOO_MANY, is_out_of_files
from trioeval.providers.programs.members import (
    PROCESS_TABLE,
    SUPERVISES,
    Clocks,
    Member,
    TreeIdentity,
    find_members,
    find_root,
    is_alive,
    make_tag,
    read_member,
)

# Signals to processes, and waiting for their end, without ever reaching another process with a reused id.


_SIGNALS_LOOK_AGAIN = 0.01


def send_signal(
    members: Iterable[Member], number: signal.Signals, table: Path = PROCESS_TABLE
) -> None:
    """Send a signal to processes, except those that have ended or belong to another user."""
    for member in members:
        with suppress(ProcessLookupError, PermissionError), _Handle(member.pid) as handle:
            # Checked after the handle was opened: then the signal reaches this process or none.
            if is_alive(member, table):
                handle.send(number)


async def wait_gone(
    members: Iterable[Member], table: Path = PROCESS_TABLE, look_again: float = _SIGNALS_LOOK_AGAIN
) -> None:
    """Wait until processes have ended, or for a moment, after which they have to be checked again.

    Args:
        members: The processes.
        table: The system's process table.
        look_again: Seconds of that moment, if the system does not report the end.
    """
    for member in members:
        with suppress(ProcessLookupError), _Handle(member.pid) as handle:
            if is_alive(member, table):
                await handle.wait(look_again)


@attrs.define(eq=False, repr=False)
class _Handle:
    """A handle to a process whose id cannot be reused meanwhile, if the system has such handles."""

    _pid: int
    _descriptor: int | None = attrs.field(init=False, default=None)

    def __enter__(self) -> Self:
        """Open the handle.

        Raises:
            ProcessLookupError: The process does not exist.
        """
        try:
            self._descriptor = os.pidfd_open(self._pid)
        except ProcessLookupError:
            raise
        except OSError:  # an old system, or no free descriptor
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

    async def wait(self, look_again: float) -> None:
        """Wait until it has ended, or for a moment, after which it has to be checked again."""
        if self._descriptor is None:
            await trio.sleep(look_again)
        else:
            await trio.lowlevel.wait_readable(self._descriptor)


MARK = "TRIOEVAL_TREE"
"""The environment variable with the marks of the trees of a process, the outermost first."""

GRACE = 1.5
"""Seconds between the request to terminate and the kill."""

KILLED_WITHIN = 5.0
"""Maximum seconds for the system to remove killed processes."""

_LOOK_AGAIN = 0.25

_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_SUPERVISED_WITHIN = 60.0  # maximum seconds for a supervisor to start on a very busy machine
_EXCEEDED, _ENDED = b"exceeded", b"ended"
_REPORT = 256  # bytes; longer than any report


@attrs.define(eq=False, repr=False)
class Supervision:
    """The reports of a tree's supervisor about its program."""

    pid: int
    """Id of the program."""
    started: int
    """Start time in ticks as in `Member`; 0 without a process table."""
    adopts: bool
    """True if the system lets it adopt orphaned processes."""
    code: int | None
    """Exit code of the program; None until it is read."""
    exceeded: bool
    """True if it had too many processes, and was therefore ended."""
    _report: trio.lowlevel.FdStream
    was_killed: bool = attrs.field(init=False, default=False)
    """True if the supervisor ended before it reported the program's end."""
    _lock: trio.Lock = attrs.field(init=False, factory=trio.Lock)

    async def wait(self, supervisor: trio.Process) -> int:
        """Wait for the end and return the exit code, or the supervisor's if that was killed. A checkpoint."""
        async with self._lock:
            while self.code is None:
                words = bytes(await self._report.receive_some(_REPORT)).split()
                self.exceeded = self.exceeded or _EXCEEDED in words
                if words:
                    self.code = _code_in(words)
                else:
                    self.code = await supervisor.wait()
                    self.was_killed = True
                if self.code is not None:
                    await self.aclose()
            return self.code

    async def aclose(self) -> None:
        """Close the report, if it is open."""
        await trio.aclose_forcefully(self._report)


@attrs.define(eq=False, repr=False)
class Tree(trio.abc.AsyncResource):
    """A running program with its descendants; obtained from `start_tree` only.

    As an async context manager it always ends with its block:

        async with await start_tree(["make"], cwd=cwd, environ=environ) as tree:
            code = await tree.wait()
    """

    process: trio.Process
    """The first process, or its supervisor; with its pipes."""
    root: TreeIdentity
    """Its identification."""
    _grace: float = GRACE
    _table: Path = attrs.field(default=PROCESS_TABLE)
    _thread: trio.CapacityLimiter = attrs.field(init=False, factory=lambda: trio.CapacityLimiter(1))
    """A separate limiter: ending a tree must not wait until other threads are done."""
    _supervision: Supervision | None = attrs.field(default=None)
    _seen: Collection[Member] = attrs.field(init=False, default=())
    """Its processes at the last check."""
    is_over: bool = attrs.field(init=False, default=False)
    """True if all of it is known to have ended."""

    @property
    def returncode(self) -> int | None:
        """Exit code of the first process, or minus the signal that ended it; None before `wait` returns."""
        return self.process.returncode if self._supervision is None else self._supervision.code

    @property
    def exceeded(self) -> bool:
        """True if it had too many processes, and was therefore ended; known when `wait` has returned."""
        return self._supervision is not None and self._supervision.exceeded

    @property
    def lost_supervisor(self) -> bool:
        """True if its supervisor was killed before the program ended; known when `wait` has returned."""
        return self._supervision is not None and self._supervision.was_killed

    @property
    def finds_all(self) -> bool:
        """True if a process is found that has left session and environment, and has lost its parent."""
        return self._supervision is not None and self._supervision.adopts

    async def wait(self) -> int:
        """Wait for the first process; return its exit code, or minus the signal that ended it."""
        if self._supervision is None:
            return await self.process.wait()
        return await self._supervision.wait(self.process)

    async def look(self) -> bool:
        """Return whether any process is left. A checkpoint unless all are known to have ended."""
        if self.is_over:
            return False
        members: set[Member] | None = await self._members(self._seen)
        if self.returncode is not None and not members:
            with trio.move_on_after(KILLED_WITHIN):
                members = await self._remaining(self._seen)
        self._seen = members or ()
        has_group = members is None and self._has_group()
        # Without a live process, no process can start.
        is_ended = self.returncode is not None and self.process.returncode is not None
        self.is_over = is_ended and not members and not has_group
        return not self.is_over

    def left(self) -> Sequence[int]:
        """Return the processes that are left, without those that another one of them has started.

        Checks only those of the last check, as long as one of them is left. Not a checkpoint, and no thread:
        for a tree with few processes left.
        """
        if self.is_over:
            return ()
        members = {member for member in self._seen if is_alive(member, self._table)}
        if not members:
            found = find_members(self.root, (), self._table)
            if found is None:
                return (self.root.pid,) if self._has_group() else ()
            self._seen = members = found
        numbers = {member.pid for member in members}
        return sorted(member.pid for member in members if member.parent not in numbers)

    async def children(self) -> int:
        """Return the number of live children of the first process, without grandchildren. A checkpoint."""
        members = await self._members(self._seen) or set()
        others = {member.pid: member for member in members if member.pid != self.root.pid}
        return sum(member.parent not in others for member in others.values())

    async def wait_left(self) -> None:
        """Wait until no process is left, including the first one. A checkpoint.

        Ends no process.
        """
        await self.wait()
        while await self.look():
            if self._seen:
                await wait_gone(self._seen, self._table, _LOOK_AGAIN)
            else:
                await trio.sleep(_LOOK_AGAIN)

    async def end(self) -> None:
        """End every process that is left, within the grace period and `KILLED_WITHIN`.

        Completes even if cancelled. Unread output stays readable.
        """
        if self.is_over:
            return
        known = set(self._seen)
        requested: set[Member] = set()
        with trio.move_on_after(self._grace, shield=True):
            # Each process once: to some programs a second request means "at once".
            while members := await self._remaining(known):
                send_signal(members - requested, signal.SIGTERM, self._table)
                requested |= members
                known |= members
                await wait_gone(members, self._table)
            if members is None:
                self._signal_group(signal.SIGTERM)
            await self._wait_ended()
            if members is not None:
                self.is_over = True  # without a live process, no process can start
                return
        with trio.move_on_after(KILLED_WITHIN, shield=True):
            # Repeatedly: a process may be started while the others are killed.
            while members := await self._remaining(known):
                known |= members
                if any(one.group == self.root.pid for one in members):
                    self._signal_group(
                        signal.SIGKILL
                    )  # in one step, so that none can start another
                send_signal(members, signal.SIGKILL, self._table)
                await wait_gone(members, self._table)
            if members is None:
                self._signal_group(signal.SIGKILL)
            await self._wait_ended()
            self.is_over = members is not None
        if self._supervision is not None and self.process.returncode is None:
            self.process.kill()  # a process cannot be ended, or the supervisor was stopped

    async def aclose(self) -> None:
        """End every process that is left, and close the pipes, even if cancelled."""
        try:
            await self.end()
        finally:
            with trio.move_on_after(KILLED_WITHIN, shield=True):  # closing forcefully takes no time
                for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
                    if pipe is not None:
                        await trio.aclose_forcefully(pipe)
                if self._supervision is not None:
                    await self._supervision.aclose()

    async def _remaining(self, known: Collection[Member]) -> set[Member] | None:
        """Return the processes that are left; wait for those of a live supervisor."""
        while not (members := await self._members(known)):
            if self._supervision is None or self.process.returncode is not None:
                break
            with trio.move_on_after(_LOOK_AGAIN):
                await self.process.wait()
            if members is None:
                break
        return members

    async def _wait_ended(self) -> None:
        await self.process.wait()
        await self.wait()

    async def _members(self, known: Collection[Member]) -> set[Member] | None:
        while True:
            try:
                # In a thread: reading a busy machine's table takes as long as many scheduler steps.
                return await trio.to_thread.run_sync(
                    find_members, self.root, known, self._table, limiter=self._thread
                )
            except OSError as error:
                if error.errno not in TOO_MANY:
                    raise
            await trio.sleep(_LOOK_AGAIN)  # until descriptors are closed elsewhere

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.root.pid, number)

    def _has_group(self) -> bool:
        """Return whether any process of its group is left: the only check without a process table."""
        try:
            os.killpg(self.root.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


# A Ctrl-C between the start of a program and the creation of its tree would leave it running, so it is
# delayed.
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
    supervised: bool = False,
    max_processes: int = 0,
) -> Tree:
    """Start a program that the caller closes. Always a checkpoint.

    Args:
        command: The program and its arguments; no shell is involved.
        cwd: Its working directory.
        environ: Its whole environment; the mark is added to those of the enclosing trees.
        stdin: As for `subprocess.Popen`, like the next two.
        stdout: `subprocess.PIPE` becomes a stream of the tree's process.
        stderr: May be `subprocess.STDOUT`.
        pass_fds: Descriptors that the program inherits, under the same numbers.
        grace: Seconds between the request to terminate and the kill, ≥ 0.
        mark: Its mark, from `make_mark`; None creates one.
        supervised: Whether to use a supervisor where possible; then `pass_fds` must be empty.
        max_processes: Maximum number of processes at once, above which all are killed, if it has a
            supervisor; 0 for no maximum.

    Raises:
        OSError: It cannot be started.
        ValueError: An argument contains a NUL character.
    """
    if is_out_of_files():  # waiting for its end, and ending it, needs some descriptors too
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    mark = mark or make_mark()
    before = Clocks()
    environ = {**environ, MARK: ",".join(filter(None, (environ.get(MARK), mark)))}
    open_process = partial(
        trio.lowlevel.open_process,
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )
    if supervised and _can_supervise():
        tag = make_tag(mark)
        process, supervision = await _start_supervised(
            open_process, command, environ, mark=mark, max_processes=max_processes, tag=tag
        )
        above = find_root(process.pid, mark.encode(), before)
        root = attrs.evolve(
            above,
            pid=supervision.pid,
            started=supervision.started or above.started,
            supervisor=read_member(process.pid),
            tag=tag,
        )
        return Tree(process, root, grace, supervision=supervision)
    process = await open_process(command, env=environ, pass_fds=pass_fds)
    return Tree(process, find_root(process.pid, mark.encode(), before), grace)


def _can_supervise() -> bool:
    has_files = hasattr(os, "memfd_create")  # of the C library that this Python was built with
    return sys.platform == "linux" and has_files and os.access(sys.executable or "", os.X_OK)


async def _start_supervised(
    open_process: Callable[..., Awaitable[trio.Process]],
    command: Sequence[str | bytes],
    environ: Mapping[str, str],
    *,
    mark: str,
    max_processes: int,
    tag: int,
) -> tuple[trio.Process, Supervision]:
    """Start a supervisor and its program, and return both.

    Raises:
        OSError: It cannot be started.
        ValueError: A word contains a NUL character.
    """
    with ExitStack() as stack, ExitStack() as failed:
        order = _write_order(command, environ)
        stack.callback(os.close, order)
        reports, report = os.pipe()
        stack.callback(os.close, report)
        failed.callback(os.close, reports)
        numbers = (order, report, max_processes, tag, os.getpid())
        given = map(str, (_SUPERVISOR, *numbers))
        process = await open_process(
            [sys.executable, "-I", "-S", *given],
            env={**os.environ, SUPERVISES: mark},
            pass_fds=(order, report),
        )
        failed.pop_all()
    stream = trio.lowlevel.FdStream(reports)
    words: list[bytes] = []
    # Cancellation here would leave a program that nothing ends. It takes as long as the start of Python.
    with trio.move_on_after(_SUPERVISED_WITHIN, shield=True):
        words = bytes(await stream.receive_some(_REPORT)).split()
    if words and words[0] == b"started":
        pid, started, adopts = map(int, words[1:4])
        supervision = Supervision(
            pid, started, adopts == 1, _code_in(words[4:]), _EXCEEDED in words[4:], stream
        )
        if supervision.code is not None:
            await supervision.aclose()
        return process, supervision
    with trio.move_on_after(KILLED_WITHIN, shield=True):
        process.kill()
        await process.wait()
        for one in (stream, process.stdin, process.stdout, process.stderr):
            if one is not None:
                await trio.aclose_forcefully(one)
    if words:
        raise OSError(int(words[1]), os.strerror(int(words[1])))
    raise OSError(errno.ECHILD, "the supervisor did not start it")


def _write_order(command: Sequence[str | bytes], environ: Mapping[str, str]) -> int:
    """Return the descriptor of an unnamed file with the supervisor's order."""
    words = [os.fsencode(word) for word in command]
    pairs = [b"=".join(map(os.fsencode, pair)) for pair in environ.items()]
    if any(b"\0" in text for text in (*words, *pairs)):
        raise ValueError("embedded null byte")
    order = os.memfd_create("order")
    with open(order, "wb", closefd=False) as file:
        file.write(b"\0".join([str(len(words)).encode(), *words, *pairs]))
    os.lseek(order, 0, os.SEEK_SET)
    return order


def _code_in(words: Sequence[bytes]) -> int | None:
    """Return the exit code of the program in a supervisor's report: `ended CODE`; None if there is none."""
    return int(words[words.index(_ENDED) + 1]) if _ENDED in words else None


def make_mark() -> str:
    """Return a unique mark of a tree: 32 hexadecimal digits."""
    return uuid.uuid4().hex


def describe_end(code: int) -> str:
    """Describe the end of a process from the result of `Tree.wait`.

    Example:
        >>> describe_end(3), describe_end(-9)
        ('ended with exit code 3', 'was ended by SIGKILL')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"was ended by {known.get(-code, f'signal {-code}')}"
