"""The wait for one's turn at a lane: from a place in its line to the step in which nothing is in the way.

Whoever waits looks when it is first in line and something may have changed for it, and says what is in the
way. What kind of thing that is decides how it waits on: for an instant, for a call, among the lanes that
want a part of the cap, or with a question for its permit.
"""

import math
from collections.abc import Callable
from typing import TypeAlias

import attrs
import trio

from trioeval.errors import LaneClosedError
from trioeval.kernel.asking import Asking
from trioeval.kernel.cap import Cap
from trioeval.kernel.events import Observer, Waiting, Why
from trioeval.kernel.line import Line, Place
from trioeval.rates import Breaker

Obstacle: TypeAlias = tuple[Why, float]
"""What is in the way of a start, and until when; infinite where that is not known."""


@attrs.define(eq=False)
class Turns:
    """Who waits at one lane, and for what."""

    _lane: str
    """The lane's name."""
    _breaker: Breaker
    """Of the lane: it tells whether it is closed."""
    _cap: Cap | None
    line: Line
    why: Why | None = None
    """What the first in line was found to wait for."""

    def notify(self) -> None:
        """Something changed that the first in line may wait for: a budget, or the cap over all lanes."""
        self.line.call_first()

    async def stand(
        self,
        place: Place,
        look: Callable[[float], Obstacle | None],
        index: int | None,
        observe: Observer | None,
        asking: Asking | None = None,
    ) -> float:
        """Stand in line until `look` finds no obstacle; returns that instant. A checkpoint.

        Args:
            place: In the line; it is left at the end.
            look: Asked when it is the place's turn.
            index: Of the job that waits; None for the lane's next job.
            observe: Told of every wait.
            asking: Where the permit comes from, where `look` may find that it lacks.

        Raises:
            LaneClosedError: The lane serves no more calls.
            Exception: What `look` and `asking` raise.
        """
        told: Obstacle | None = None
        try:
            while True:
                if (reason := self._breaker.reason) is not None:
                    await trio.lowlevel.checkpoint()
                    raise LaneClosedError(self._lane, reason)
                now = trio.current_time()
                obstacle: Obstacle | None = (Why.TURN, math.inf)
                # Before the look: whoever is told of it may change the lane in that very moment.
                place.rearm()
                if self.line.first is place:
                    obstacle = look(now)
                    self.why = None if obstacle is None else obstacle[0]
                if obstacle is None:
                    return now
                self._queue_for_cap(obstacle[0])
                if asking is not None:
                    asking.give_back()
                    if obstacle[0] is Why.QUOTA:
                        told = None
                        await asking.ask(self.line, place)
                        continue
                if observe is not None and obstacle != told:
                    told, (why, until) = obstacle, obstacle
                    known = None if until == math.inf else until
                    observe(Waiting(now, self._lane, why, known, index))
                await place.wait_called(obstacle[1])
        finally:
            if asking is not None:
                asking.give_back()
            self.line.leave(place)
            if not self.line.places:
                self.leave_cap()

    def leave_cap(self) -> None:
        """The first in line waits for something else than the cap."""
        if self._cap is not None:
            self._cap.leave(self)

    def _queue_for_cap(self, why: Why) -> None:
        if self._cap is None or why is Why.TURN:
            return
        # Who asks for a permit keeps its turn until it is told to wait.
        if why in (Why.CAP, Why.QUOTA):
            self._cap.join(self)
        else:
            self._cap.leave(self)
