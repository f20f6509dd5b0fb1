"""What is told on buses of a run. That it cannot be told is no reason not to go on, or to wait for long."""

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import attrs
import trio

from trioeval.agent.bus.bus import open_bus
from trioeval.agent.bus.messages import Draft, MessageType
from trioeval.agent.bus.settings import BusSettings, BusStats
from trioeval.errors import BusError, BusLockedError

# What writing to all message buses of a run has cost: those that are open, and those that were.


@attrs.define(eq=False)
class BusAccounts:
    """What writing to the buses of a run has cost."""

    _open: dict[int, BusStats] = attrs.field(init=False, factory=dict)
    """By identity."""
    _closed: BusStats = attrs.field(init=False, factory=BusStats)

    @contextmanager
    def counting(self, stats: BusStats) -> Iterator[None]:
        """Count a bus, which is open for as long as the block."""
        self._open[id(stats)] = stats
        try:
            yield
        finally:
            del self._open[id(stats)]
            self._closed.add(stats)

    def total(self) -> BusStats:
        """All of it until now."""
        found = BusStats()
        for stats in (self._closed, *self._open.values()):
            found.add(stats)
        return found


WAIT = 1.0
"""Seconds for which a message waits for others that have locked its bus."""
_AT_ONCE = 0.05  # seconds: longer than who has locked it for a moment makes others wait
_DEAF = 60.0  # seconds for which a bus is not waited for again
_WARN_EVERY = 60.0  # seconds


@attrs.define(eq=False)
class BusTroubles:
    """Messages of a run that could not be told."""

    warn: Callable[[str], None]
    count: int = 0
    _warned_at: float | None = None

    def add(self, error: BusError) -> None:
        """One more; told at most once a minute."""
        self.count += 1
        now = trio.current_time()
        if self._warned_at is None or now >= self._warned_at + _WARN_EVERY:
            self._warned_at = now
            self.warn(f"messages of agents cannot be written ({self.count} until now): {error}")


@attrs.define(eq=False)
class Patience:
    """How long a bus is waited for that others hold locked, as an agent may that was stopped."""

    folder: Path
    """Of the bus."""
    _stop: trio.Event
    """Set when the run is to end."""
    troubles: BusTroubles
    """Counts what is not posted."""
    _deaf_until: float = attrs.field(init=False, default=-math.inf)

    async def with_bus(self, post: Callable[[], Awaitable[object]]) -> bool:
        """Post, if that can be done soon; whether it was done. A checkpoint."""
        now = trio.current_time()
        is_hurried = self._stop.is_set() or now < self._deaf_until
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
        self.troubles.add(failure)
        return False

    async def _hurry(self, scope: trio.CancelScope) -> None:
        await self._stop.wait()
        scope.deadline = min(scope.deadline, trio.current_time() + _AT_ONCE)


@attrs.define(eq=False, kw_only=True)
class CasePosts:
    """Tells things on the bus of a case, in its name.

    The bus is opened for each message: many cases wait at a time, and a program may open so many files only.
    """

    project: str
    task: str
    """The name of the case."""
    patience: Patience
    """Of its bus."""
    rng: Callable[[], float] = attrs.field(repr=False)
    """Numbers from 0 to 1."""
    buses: BusAccounts = attrs.field(repr=False)
    """Counts what that costs."""
    settings: BusSettings = attrs.field(factory=BusSettings)
    """How the buses of the run are written."""
    run: str | None = None
    """Of the attempt that is under way."""

    async def __call__(self, type_: MessageType, body: str) -> None:
        """Tell something, if that can be done soon. A checkpoint."""
        draft = Draft(
            type=type_, project_id=self.project, task_id=self.task, run_id=self.run, body=body
        )
        await self.patience.with_bus(partial(self._append, draft))

    async def _append(self, draft: Draft) -> None:
        settings = attrs.evolve(self.settings, lock_timeout=WAIT, append_attempts=1)
        async with open_bus(self.patience.folder, settings, rng=self.rng) as bus:
            with self.buses.counting(bus.stats):
                await bus.append(draft)
