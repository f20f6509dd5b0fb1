"""Slots for functions that wait: a slot for each part between two waits, none during a wait.

A lane runs a function in a slot from its start to its end. An agent that waits for its children in the middle
would keep its slot meanwhile, and with one slot its children would wait for ever. So the agent runs in a
separate task, and the function in the slot only waits until the agent ends or starts to wait; after the wait
it requests another slot, queued before new work.

Rejected: splitting the agent itself (callbacks); an own semaphore beside the lane, whose max concurrency,
pauses and metrics would then not apply to agents.

Law: SLOT.
"""

import json
import math
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio

from trioeval.agent.loop import RUN_IS_OVER
from trioeval.agent.protocols import AgentEvent, AttemptContinued, AttemptWaiting, Slots
from trioeval.agent.restarts import AttemptEnd
from trioeval.kernel import Calls, Metered
from trioeval.nurseries import open_plain_nursery

_AT_ONCE = 0.01
"""Seconds after which a run without a slot is reported as waiting."""

R = TypeVar("R")


_LEAST = 1e-6
"""US dollars that must be left for an attempt to start: budgets count millionths."""


@attrs.frozen
class LaneSlots:
    """The slots of a lane, for one job."""

    calls: Calls[Any]
    lane: str
    """Its name."""
    ahead: bool = False
    """True to queue before new work."""
    counts_usage: bool = False
    """True if the reported usage of an attempt counts against the budget of the run: that of a program does,
    and that of a function counts with its own calls. It is unknown before the attempt ends, so the attempt
    starts if anything at all is left, and is settled at its end."""

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run a function as one call of the job."""
        if not self.counts_usage:
            return await self.calls(self.lane, run, ahead=self.ahead)

        async def send() -> Metered[R]:
            result = await run()
            if not isinstance(result, AttemptEnd):
                return Metered(result, tokens=0, money=0.0)
            return Metered(result, tokens=result.usage.in_all or 0, money=result.cost or 0.0)

        return await self.calls(self.lane, send, tokens=1, money=_LEAST, ahead=self.ahead)


@attrs.define(eq=False, repr=False)
class SlotSession:
    """The slots of one function that may wait; it runs one function at a time."""

    _first: Slots
    """For the start of the function."""
    _again: Slots
    """For its continuation after a wait."""
    notify: Callable[[type[AgentEvent]], None] = lambda _event: None
    """Called synchronously when a run waits for its slot to continue, and when it has it."""
    limit: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """The timeout of the run, whose deadline is paused while the run waits."""
    waited: float = attrs.field(init=False, default=0.0)
    """Seconds for which the run had no slot."""
    _depth: int = attrs.field(init=False, default=0)
    """Number of concurrent waits of the run."""
    _paused_at: float = attrs.field(init=False, default=0.0)
    _left: float = attrs.field(init=False, default=math.inf)
    """Seconds until its deadline at the start of the wait."""
    _paused: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when the slot is to be released."""
    _requested: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when the run needs a slot again."""
    _granted: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set when the run may continue."""
    _results: list[Any] = attrs.field(init=False, factory=list)
    """The result of the run, after its end."""
    _over: bool = attrs.field(init=False, default=False)
    """True if no further slots are requested."""
    _line: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """The scope of the wait for a slot."""

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run a function, in a slot except while it is in `waiting`.

        Raises:
            Exception: Whatever it raises; or whatever the slots raise, after cancelling it.
        """
        self.waited, self._depth, self._over = 0.0, 0, False
        self._results = results = list[R]()
        failures: list[Exception] = []

        async def work() -> None:
            try:
                results.append(await run())
            except Exception as error:  # noqa: BLE001 - raised below, without a group
                failures.append(error)
            finally:
                self._over = True
                self._paused.set()

        async with open_plain_nursery() as nursery:
            try:
                await self._first(partial(self._occupy, partial(nursery.start_soon, work)))
                while not self._over:
                    await self._requested.wait()
                    await self._again(partial(self._occupy, self._granted.set))
            finally:
                self._over = True
                self._line.cancel("no more slots")
                nursery.cancel_scope.cancel("no more slots")
        if failures:
            raise failures[0]
        return results[0]

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None]:
        """Enclose a wait of the run: it has no slot inside, and a slot again afterwards.

        Both ends are checkpoints. Inside, the run may wait for several events concurrently; any other work
        there is done without a slot.
        """
        await trio.lowlevel.checkpoint()  # before anything changes
        self._pause()
        try:
            yield
        finally:
            await self._go_on()  # noqa: ASYNC102 - a cancelled run gets no slot again

    async def _occupy(self, go_on: Callable[[], None]) -> Any:
        """Occupy a slot while the run works. The last call returns the result of the run."""
        self._paused = trio.Event()
        go_on()
        # The run is cancelled together with this scope; its slot is held until it has cleaned up.
        # Test: test_a_slot_is_held_until_a_cancelled_agent_has_cleaned_up.
        with trio.CancelScope(shield=True):
            await self._paused.wait()
        return self._results[0] if self._results else None

    def _pause(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._paused_at = trio.current_time()
            self._left = self.limit.deadline - self._paused_at
            self.limit.deadline = math.inf
            self._requested, self._granted = trio.Event(), trio.Event()
            self._paused.set()

    async def _go_on(self) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._requested.set()
        # A timeout inside of the run must not let it continue without a slot. The end of the run also ends
        # this wait. Test: test_a_timeout_around_a_wait_does_not_lose_a_slot.
        with trio.CancelScope(shield=True) as self._line:
            if not self._over:
                await self._wait_granted()
        now = trio.current_time()
        self.waited += now - self._paused_at
        self.limit.deadline = now + self._left
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _wait_granted(self) -> None:
        with trio.move_on_after(_AT_ONCE):
            await self._granted.wait()
        if self._granted.is_set():
            return
        self.notify(AttemptWaiting)
        await self._granted.wait()
        self.notify(AttemptContinued)


# Child runs of programs: each submission of an agent takes its own run slot; a waiting agent holds none.
#
# A program gets the path of a socket, which `trioeval agent submit` and `trioeval agent wait` use: one line
# of JSON in each direction. The connection of a child lasts as long as the child, so the system reports its
# end however it ends; a wait ends with its connection.
#
#     {"do": "submit", "by": ["run", 0]}             {"id": 1}; {"begin": true} or {"refused": "…"} later
#     {"exit": 0}
#     {"do": "wait", "by": ["run", 0], "ids": []}    {"ended": {"1": 0}} or {"refused": "…"}
#
# `by` is the id of the attempt, and the number of the child that sends the request, or 0.


SOCKET_VARIABLE = "TRIOEVAL_AGENT_SOCKET"
_LONGEST = 65536  # maximum bytes of a line


@attrs.define(eq=False, repr=False)
class _ChildRun:
    """A child run, from its submission to its end."""

    parent: int
    """The number of the child that submitted it; 0 for the program of an attempt."""
    session: SlotSession
    """Its slots, none while it waits."""
    code: int | None = None
    """Its exit code; None if it was killed, or did not start."""
    over: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False, repr=False)
class ChildRuns:
    """The child runs of one case, over all its attempts; also the slots of its loop.

    Created by `open_child_runs`.
    """

    _slots: Slots
    _nursery: trio.Nursery
    _notify: Callable[[type[AgentEvent]], None]
    """Called when an attempt waits for its slot to continue, and when it has it."""
    run_id: str = attrs.field(init=False, default="")
    """The id of the current attempt: only its waits release its slot."""
    session: SlotSession = attrs.field(init=False)
    """Its slots, none while it waits."""
    folder: Path | None = attrs.field(init=False, default=None)
    """The folder of the socket; None until it is created."""
    _children: dict[int, _ChildRun] = attrs.field(init=False, factory=dict)

    @session.default
    def _first_session(self) -> SlotSession:
        return SlotSession(self._slots, self._slots)

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run an attempt in a slot, except while it waits. Only the attempt's own waits count."""
        self.session = SlotSession(self._slots, self._slots, self._notify)
        return await self.session(run)

    async def begin(self, run_id: str) -> dict[str, str]:
        """Start an attempt; return the environment variables for its program. A checkpoint."""
        await trio.lowlevel.checkpoint()
        self.run_id = run_id
        if not hasattr(socket, "AF_UNIX"):
            return {}
        if self.folder is None:
            # The path of a socket is limited to about a hundred characters.
            folder = Path(tempfile.mkdtemp(prefix="trioeval-"))
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(os.fspath(folder / "s"))
            listening.listen()
            self.folder = folder
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
            self._nursery.start_soon(trio.serve_listeners, self._answer, [listener])
        return {SOCKET_VARIABLE: os.fspath(self.folder / "s")}

    async def _answer(self, stream: trio.SocketStream) -> None:
        channel = _ChildConnection(stream)
        async with stream:
            # Invalid requests and broken connections affect nothing else.
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                match await channel.receive():
                    case {"do": "submit", "by": [str(), int(parent)]}:
                        await self._submit(channel, parent)
                    case {"do": "wait", "by": [str(run), int(parent)], "ids": list(ids)}:
                        await self._wait(channel, run, parent, ids)
                    case _:
                        await channel.send(refused="unknown request: use submit or wait")

    async def _submit(self, channel: "_ChildConnection", parent: int) -> None:
        number = len(self._children) + 1
        child = self._children[number] = _ChildRun(parent, SlotSession(self._slots, self._slots))
        try:
            await channel.send(id=number)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._run, channel, child)
                message = await channel.receive()
                if isinstance(code := message.get("exit"), int):
                    child.code = code
                nursery.cancel_scope.cancel("the child has ended")
        finally:
            child.over.set()

    async def _run(self, channel: "_ChildConnection", child: _ChildRun) -> None:
        """Hold the slot of a child."""

        async def hold() -> None:
            await channel.send(begin=True)
            await trio.sleep_forever()

        try:
            await child.session(hold)
        except RUN_IS_OVER as error:
            await channel.send(refused=str(error))

    async def _wait(
        self, channel: "_ChildConnection", run: str, parent: int, ids: list[Any]
    ) -> None:
        unknown = [one for one in ids if one not in self._children]
        if unknown:
            await channel.send(refused=f"unknown child {unknown[0]!r}")
            return
        own = [one for one, child in self._children.items() if child.parent == parent]
        children = {one: self._children[one] for one in ids or own}
        async with self._waiting(run, parent), trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_end, channel, nursery.cancel_scope)
            for child in children.values():
                await child.over.wait()
            nursery.cancel_scope.cancel("they have ended")
        await channel.send(ended={one: child.code for one, child in children.items()})

    async def _watch_end(self, channel: "_ChildConnection", scope: trio.CancelScope) -> None:
        await channel.receive()
        scope.cancel("the waiting process has disconnected")

    def _waiting(self, run: str, parent: int) -> AbstractAsyncContextManager[None]:
        """Return a context manager that releases the slot of an attempt or child during a wait."""
        if parent in self._children:
            return self._children[parent].session.waiting()
        if run == self.run_id:
            return self.session.waiting()
        return nullcontext()  # an earlier attempt, which has ended


@attrs.define(eq=False, repr=False)
class _ChildConnection:
    """Lines of JSON."""

    _stream: trio.SocketStream
    _rest: bytes = b""

    async def send(self, **message: Any) -> None:
        """Send a line."""
        await self._stream.send_all(f"{json.dumps(message)}\n".encode())

    async def receive(self) -> dict[str, Any]:
        """Return the next line; empty at the end, and if it is not an object."""
        while b"\n" not in self._rest and len(self._rest) <= _LONGEST:
            part = await self._stream.receive_some()
            if not part:
                return {}
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return {}
        return message if isinstance(message, dict) else {}


@asynccontextmanager
async def open_child_runs(
    slots: Slots, notify: Callable[[type[AgentEvent]], None]
) -> AsyncGenerator[ChildRuns]:
    """Open the child runs of a case for the duration of the block; their slots are released at its end."""
    async with open_plain_nursery() as nursery:
        runs = ChildRuns(slots, nursery, notify)
        try:
            yield runs
        finally:
            nursery.cancel_scope.cancel("the case has ended")
            if runs.folder is not None:
                shutil.rmtree(runs.folder, ignore_errors=True)
