"""What is told on the bus of a case. That it cannot be told is no reason not to go on."""

from collections.abc import Callable

import attrs
import trio

from trioeval.agents.bus.bus import Bus
from trioeval.agents.bus.messages import Draft, MessageType
from trioeval.errors import BusError

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
class Posts:
    """Tells things on a bus, in the name of a case."""

    bus: Bus | None
    """None where it cannot be opened."""
    project: str
    task: str
    """The name of the case."""
    troubles: BusTroubles
    run: str | None = None
    """Of the attempt that is under way."""

    async def __call__(self, type_: MessageType, body: str) -> None:
        """Tell something. A checkpoint."""
        if self.bus is None:
            await trio.lowlevel.checkpoint()
            return
        draft = Draft(
            type=type_, project_id=self.project, task_id=self.task, run_id=self.run, body=body
        )
        try:
            await self.bus.append(draft)
        except BusError as error:
            self.troubles.add(error)
