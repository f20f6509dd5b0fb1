"""Slots for functions that wait: a slot for each stretch between two waits, none while they wait.

A lane runs something in a slot from its beginning to its end. A function that waits for its children in the
middle would keep its slot meanwhile, and with one slot its children would wait for ever. So the function
runs in a task of its own beside, and what is run in the slot only waits until the function is over or
begins to wait; when that has waited long enough there is another turn, in line before what is new.

Rejected: to split the function itself (callbacks); a semaphore of our own beside the lane, whose width,
pauses and figures would then not hold for agents.

Law: SLOT.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import attrs
import trio

from trioeval.agent.protocols import AgentEvent, AttemptGoesOn, AttemptWaiting, Slots
from trioeval.agent.restarts import AttemptEnd
from trioeval.kernel import Calls, Metered

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
    tell: Callable[[type[AgentEvent]], None] | None = None
    """Told synchronously when a run has to wait for its slot to go on, and when it has it."""
    waited: float = attrs.field(init=False, default=0.0)
    """Seconds in which the run had no slot."""
    _depth: int = attrs.field(init=False, default=0)
    """How many waits the run is in."""
    _paused_at: float = attrs.field(init=False, default=0.0)
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

        async with trio.open_nursery() as nursery:
            try:
                await self._first(partial(self._stretch, partial(nursery.start_soon, work)))
                while not self._over:
                    await self._wanted.wait()
                    await self._again(partial(self._stretch, self._granted.set))
            except Exception as error:  # noqa: BLE001 - raised below: no group around it
                failures.insert(0, error)
                nursery.cancel_scope.cancel("there is no slot any more")
            finally:
                self._over = True
                self._line.cancel("there is no slot any more")
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
        self.waited += trio.current_time() - self._paused_at
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _wait_granted(self) -> None:
        with trio.move_on_after(_AT_ONCE):
            await self._granted.wait()
        if self._granted.is_set():
            return
        if self.tell is not None:
            self.tell(AttemptWaiting)
        await self._granted.wait()
        if self.tell is not None:
            self.tell(AttemptGoesOn)
