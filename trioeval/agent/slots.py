"""Slots for functions that wait: a slot for each stretch between two waits, none while they wait.

A lane runs something in a slot from its beginning to its end. A function that waits for its children in the
middle would keep its slot meanwhile, and with one slot its children would wait for ever. So the function
runs in a task of its own beside, and what is run in the slot only waits until the function is over or
begins to wait; when that has waited long enough there is another turn, in line before what is new.

Rejected: to split the function itself (callbacks); a semaphore of our own beside the lane, whose width,
pauses and figures would then not hold for agents.

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
from trioeval.agent.protocols import AgentEvent, AttemptGoesOn, AttemptWaiting, Slots
from trioeval.agent.restarts import AttemptEnd
from trioeval.kernel import Calls, Metered
from trioeval.nurseries import open_plain_nursery

_AT_ONCE = 0.01
"""Seconds after which a run that has no slot is one that waits for it."""

R = TypeVar("R")


_LEAST = 1e-6
"""US dollars that have to be left for an attempt to begin: budgets count millionths."""


@attrs.frozen
class LaneSlots:
    """The slots of a lane, for one job."""

    calls: Calls[Any]
    lane: str
    """Its name."""
    ahead: bool = False
    """Whether to stand in line before what is new."""
    counts_use: bool = False
    """Whether what an attempt reports to have used counts against the budget of the run: that of a program
    does, and that of a function counts with its own calls. Nobody knows it before the attempt is over, so it
    begins where anything at all is left, and is settled then."""

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run something as one call of the job."""
        if not self.counts_use:
            return await self.calls(self.lane, run, ahead=self.ahead)

        async def send() -> Metered[R]:
            result = await run()
            if not isinstance(result, AttemptEnd):
                return Metered(result, tokens=0, money=0.0)
            return Metered(result, tokens=result.usage.in_all or 0, money=result.cost or 0.0)

        return await self.calls(self.lane, send, tokens=1, money=_LEAST, ahead=self.ahead)


@attrs.define(eq=False)
class Stretches:
    """The slots of one function that may wait, one run of it at a time."""

    _first: Slots
    """For its beginning."""
    _again: Slots
    """For when it goes on."""
    tell: Callable[[type[AgentEvent]], None] = lambda _event: None
    """Told synchronously when a run has to wait for its slot to go on, and when it has it."""
    limit: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """A limit of the run, whose deadline stands still while the run waits."""
    waited: float = attrs.field(init=False, default=0.0)
    """Seconds in which the run had no slot."""
    _depth: int = attrs.field(init=False, default=0)
    """How many waits the run is in."""
    _paused_at: float = attrs.field(init=False, default=0.0)
    _left: float = attrs.field(init=False, default=math.inf)
    """Seconds until its limit when it began to wait."""
    _paused: trio.Event = attrs.field(init=False, factory=trio.Event)
    """The stretch is over."""
    _wanted: trio.Event = attrs.field(init=False, factory=trio.Event)
    """The run has waited long enough."""
    _granted: trio.Event = attrs.field(init=False, factory=trio.Event)
    """The run may go on."""
    _results: list[Any] = attrs.field(init=False, factory=list)
    """What the run gave, when it is over."""
    _over: bool = attrs.field(init=False, default=False)
    """Nobody asks for slots any more."""
    _line: trio.CancelScope = attrs.field(init=False, factory=trio.CancelScope)
    """What the run waits for its slot in."""

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run something; not in a slot while it is in `waiting`.

        Raises:
            Exception: What it raises; or what the slots raise, and it is cancelled then.
        """
        self.waited, self._depth, self._over = 0.0, 0, False
        self._results = results = list[R]()
        failures: list[Exception] = []

        async def work() -> None:
            try:
                results.append(await run())
            except Exception as error:  # noqa: BLE001 - raised below: no group around it
                failures.append(error)
            finally:
                self._over = True
                self._paused.set()

        async with open_plain_nursery() as nursery:
            try:
                await self._first(partial(self._stretch, partial(nursery.start_soon, work)))
                while not self._over:
                    await self._wanted.wait()
                    await self._again(partial(self._stretch, self._granted.set))
            finally:
                self._over = True
                self._line.cancel("there is no slot any more")
                nursery.cancel_scope.cancel("there is no slot any more")
        if failures:
            raise failures[0]
        return results[0]

    @asynccontextmanager
    async def waiting(self) -> AsyncGenerator[None]:
        """Put around what the run waits for: it has no slot inside, and has one again behind.

        Both ends are checkpoints. Inside, the run may wait for several things at once; what it does there
        beside, it does without a slot.
        """
        await trio.lowlevel.checkpoint()  # before anything changes
        self._pause()
        try:
            yield
        finally:
            await self._go_on()  # noqa: ASYNC102 - whoever is cancelled gets no slot again

    async def _stretch(self, go_on: Callable[[], None]) -> Any:
        """What is run in a slot: as long as the run works. The last stretch gives what the run gave."""
        self._paused = trio.Event()
        go_on()
        # The run is cancelled together with this; its slot is held until it has cleaned up.
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
            self._wanted, self._granted = trio.Event(), trio.Event()
            self._paused.set()

    async def _go_on(self) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._wanted.set()
        # A time limit inside of the run must not let it go on without a slot. What ends the run ends this
        # too. Test: test_a_time_limit_around_a_wait_does_not_cost_a_slot.
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
        self.tell(AttemptWaiting)
        await self._granted.wait()
        self.tell(AttemptGoesOn)


# Child runs of programs: what an agent submits takes a run slot of its own; a waiting agent holds none.
#
# A program is told the path of a socket, on which `trioeval agent submit` and `trioeval agent wait` speak
# for it: a line of JSON each way. The connection of a child lasts as long as the child, so the system tells
# of its end however it ends; a wait is over when its connection is.
#
#     {"do": "submit", "by": ["run", 0]}             {"id": 1}; {"begin": true} or {"refused": "…"} later
#     {"exit": 0}
#     {"do": "wait", "by": ["run", 0], "ids": []}    {"ended": {"1": 0}} or {"refused": "…"}
#
# `by` is the id of the attempt, and the number of the child that speaks, or 0.


SOCKET_VARIABLE = "TRIOEVAL_AGENT_SOCKET"
_LONGEST = 65536  # bytes of a line


@attrs.define(eq=False)
class _ChildRun:
    """A child run, from its submission to its end."""

    parent: int
    """The child that has submitted it; 0 if the program of an attempt has."""
    stretches: Stretches
    """Its slots, none while it waits."""
    code: int | None = None
    """Its exit code; None of one that was killed, or did not begin."""
    over: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class ChildRuns:
    """The child runs of one case, over all its attempts. Made by `open_child_runs`; the slots of its loop."""

    _slots: Slots
    _nursery: trio.Nursery = attrs.field(repr=False)
    _tell: Callable[[type[AgentEvent]], None]
    """Told when an attempt has to wait for its slot to go on, and when it has it."""
    run_id: str = attrs.field(init=False, default="")
    """Of the attempt that is under way: only its waits hand its slot back."""
    stretches: Stretches = attrs.field(init=False)
    """Its slots, none while it waits."""
    folder: Path | None = attrs.field(init=False, default=None)
    """Where the socket is; None as long as there is none."""
    _children: dict[int, _ChildRun] = attrs.field(init=False, factory=dict)

    @stretches.default
    def _no_stretch(self) -> Stretches:
        return Stretches(self._slots, self._slots)

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run an attempt in a slot, but for when it waits. Of each attempt only its own waits count."""
        self.stretches = Stretches(self._slots, self._slots, self._tell)
        return await self.stretches(run)

    async def begin(self, run_id: str) -> dict[str, str]:
        """An attempt begins; the variables with which its program reaches this. A checkpoint."""
        await trio.lowlevel.checkpoint()
        self.run_id = run_id
        if not hasattr(socket, "AF_UNIX"):
            return {}
        if self.folder is None:
            # A path of a socket has some hundred characters at most.
            folder = Path(tempfile.mkdtemp(prefix="trioeval-"))
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(os.fspath(folder / "s"))
            listening.listen()
            self.folder = folder
            listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
            self._nursery.start_soon(trio.serve_listeners, self._answer, [listener])
        return {SOCKET_VARIABLE: os.fspath(self.folder / "s")}

    async def _answer(self, stream: trio.SocketStream) -> None:
        channel = _Channel(stream)
        async with stream:
            # Whatever is written there, and however it ends, concerns nothing else.
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                match await channel.receive():
                    case {"do": "submit", "by": [str(), int(parent)]}:
                        await self._submit(channel, parent)
                    case {"do": "wait", "by": [str(run), int(parent)], "ids": list(ids)}:
                        await self._wait(channel, run, parent, ids)
                    case _:
                        await channel.send(refused="it is neither submit nor wait")

    async def _submit(self, channel: "_Channel", parent: int) -> None:
        number = len(self._children) + 1
        child = self._children[number] = _ChildRun(parent, Stretches(self._slots, self._slots))
        try:
            await channel.send(id=number)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._run, channel, child)
                said = await channel.receive()
                if isinstance(code := said.get("exit"), int):
                    child.code = code
                nursery.cancel_scope.cancel("the child has ended")
        finally:
            child.over.set()

    async def _run(self, channel: "_Channel", child: _ChildRun) -> None:
        """What a child has its slot for."""

        async def hold() -> None:
            await channel.send(begin=True)
            await trio.sleep_forever()

        try:
            await child.stretches(hold)
        except RUN_IS_OVER as error:
            await channel.send(refused=str(error))

    async def _wait(self, channel: "_Channel", run: str, parent: int, ids: list[Any]) -> None:
        unknown = [one for one in ids if one not in self._children]
        if unknown:
            await channel.send(refused=f"there is no child {unknown[0]!r}")
            return
        own = [one for one, child in self._children.items() if child.parent == parent]
        children = {one: self._children[one] for one in ids or own}
        async with self._waiting(run, parent), trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_end, channel, nursery.cancel_scope)
            for child in children.values():
                await child.over.wait()
            nursery.cancel_scope.cancel("they have ended")
        await channel.send(ended={one: child.code for one, child in children.items()})

    async def _watch_end(self, channel: "_Channel", scope: trio.CancelScope) -> None:
        await channel.receive()
        scope.cancel("nothing waits any more")

    def _waiting(self, run: str, parent: int) -> AbstractAsyncContextManager[None]:
        """Hand back the slot of the attempt or child that waits, and take one again behind."""
        if parent in self._children:
            return self._children[parent].stretches.waiting()
        if run == self.run_id:
            return self.stretches.waiting()
        return nullcontext()  # of an earlier attempt, which is over


@attrs.define(eq=False)
class _Channel:
    """Lines of JSON."""

    _stream: trio.SocketStream
    _rest: bytes = b""

    async def send(self, **said: Any) -> None:
        """Send a line."""
        await self._stream.send_all(f"{json.dumps(said)}\n".encode())

    async def receive(self) -> dict[str, Any]:
        """The next line; nothing at the end, and where it is no object."""
        while b"\n" not in self._rest and len(self._rest) <= _LONGEST:
            part = await self._stream.receive_some()
            if not part:
                return {}
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            return {}
        return said if isinstance(said, dict) else {}


@asynccontextmanager
async def open_child_runs(
    slots: Slots, tell: Callable[[type[AgentEvent]], None]
) -> AsyncGenerator[ChildRuns]:
    """The child runs of a case, for as long as the block; their slots are handed back at its end."""
    async with open_plain_nursery() as nursery:
        runs = ChildRuns(slots, nursery, tell)
        try:
            yield runs
        finally:
            nursery.cancel_scope.cancel("the case is over")
            if runs.folder is not None:
                shutil.rmtree(runs.folder, ignore_errors=True)
