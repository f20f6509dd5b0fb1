"""The signals that ask the process to end, from its first command to its very end.

They are ours all the time, because a default in any gap would lose a run or print a traceback:

* while a suite is loaded, the first one ends it by `KeyboardInterrupt`;
* while something listens, it is told of each, inside of Trio's loop;
* otherwise, while files are written, they are only noted;
* after the second one the process ends within five seconds, whatever it does: `trioeval.cli.last_resort`.

Handlers do nothing but note, wake and set an alarm, so it does not matter where they break in.
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
"""The number of the signal that cancels; it has to end the process."""

_SOON = 0.01
"""Seconds until something is raised again that was swallowed."""


@attrs.define(eq=False)
class Interrupts:
    """Those that came. One that is not installed never hears of any."""

    received: list[signal.Signals] = attrs.field(factory=list)
    _begun: bool = False
    _is_due: bool = False
    """Whether loading has still to be interrupted."""
    _wake: Callable[[], None] | None = None
    _watcher: Watcher | None = None

    @classmethod
    def installed(cls) -> "Interrupts":
        """Take the signals of this process, for as long as it lives; until `begin_loading` they are noted."""
        found = cls(begun=True)
        heeded = found._heeded()
        for number in heeded:
            signal.signal(number, found._note)
        sys.unraisablehook = found._raise_again
        found._watcher = Watcher.started(heeded)
        if found._watcher is not None:
            atexit.register(found._watcher.stop)
            atexit.register(found._ignore)
        return found

    def begin_loading(self) -> None:
        """From now on a signal ends what is done by `KeyboardInterrupt`, if it is the first one.

        Raises:
            KeyboardInterrupt: One came before.
        """
        self._begun = False
        self._interrupt()

    def begin_run(self) -> None:
        """From now on nothing is raised."""
        self._begun = True

    def end(self) -> None:
        """The last word was said: what comes now ends the process only if it still waits for a thread.

        After that signals are ignored, also by an interpreter that shuts down.
        """
        self._begun = True
        if self._watcher is None:
            self._ignore()

    def _ignore(self) -> None:
        for number in self._heeded():
            signal.signal(number, signal.SIG_IGN)

    @property
    def code(self) -> int:
        """The exit code that the first signal asks for; that of SIGINT if there was none."""
        return Exit.SIGNAL + (self.received[0] if self.received else signal.SIGINT)

    @contextmanager
    def told_to(self, deliver: Callable[[signal.Signals], None]) -> Iterator[None]:
        """Inside of `trio.run`: tell of each signal since `begin_run`, for as long as the block.

        Args:
            deliver: Called in Trio's loop, in the order of the signals.
        """
        import trio  # noqa: PLC0415 - help and mistakes are answered without it

        token = trio.lowlevel.current_trio_token()
        told = 0

        def deliver_new() -> None:
            nonlocal told
            while told < len(self.received):
                told += 1
                deliver(self.received[told - 1])

        self._wake = lambda: token.run_sync_soon(deliver_new, idempotent=True)
        try:
            with nullcontext() if self._watcher is None else self._watcher.counting():
                deliver_new()
                yield
        finally:
            self._wake = None

    def run(self, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do something in Trio until a signal comes; None where one cut it off.

        Raises:
            TrioevalError: As it was raised, whatever nurseries have wrapped it in.
        """
        import trio  # noqa: PLC0415 - see above

        async def work_until_told() -> T | None:
            with (
                trio.CancelScope() as scope,
                self.told_to(lambda number: scope.cancel(number.name)),
            ):
                return await work()
            return None

        self.begin_run()
        try:
            return trio.run(work_until_told)
        except ExceptionGroup as group:
            found = list(leaves(group))
            if len(found) == 1 and isinstance(found[0], TrioevalError):
                raise found[0] from None
            raise

    def _heeded(self) -> list[signal.Signals]:
        # Who ignores a signal for us (nohup, a script's background job) means it.
        return [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(signal.Signals(number))
        if len(self.received) == _CANCELS:
            end_soon(lambda: self.code, is_watched=self._watcher is not None)
        if self._wake is not None:
            self._wake()
        else:
            self._is_due |= len(self.received) == 1
            self._interrupt()

    def _interrupt(self, *_of_signal: object) -> None:
        if self._is_due and not self._begun:
            self._is_due = False
            raise KeyboardInterrupt

    def _raise_again(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Raise soon what a callback of the interpreter has swallowed, such as the end of an object."""
        if self._begun or not isinstance(unraisable.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(unraisable)
            return
        self._is_due = True
        if len(self.received) < _CANCELS:  # then the alarm has another purpose
            signal.signal(signal.SIGALRM, self._interrupt)
            signal.setitimer(signal.ITIMER_REAL, _SOON)
