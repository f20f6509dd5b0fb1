"""Clients that need asyncio, called from Trio: one thread with an event loop for each bridge.

Each call is a separate asyncio task, see `trioeval.asyncio_tasks`.

The alternative, Trio as a guest of an asyncio loop, would change the host of the whole program for a single
client.
"""

import asyncio
import threading
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import TypeAlias, TypeVar, TypeVarTuple

import attrs
import trio

from trioeval.asyncio_tasks import GRACE, AsyncioTasks, CancelledTaskError
from trioeval.providers.base import Provider, Reply, Request
from trioeval.providers.local.custom import CustomProvider

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

AsyncioCall: TypeAlias = Callable[[Request], Awaitable[Reply | str]]
"""An async function that runs on asyncio and handles one request, returning a `Reply` or a text."""


@asynccontextmanager
async def asyncio_bridge(*, grace: float = GRACE) -> AsyncGenerator["AsyncioBridge"]:
    """Open a thread with an asyncio event loop, for several functions or for a client with a session.

    On leaving, running tasks are cancelled, and the thread is joined. It belongs to one `trio.run`.

    Args:
        grace: Maximum seconds, > 0, that a cancelled call waits for its task to end. Leaving waits at most
            twice as long: for the tasks, and for the entered context managers.

    Raises:
        Exception: Any exception raised by exiting an entered context manager.

    Example:
        ```python
        async with asyncio_bridge() as bridge:
            session = await bridge.enter(aiohttp.ClientSession)
            provider = bridge.provider(partial(ask, session))
        ```
    """
    bridge = AsyncioBridge(AsyncioTasks(asyncio.new_event_loop(), grace))
    try:
        yield bridge
    finally:
        with trio.move_on_after(2 * grace, shield=True) as closing:
            await bridge._aclose()  # noqa: SLF001 - only this context manager closes it
        if closing.cancelled_caught:
            warnings.warn(
                f"the thread of an asyncio bridge did not end within {2 * grace:g} seconds:"
                " a function blocks it, or ignores cancellation",
                RuntimeWarning,
                stacklevel=1,
            )


@asynccontextmanager
async def provider_from_asyncio(
    function: AsyncioCall, *, name: str | None = None, grace: float = GRACE
) -> AsyncGenerator[Provider]:
    """Open a provider from an async function that needs asyncio, with its own bridge.

    Args:
        function: Runs as an asyncio task, many at a time if the lane is wide. It neither retries nor limits,
            and raises `ProviderError` for known failures.
        name: Its name in messages; None uses the function's own name.
        grace: Maximum seconds, > 0, that a cancelled call waits for its task to end.

    Example:
        >>> import asyncio
        >>> async def answer(request: Request) -> str:
        ...     await asyncio.sleep(0)
        ...     return request.prompt.upper()
        >>> async def main() -> None:
        ...     async with provider_from_asyncio(answer) as provider:
        ...         print((await provider(Request(prompt="hello"))).output)
        >>> trio.run(main)
        HELLO
    """
    async with asyncio_bridge(grace=grace) as bridge:
        yield bridge.provider(function, name=name)


@attrs.define(eq=False, repr=False)
class AsyncioBridge:
    """Runs async functions on the event loop of its thread. Obtained from `asyncio_bridge` only."""

    _calls: AsyncioTasks
    _token: trio.lowlevel.TrioToken = attrs.field(
        factory=trio.lowlevel.current_trio_token, init=False
    )
    _stopping: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _entered: AsyncExitStack = attrs.field(factory=AsyncExitStack, init=False)
    _thread: threading.Thread = attrs.field(init=False)
    _ended: trio.Event = attrs.field(factory=trio.Event, init=False)
    _failure: Exception | None = attrs.field(default=None, init=False)
    _is_open: bool = attrs.field(default=True, init=False)

    def __attrs_post_init__(self) -> None:
        # A daemon: a function that blocks forever must not keep the program from ending.
        self._thread = threading.Thread(target=self._serve, name="asyncio bridge", daemon=True)
        self._thread.start()

    def provider(self, function: AsyncioCall, *, name: str | None = None) -> Provider:
        """Return the function as a provider, usable while the bridge is open.

        Args:
            function: See `provider_from_asyncio`.
            name: Its name in messages; None uses the function's own name.
        """

        async def call(request: Request) -> Reply | str:
            return await self.run(function, request)

        own_name = getattr(function, "__qualname__", type(function).__name__)
        return CustomProvider(own_name if name is None else name, call)

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Run an async function as an asyncio task and wait for its result. Always a checkpoint.

        The task gets the caller's context variables. Cancelling the call cancels the task, and waits up to
        the bridge's `grace` until it has ended.

        Raises:
            trio.ClosedResourceError: The bridge is closed, or was closed before the task ended.
            RuntimeError: The task was not cancelled by its caller, or raised `SystemExit` or the like.
            Exception: Any exception of the function.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        self._check_open("the asyncio bridge is closed")
        try:
            return await self._calls.run(function, *args)
        except CancelledTaskError:
            self._check_open("the asyncio bridge was closed during the call")
            raise

    def _check_open(self, message: str) -> None:
        if not self._is_open:
            raise trio.ClosedResourceError(message) from None

    async def enter(self, make: Callable[[], AbstractAsyncContextManager[T]]) -> T:
        """Create and enter an asyncio context manager, such as a client's session; closing exits it.

        Exited in reverse order, after all calls have ended. Always a checkpoint.

        Args:
            make: Called on the loop's thread, because many clients require a running loop.

        Raises:
            Exception: Any exception of entering; see also `run`.
        """

        async def enter() -> T:
            return await self._entered.enter_async_context(make())

        return await self.run(enter)

    async def _aclose(self) -> None:
        """Cancel running tasks, exit entered context managers, and join the thread."""
        self._is_open = False
        self._calls.loop.call_soon_threadsafe(self._stopping.set)
        await self._ended.wait()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _serve(self) -> None:
        """Run the loop in the thread."""
        try:
            # Background tasks of clients are cancelled by the runner.
            with asyncio.Runner(loop_factory=lambda: self._calls.loop) as runner:
                runner.run(self._stay())
        except Exception as error:  # noqa: BLE001 - stored for `_aclose`, which raises it
            self._failure = error
        finally:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._ended.set)

    async def _stay(self) -> None:
        """Keep the loop running until the bridge closes; then end calls before the resources they use."""
        async with self._entered:
            await self._stopping.wait()
            tasks = self._calls.running
            for task in tasks:
                task.cancel("the bridge closes")
            if tasks:
                await asyncio.wait(tasks, timeout=self._calls.grace)
