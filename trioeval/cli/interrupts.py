"""Handling of the signals that ask the process to end, from start to exit.

The handlers are installed all the time, because a default handler in any gap would lose a run or print a
traceback:

* while a suite is loaded, the first signal raises `KeyboardInterrupt`;
* while a receiver is registered, each signal is delivered to it inside Trio's loop;
* at other times, such as while files are written, signals are only recorded;
* after the second signal the process ends within five seconds, in any case: `trioeval.cli.last_resort`.

Handlers only record, wake and set an alarm, so they may run at any point of the program.
"""

import atexit
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import TypeVar

import attrs

from trioeval.cli.last_resort import Watcher, end_soon
from trioeval.cli.terminal import Exit
from trioeval.errors import TrioevalError, leaves

T = TypeVar("T")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_CANCELS = 2
"""The number of signals after which the process must end."""

_SOON = 0.01
"""Seconds until a swallowed exception is raised again."""


@attrs.define(eq=False, repr=False)
class Interrupts:
    """The signals that were received. An object that is not installed receives none."""

    received: list[signal.Signals] = attrs.field(factory=list)
    _in_run: bool = False
    _is_due: bool = False
    """True if `KeyboardInterrupt` is still to be raised."""
    _wake: Callable[[], None] | None = None
    _watcher: Watcher | None = None

    @classmethod
    def installed(cls) -> "Interrupts":
        """Handle the signals of this process until it ends; until `begin_loading` they are only recorded."""
        found = cls(in_run=True)
        handled = found._handled()
        for number in handled:
            signal.signal(number, found._record)
        sys.unraisablehook = found._raise_again
        found._watcher = Watcher.started(handled)
        if found._watcher is not None:
            atexit.register(found._watcher.stop)
            atexit.register(found._ignore)
        return found

    def begin_loading(self) -> None:
        """Let the first signal raise `KeyboardInterrupt` from now on.

        Raises:
            KeyboardInterrupt: A signal was received earlier.
        """
        self._in_run = False
        self._interrupt()

    def begin_run(self) -> None:
        """Raise nothing from now on."""
        self._in_run = True

    def end(self) -> None:
        """End the handling after the last output: a signal now only ends a process that waits for a thread.

        Afterwards signals are ignored, also while the interpreter shuts down.
        """
        self._in_run = True
        if self._watcher is None:
            self._ignore()

    def _ignore(self) -> None:
        for number in self._handled():
            signal.signal(number, signal.SIG_IGN)

    @property
    def code(self) -> int:
        """The exit code for the first signal, or for SIGINT if none was received."""
        return Exit.SIGNAL + (self.received[0] if self.received else signal.SIGINT)

    @contextmanager
    def deliver_to(self, deliver: Callable[[signal.Signals], None]) -> Iterator[None]:
        """Deliver each signal since `begin_run` while the block runs, inside `trio.run`.

        Args:
            deliver: Called with each signal in Trio's loop, in the order of arrival.
        """
        import trio

        token = trio.lowlevel.current_trio_token()
        delivered = 0

        def deliver_new() -> None:
            nonlocal delivered
            while delivered < len(self.received):
                delivered += 1
                deliver(self.received[delivered - 1])

        self._wake = lambda: token.run_sync_soon(deliver_new, idempotent=True)
        try:
            with nullcontext() if self._watcher is None else self._watcher.counting():
                deliver_new()
                yield
        finally:
            self._wake = None

    def run(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Run async work in Trio and return its result, or None if a signal cancelled it.

        Raises:
            TrioevalError: The error of the work, unwrapped from the groups of nurseries.
        """
        import trio

        async def work_until_signal() -> T | None:
            with (
                trio.CancelScope() as scope,
                self.deliver_to(lambda number: scope.cancel(number.name)),
            ):
                return await work()
            return None

        self.begin_run()
        try:
            return trio.run(work_until_signal)
        except ExceptionGroup as group:
            found = list(leaves(group))
            if len(found) == 1 and isinstance(found[0], TrioevalError):
                raise found[0] from None
            raise

    def _handled(self) -> list[signal.Signals]:
        # A parent that ignores a signal for this process (nohup, a background job of a script) does so on
        # purpose.
        return [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def _record(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(signal.Signals(number))
        if len(self.received) == _CANCELS:
            end_soon(lambda: self.code, is_watched=self._watcher is not None)
        if self._wake is not None:
            self._wake()
        else:
            self._is_due |= len(self.received) == 1
            self._interrupt()

    def _interrupt(self, *_of_signal: object) -> None:
        if self._is_due and not self._in_run:
            self._is_due = False
            raise KeyboardInterrupt

    def _raise_again(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Raise a `KeyboardInterrupt` again that the interpreter swallowed, such as in a finalizer."""
        if self._in_run or not isinstance(unraisable.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(unraisable)
            return
        self._is_due = True
        if len(self.received) < _CANCELS:  # otherwise the alarm has another purpose
            signal.signal(signal.SIGALRM, self._interrupt)
            signal.setitimer(signal.ITIMER_REAL, _SOON)
