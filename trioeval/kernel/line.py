"""Who waits at a lane, in which order.

Retries stand before everything else, by the index of their jobs; what is new stands behind them, first
come first served. Who asks for a permit is first, and stays so. Only the first in line looks at the lane.
It is called when something may have changed for it; the others sleep until they are first.

A lock that hands the turn over in order of arrival cannot let a retry pass; a heap of timers would wake
waiters that cannot start.
"""

import bisect
import itertools
import math
from collections.abc import Iterator

import attrs
import trio

_HELD = (-1, 0, 0)


@attrs.define(eq=False)
class Place:
    """One waiter in the line."""

    rank: tuple[int, int, int]
    """The least is the first."""
    _called: trio.Event = attrs.field(factory=trio.Event)

    def call(self) -> None:
        """Tell the waiter to look again. Synchronous, may come for nothing."""
        self._called.set()

    def rearm(self) -> None:
        """Forget earlier calls; before the waiter looks, so that none of what follows is missed."""
        self._called = trio.Event()

    async def wait_called(self, until: float = math.inf) -> None:
        """Sleep until somebody has called, or until an instant. A checkpoint."""
        if until == math.inf:
            await self._called.wait()
        else:
            with trio.move_on_at(until):
                await self._called.wait()


@attrs.define(eq=False)
class Line:
    """The waiters of one lane."""

    places: list[Place] = attrs.field(factory=list)
    """In order; to be looked at only."""
    asking: trio.CancelScope | None = None
    """What the first in line asks for its permit in, or did so last."""
    _arrivals: Iterator[int] = attrs.field(factory=itertools.count)

    @property
    def first(self) -> Place | None:
        """Whose turn it is."""
        return self.places[0] if self.places else None

    def join(self, retry_of: int | None = None) -> Place:
        """Stand in line; `retry_of` is the index of the job whose call is made again."""
        arrival = next(self._arrivals)
        place = Place((1, arrival, 0) if retry_of is None else (0, retry_of, arrival))
        bisect.insort(self.places, place, key=_rank)
        return place

    def leave(self, place: Place) -> None:
        """Go, served or not; it is the next one's turn."""
        at = bisect.bisect_left(self.places, place.rank, key=_rank)
        del self.places[at]
        if at == 0:
            self.call_first()

    def call_first(self) -> None:
        """Something may have changed for the first in line."""
        if self.places:
            self.places[0].call()

    def hold(self, place: Place) -> None:
        """Nobody passes the first in line any more, until it leaves."""
        place.rank = _HELD

    def dismiss(self) -> None:
        """Nobody is served any more: all look again, and who asks for a permit does so for nothing."""
        for place in self.places:
            place.call()
        if self.asking is not None:
            self.asking.cancel("nobody in line is served any more")


def _rank(place: Place) -> tuple[int, int, int]:
    return place.rank
