import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from trioeval.asyncio_tasks import AsyncioTasks
from trioeval.errors import ProviderError
from trioeval.providers.base import Reply, Request
from trioeval.providers.sdk import AsyncioBridge, asyncio_bridge, provider_from_asyncio

HELLO = Request(prompt="hello")


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """The thread of a bridge ends with it."""
    yield
    assert "asyncio bridge" not in {thread.name for thread in threading.enumerate()}


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        with trio.fail_after(60):
            await body()

    trio.run(main)


GRACE = 0.1


def with_bridge(body: Callable[[AsyncioBridge], Awaitable[None]]) -> None:
    """Open a bridge with a time limit that allows for a slow machine."""

    async def main() -> None:
        async with asyncio_bridge(grace=20.0) as bridge:
            bridge._calls.grace = GRACE  # of calls; leaving waits for twice what it was opened with
            await body(bridge)

    run(main)


def test_an_asyncio_function_is_a_provider() -> None:
    """A text becomes a reply, and a reply is unchanged."""

    async def shout(request: Request) -> str:
        await asyncio.sleep(0)
        return request.prompt.upper()

    async def say(request: Request) -> Reply:
        await asyncio.sleep(0)
        return Reply(output=request.prompt, cost=0.5)

    async def body() -> None:
        async with provider_from_asyncio(shout) as provider:
            assert await provider(HELLO) == Reply(output="HELLO")
        async with provider_from_asyncio(say) as provider:
            assert await provider(HELLO) == Reply(output="hello", cost=0.5)

    run(body)


def test_two_hundred_calls_run_concurrently() -> None:
    """One thread runs all calls concurrently: the last call releases all others."""
    width = 200
    waiting: list[asyncio.Future[None]] = []

    async def meet(request: Request) -> str:
        if len(waiting) == width - 1:
            for one in waiting:
                one.set_result(None)
        else:
            waiting.append(asyncio.get_running_loop().create_future())
            await waiting[-1]
        return request.prompt

    async def body() -> None:
        replies: dict[int, object] = {}

        async def ask(index: int) -> None:
            reply = await provider(Request(prompt=str(index)))
            replies[index] = reply.output if isinstance(reply, Reply) else reply

        async with provider_from_asyncio(meet) as provider, trio.open_nursery() as nursery:
            for index in range(width):
                nursery.start_soon(ask, index)
        assert replies == {index: str(index) for index in range(width)}

    run(body)


@attrs.define(eq=False)
class Tired:
    """Wait forever, and record the end."""

    started: trio.Event = attrs.field(factory=trio.Event)
    token: trio.lowlevel.TrioToken = attrs.field(factory=trio.lowlevel.current_trio_token)
    seen: list[str] = attrs.field(factory=list)

    async def __call__(self, _: Request) -> str:
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self._leave)
            self.token.run_sync_soon(self.started.set)
            await asyncio.Event().wait()
        return ""

    async def _leave(self, _: object, error: BaseException | None, __: object) -> None:
        self.seen.append(str(error))
        await asyncio.sleep(0)
        self.seen.append("cleaned up")


def test_cancelling_a_call_cancels_its_task_and_waits_for_its_clean_up() -> None:
    """When the call ends, the task's `finally` blocks have run."""

    async def body(bridge: AsyncioBridge) -> None:
        tired = Tired()
        provider = bridge.provider(tired)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(provider, HELLO)
            await tired.started.wait()
            nursery.cancel_scope.cancel()
        assert tired.seen == ["cancelled by Trio", "cleaned up"]
        assert await bridge.run(asyncio.sleep, 0, "still usable") == "still usable"

    with_bridge(body)


def test_a_call_that_is_already_cancelled_does_not_start() -> None:
    """The function of a cancelled call is never called."""
    called: list[Request] = []

    async def never(request: Request) -> str:
        await asyncio.sleep(0)
        called.append(request)
        return ""

    async def body(bridge: AsyncioBridge) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await bridge.provider(never)(HELLO)
        assert scope.cancelled_caught
        await bridge.run(asyncio.sleep, 0)
        assert not called

    with_bridge(body)


@pytest.mark.slow
def test_a_function_that_ignores_cancellation_delays_the_call_by_the_grace_period_only() -> None:
    """The run's deadline holds, and the bridge serves other calls meanwhile."""

    async def body(bridge: AsyncioBridge) -> None:
        started, let_go = trio.Event(), asyncio.Event()
        token = trio.lowlevel.current_trio_token()

        async def stubborn() -> None:
            token.run_sync_soon(started.set)
            while not let_go.is_set():
                with suppress(asyncio.CancelledError):
                    await let_go.wait()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(bridge.run, stubborn)
            await started.wait()
            cancelled_at = trio.current_time()
            nursery.cancel_scope.cancel()
        waited = trio.current_time() - cancelled_at
        assert GRACE <= waited < GRACE + 20  # seconds, on any machine

        async def release() -> None:
            await asyncio.sleep(0)
            let_go.set()

        await bridge.run(release)

    with_bridge(body)


@pytest.mark.slow
def test_a_function_that_blocks_its_thread_does_not_block_trio() -> None:
    """Other Trio tasks continue, and cancellation is limited in time."""

    async def body(bridge: AsyncioBridge) -> None:
        started, let_go = trio.Event(), threading.Event()
        token = trio.lowlevel.current_trio_token()

        async def block() -> bool:
            await asyncio.sleep(0)
            token.run_sync_soon(started.set)
            return let_go.wait(10)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(bridge.run, block)
            await started.wait()
            cancelled_at = trio.current_time()
            nursery.cancel_scope.cancel()
        assert trio.current_time() - cancelled_at < GRACE + 20  # seconds, on any machine
        let_go.set()

    with_bridge(body)


def close_all_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "asyncio bridge":
            thread.join(10)


@pytest.mark.slow
def test_a_thread_that_does_not_end_is_reported() -> None:
    """Closing is limited in time, and warns about the thread."""
    let_go = threading.Event()

    async def body() -> None:
        started = trio.Event()
        token = trio.lowlevel.current_trio_token()

        async def block() -> bool:
            await asyncio.sleep(0)
            token.run_sync_soon(started.set)
            return let_go.wait(10)

        async with asyncio_bridge(grace=0.05) as bridge, trio.open_nursery() as nursery:
            nursery.start_soon(bridge.run, block)
            await started.wait()
            nursery.cancel_scope.cancel()

    with pytest.warns(RuntimeWarning, match=r"did not end within 0\.1 seconds"):
        run(body)
    let_go.set()
    close_all_threads()


class StrangeError(Exception):
    """An exception of an unknown client."""


def test_an_exception_is_raised_unchanged() -> None:
    """Type and traceback are preserved; only a provider converts it to `unexpected`."""

    async def fail(request: Request) -> str:
        await asyncio.sleep(0)
        raise StrangeError(request.prompt)

    async def body(bridge: AsyncioBridge) -> None:
        with pytest.raises(StrangeError, match="hello") as caught:
            await bridge.run(fail, HELLO)
        assert "fail" in {entry.name for entry in caught.traceback}
        with pytest.raises(ProviderError) as failed:
            await bridge.provider(fail, name="mine")(HELLO)
        assert str(failed.value) == "unexpected: provider mine: StrangeError: hello"
        assert isinstance(failed.value.__cause__, StrangeError)

    with_bridge(body)


def test_a_failure_of_a_function_reaches_the_lane() -> None:
    """A `ProviderError` passes through the bridge unchanged."""

    async def busy(request: Request) -> str:
        await asyncio.sleep(0)
        raise ProviderError("rate_limited", "slow down", retry_after=3)

    async def body(bridge: AsyncioBridge) -> None:
        with pytest.raises(ProviderError) as caught:
            await bridge.provider(busy)(HELLO)
        assert (caught.value.kind, caught.value.retry_after) == ("rate_limited", 3)

    with_bridge(body)


def test_a_function_that_is_not_async_is_reported() -> None:
    """A function that is not async would block all other calls, and is refused."""

    def answer(request: Request) -> str:
        return "hello"

    async def body(bridge: AsyncioBridge) -> None:
        with pytest.raises(ProviderError, match="is not async; write it with `async def`"):
            await bridge.provider(answer)(HELLO)  # type: ignore[arg-type]

    with_bridge(body)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_function_cannot_end_the_loop(error: type[BaseException]) -> None:
    """`SystemExit` and the like do not end the loop of the other calls."""

    async def leave() -> None:
        await asyncio.sleep(0)
        raise error

    async def body(bridge: AsyncioBridge) -> None:
        with pytest.raises(RuntimeError, match=f"the function raised {error.__name__}"):
            await bridge.run(leave)
        assert await bridge.run(asyncio.sleep, 0, "still there") == "still there"

    with_bridge(body)


def test_a_task_that_cancels_itself_is_a_failure() -> None:
    """It is not reported as a cancellation by Trio."""

    async def give_up() -> None:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    async def body(bridge: AsyncioBridge) -> None:
        with pytest.raises(RuntimeError, match="cancelled, but not by its caller"):
            await bridge.run(give_up)

    with_bridge(body)


def test_functions_see_the_context_of_their_caller() -> None:
    """Each call has a copy of the context, and its changes are not visible elsewhere."""
    name: ContextVar[str] = ContextVar("name")

    async def tell() -> str:
        await asyncio.sleep(0)
        before = name.get()
        name.set("changed")
        return before

    async def body(bridge: AsyncioBridge) -> None:
        name.set("mine")
        assert await bridge.run(tell) == "mine"
        assert name.get() == "mine"

    with_bridge(body)


def test_closing_ends_calls_before_their_resources() -> None:
    """Closing ends calls first, then exits what was entered in reverse order; no call starts any more."""
    order: list[str] = []

    @asynccontextmanager
    async def resource(name: str) -> AsyncGenerator[str]:
        yield name
        await asyncio.sleep(0)
        order.append(name)

    async def body() -> None:
        tired = Tired(seen=order)
        async with trio.open_nursery() as nursery:
            async with asyncio_bridge() as bridge:
                assert await bridge.enter(partial(resource, "first")) == "first"
                assert await bridge.enter(partial(resource, "second")) == "second"

                async def ask() -> None:
                    with pytest.raises(trio.ClosedResourceError, match="closed during the call"):
                        await bridge.run(tired, HELLO)

                nursery.start_soon(ask)
                await tired.started.wait()
            with pytest.raises(trio.ClosedResourceError, match="is closed"):
                await bridge.run(asyncio.sleep, 0)
        assert order == ["the bridge closes", "cleaned up", "second", "first"]

    run(body)


def test_an_error_on_closing_is_raised_on_leaving() -> None:
    """An exception in the other thread is raised on leaving."""

    @asynccontextmanager
    async def bad() -> AsyncGenerator[None]:
        yield
        raise StrangeError("cannot close")

    async def body() -> None:
        with pytest.raises(StrangeError, match="cannot close"):
            async with asyncio_bridge() as bridge:
                await bridge.enter(bad)

    run(body)


def test_background_tasks_of_a_client_end_with_the_bridge() -> None:
    """Background tasks of a client do not delay the end of the thread."""
    ended: list[bool] = []

    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def body(bridge: AsyncioBridge) -> None:
        tasks: set[asyncio.Task[None]] = set()

        async def start() -> None:
            tasks.add(asyncio.get_running_loop().create_task(linger()))
            await asyncio.sleep(0)

        await bridge.run(start)

    with_bridge(body)
    assert ended == [True]


@pytest.mark.slow
def test_cancelling_at_any_moment_leaves_the_bridge_usable() -> None:
    """The bridge survives a hundred calls cancelled before, during and after their work."""

    async def nap(request: Request) -> str:
        await asyncio.sleep(0.002)
        return "slept"

    async def body(bridge: AsyncioBridge) -> None:
        provider = bridge.provider(nap)
        for step in range(100):
            with trio.move_on_after(step * 0.00005):
                await provider(HELLO)
        assert await provider(HELLO) == Reply(output="slept")

    with_bridge(body)


@pytest.mark.network
def test_a_client_that_knows_only_asyncio_is_a_provider() -> None:
    """An aiohttp client works as a provider, with one session for the bridge, against a Trio server."""
    aiohttp = pytest.importorskip("aiohttp")

    async def talk(stream: trio.SocketStream) -> None:
        async with stream:
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive_some()
            if b"/hold" in head:
                held.set()
                await trio.sleep_forever()
            await stream.send_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")

    async def get(session: Any, request: Request) -> str:
        async with session.get(request.prompt) as response:
            return str(await response.text())

    held = trio.Event()

    async def body() -> None:
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
            nursery.start_soon(trio.serve_listeners, talk, [listener])
            async with asyncio_bridge() as bridge:
                session = await bridge.enter(aiohttp.ClientSession)
                provider = bridge.provider(partial(get, session))
                assert await provider(Request(prompt=url)) == Reply(output="hello")
                async with trio.open_nursery() as calls:
                    calls.start_soon(provider, Request(prompt=f"{url}/hold"))
                    await held.wait()
                    calls.cancel_scope.cancel()
                assert await provider(Request(prompt=url)) == Reply(output="hello")
            assert session.closed
            nursery.cancel_scope.cancel()

    run(body)


def test_messages_name_the_function_of_a_provider() -> None:
    """An object without a name is shown by its type."""

    class Answering:
        async def __call__(self, _: Request) -> str:
            raise StrangeError

    async def body(bridge: AsyncioBridge) -> None:
        with pytest.raises(ProviderError, match=r"provider Answering: StrangeError"):
            await bridge.provider(Answering())(HELLO)

    with_bridge(body)


def test_calls_end_where_the_run_ends_first() -> None:
    """A task that outlives its run wakes no task and warns of nothing."""
    let_go = threading.Event()
    ended = threading.Event()

    async def main() -> None:
        started = trio.Event()
        token = trio.lowlevel.current_trio_token()

        async def block() -> None:
            await asyncio.sleep(0)
            token.run_sync_soon(started.set)
            let_go.wait(10)
            ended.set()

        bridge = AsyncioBridge(AsyncioTasks(asyncio.new_event_loop(), GRACE))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bridge.run, block)
            await started.wait()
            nursery.cancel_scope.cancel()
        assert not ended.is_set()
        bridge._calls.loop.call_soon_threadsafe(bridge._stopping.set)

    trio.run(main)
    let_go.set()
    assert ended.wait(10)
    close_all_threads()
