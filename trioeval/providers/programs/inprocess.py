"""A function of the user's in this process: awaited on Trio, or called in a thread.

Both are quick and neither is safe: a function that blocks Trio blocks the run, and one that blocks its
thread keeps it. Where that matters, worker processes are right. What a function does to its arguments
stays its own affair: it gets a copy.
"""

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

import attrs
import trio

from trioeval.errors import CallError, ProviderError
from trioeval.faults import Fault
from trioeval.providers.config import show
from trioeval.providers.programs.worker import FAILURES, describe

_FAILURES: tuple[type[BaseException], ...] = (*FAILURES, SystemExit)


@attrs.frozen
class TrioFunction:
    """An async function for Trio; any number of its calls run side by side."""

    name: str
    """For messages."""
    function: Callable[..., Any] = attrs.field(repr=False)

    async def call(self, arguments: Sequence[Any], limit: float) -> Any:
        """Await the function. A checkpoint if the function is one.

        Args:
            arguments: What it is called with.
            limit: Seconds that it may take, > 0.

        Raises:
            CallError: The function raised it.
            ProviderError: `unexpected` (it raised anything else, or is not async) or `attempt_timeout`.
        """
        with trio.move_on_after(limit):
            try:
                pending = self.function(*deepcopy(arguments))
                if inspect.isawaitable(pending):
                    return await pending
            except CallError:
                raise
            except (Exception, SystemExit) as error:
                raise _raised(self.name, error) from error
            returned = f"it returned {type(pending).__name__}: {show(pending)}"
            hint = 'write it with `async def`, or set mode to "thread" or "process"'
            raise ProviderError("unexpected", f"{self.name} is not async: {returned}; {hint}")
        raise late(self.name, limit)


@attrs.define(eq=False)
class _Call:
    """A call of a function in a thread; known by the thread as long as that runs."""

    limit: float
    """Seconds."""
    scope: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    is_left: bool = attrs.field(init=False, default=False)
    """Whether nobody waits for it any more."""


@attrs.define(eq=False)
class ThreadFunction:
    """A function that blocks; each call has a thread, and there are never more than `threads`."""

    name: str
    """For messages."""
    function: Callable[..., Any] = attrs.field(repr=False)
    threads: int = 1
    """How many at most, ≥ 1."""
    _places: trio.CapacityLimiter = attrs.field(init=False, repr=False)
    _waiting: set[_Call] = attrs.field(init=False, repr=False, factory=set)
    """Calls without a thread."""
    _running: set[_Call] = attrs.field(init=False, repr=False, factory=set)
    """Calls whose threads are not done."""

    @_places.default
    def _as_many_as_allowed(self) -> trio.CapacityLimiter:
        return trio.CapacityLimiter(self.threads)

    async def call(self, arguments: Sequence[Any], limit: float) -> Any:
        """Call the function in a thread, when there is a place. Always a checkpoint.

        A thread cannot be ended: one whose call took too long or was cancelled is left alone with what it
        does, and keeps its place until it is done. When all places are kept like that, no call waits.

        Args:
            arguments: What it is called with.
            limit: Seconds that it may take, > 0; those until there is a place do not count.

        Raises:
            CallError: The function raised it.
            ProviderError: `unexpected` (it raised anything else, or is async, or all threads are stuck,
                which is fatal) or `attempt_timeout`.
        """
        token = trio.lowlevel.current_trio_token()
        own = deepcopy(arguments)
        call = _Call(limit)

        def run() -> Any:
            token.run_sync_soon(self._begin, call)
            try:
                return self._run(own)
            finally:
                with suppress(trio.RunFinishedError):  # it was left alone for long
                    token.run_sync_soon(self._running.discard, call)

        self._waiting.add(call)
        self._refuse_if_stuck()
        try:
            with call.scope:
                return await trio.to_thread.run_sync(
                    run, abandon_on_cancel=True, limiter=self._places
                )
        finally:
            has_begun = call not in self._waiting
            self._waiting.discard(call)
            call.is_left = True
            self._refuse_if_stuck()
        raise late(self.name, limit) if has_begun else self._stuck()

    def _begin(self, call: _Call) -> None:
        """Its thread has begun."""
        self._waiting.discard(call)
        self._running.add(call)
        call.scope.deadline = trio.current_time() + call.limit
        self._refuse_if_stuck()

    def _refuse_if_stuck(self) -> None:
        """Let no call wait for threads that may never be done."""
        if sum(call.is_left for call in self._running) == self.threads:
            for call in self._waiting:
                call.scope.cancel("all threads are stuck")

    def _stuck(self) -> ProviderError:
        what = f"all {self.threads} threads of {self.name} are stuck in calls that took too long"
        hint = 'set mode to "process", whose workers can be ended'
        return ProviderError("unexpected", f"{what}; {hint}", fault=Fault.FATAL)

    def _run(self, arguments: Sequence[Any]) -> Any:
        try:
            value = self.function(*arguments)
        except CallError:
            raise
        except _FAILURES as error:
            raise _raised(self.name, error) from error
        if inspect.iscoroutine(value):
            value.close()
            hint = 'set mode to "process", or to "trio" if it is written for Trio'
            raise ProviderError("unexpected", f"{self.name} is async; {hint}")
        return value


def late(name: str, limit: float) -> ProviderError:
    """What it is to take too long."""
    what = f"{name} did not answer within {limit:g} seconds (timeoutMs)"
    return ProviderError("attempt_timeout", what)


def _raised(name: str, error: BaseException) -> ProviderError:
    """What an exception of the user's code is, with the end of its traceback."""
    told = describe(error)
    return ProviderError("unexpected", f"{name}: {told['what']}", body_excerpt=told["trace"])
