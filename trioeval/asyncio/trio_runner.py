"""Trio in a thread of an asyncio program: Trio functions called from the event loop, and the other way round.

Trio could also run as a guest of the event loop, in the same thread. Not chosen: a thread has one Trio run
at a time, so that independent calls would have to share one; and rendering and grading of rows would block
the loop, which in a web server delays all other requests. In a thread of its own, they compete only for the
interpreter, which switches threads every few milliseconds. A crossing costs two wake-ups, some 100 µs: little
beside a request to a provider, and rows cross in batches.

What a caller relies on:

* Cancelling the asyncio task cancels the Trio call, waits until it has ended, and only then raises
  `CancelledError`. Further cancellations while it waits change nothing.
* An exception crosses as the same object, with its traceback. One that is raised while the call is being
  cancelled replaces `CancelledError`, as in any `finally` block.
* Context variables of the caller are visible in Trio, and to asyncio functions that Trio calls back.
* The thread ends with its block; if the loop is closed or the interpreter exits before, its calls are
  cancelled.
"""

from __future__ import annotations

import asyncio
import atexit
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from contextvars import Context, copy_context
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, TypeVarTuple

import attrs
import outcome
import trio

from trioeval.asyncio_tasks import AsyncioTasks, post_to
from trioeval.errors import UsageError, leaves

T = TypeVar("T")
R = TypeVar("R")
Ts = TypeVarTuple("Ts")

_LOOP_CHECK = 0.5
"""Seconds between checks of the event loop.

A closed loop is reported to nothing. And the loop is woken up, because an interruption of Jupyter may arrive
in its wait for events: the handler then schedules the cancellation of the cell without ending that wait.
"""

_EXIT_GRACE = 10.0
"""Maximum seconds that the exit of the interpreter waits for a thread."""

_BATCH = 256
"""Maximum values of an iteration that cross at once."""


def _wake_up() -> None:
    """Do nothing, in the event loop."""


def check_on_asyncio(name: str) -> None:
    """Raise unless the caller runs on an asyncio event loop.

    Args:
        name: The called function of `trioeval.asyncio`, for the message.

    Raises:
        UsageError: It runs on Trio, or on no event loop.
    """
    if trio.lowlevel.in_trio_task():
        msg = f"trioeval.asyncio.{name} is for asyncio; under Trio use trioeval.{name}"
        raise UsageError(msg)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        msg = f"trioeval.asyncio.{name} needs a running asyncio event loop"
        raise UsageError(msg) from None


@attrs.define(eq=False, repr=False)
class TrioRunner:
    """A thread with its own `trio.run`, open in the block `async with TrioRunner() as runner`.

    Leaving the block cancels calls that have not ended, and waits for them. It belongs to one event loop.
    """

    tasks: AsyncioTasks = attrs.field(init=False)
    """Runs asyncio functions on the event loop, for Trio functions in the thread."""
    abandoned: set[_TrioCall[Any]] = attrs.field(factory=set, init=False)
    """Calls that are being cancelled, and whose callers could not wait."""
    _loop: asyncio.AbstractEventLoop = attrs.field(init=False)
    _thread: threading.Thread = attrs.field(init=False)
    _started: asyncio.Future[None] = attrs.field(init=False)
    _ended: asyncio.Future[None] = attrs.field(init=False)
    _failure: BaseException | None = attrs.field(default=None, init=False)
    _is_ending: bool = attrs.field(default=False, init=False)
    _token: trio.lowlevel.TrioToken | None = attrs.field(default=None, init=False)
    # The rest is used by the thread only.
    _nursery: trio.Nursery = attrs.field(init=False)
    _stopping: trio.Event = attrs.field(factory=trio.Event, init=False)
    _calls: set[_TrioCall[Any]] = attrs.field(factory=set, init=False)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self.tasks = AsyncioTasks(self._loop)
        self._started, self._ended = self._loop.create_future(), self._loop.create_future()
        # A daemon: a call that blocks forever must not keep the program from ending.
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._serve,), name="trioeval", daemon=True
        )
        self._thread.start()
        atexit.register(self._end_at_exit)
        try:
            await _wait_ended(self._started, self._stop_soon)
        except asyncio.CancelledError:
            await self._end()  # noqa: ASYNC102 - it waits in spite of cancellation
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop_soon()
        if kind is GeneratorExit:  # the coroutine is discarded, and cannot wait
            return
        await self._end()  # noqa: ASYNC102 - it waits in spite of cancellation
        if self._failure is not None:
            raise self._failure

    async def run(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Run a Trio function in the thread and wait for its result. Many may run at a time.

        Raises:
            UsageError: The thread has ended, or belongs to another event loop.
            Exception: Any exception of the function.
        """
        call = self.start_call(lambda: function(*args))
        await self.wait_call(call)
        if not call.has_ended:
            await _wait_ended(self._ended, lambda: None)
            raise self._failure or UsageError("the call was ended, because its Trio thread ends")
        return call.result()

    def on_asyncio(
        self, function: Callable[[*Ts], Awaitable[T]]
    ) -> Callable[[*Ts], Coroutine[None, None, T]]:
        """Return an asyncio function as a Trio function that runs it as a task of the event loop."""

        async def call(*args: *Ts) -> T:
            return await self.tasks.run(function, *args)

        return call

    def start_call(
        self,
        function: Callable[[], Awaitable[T]],
        nursery: Callable[[], trio.Nursery | None] | None = None,
    ) -> _TrioCall[T]:
        """Start a Trio function in a nursery of the thread, and return its call at once."""
        if asyncio.get_running_loop() is not self._loop:
            raise UsageError("this belongs to another event loop: open one for each loop")
        call = _TrioCall(function, self._loop, self._loop.create_future(), copy_context())
        if not self.post(self._start, call, nursery or (lambda: self._nursery)):
            call.finish()
        return call

    async def wait_call(self, call: _TrioCall[T]) -> None:
        """Wait for the end of a call; cancelled, cancel it and wait nevertheless.

        Raises:
            asyncio.CancelledError: The caller was cancelled, and the call ended without an error.
        """
        try:
            await _wait_ended(call.ended, lambda: self.post(call.scope.cancel))
        except asyncio.CancelledError:  # noqa: ASYNC103 - the error is raised instead
            if call.error is None:
                raise

    async def wait_abandoned(self) -> None:
        """Wait for the end of calls whose callers could not wait."""
        while self.abandoned:
            await self.wait_call(next(iter(self.abandoned)))
            self.abandoned = {call for call in self.abandoned if not call.ended.done()}

    def _start(self, call: _TrioCall[Any], nursery: Callable[[], trio.Nursery | None]) -> None:
        home = nursery()
        if home is None or self._stopping.is_set():
            call.finish()
            return
        self._calls.add(call)
        call.context.run(home.start_soon, self._perform, call)

    async def _perform(self, call: _TrioCall[Any]) -> None:
        try:
            await call.perform()
        finally:
            self._calls.discard(call)

    def _serve(self) -> None:
        """Run Trio in the thread."""
        ended = outcome.capture(trio.run, self._main)
        if isinstance(ended, outcome.Error):
            self._failure = ended.error
        for future in (self._started, self._ended):
            post_to(self._loop, _set, future)

    async def _main(self) -> None:
        async with trio.open_nursery() as self._nursery:
            self._token = trio.lowlevel.current_trio_token()
            post_to(self._loop, _set, self._started)
            try:
                while not (self._is_ending or self._stopping.is_set()):
                    with trio.move_on_after(_LOOP_CHECK):
                        await self._stopping.wait()
                    if not post_to(self._loop, _wake_up):
                        self._stop()
            finally:
                self._stopping.set()  # before the nursery closes: no call starts any more

    def _stop(self) -> None:
        self._stopping.set()
        for call in self._calls:
            call.scope.cancel()

    def _stop_soon(self) -> None:
        self._is_ending = True  # read once it has started, if it has not yet
        self.post(self._stop)

    def post(self, function: Callable[[*Ts], object], *args: *Ts) -> bool:
        """Call a function in the thread soon; return False if Trio has ended."""
        if self._token is not None:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(function, *args)
                return True
        return False

    async def _end(self) -> None:
        """Wait for the end of the thread, and of tasks that it abandoned."""
        self._stop_soon()
        try:
            await _wait_ended(self._ended, lambda: None)
        finally:
            if self._ended.done():
                self._thread.join()
                atexit.unregister(self._end_at_exit)
        if self.tasks.running:
            await asyncio.wait(self.tasks.running, timeout=self.tasks.grace)

    def _end_at_exit(self) -> None:
        if not self._loop.is_running():
            self.tasks.close()
        self._stop_soon()
        self._thread.join(_EXIT_GRACE)


@attrs.define(eq=False, repr=False)
class _TrioCall(Generic[T]):
    """One call of a Trio function. `perform` runs in the thread."""

    function: Callable[[], Awaitable[T]]
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Future[None]
    context: Context
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    value: list[T] = attrs.field(factory=list)
    """Its result; empty until it has one."""
    error: BaseException | None = None

    @property
    def has_ended(self) -> bool:
        """True if it has a result or an error; False until then, and if it was cancelled."""
        return self.error is not None or bool(self.value)

    def result(self) -> T:
        if self.error is not None:
            raise self.error
        return self.value[0]

    async def perform(self) -> None:
        try:
            with self.scope:
                self.value.append(await self.function())
        except (Exception, KeyboardInterrupt, SystemExit) as error:  # noqa: BLE001 - raised by the caller
            self.error = error
        finally:
            self.finish()

    def finish(self) -> None:
        post_to(self.loop, _set, self.ended)


@attrs.define(eq=False, repr=False)
class TrioResource(Generic[T]):
    """A Trio context manager that is open in a thread, for the block `async with TrioResource(...)`.

    It is entered and exited in one Trio task. Its functions run in a nursery inside it: when it fails, they
    are cancelled, and their callers get its error.
    """

    runner: TrioRunner
    make: Callable[[], AbstractAsyncContextManager[T]]
    """Called in the thread."""
    name: str = "resource"
    """For messages."""
    value: T = attrs.field(init=False)
    """The value of the context manager; used by functions in the thread."""
    _call: _TrioCall[None] = attrs.field(init=False)
    _entered: asyncio.Future[None] = attrs.field(init=False)
    # The rest is used by the thread only.
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)
    _leaving: trio.Event = attrs.field(factory=trio.Event, init=False)
    _error: Exception | None = attrs.field(default=None, init=False)

    async def __aenter__(self) -> Self:
        self._entered = asyncio.get_running_loop().create_future()
        self._call = self.runner.start_call(self._hold)
        try:
            await asyncio.wait([self._entered, self._call.ended], return_when="FIRST_COMPLETED")
        except asyncio.CancelledError:  # noqa: ASYNC103 - the error is raised instead
            self._cancel()
            await self.runner.wait_call(self._call)  # noqa: ASYNC102 - in spite of cancellation
            if self._call.error is None:
                raise
        finally:
            if not (self._entered.done() or self._call.ended.done()):
                self._cancel()
        if self._call.ended.done():
            raise self._reason()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None or isinstance(error, Exception):
            self.runner.post(self._leave, error)
        else:
            self._cancel()
        if kind is GeneratorExit:  # the coroutine is discarded, and cannot wait
            self.runner.abandoned.add(self._call)
            return False
        await self.runner.wait_call(self._call)  # noqa: ASYNC102 - in spite of cancellation
        if error is not None and self._call.error is error:
            error.__traceback__ = traceback  # without the frames of its way through Trio
            return False
        if self._call.error is not None or (error is None and not self._call.has_ended):
            raise self._reason()
        return isinstance(error, Exception)

    async def run(self, function: Callable[[*Ts], Awaitable[R]], *args: *Ts) -> R:
        """Run a Trio function inside the context manager and wait for its result.

        Raises:
            UsageError: The context manager is closed.
            Exception: Any exception of the function, or of the context manager.
        """
        call = self._start(lambda: function(*args))
        await self.runner.wait_call(call)
        return await self._result_of(call)

    async def iterate(self, make: Callable[[], AsyncIterable[R]]) -> AsyncGenerator[R]:
        """Iterate in the thread and yield its values here, at most `_BATCH` in advance.

        Args:
            make: Returns an iterator that may be abandoned. Called in the thread.

        Raises:
            UsageError: The context manager is closed.
            Exception: Any exception of the iteration, or of the context manager.
        """
        send, receive = trio.open_memory_channel[R](_BATCH)

        async def produce() -> None:
            async with send:
                async for value in make():
                    await send.send(value)

        async def take() -> list[R]:
            taken = []
            with suppress(trio.EndOfChannel):
                taken.append(await receive.receive())
                with suppress(trio.WouldBlock):
                    while True:
                        taken.append(receive.receive_nowait())
            return taken

        produced = self._start(produce)
        try:
            while batch := await self.run(take):
                for value in batch:
                    yield value
            await self.runner.wait_call(produced)
            await self._result_of(produced)
        finally:
            self.runner.post(produced.scope.cancel)  # if the loop was left before

    def _start(self, function: Callable[[], Awaitable[R]]) -> _TrioCall[R]:
        return self.runner.start_call(function, lambda: self._nursery)

    async def _result_of(self, call: _TrioCall[R]) -> R:
        if not call.has_ended:  # it was ended together with the context manager
            await self.runner.wait_call(self._call)
            raise self._reason()
        return call.result()

    def _reason(self) -> BaseException:
        """Return the reason why the context manager is closed."""
        return self._call.error or UsageError(f"the {self.name} is closed: use it in its block")

    def _cancel(self) -> None:
        self.runner.post(self._call.scope.cancel)

    def _leave(self, error: Exception | None) -> None:
        self._error = error
        self._leaving.set()

    async def _hold(self) -> None:
        """Hold the context manager open in the thread."""
        async with self.make() as self.value:
            try:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    post_to(self.runner.tasks.loop, _set, self._entered)
                    try:
                        await self._leaving.wait()
                    finally:
                        self._nursery = None  # before it closes: no call starts any more
                    nursery.cancel_scope.cancel()
            except BaseExceptionGroup as group:
                # Calls keep their errors, so this is a cancellation. The context manager gets it as from any
                # other block, which is not wrapped by a nursery.
                raise next(leaves(group)) from None
            if self._error is not None:
                raise self._error


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _wait_ended(ended: asyncio.Future[None], cancel: Callable[[], object]) -> None:
    """Wait for a future even when cancelled: then call `cancel`, wait, and raise `CancelledError`."""
    try:
        await asyncio.wait([ended])
    except asyncio.CancelledError:
        cancel()
        with _shield():
            while not ended.done():
                # The first cancellation is raised below.
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([ended])  # noqa: ASYNC102 - that is its purpose
        raise
    finally:
        if not ended.done():  # the coroutine is discarded, or the loop was interrupted
            cancel()


def _shield() -> AbstractContextManager[object]:
    """Return a shield from scopes of anyio, which cancel a waiting task again in each step of the loop."""
    anyio = sys.modules.get("anyio")
    return nullcontext() if anyio is None else anyio.CancelScope(shield=True)
