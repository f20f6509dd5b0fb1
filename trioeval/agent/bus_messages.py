"""What is told on buses of a run. That it cannot be told is no reason not to go on, or to wait for long."""

import math
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import attrs
import trio

from trioeval.agent.bus.bus import open_bus
from trioeval.agent.bus.messages import Draft, MessageType
from trioeval.agent.bus.settings import BusSettings, BusStats
from trioeval.errors import BusError, BusLockedError

WAIT = 1.0
"""Seconds for which a message waits for others that have locked its bus."""
_AT_ONCE = 0.05  # seconds: longer than who has locked it for a moment makes others wait
_DEAF = 60.0  # seconds for which a bus is not waited for again
_WARN_EVERY = 60.0  # seconds


@attrs.define(eq=False, kw_only=True)
class RunBuses:
    """The buses of a run: how they are written, and what could not be."""

    project: str
    """What the run is called on them."""
    stop: trio.Event
    """Set when the run is to end."""
    warn: Callable[[str], None]
    rng: Callable[[], float] = attrs.field(repr=False)
    """Numbers from 0 to 1."""
    settings: BusSettings = attrs.field(factory=BusSettings)
    stats: BusStats = attrs.field(factory=BusStats, repr=False)
    """What writing to all of them has cost."""
    lost: int = attrs.field(init=False, default=0)
    """Messages that could not be written."""
    _warned_at: float = attrs.field(init=False, default=-math.inf)

    def lose(self, error: BusError) -> None:
        """Count a message that could not be written; warn at most once a minute."""
        self.lost += 1
        now = trio.current_time()
        if now >= self._warned_at + _WARN_EVERY:
            self._warned_at = now
            self.warn(f"messages of agents cannot be written ({self.lost} until now): {error}")


@attrs.define(eq=False)
class Patience:
    """How long a bus is waited for that others hold locked, as an agent may that was stopped."""

    folder: Path
    """Of the bus."""
    buses: RunBuses
    """Count what is not posted."""
    _deaf_until: float = attrs.field(init=False, default=-math.inf)

    async def with_bus(self, post: Callable[[], Awaitable[object]]) -> bool:
        """Post, if that can be done soon; whether it was done. A checkpoint."""
        now = trio.current_time()
        is_hurried = self.buses.stop.is_set() or now < self._deaf_until
        failure: BusError | None = BusLockedError(
            f"{self.folder}: the message bus was locked by others"
        )
        with trio.move_on_after(_AT_ONCE if is_hurried else WAIT) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._hurry, scope)
                try:
                    await post()
                except BusError as error:
                    failure = error
                else:
                    failure = None
                nursery.cancel_scope.cancel("it is known what became of it")
        if failure is None:
            self._deaf_until = -math.inf
            return True
        if isinstance(failure, BusLockedError) and not is_hurried:
            self._deaf_until = now + _DEAF
        self.buses.lose(failure)
        return False

    async def _hurry(self, scope: trio.CancelScope) -> None:
        await self.buses.stop.wait()
        scope.deadline = min(scope.deadline, trio.current_time() + _AT_ONCE)


@attrs.define(eq=False)
class CasePosts(Patience):
    """Tells things on the bus of a case, in its name.

    The bus is opened for each message: many cases wait at a time, and a program may open so many files only.
    """

    case: str = attrs.field(kw_only=True)
    """The name of the case."""
    run_id: str | None = attrs.field(init=False, default=None)
    """Of the attempt that is under way."""

    async def __call__(self, type_: MessageType, body: str) -> None:
        """Tell something, if that can be done soon. A checkpoint."""
        draft = Draft(
            type=type_,
            project_id=self.buses.project,
            task_id=self.case,
            run_id=self.run_id,
            body=body,
        )
        await self.with_bus(partial(self._append, draft))

    async def _append(self, draft: Draft) -> None:
        buses = self.buses
        settings = attrs.evolve(buses.settings, lock_timeout=WAIT, append_attempts=1)
        async with open_bus(self.folder, settings, rng=buses.rng, stats=buses.stats) as bus:
            await bus.append(draft)
