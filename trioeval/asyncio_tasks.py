"""asyncio tasks that Trio starts on an event loop of another thread, and awaits.

Results and exceptions are passed on unchanged, and cancellation too: when Trio cancels the call, the task is
cancelled and awaited, so that its `finally` blocks have run before the call ends. That wait is limited,
because a function that blocks its thread, or ignores cancellation, must not delay the run's deadline.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar, TypeVarTuple

import attrs
import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

GRACE = 2.0
"""Maximum seconds that a cancelled call waits for its asyncio task to end, unless its owner sets it."""


@attrs.define(eq=False, repr=False)
class AsyncioTasks:
    """Runs async functions as tasks of one event loop, for the tasks of one `trio.run`."""

    loop: asyncio.AbstractEventLoop
    grace: float = GRACE
    """Maximum seconds, > 0, that a cancelled call waits for its task to end."""
    running: set[asyncio.Task[Any]] = attrs.field(factory=set, init=False)
    """Tasks that have not ended; used by the loop's thread only."""

    is_open: bool = attrs.field(default=True, init=False)

    def close(self) -> None:
        """Refuse calls from now on, and abandon running ones when they are cancelled: the loop has ended."""
        self.is_open, self.grace = False, 0.0

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Run an async function as an asyncio task and wait for its result. Always a checkpoint.

        The task gets the caller's context variables. Cancelling the call cancels the task, and waits up to
        `grace` until it has ended.

        Raises:
            trio.ClosedResourceError: The loop has ended.
            RuntimeError: The task was not cancelled by its caller, or raised `SystemExit` or the like.
            Exception: Any exception of the function.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        token = trio.lowlevel.current_trio_token()
        call = _AsyncioCall(lambda: function(*args), token, copy_context())
        if not (self.is_open and post_to(self.loop, call.start, self.loop, self.running)):
            raise trio.ClosedResourceError("the event loop has ended")
        try:
            await call.done.wait()
        finally:
            if not call.done.is_set() and post_to(self.loop, call.cancel):
                # Its `finally` blocks run before the call ends; a task that does not end is abandoned.
                with trio.move_on_after(self.grace, shield=True):
                    await call.done.wait()
        return call.result()


def post_to(loop: asyncio.AbstractEventLoop, function: Callable[[*Ts], object], *args: *Ts) -> bool:
    """Call a function on the loop's thread soon; return False if the loop is closed. Not a checkpoint."""
    if not loop.is_closed():
        # It may be closed at any time.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(function, *args)
            return True
    return False


@attrs.define(eq=False, repr=False)
class _AsyncioCall(Generic[T]):
    """One call of a function. `start`, `cancel` and `_finish` run on the loop's thread."""

    function: Callable[[], Awaitable[T]]
    token: trio.lowlevel.TrioToken
    context: Context
    done: trio.Event = attrs.field(factory=trio.Event)
    task: asyncio.Task[T] | None = None

    def start(self, loop: asyncio.AbstractEventLoop, tasks: set[asyncio.Task[Any]]) -> None:
        self.task = loop.create_task(self._body(), context=self.context)
        tasks.add(self.task)
        self.task.add_done_callback(tasks.discard)
        self.task.add_done_callback(self._finish)

    def cancel(self) -> None:
        assert self.task is not None  # noqa: S101 - the loop has called `start` before
        self.task.cancel("cancelled by Trio")

    def result(self) -> T:
        assert self.task is not None  # noqa: S101 - called only when it is done
        if self.task.cancelled():
            raise CancelledTaskError
        return self.task.result()

    async def _body(self) -> T:
        try:
            pending = self.function()
            if not inspect.isawaitable(pending):
                raise TypeError("the function is not async; write it with `async def`")
            return await pending
        except (KeyboardInterrupt, SystemExit) as error:
            # They would end the loop, and with it all other calls.
            raise RuntimeError(f"the function raised {type(error).__name__}") from error

    def _finish(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # marked as retrieved, or asyncio would warn if the caller is gone
        # The caller's run may be over, if the task took too long to be cancelled.
        with suppress(trio.RunFinishedError):
            self.token.run_sync_soon(self.done.set)


class CancelledTaskError(RuntimeError):
    """An asyncio task that was cancelled, but not by its caller."""

    def __init__(self) -> None:
        super().__init__("the asyncio task was cancelled, but not by its caller")
