"""What is told on the bus of a case. That it cannot be told is no reason not to go on."""

from collections.abc import Callable
from pathlib import Path

import attrs
import trio

from trioeval.agents.bus.bus import open_bus
from trioeval.agents.bus.messages import Draft, MessageType
from trioeval.errors import BusError
from trioeval.tasks.agents.bus_accounts import BusAccounts

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


@attrs.define(eq=False, kw_only=True)
class Posts:
    """Tells things on the bus of a case, in its name.

    The bus is opened for each message: many cases wait at a time, and a program may open so many files only.
    """

    folder: Path
    """Of the bus."""
    project: str
    task: str
    """The name of the case."""
    troubles: BusTroubles
    rng: Callable[[], float] = attrs.field(repr=False)
    """Numbers from 0 to 1."""
    buses: BusAccounts = attrs.field(repr=False)
    """Counts what that costs."""
    run: str | None = None
    """Of the attempt that is under way."""

    async def __call__(self, type_: MessageType, body: str) -> None:
        """Tell something. A checkpoint."""
        draft = Draft(
            type=type_, project_id=self.project, task_id=self.task, run_id=self.run, body=body
        )
        try:
            async with open_bus(self.folder, rng=self.rng) as bus:
                with self.buses.counting(bus.stats):
                    await bus.append(draft)
        except BusError as error:
            self.troubles.add(error)
