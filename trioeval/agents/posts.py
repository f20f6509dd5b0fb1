"""What a loop says on the bus. The bus is for people and other programs: that it fails ends nothing."""

import logging
import math
from collections.abc import Awaitable, Callable

import attrs
import trio

from trioeval.agents.bus.messages import MessageType

_log = logging.getLogger("trioeval.agents")
_QUIET = 60.0
"""Seconds between two lines of the log about a bus that takes nothing."""


@attrs.define(eq=False)
class Posts:
    """Posts messages, and counts those that could not be posted."""

    _post: Callable[[MessageType, str], Awaitable[None]]
    failed: int = 0
    """Messages that the bus did not take."""
    _logged_at: float = -math.inf

    async def __call__(self, type_: MessageType, body: str) -> None:
        """Post one; what goes wrong is counted, and logged once in a while."""
        try:
            await self._post(type_, body)
        except Exception as error:  # noqa: BLE001 - whatever a bus raises, the work goes on
            self.failed += 1
            now = trio.current_time()
            if now - self._logged_at >= _QUIET:
                self._logged_at = now
                _log.warning("the bus does not take what is posted: %s", error)

    async def within(self, seconds: float, type_: MessageType, body: str) -> None:
        """Post one that is given up, and counted, if it takes longer."""
        with trio.move_on_after(seconds) as scope:
            await self(type_, body)
        self.failed += scope.cancelled_caught
