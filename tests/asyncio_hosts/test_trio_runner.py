"""Laws of the crossing between asyncio and Trio, on the event loops of asyncio and of uvloop."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, Self, TypeAlias, TypeVar

import anyio
import pytest
import trio

from trioeval.asyncio import TrioRunner
from trioeval.asyncio.trio_runner import TrioResource
from trioeval.errors import UsageError

T = TypeVar("T")

RunLoop: TypeAlias = Callable[[Coroutine[Any, Any, T]], T]

TOO_LONG = 60
"""Seconds after which a test fails instead of waiting."""


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "trioeval"]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """A thread ends with its block."""
    yield
    assert threads() == []


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> RunLoop[Any]:
    """Run a coroutine on a new event loop, with a time limit."""
    factory = None
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop", reason="needs uvloop").new_event_loop

    def run_on(main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(asyncio.wait_for(main, TOO_LONG))

    return run_on


def set_event(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    loop.call_soon_threadsafe(event.set)


class StrangeError(Exception):
    """An exception of the caller."""


class Held:
    """A Trio function that waits forever, and whose cleanup waits until it is released."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.started, self.cleaning = asyncio.Event(), asyncio.Event()
        self.release = threading.Event()
        self.log: list[str] = []

    async def __call__(self) -> None:
        try:
            set_event(self.loop, self.started)
            await trio.sleep_forever()
        finally:
            set_event(self.loop, self.cleaning)
            with trio.move_on_after(TOO_LONG, shield=True):
                await trio.to_thread.run_sync(self.release.wait, TOO_LONG)
            self.log.append("cleaned up")


def test_a_result_crosses(run: RunLoop[int]) -> None:
    """The function runs on Trio, in another thread, and returns its result."""

    async def add(first: int, second: int) -> int:
        await trio.lowlevel.checkpoint()
        assert threading.current_thread() is not threading.main_thread()
        return first + second

    async def main() -> int:
        async with TrioRunner() as runner:
            return await runner.run(add, 1, 2)

    assert run(main()) == 3


def test_an_exception_crosses_as_the_same_object(run: RunLoop[None]) -> None:
    """It is not wrapped, has the frames of both sides, and keeps its cause."""
    cause = KeyError("cause")

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise StrangeError from cause

    async def main() -> None:
        async with TrioRunner() as runner:
            await runner.run(fail)

    with pytest.raises(StrangeError) as caught:
        run(main())
    assert {"fail", "main"} <= {entry.name for entry in caught.traceback}
    assert caught.value.__cause__ is cause


def test_a_group_crosses_as_it_is(run: RunLoop[None]) -> None:
    """Both failures of a nursery are in one group, without a second one around it."""

    async def fail() -> None:  # noqa: ASYNC124 - the other one must not cancel it
        raise StrangeError

    async def both() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail)
            nursery.start_soon(fail)

    async def main() -> None:
        async with TrioRunner() as runner:
            await runner.run(both)

    with pytest.RaisesGroup(StrangeError, StrangeError):
        run(main())


LEAVES = """
import asyncio, sys, trio
from trioeval.asyncio import TrioRunner

async def leave():
    await trio.lowlevel.checkpoint()
    sys.exit(7)

async def main():
    async with TrioRunner() as runner:
        await runner.run(leave)

try:
    asyncio.run(main())
except SystemExit as exit:
    print("left from the loop with", exit)
    raise
"""


@pytest.mark.slow
def test_a_function_that_ends_the_program_ends_it_from_the_loop() -> None:
    """`SystemExit` is raised where the call was made."""
    left = subprocess.run(
        [sys.executable, "-c", LEAVES],
        capture_output=True,
        text=True,
        timeout=TOO_LONG,
        check=False,
    )
    assert (left.returncode, left.stdout) == (7, "left from the loop with 7\n"), left.stderr


def test_cancelling_waits_until_the_call_has_ended(run: RunLoop[None]) -> None:
    """`CancelledError` is raised after the cleanup; further cancellations meanwhile change nothing."""

    async def main() -> None:
        held = Held()

        async def call() -> None:
            async with TrioRunner() as runner:
                await runner.run(held)

        task = asyncio.create_task(call())
        await held.started.wait()
        for _ in range(7):
            task.cancel()
            await held.cleaning.wait()
            await asyncio.sleep(0)
        assert not task.done()
        assert held.log == []
        held.release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert held.log == ["cleaned up"]
        assert threads() == []

    run(main())


def test_cancelling_at_any_step_leaves_nothing(run: RunLoop[None]) -> None:
    """Cancelled at any step of the loop, a call ends with its result or as cancelled, and the thread ends."""

    async def main() -> None:
        outcomes = set()
        for steps in [*range(12), *range(12, 400, 40), 10_000_000]:
            ended: list[bool] = []

            async def work(ended: list[bool] = ended) -> str:
                try:
                    for _ in range(20):
                        await trio.lowlevel.checkpoint()
                finally:
                    ended.append(True)
                return "done"

            async def call(work: Callable[[], Awaitable[str]] = work) -> str:
                async with TrioRunner() as runner:
                    return await runner.run(work)

            task = asyncio.create_task(call())
            for _ in range(steps):
                if task.done():
                    break
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            outcomes.add(task.cancelled())
            assert len(ended) <= 1
            assert task.cancelled() or ended == [True]
            assert threads() == []
        assert outcomes == {True, False}

    run(main())


def test_a_timeout_is_a_timeout(run: RunLoop[None]) -> None:
    """`asyncio.timeout` cancels the call, and raises `TimeoutError` after its cleanup."""

    async def main() -> None:
        held = Held()
        held.release.set()

        async def call() -> None:
            async with TrioRunner() as runner, asyncio.timeout(None) as limit:
                expiring = asyncio.create_task(expire(limit))
                await runner.run(held)
                await expiring

        async def expire(limit: asyncio.Timeout) -> None:
            await held.started.wait()
            limit.reschedule(asyncio.get_running_loop().time())

        with pytest.raises(TimeoutError):
            await call()
        assert held.log == ["cleaned up"]

    run(main())


def test_an_error_of_the_cleanup_is_not_lost(run: RunLoop[None]) -> None:
    """It replaces `CancelledError`, as in any `finally` block."""

    async def main() -> None:
        started = asyncio.Event()
        loop = asyncio.get_running_loop()

        async def fail() -> None:
            try:
                set_event(loop, started)
                await trio.sleep_forever()
            finally:
                raise StrangeError("cleanup")

        async with TrioRunner() as runner:
            task = asyncio.create_task(runner.run(fail))
            await started.wait()
            task.cancel()
            with pytest.raises(StrangeError, match="cleanup"):
                await task

    run(main())


def test_scopes_of_anyio_do_not_keep_the_loop_busy(run: RunLoop[None]) -> None:
    """A cancelled scope of anyio cancels a waiting task in each step of the loop, but not this one."""

    async def main() -> None:
        held = Held()
        again = -1

        async def release(task: asyncio.Task[None]) -> int:
            await held.cleaning.wait()
            before = task.cancelling()
            for _ in range(50):
                await asyncio.sleep(0)
            held.release.set()
            return task.cancelling() - before

        with anyio.CancelScope() as scope:
            async with TrioRunner() as runner:
                task = asyncio.current_task()
                assert task is not None
                started = asyncio.create_task(held.started.wait())
                started.add_done_callback(lambda _: scope.cancel())
                releasing = asyncio.create_task(release(task))
                try:
                    await runner.run(held)
                finally:
                    again = releasing.result()
        assert scope.cancelled_caught
        assert again == 0
        assert held.log == ["cleaned up"]

    run(main())


def test_context_variables_cross_in_both_directions(run: RunLoop[None]) -> None:
    """Trio sees those of the caller, and an asyncio function that it calls sees those of its Trio task."""
    name: ContextVar[str] = ContextVar("name", default="nothing")
    seen: list[str] = []

    async def main() -> None:
        async def read() -> str:
            await asyncio.sleep(0)
            seen.append(name.get())
            name.set("asyncio's")
            return name.get()

        async def call() -> None:
            await trio.lowlevel.checkpoint()
            seen.append(name.get())
            name.set("Trio's")
            seen.append(await runner.on_asyncio(read)())
            seen.append(name.get())

        name.set("opener's")
        async with TrioRunner() as runner:
            name.set("caller's")
            await runner.run(call)
        seen.append(name.get())

    run(main())
    assert seen == ["caller's", "Trio's", "asyncio's", "Trio's", "caller's"]


def test_calls_run_side_by_side(run: RunLoop[None]) -> None:
    """Two calls of one thread wait for each other, and so do calls of two threads."""

    async def main() -> None:
        met = asyncio.Barrier(4)

        async def call(runner: TrioRunner) -> None:
            await runner.run(runner.on_asyncio(met.wait))

        async with TrioRunner() as one, TrioRunner() as two, asyncio.TaskGroup() as group:
            for runner in (one, one, two, two):
                group.create_task(call(runner))

    run(main())


def test_asyncio_functions_run_on_the_callers_loop(run: RunLoop[None]) -> None:
    """They run in its thread; cancelling the Trio call cancels their task and waits for it."""

    async def main() -> None:
        loop, log = asyncio.get_running_loop(), list[str]()
        started = asyncio.Event()

        async def wait() -> None:
            assert asyncio.get_running_loop() is loop
            assert threading.current_thread() is threading.main_thread()
            try:
                started.set()
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)  # noqa: ASYNC102 - a cleanup that waits
                log.append("asyncio ended")

        async def call() -> None:
            try:
                await runner.on_asyncio(wait)()
            finally:
                log.append("Trio ended")

        async with TrioRunner() as runner:
            task = asyncio.create_task(runner.run(call))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert log == ["asyncio ended", "Trio ended"]

    run(main())


def test_all_tasks_of_a_loop_may_be_cancelled_at_once() -> None:
    """An interrupted loop cancels callers and callbacks together: the callback has not failed."""
    seen: list[type[BaseException]] = []

    async def call(runner: TrioRunner) -> None:
        try:
            await runner.on_asyncio(asyncio.Event().wait)()
        except (trio.Cancelled, RuntimeError) as error:
            seen.append(type(error))
            raise

    async def main(entered: Callable[[], None]) -> None:
        async with TrioRunner() as runner:
            runner.tasks.loop.call_soon(lambda: check(runner, entered))
            await runner.run(call, runner)

    def check(runner: TrioRunner, entered: Callable[[], None]) -> None:
        if runner.tasks.running:
            entered()
        else:
            runner.tasks.loop.call_soon(check, runner, entered)

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(main(loop.stop))
        loop.run_forever()
    assert task.cancelled()
    assert seen == [trio.Cancelled]


def test_leaving_ends_calls_that_are_left(run: RunLoop[None]) -> None:
    """Their callers get an error that says so; no later call starts."""

    async def main() -> None:
        held = Held()
        held.release.set()
        async with TrioRunner() as runner:
            task = asyncio.create_task(runner.run(held))
            await held.started.wait()
        with pytest.raises(UsageError, match="the call was ended"):
            await task
        with pytest.raises(UsageError, match="the call was ended"):
            await runner.run(held)
        assert held.log == ["cleaned up"]

    run(main())


def test_a_thread_belongs_to_its_loop(run: RunLoop[None]) -> None:
    """A call from another event loop is refused."""

    async def main() -> None:
        async with TrioRunner() as runner:

            def call() -> None:
                asyncio.run(runner.run(trio.sleep, 0))

            with pytest.raises(UsageError, match="another event loop"):
                await asyncio.to_thread(call)

    run(main())


def test_a_failure_of_the_start_is_raised(run: RunLoop[None]) -> None:
    """A Trio that cannot start is reported, and is not waited for."""

    class BrokenRunner(TrioRunner):
        async def _main(self) -> None:
            raise StrangeError("no start")

    async def main() -> None:
        async with BrokenRunner() as runner:
            with pytest.raises(StrangeError, match="no start"):
                await runner.run(trio.sleep, 0)

    with pytest.raises(StrangeError, match="no start"):
        run(main())


@pytest.mark.slow
@pytest.mark.parametrize("keeps_task", [True, False])
def test_the_thread_ends_when_the_loop_is_closed(keeps_task: bool) -> None:  # noqa: FBT001
    """A loop that is closed in the middle of a call ends it, whether or not its coroutine still exists."""
    seen: list[str] = []
    running = threading.Event()

    async def call() -> None:
        try:
            running.set()
            await trio.sleep_forever()
        finally:
            seen.append("ended")

    async def main() -> None:
        async with TrioRunner() as runner:
            await runner.run(call)

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # it reports the destroyed task
    coroutine = main()
    task = [loop.create_task(coroutine)]
    while not running.is_set():
        loop.run_until_complete(asyncio.sleep(0))
    (left,) = threads()
    loop.close()
    if not keeps_task:
        task.clear()
        coroutine.close()
    left.join(TOO_LONG)
    assert seen == ["ended"]
    if keeps_task:
        coroutine.close()


EXIT = """
import asyncio, sys, trio
from trioeval.asyncio import TrioRunner

async def call():
    try:
        loop.call_soon_threadsafe(loop.stop)
        await trio.sleep_forever()
    finally:
        with trio.CancelScope(shield=True):
            try:
                await runner.on_asyncio(asyncio.sleep)(0)
            except trio.ClosedResourceError:
                print("ended")

async def main():
    global runner
    async with TrioRunner() as runner:
        await runner.run(call)

loop = asyncio.new_event_loop()
task = loop.create_task(main())
loop.run_forever()
print("exit")
"""


@pytest.mark.slow
def test_the_exit_of_the_interpreter_ends_the_thread() -> None:
    """A call that is in progress is cancelled, its cleanup runs, and the exit does not hang."""
    done = subprocess.run(
        [sys.executable, "-c", EXIT],
        capture_output=True,
        text=True,
        timeout=TOO_LONG,
        check=False,
    )
    assert done.stdout.split() == ["exit", "ended"], done.stderr
    assert done.returncode == 0


# Context managers of Trio that are open for a block of asyncio.


class Resource:
    """A Trio context manager with a nursery, which logs the end of its block."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.break_it = trio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[str]:
        async def fail() -> None:
            await self.break_it.wait()
            raise StrangeError("broken")

        failure: Exception | None = None
        task = trio.lowlevel.current_task()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fail)
                try:
                    yield "value"
                except StrangeError as error:
                    self.log.append(f"failed: {error}")
                    failure = error
                except trio.Cancelled:
                    self.log.append("cancelled")
                    raise
                else:
                    self.log.append("ended")
                nursery.cancel_scope.cancel()
        finally:
            assert trio.lowlevel.current_task() is task
        if failure is not None:
            raise failure


@pytest.fixture
def resource() -> Resource:
    return Resource()


def test_a_context_manager_is_open_for_a_block(run: RunLoop[None], resource: Resource) -> None:
    """Functions run inside it, and it ends with the block."""

    async def main() -> None:
        async with TrioRunner() as runner:
            async with TrioResource(runner, resource.open) as opened:
                assert opened.value == "value"
                await opened.run(trio.sleep, 0)
                assert resource.log == []
            assert resource.log == ["ended"]
            with pytest.raises(UsageError, match="is closed"):
                await opened.run(trio.sleep, 0)

    run(main())


def test_an_error_of_the_block_is_seen_inside(run: RunLoop[None], resource: Resource) -> None:
    """The context manager gets it, and it continues as the same object."""
    error = StrangeError("block")

    async def main() -> None:
        async with TrioRunner() as runner, TrioResource(runner, resource.open):
            raise error

    with pytest.raises(StrangeError) as caught:
        run(main())
    assert caught.value is error
    assert resource.log == ["failed: block"]


def test_a_context_manager_may_handle_an_error(run: RunLoop[None]) -> None:
    """As in Trio, it may suppress the error of the block."""

    @asynccontextmanager
    async def forgiving() -> AsyncGenerator[None]:
        with suppress(StrangeError):
            yield

    async def main() -> None:
        async with TrioRunner() as runner, TrioResource(runner, forgiving):
            raise StrangeError

    run(main())


def test_a_cancelled_block_is_cancelled_inside(run: RunLoop[None], resource: Resource) -> None:
    """The context manager is cancelled and ends, before `CancelledError` continues."""

    async def main() -> None:
        entered = asyncio.Event()

        async def block() -> None:
            async with TrioRunner() as runner, TrioResource(runner, resource.open):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(block())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert resource.log == ["cancelled"]

    run(main())


def test_a_context_manager_that_fails_ends_its_calls(
    run: RunLoop[None], resource: Resource
) -> None:
    """Callers inside it, later callers, and the block get its error."""

    async def main() -> None:
        async with TrioRunner() as runner, TrioResource(runner, resource.open) as opened:
            waiting = asyncio.create_task(opened.run(trio.sleep_forever))
            await opened.run(trio.sleep, 0)
            runner.post(resource.break_it.set)
            for call in (waiting, opened.run(trio.sleep_forever)):
                with pytest.RaisesGroup(pytest.RaisesExc(StrangeError, match="broken")):
                    await call

    with pytest.RaisesGroup(pytest.RaisesExc(StrangeError, match="broken")):
        run(main())
    assert resource.log == ["cancelled"]


def test_a_context_manager_that_cannot_be_entered(run: RunLoop[None], resource: Resource) -> None:
    """Its error is raised on entering."""

    @asynccontextmanager
    async def closed() -> AsyncGenerator[None]:
        await trio.lowlevel.checkpoint()
        if resource.log == []:
            raise StrangeError("closed")
        yield

    async def main() -> None:
        async with TrioRunner() as runner:
            with pytest.raises(StrangeError, match="closed"):
                async with TrioResource(runner, closed):
                    raise AssertionError

    run(main())


def test_entering_can_be_cancelled(run: RunLoop[None]) -> None:
    """A cancelled entry ends in Trio before `CancelledError` is raised."""

    async def main() -> None:
        held = Held()
        held.release.set()

        @asynccontextmanager
        async def slow() -> AsyncGenerator[None]:
            await held()
            yield

        async def block() -> None:
            async with TrioRunner() as runner, TrioResource(runner, slow):
                raise AssertionError

        task = asyncio.create_task(block())
        await held.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert held.log == ["cleaned up"]

    run(main())


@pytest.mark.parametrize("size", [0, 1, 600])
def test_values_cross_in_order(run: RunLoop[None], resource: Resource, size: int) -> None:
    """An iteration yields all values of the Trio side, then its end."""

    async def count() -> AsyncGenerator[int]:
        for number in range(size):
            await trio.lowlevel.checkpoint()
            yield number

    async def main() -> None:
        async with TrioRunner() as runner, TrioResource(runner, resource.open) as opened:
            assert [number async for number in opened.iterate(count)] == list(range(size))

    run(main())


def test_an_error_of_an_iteration_follows_its_values(
    run: RunLoop[None], resource: Resource
) -> None:
    """The values before the error are yielded first."""
    seen: list[int] = []

    async def count() -> AsyncGenerator[int]:
        for number in range(3):
            await trio.lowlevel.checkpoint()
            yield number
        raise StrangeError("three")

    async def main() -> None:
        async with TrioRunner() as runner, TrioResource(runner, resource.open) as opened:
            async for number in opened.iterate(count):
                seen.append(number)  # noqa: PERF401 - those before the error

    with pytest.raises(StrangeError, match="three"):
        run(main())
    assert seen == [0, 1, 2]


def test_a_slow_reader_slows_the_iteration(run: RunLoop[None], resource: Resource) -> None:
    """The Trio side waits when a bounded number of values is not read; leaving the loop ends it."""
    made: list[int] = []

    class Count:
        def __aiter__(self) -> Self:
            return self

        async def __anext__(self) -> int:
            await trio.lowlevel.checkpoint()
            made.append(len(made))
            return made[-1]

    async def main() -> None:
        async with TrioRunner() as runner, TrioResource(runner, resource.open) as opened:
            values = opened.iterate(Count)
            async for _ in values:
                break
            await values.aclose()
            assert len(made) <= 2 * 256 + 3

    run(main())
