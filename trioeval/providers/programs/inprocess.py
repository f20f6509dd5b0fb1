"""A function of the user's in this process: awaited on Trio, or called in a thread.

Both are quick and neither is safe: a function that blocks Trio blocks the run, and one that blocks its
thread keeps it. Where that matters, worker processes are right. What a function does to its arguments
stays its own affair: it gets a copy.
"""

import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import attrs
import trio

from trioeval.errors import CallError, ProviderError
from trioeval.providers.config import show
from trioeval.providers.programs.worker import describe


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


@attrs.frozen
class ThreadFunction:
    """A function that blocks; each call has a thread, and there are never more than `places` allows."""

    name: str
    """For messages."""
    function: Callable[..., Any] = attrs.field(repr=False)
    _places: trio.CapacityLimiter = attrs.field(repr=False)

    async def call(self, arguments: Sequence[Any], limit: float) -> Any:
        """Call the function in a thread, when there is a place. Always a checkpoint.

        A thread cannot be ended: one whose call took too long or was cancelled is left alone with what it
        does, and keeps its place until it is done.

        Args:
            arguments: What it is called with.
            limit: Seconds that it may take, > 0; those until there is a place do not count.

        Raises:
            CallError: The function raised it.
            ProviderError: `unexpected` (it raised anything else, or is async) or `attempt_timeout`.
        """
        token = trio.lowlevel.current_trio_token()
        own = deepcopy(arguments)
        with trio.CancelScope() as scope:

            def begin() -> None:
                scope.deadline = trio.current_time() + limit

            def run() -> Any:
                token.run_sync_soon(begin)
                return self._run(own)

            return await trio.to_thread.run_sync(run, abandon_on_cancel=True, limiter=self._places)
        raise late(self.name, limit)

    def _run(self, arguments: Sequence[Any]) -> Any:
        try:
            value = self.function(*arguments)
        except CallError:
            raise
        except (Exception, SystemExit) as error:
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
