"""The end of a process that two signals did not end.

After the second signal a run is cancelled and writes what it knows. Code that never lets Trio's loop run
would keep it from that for ever, so the second signal also sets an alarm. Its handler ends the process with
everything that it has started. It runs between two steps of Python, and within searches of regular
expressions; if the interpreter is stuck in code that allows neither, a watchdog that needs no interpreter
ends the process a moment later, and prints where it was stuck.

Both are set by Python, so they need the second signal to be heard. A call of C code that was under way when
it came, keeps the interpreter and never looks for signals is ended by SIGQUIT or SIGKILL only.
"""

import contextlib
import faulthandler
import os
import signal
from collections.abc import Callable
from types import FrameType

ALARM_AFTER = 4.0
"""Seconds from the second signal until the process is ended."""

WATCHDOG_AFTER = 4.6
"""Seconds from the second signal until the watchdog ends it, if the alarm could not."""


def end_soon(code: Callable[[], int]) -> None:
    """End this process in some seconds, whatever it does then. For handlers of signals.

    Args:
        code: Returns the exit code.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        status = code()
        kill_descendants()
        said = f"the run did not end within {ALARM_AFTER:g} s of the second signal and is cut off; "
        said += f"what was recorded is kept: see trioeval runs; exit {status}\n"
        with contextlib.suppress(OSError):
            os.write(2, said.encode())  # stderr itself may be in use by what was broken into
        os._exit(status)

    with contextlib.suppress(ValueError, OSError, RuntimeError):  # without a stderr it has no file
        faulthandler.dump_traceback_later(WATCHDOG_AFTER, exit=True)
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, ALARM_AFTER)


def kill_descendants() -> None:
    """Kill every process that this one has started, as far as the system shows them."""
    from trioeval.providers.programs.members import find_started  # noqa: PLC0415 - rarely needed

    for _ in range(2):  # what is killed may have started one meanwhile
        for member in find_started(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member.pid, signal.SIGKILL)
