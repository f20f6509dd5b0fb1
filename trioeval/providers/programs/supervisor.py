"""Starts a program, and adopts what its descendants leave without a parent, until nothing of it is left.

Run by path, on Linux, and so made of the standard library alone. Its arguments are the descriptors of the
order and of the report. The order holds the words of the program and its environment, separated by NUL
characters, behind the number of words. The report gets a line when the program has begun, `started PID TICKS
ADOPTS`, or `failed ERRNO` if it cannot; and `ended CODE` when it has ended.

The supervisor is a subreaper: a process below it whose parent ends becomes its child, whatever session and
environment it has. So every process that the program has started is found below the supervisor, and the
supervisor ends by itself when there is none. Requests to terminate do not end it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

PR_SET_CHILD_SUBREAPER = 36
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
STARTED = 19
"""Where a line of the process table tells when the process started, counted from its state."""


def main() -> None:
    """Start the program, and wait for everything below."""
    order, report = map(int, sys.argv[1:])
    os.set_inheritable(report, False)  # noqa: FBT003 - it has no name
    words, environ = read_order(order)
    adopts = become_subreaper()
    program, failure = start(words, environ)
    if failure is not None:
        tell(report, f"failed {failure}")
        return
    # The pipes of the program are its own: they end with it.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    tell(report, f"started {program} {ticks_of(program)} {int(adopts)}")
    while True:
        try:
            ended, status = os.wait()
        except ChildProcessError:
            return
        if ended == program:
            tell(report, f"ended {os.waitstatus_to_exitcode(status)}")


def read_order(descriptor: int) -> tuple[list[bytes], dict[bytes, bytes]]:
    """The words of the program, and its environment."""
    with open(descriptor, "rb") as file:
        count, *parts = file.read().split(b"\0")
    words, pairs = parts[: int(count)], parts[int(count) :]
    return words, dict(pair.split(b"=", 1) for pair in pairs)


def become_subreaper() -> bool:
    """Adopt what loses its parent below this process; whether the system allows it."""
    try:
        import ctypes  # noqa: PLC0415 - some builds of Python are without

        return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def start(words: list[bytes], environ: dict[bytes, bytes]) -> tuple[int, int | None]:
    """Start the program in a session of its own: its number, and the error number if it cannot begin."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in IGNORED}
    failed, fail = os.pipe()  # closed by the system when the program has begun
    program = os.fork()
    if program == 0:
        try:
            for number, handler in before.items():
                is_ignored = handler == signal.SIG_IGN
                signal.signal(number, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            os.execvpe(words[0], words, environ)  # noqa: S606 - no shell is wanted
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
    """When a child was started, in clock ticks since the system was; 0 where there is no process table."""
    try:
        with open(f"/proc/{program}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs 10 ms
            stat = file.read()
    except OSError:
        return 0
    return int(stat.rpartition(b")")[2].split()[STARTED])


def tell(report: int, line: str) -> None:
    """Write a line of the report, if anybody still reads it."""
    with contextlib.suppress(BrokenPipeError):
        os.write(report, f"{line}\n".encode())


if __name__ == "__main__":
    main()
