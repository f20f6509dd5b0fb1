"""Starts a program, and adopts its orphaned descendants, until no process of it is left.

Run by path, on Linux, so it uses the standard library only. Its arguments are the descriptors of the order
and of the report, the maximum number of processes below it at once (0 for any number), the tag of its
processes (0 for none; see `make_tag`), and the id of the process that has started it. The order contains the
words of the program and its environment, separated by NUL characters, after the number of words. The report
gets one line when the program has started, `started PID TICKS ADOPTS`, or `failed ERRNO` if it cannot start;
`exceeded` when there are too many processes, which ends all of them; and `ended CODE` when the program has
ended.

The supervisor is a subreaper: a process below it whose parent ends becomes its child, whatever its session
and environment. So every process that the program has started is found below the supervisor, and the
supervisor ends by itself when none is left. It ignores requests to terminate. When the process that has
started it ends for any reason, it asks all processes below it to end, and kills the rest after a grace
period.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PR_SET_CHILD_SUBREAPER = 36
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
CHILD = {signal.SIGCHLD}
CHECK_EVERY = 0.05
"""Seconds between two checks of the number of processes; and, if that is not known to be small:"""
COUNT_EVERY = 1.0
"""Seconds between two counts. A count reads the process table, which takes about 0.02 ms a process."""
PASSES = 100
"""Maximum number of searches for processes that are not stopped yet, before the stopped ones are killed."""
GRACE = 1.5
"""Seconds between the request to end and the kill, after the process that has started this one has ended."""
RLIMIT_LOCKS = 10
"""The limit that serves as the tag."""
STARTED = 19
"""Index of the start time in a line of the process table, counted from the state."""


def main() -> None:
    """Start the program, and wait for all processes below."""
    order, report, most, tag, above = map(int, sys.argv[1:])
    os.set_inheritable(report, False)  # noqa: FBT003 - it has no name
    words, environ = read_order(order)
    adopts = become_subreaper()
    census = Census(most) if most else None
    signal.pthread_sigmask(signal.SIG_BLOCK, CHILD)
    program, failure = start(words, environ, tag)
    if failure is not None:
        write_report(report, f"failed {failure}")
        return
    # The program has its own pipes: they close with it.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    write_report(report, f"started {program} {ticks_of(program)} {int(adopts)}")
    kill_at = math.inf
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if ended == program:
            write_report(report, f"ended {os.waitstatus_to_exitcode(status)}")
        if ended:
            continue
        if kill_at == math.inf and os.getppid() != above:
            kill_at = time.monotonic() + GRACE
            ask_all()
        if census is not None and not census.is_exceeded and census.exceeds():
            census.is_exceeded = True
            write_report(report, "exceeded")
        if (census is not None and census.is_exceeded) or time.monotonic() >= kill_at:
            end_all()
        signal.sigtimedwait(CHILD, CHECK_EVERY)


class Census:
    """Counts the processes below this one.

    Process ids are assigned in sequence. So while the newest id is closer to that of the last count than the
    maximum allows, there cannot be too many processes, and nothing is counted.
    """

    def __init__(self, most: int) -> None:
        self.is_exceeded = False
        self._most = most
        self._count = 0
        self._newest = newest_process()
        self._counted_at = time.monotonic()

    def exceeds(self) -> bool:
        """Return whether there are too many processes."""
        newest, now = newest_process(), time.monotonic()
        is_few = 0 <= newest - self._newest < self._most - self._count
        if is_few and now - self._counted_at < COUNT_EVERY:
            return False
        self._newest, self._counted_at = newest, now
        self._count = sum(1 for _ in processes_below())
        return self._count > self._most


def newest_process() -> int:
    """Return the process id that was assigned last; 0 if the system does not report it."""
    try:
        with open("/proc/loadavg", "rb") as file:  # noqa: PTH123 - pathlib costs 10 ms
            return int(file.read().split()[-1])
    except (OSError, ValueError):
        return 0


def processes_below() -> Iterator[tuple[int, bool]]:
    """Yield the id of each process below this one, and whether it has ended."""
    children: dict[int, list[tuple[int, bool]]] = {}
    try:
        numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    except OSError:
        return
    for number in numbers:
        try:
            with open(f"/proc/{number}/stat", "rb") as file:  # noqa: PTH123
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):  # it has ended in the meantime
            continue
        children.setdefault(int(parent), []).append((number, state in b"ZXx"))
    todo = [os.getpid()]
    while todo:
        for child in children.pop(todo.pop(), ()):
            yield child
            todo.append(child[0])


def ask_all() -> None:
    """Ask all processes below to end."""
    for number, is_over in list(processes_below()):
        if not is_over:
            send(number, signal.SIGTERM)


def end_all() -> None:
    """Kill all processes below, after stopping all of them, so that they start no more."""
    stopped: set[int] = set()
    for _ in range(PASSES):
        alive = {number for number, is_over in processes_below() if not is_over}
        if alive <= stopped:
            break
        for number in alive - stopped:
            send(number, signal.SIGSTOP)
        stopped |= alive
    for number in stopped:
        send(number, signal.SIGKILL)


def send(number: int, signal_number: signal.Signals) -> None:
    """Send a signal to a process below, unless it has ended or belongs to another user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(number, signal_number)


def read_order(descriptor: int) -> tuple[list[bytes], dict[bytes, bytes]]:
    """Read the words of the program, and its environment."""
    with open(descriptor, "rb") as file:
        count, *parts = file.read().split(b"\0")
    words, pairs = parts[: int(count)], parts[int(count) :]
    return words, dict(pair.split(b"=", 1) for pair in pairs)


def become_subreaper() -> bool:
    """Adopt orphaned processes below this one; return whether the system allows it."""
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def start(words: list[bytes], environ: dict[bytes, bytes], tag: int) -> tuple[int, int | None]:
    """Start the program in its own session; return its id, and the error number if it cannot start."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in IGNORED}
    failed, fail = os.pipe()  # closed by the system when the program has started
    program = os.fork()
    if program == 0:
        try:
            for number, handler in before.items():
                is_ignored = handler == signal.SIG_IGN
                signal.signal(number, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, CHILD)
            os.setsid()
            if tag:
                with contextlib.suppress(ValueError, OSError):  # on an unusual system: no tag
                    resource.setrlimit(RLIMIT_LOCKS, (tag, tag))
            os.execvpe(words[0], words, environ)  # noqa: S606 - deliberately without a shell
        except OSError as error:
            os.write(fail, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(fail)
    failure = os.read(failed, 32)
    os.close(failed)
    if not failure:
        return program, None
    os.waitpid(program, 0)
    return program, int(failure)


def ticks_of(program: int) -> int:
    """Return the start time of a child, in clock ticks since the system's; 0 without a process table."""
    try:
        with open(f"/proc/{program}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs 10 ms
            stat = file.read()
    except OSError:
        return 0
    return int(stat.rpartition(b")")[2].split()[STARTED])


def write_report(report: int, line: str) -> None:
    """Write a line of the report, unless its reader is gone."""
    with contextlib.suppress(BrokenPipeError):
        os.write(report, f"{line}\n".encode())


if __name__ == "__main__":
    main()
