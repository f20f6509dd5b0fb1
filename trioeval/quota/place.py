"""One call that waits for its lease, in a line that others serve.

Whoever makes room says how the wait ends, and the waiter finds that when it wakes. One of all that wait also
has a timer, for the room that comes by itself; it can be set while its waiter sleeps.
"""

import math
from collections.abc import Callable

import attrs
import trio

from trioeval.errors import QuotaError
from trioeval.kernel import Shortage
from trioeval.quota.leases import Requirement


@attrs.define(eq=False)
class Place:
    """One that waits for its lease."""

    job_id: str
    requirements: tuple[Requirement, ...]
    _told: Callable[[Shortage], None]
    said: Shortage | None = None
    """What it was told last."""
    end: str | QuotaError | None = None
    """The id of its lease, or why it never gets one; None while it waits."""
    wake_at: float = math.inf
    """When it looks what has expired, for all that wait."""
    _over: trio.Event = attrs.field(factory=trio.Event)
    _scope: trio.CancelScope | None = None

    def set_timer(self, wake_at: float) -> None:
        """It is this one that looks what has expired, and then."""
        if wake_at != self.wake_at:
            self.wake_at = wake_at
            if self._scope is not None:
                self._scope.deadline = wake_at

    def tell(self, shortage: Shortage) -> None:
        """It waits for this."""
        self.said = shortage
        self._told(shortage)

    def serve(self, end: str | QuotaError) -> None:
        """Its wait is over."""
        self.end = end
        self._over.set()

    async def wait(self) -> str | QuotaError | None:
        """Sleep until its wait is over; None when it is time to look. A checkpoint."""
        with trio.CancelScope(deadline=self.wake_at) as self._scope:
            await self._over.wait()
        # Not whether the sleep was cut short: it may have been served in that very step.
        return self.end
