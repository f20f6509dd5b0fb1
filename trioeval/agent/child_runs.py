"""Child runs of programs: what an agent submits takes a run slot of its own, and a waiting agent holds none.

A program is told the path of a socket, on which `trioeval agent submit` and `trioeval agent wait` speak for
it: a line of JSON each way. The connection of a child lasts as long as the child, so the system tells of its
end however it ends; a wait is over when its connection is.

    {"do": "submit", "by": ["run", 0]}             {"id": 1}; {"begin": true} or {"refused": "…"} later
    {"exit": 0}
    {"do": "wait", "by": ["run", 0], "ids": []}    {"ended": {"1": 0}} or {"refused": "…"}

`by` is the id of the attempt, and the number of the child that speaks, or 0.

Law: SLOT.
"""

import json
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio

from trioeval.agent.loop import RUN_IS_OVER
from trioeval.agent.protocols import AgentEvent, Slots
from trioeval.agent.slots import Stretches
from trioeval.nurseries import open_plain_nursery

R = TypeVar("R")

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
        """An attempt begins; the variables with which its program reaches this. A checkpoint.

        Raises:
            OSError: There can be no socket.
        """
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
    """The child runs of a case, for as long as the block; their slots are handed back at its end.

    Args:
        slots: What attempts and child runs take their slots from.
        tell: Told when an attempt has to wait for its slot to go on, and when it has it.
    """
    async with open_plain_nursery() as nursery:
        runs = ChildRuns(slots, nursery, tell)
        try:
            yield runs
        finally:
            nursery.cancel_scope.cancel("the case is over")
            if runs.folder is not None:
                shutil.rmtree(runs.folder, ignore_errors=True)
