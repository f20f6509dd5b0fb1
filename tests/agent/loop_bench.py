"""A restart loop with test doubles that record every event and its time."""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import attrs
import trio

from trioeval.agent.protocols import (
    AgentEvent,
    Attempts,
    CaseNotifier,
    CountingPoster,
    LoopConfig,
    Marker,
)
from trioeval.agent.restarts import Attempt, AttemptEnd, AttemptFailure, FailureKind, RestartPolicy
from trioeval.errors import BusError

R = TypeVar("R")


def failed(kind: FailureKind = "exit", message: str = "code 1") -> AttemptEnd:
    return AttemptEnd(failure=AttemptFailure(kind, message))


WELL = AttemptEnd()


@attrs.define(eq=False)
class FreeSlots:
    """Slots for all runs, each granted after a number of seconds in the queue."""

    delays: Sequence[float] = ()
    held: list[tuple[float, float]] = attrs.field(factory=list)
    """The start and the end of the time for which each slot was held."""

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        turn = len(self.held)
        await trio.sleep(self.delays[turn] if turn < len(self.delays) else 0)
        taken = trio.current_time()
        self.held.append((taken, math.inf))
        try:
            return await run()
        finally:
            self.held[turn] = (taken, trio.current_time())


@attrs.define(eq=False)
class Kid:
    """A child: a task that runs for a while, and needs a while to clean up when it is ended."""

    seconds: float
    cleaning: float
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    over: trio.Event = attrs.field(factory=trio.Event)

    async def live(self) -> None:
        try:
            with self.scope:
                try:
                    await trio.sleep(self.seconds)
                except trio.Cancelled:
                    with trio.CancelScope(shield=True):
                        await trio.sleep(self.cleaning)
                    raise
        finally:
            self.over.set()


@attrs.define(eq=False)
class Kids:
    """The children of a case."""

    nursery: trio.Nursery
    cleaning: float = 0.0
    all: list[Kid] = attrs.field(factory=list)

    @property
    def living(self) -> list[Kid]:
        return [kid for kid in self.all if not kid.over.is_set()]

    def start(self, seconds: float) -> None:
        kid = Kid(seconds, self.cleaning)
        self.all.append(kid)
        self.nursery.start_soon(kid.live)

    def alive(self) -> Sequence[str]:
        return [f"child {self.all.index(kid)}" for kid in self.living]

    async def wait(self) -> None:
        for kid in self.living:
            await kid.over.wait()

    async def end(self) -> None:
        for kid in self.living:
            kid.scope.cancel()
        with trio.CancelScope(shield=True):
            await self.wait()


@attrs.define(eq=False)
class Bench:
    """One case with its doubles."""

    kids: Kids
    slots: FreeSlots = attrs.field(factory=FreeSlots)
    marker: Marker = attrs.field(factory=trio.Event)
    stop: trio.Event = attrs.field(factory=trio.Event)
    bus_works: bool = True
    began: list[tuple[int, float]] = attrs.field(factory=list)
    """The number and the time of each attempt."""
    recorded: list[tuple[int, AttemptEnd]] = attrs.field(factory=list)
    """The recorded ends."""
    posted: list[tuple[str, str]] = attrs.field(factory=list)
    events: list[AgentEvent] = attrs.field(factory=list)

    def terms(
        self,
        policy: RestartPolicy | None = None,
        *,
        earlier: Sequence[AttemptEnd] = (),
        post: Callable[[str, str], Awaitable[None]] | None = None,
        **more: Any,
    ) -> LoopConfig:
        parts: dict[str, Any] = {
            "policy": RestartPolicy() if policy is None else policy,
            "slots": self.slots,
            "marker": self.marker,
            "children": self.kids,
            "posts": CountingPoster(self.post if post is None else post),
            "attempts": BenchAttempts(bench=self, ids=str, ends=[*earlier]),
            "stop": self.stop,
            "notify": CaseNotifier(
                observe=self.events.append, task="repairs", case="calc", agent="double"
            ),
        }
        return LoopConfig(**parts | more)

    def begin(self, number: int) -> Attempt:
        self.began.append((number, trio.current_time()))
        previous = f"run-{number - 1}" if number else None
        return Attempt(
            number=number, run_id=f"run-{number}", previous_run_id=previous, task_prompt="Do it."
        )

    async def post(self, type_: str, body: str) -> None:
        await trio.lowlevel.checkpoint()
        if not self.bus_works:
            raise BusError("no space left on the device")
        self.posted.append((type_, body))

    def bodies(self, type_: str) -> list[str]:
        return [body for kind, body in self.posted if kind == type_]


@attrs.define(eq=False, kw_only=True)
class BenchAttempts(Attempts):
    """An observer that records starts and ends."""

    bench: Bench

    def begin(self) -> Attempt:
        return self.bench.begin(len(self.ends))

    def ended(self, attempt: Attempt, end: AttemptEnd) -> None:
        super().ended(attempt, end)
        self.bench.recorded.append((attempt.number, end))
