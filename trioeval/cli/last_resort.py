# Apart from `cli.interrupts`: its code also runs in a process of its own, which imports nothing else.
"""What ends a process that two signals could not end.

After the second signal a run is cancelled and writes what it knows. Code that never lets Trio's loop run
would keep it from that for ever, so the second signal also sets an alarm. Its handler ends the process with
everything that it has started. It runs between two steps of Python, and within searches of regular
expressions.

Where the interpreter is stuck in code that allows neither, no handler of Python runs, not even the one that
sets the alarm. So a second process, the watcher, is forked before anything is loaded, which costs less than
a millisecond. Python writes the number of each signal into a pipe (`signal.set_wakeup_fd`); that is done in
C and needs no interpreter. The watcher reads and counts them. A moment after the alarm it kills the process
with everything that it has started.

While Trio runs, such a pipe wakes its loop: without, it could overlook a signal that comes just before it
waits for the system. Then the watcher answers each signal through a second pipe, for which the loop waits.
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
"""Seconds from the second signal until the process is ended."""

KILL_AFTER = 4.5
"""Seconds from the second signal until it is killed from outside, if the alarm could not end it."""

_BLOCKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that mean the process and not its watcher."""

_CANCELS = 2
_MOST = 4096


@attrs.frozen(eq=False)
class Watcher:
    """A child process that kills this one if it lives on after two signals."""

    _pid: int
    _signals: int
    """Where signals are written to. The watcher ends when the last copy of it is closed."""
    _unread: int
    """The other end of it, kept open so that a signal can be written when the watcher is gone."""
    _echo: int
    """Where the watcher answers each signal."""
    _owner: int

    @classmethod
    def started(cls, numbers: Collection[signal.Signals]) -> "Watcher | None":
        """Start one; None where the system allows none.

        The first process of a container cannot be killed from inside, so it has none.

        Args:
            numbers: The signals to count; each has its handler already.
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
        os.register_at_fork(after_in_child=watcher._let_go)
        # Trio puts its own in this place, and then back what it found.
        warnings.filterwarnings(
            "ignore", "It looks like Trio's signal handling code", RuntimeWarning
        )
        return watcher

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Inside of `trio.run`: signals are counted for as long as the block."""
        import trio  # noqa: PLC0415 - help and mistakes are answered without it

        trio.lowlevel.spawn_system_task(self._wake)
        of_trio = signal.set_wakeup_fd(self._signals, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(of_trio, warn_on_full_buffer=False)

    async def _wake(self) -> None:
        """Let Trio's loop run at each signal, and with it the handlers."""
        import trio  # noqa: PLC0415 - see above

        echo = os.dup(self._echo)  # another block of the same run may wait for it as well
        try:
            while True:
                await trio.lowlevel.wait_readable(echo)
                with contextlib.suppress(BlockingIOError):
                    if not os.read(echo, _MOST):
                        return
        finally:
            os.close(echo)

    def stop(self) -> None:
        """End the watcher; without effect in processes that were forked from this one."""
        if os.getpid() != self._owner:
            return
        self._let_go()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _let_go(self) -> None:
        signal.set_wakeup_fd(-1)
        for end in (self._signals, self._unread, self._echo):
            with contextlib.suppress(OSError):
                os.close(end)


def end_soon(code: Callable[[], int], *, is_watched: bool) -> None:
    """End this process in some seconds, whatever it does then. For handlers of signals.

    Args:
        code: Returns the exit code.
        is_watched: Whether a watcher ends it if the alarm cannot.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        status = code()
        kill_descendants(os.getpid())
        said = f"the run did not end within {ALARM_AFTER:g} s of the second signal and is cut off; "
        said += f"what was recorded is kept: see trioeval runs; exit {status}\n"
        with contextlib.suppress(OSError):
            os.write(2, said.encode())  # stderr itself may be in use by what was broken into
        os._exit(status)

    if not is_watched:
        with contextlib.suppress(
            ValueError, OSError, RuntimeError
        ):  # without a stderr it has no file
            faulthandler.dump_traceback_later(KILL_AFTER, exit=True)
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, ALARM_AFTER)


def kill_descendants(pid: int) -> None:
    """Kill every process that another one has started, as far as the system shows them, but not this one."""
    from trioeval.providers.programs.members import find_started  # noqa: PLC0415 - rarely needed

    for _ in range(2):  # what is killed may have started one meanwhile
        for member in find_started(pid):
            if member.pid != os.getpid():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(member.pid, signal.SIGKILL)


def _watch(
    signals: int, answers: int, process: int, numbers: Collection[signal.Signals]
) -> NoReturn:
    """Be the watcher. Its signals are blocked already."""
    try:
        os.setsid()
        _close_others(signals, answers)
        if _is_late(signals, answers, numbers) and os.getppid() == process:
            _kill(process)
    finally:
        os._exit(0)


def _close_others(*kept: int) -> None:
    """Close what the caller opened: a pipe of his must not stay open because of the watcher."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - pathlib would have to be imported
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the listing itself
                os.close(int(name))


def _is_late(signals: int, answers: int, numbers: Collection[signal.Signals]) -> bool:
    """Wait until the process ends, or does not in its time after the second signal."""
    count, until = 0, math.inf
    while True:
        left = until - time.monotonic()
        if not select.select([signals], [], [], None if left == math.inf else max(0.0, left))[0]:
            return True
        told = os.read(signals, _MOST)
        if not told:
            return False
        with contextlib.suppress(OSError):  # full: the loop will wake; or gone
            os.write(answers, told)
        count += sum(number in numbers for number in told)
        if until == math.inf and count >= _CANCELS:
            until = time.monotonic() + KILL_AFTER


def _kill(process: int) -> None:
    """Kill a process and what it has started, and say so where its errors go."""
    os.kill(process, signal.SIGSTOP)  # it starts nothing while its processes are looked for
    try:
        kill_descendants(process)
        said = f"the run did not end within {KILL_AFTER:g} s of the second signal and is killed: its code "
        said += "never came back from a call of C; what was recorded is kept: see trioeval runs\n"
        with contextlib.suppress(OSError):  # a socket, a full pipe, or a system without such files
            flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
            os.write(os.open(f"/proc/{process}/fd/2", flags), said.encode())
    finally:
        os.kill(process, signal.SIGKILL)
