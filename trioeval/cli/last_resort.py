"""The end of a process that two signals did not end.

After the second signal a run is cancelled and writes what it knows. Code that never lets Trio's loop run
would keep it from that for ever, so the second signal also sets an alarm. Its handler ends the process with
everything that it has started. It runs between two steps of Python, and within searches of regular
expressions.

Where the interpreter is stuck in code that allows neither, no handler of Python runs, not even the one that
sets the alarm. So a second process, the watcher, is forked before anything is loaded, which costs less than
a millisecond. `faulthandler` writes the place of this process into a pipe at each signal; that is done in C
and needs no interpreter. The watcher counts these texts. A moment after the alarm it kills the process with
everything that it has started, and prints where it was stuck.
"""

import contextlib
import faulthandler
import os
import select
import signal
import time
from collections.abc import Callable, Collection
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
_HEAD = b"Stack ("
"""The beginning of what `faulthandler` writes; all other lines are indented."""

_MOST = 65_536
_SHOWN = 8
"""Lines of the place where the process was stuck."""


@attrs.frozen(eq=False)
class Watcher:
    """A child process that kills this one if it lives on after two signals."""

    _pid: int
    _pipe: int
    """Where the signals are written to. The watcher ends when nobody holds it any more."""
    _owner: int
    _numbers: Collection[signal.Signals]

    @classmethod
    def started(cls, numbers: Collection[signal.Signals]) -> "Watcher | None":
        """Start one; None where the system allows none.

        The first process of a container cannot be killed from inside, so it has none.

        Args:
            numbers: The signals to count; each has its handler already.
        """
        owner = os.getpid()
        if owner == 1:
            return None
        try:
            reading, writing = os.pipe()
        except OSError:
            return None
        os.set_blocking(writing, False)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        try:
            pid = os.fork()
        except OSError:
            os.close(reading)
            os.close(writing)
            return None
        else:
            if pid == 0:
                _watch(reading, owner)
            os.close(reading)
            watcher = cls(pid, writing, owner, tuple(numbers))
            watcher._count(also_handle=True)
            os.register_at_fork(after_in_child=watcher._let_go)
            return watcher
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def count_again(self) -> None:
        """Count signals whose handlers were set again: `trio.run` does that to learn which thread it has."""
        for number in self._numbers:
            faulthandler.unregister(number)
            if (handler := signal.getsignal(number)) is not None:
                signal.signal(number, handler)
        self._count(also_handle=True)

    def ignore(self) -> None:
        """From now on the signals are counted, and have no other effect."""
        for number in self._numbers:
            faulthandler.unregister(number)
            signal.signal(number, signal.SIG_IGN)
        self._count(also_handle=False)

    def stop(self) -> None:
        """End the watcher; without effect in processes that were forked from this one."""
        if os.getpid() != self._owner:
            return
        self._let_go()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _count(self, *, also_handle: bool) -> None:
        for number in self._numbers:
            faulthandler.register(number, file=self._pipe, all_threads=False, chain=also_handle)

    def _let_go(self) -> None:
        for number in self._numbers:
            faulthandler.unregister(number)
        with contextlib.suppress(OSError):
            os.close(self._pipe)


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


def _watch(pipe: int, process: int) -> NoReturn:
    """Be the watcher. Its signals are blocked already."""
    try:
        os.setsid()
        _close_others(pipe)
        place = _wait_for_end(pipe)
        if place is not None and os.getppid() == process:
            _kill(process, place)
    finally:
        os._exit(0)


def _close_others(kept: int) -> None:
    """Close what the caller opened: a pipe of his must not stay open because of the watcher."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - pathlib would have to be imported
        if int(name) != kept:
            with contextlib.suppress(OSError):  # the listing itself
                os.close(int(name))


def _wait_for_end(pipe: int) -> bytes | None:
    """Where the process was at the second signal, when its time is over; None when it ends before."""
    text = b""
    while sum(line.startswith(_HEAD) for line in text.split(b"\n")) < _CANCELS:
        part = os.read(pipe, _MOST)
        if not part:
            return None
        text += part
    until = time.monotonic() + KILL_AFTER
    while (left := until - time.monotonic()) > 0:
        if select.select([pipe], [], [], left)[0]:
            part = os.read(pipe, _MOST)
            if not part:
                return None
            text = (text + part)[:_MOST]
    return text[text.rindex(_HEAD) :]


def _kill(process: int, place: bytes) -> None:
    """Kill a process and what it has started, and say so where its errors go."""
    os.kill(process, signal.SIGSTOP)  # it starts nothing while its processes are looked for
    try:
        kill_descendants(process)
        said = f"the run did not end within {KILL_AFTER:g} s of the second signal and is killed; "
        said += "what was recorded is kept: see trioeval runs; it was stuck here:\n"
        lines = place.split(b"\n")[1 : _SHOWN + 1]
        with contextlib.suppress(OSError):  # a socket, a full pipe, or a system without such files
            flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
            errors = os.open(f"/proc/{process}/fd/2", flags)
            os.write(errors, said.encode() + b"\n".join(line for line in lines if line) + b"\n")
    finally:
        os.kill(process, signal.SIGKILL)
