# Separate from `cli.interrupts`: its code also runs in a process of its own, which imports nothing else.
"""The end of a process that two signals did not end.

After the second signal a run is cancelled and records its state. Code that never lets Trio's loop run would
prevent that forever, so the second signal also sets an alarm. The handler of the alarm ends the process and
all of its child processes. It runs between two steps of Python code, and within searches of regular
expressions.

If the interpreter is stuck in code that allows neither, no Python handler runs, not even the one that sets
the alarm. So a second process, the watcher, is forked before anything is loaded, which takes less than a
millisecond. Python writes the number of each signal into a pipe (`signal.set_wakeup_fd`); this is done in C
and needs no interpreter. The watcher reads and counts the numbers. Shortly after the time of the alarm it
kills the process and all of its child processes.

While Trio runs, it uses such a pipe to wake its loop; otherwise the loop could miss a signal that arrives
just before it waits for the system. During that time the watcher echoes each signal through a second pipe,
on which the loop waits.
"""

import contextlib
import faulthandler
import math
import os
import select
import signal
import time
import warnings
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import NoReturn

import attrs

ALARM_AFTER = 4.0
"""Seconds from the second signal until the alarm ends the process."""

KILL_AFTER = 4.5
"""Seconds from the second signal until the watcher kills a process that the alarm did not end."""

_BLOCKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that are meant for the process and not for its watcher."""

_CANCELS = 2
_MOST = 4096


@attrs.frozen(eq=False, repr=False)
class Watcher:
    """A child process that kills this process if it continues after two signals."""

    _pid: int
    _signals: int
    """The pipe end to which signals are written. The watcher ends when its last copy is closed."""
    _unread: int
    """The other end of this pipe, kept open so that writing a signal succeeds after the watcher has ended."""
    _echo: int
    """The pipe end from which the echoes of the watcher are read."""
    _owner: int

    @classmethod
    def started(cls, numbers: Collection[signal.Signals]) -> "Watcher | None":
        """Start a watcher; return None if the system does not allow it.

        The first process of a container cannot be killed from inside, so it gets none.

        Args:
            numbers: The signals to count; their handlers are installed.
        """
        owner, ends = os.getpid(), list[int]()
        if owner == 1:
            return None
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        try:
            ends += (*os.pipe(), *os.pipe())
            unread, signals, echo, answers = ends
            for end in ends:
                os.set_blocking(end, end == unread)
            pid = os.fork()
            if pid == 0:
                _watch(unread, answers, owner, numbers)
            os.close(answers)
        except OSError:
            for end in ends:
                os.close(end)
            return None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        watcher = cls(pid, signals, unread, echo, owner)
        signal.set_wakeup_fd(signals, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=watcher._close)
        # Trio replaces this descriptor by its own and restores it afterwards.
        warnings.filterwarnings(
            "ignore", "It looks like Trio's signal handling code", RuntimeWarning
        )
        return watcher

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Let the watcher count signals while the block runs, inside `trio.run`."""
        import trio

        trio.lowlevel.spawn_system_task(self._wake)
        of_trio = signal.set_wakeup_fd(self._signals, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(of_trio, warn_on_full_buffer=False)

    async def _wake(self) -> None:
        """Wake Trio's loop at each signal, so that the handlers run."""
        import trio

        echo = os.dup(self._echo)  # another block of the same run may wait on it as well
        try:
            while True:
                await trio.lowlevel.wait_readable(echo)
                with contextlib.suppress(BlockingIOError):
                    if not os.read(echo, _MOST):
                        return
        finally:
            os.close(echo)

    def stop(self) -> None:
        """End the watcher; no effect in processes that were forked from this one."""
        if os.getpid() != self._owner:
            return
        self._close()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        for end in (self._signals, self._unread, self._echo):
            with contextlib.suppress(OSError):
                os.close(end)


def end_soon(code: Callable[[], int], *, is_watched: bool) -> None:
    """End this process after some seconds, in any case. Safe in signal handlers.

    Args:
        code: Returns the exit code.
        is_watched: Whether a watcher kills the process if the alarm cannot end it.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        status = code()
        kill_descendants(os.getpid())
        text = (
            f"the run did not end within {ALARM_AFTER:g} s of the second signal and is ended now; "
        )
        text += f"recorded rows are kept: see trioeval runs; exit {status}\n"
        with contextlib.suppress(OSError):
            os.write(2, text.encode())  # the interrupted code may be using the stderr object
        os._exit(status)

    if not is_watched:
        with contextlib.suppress(
            ValueError, OSError, RuntimeError
        ):  # without stderr the dump has no file
            faulthandler.dump_traceback_later(KILL_AFTER, exit=True)
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, ALARM_AFTER)


def kill_descendants(pid: int) -> None:
    """Kill the descendants of a process as far as the system lists them, except this process."""
    from trioeval.providers.programs.members import find_started

    for _ in range(2):  # a killed process may have started another one meanwhile
        for member in find_started(pid):
            if member.pid != os.getpid():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(member.pid, signal.SIGKILL)


def _watch(
    signals: int, answers: int, process: int, numbers: Collection[signal.Signals]
) -> NoReturn:
    """Run the watcher, whose signals are blocked already."""
    try:
        os.setsid()
        _close_others(signals, answers)
        if _is_late(signals, answers, numbers) and os.getppid() == process:
            _kill(process)
    finally:
        os._exit(0)


def _close_others(*kept: int) -> None:
    """Close the files of the parent, so that the watcher does not keep a pipe open."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - pathlib would have to be imported
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the listing itself
                os.close(int(name))


def _is_late(signals: int, answers: int, numbers: Collection[signal.Signals]) -> bool:
    """Return whether the process is still running at its deadline after the second signal."""
    count, until = 0, math.inf
    while True:
        left = until - time.monotonic()
        if not select.select([signals], [], [], None if left == math.inf else max(0.0, left))[0]:
            return True
        received = os.read(signals, _MOST)
        if not received:
            return False
        with contextlib.suppress(OSError):  # the pipe is full, so the loop wakes anyway, or closed
            os.write(answers, received)
        count += sum(number in numbers for number in received)
        if until == math.inf and count >= _CANCELS:
            until = time.monotonic() + KILL_AFTER


def _kill(process: int) -> None:
    """Kill a process and its descendants, and report that on its stderr."""
    os.kill(process, signal.SIGSTOP)  # so that it starts no process during the search
    try:
        kill_descendants(process)
        text = f"the run did not end within {KILL_AFTER:g} s of the second signal and is killed: its code "
        text += "did not return from a C function; recorded rows are kept: see trioeval runs\n"
        with contextlib.suppress(OSError):  # a socket, a full pipe, or a system without such files
            flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
            os.write(os.open(f"/proc/{process}/fd/2", flags), text.encode())
    finally:
        os.kill(process, signal.SIGKILL)
