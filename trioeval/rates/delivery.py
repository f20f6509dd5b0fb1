"""The rate that a server turns out to serve, where nobody tells it.

A server that refuses and names a wait is full at that instant. What it served between two such instants is
what it serves in the long run, whatever burst it allows in between; so starts are paced a little above
that, and a little faster again as long as it serves. Without this a lane fills the server's bucket, is
refused with everything that is in flight, waits, and does the same again.

Two things make the measured rate too low: a lane that had nothing to do for a while, and a wait that was
named for another reason (too many in flight), which counts as time. So a start never waits longer than the
server asked for, after which it served at least one; and the rate heals by growing.
"""

import attrs

from trioeval.rates.pace import Pace

_MARGIN = 1.1
"""How much faster than measured the lane goes, and how much faster it grows each time."""
_SLACK = 2
"""Burst of the pace: a start that comes late must not delay all that follow."""
_LEAST_MEASURED = 4
"""Calls served that make a measurement."""
_FASTEST = 0.001
"""Seconds between two starts at which no pace is needed any more."""


@attrs.define(eq=False)
class Delivery:
    """Measures one lane between refusals."""

    pace: Pace | None = None
    """What the lane keeps to; None if nothing was measured, or it is forgotten."""
    _since: float | None = None
    _served: int = 0
    _grow_after: int = 0

    @property
    def measuring(self) -> bool:
        """Whether starts and successes tell something."""
        return self._since is not None

    def served(self) -> None:
        """A call was served."""
        self._served += 1
        if self.pace is not None and self._served >= self._grow_after:
            faster = attrs.evolve(self.pace, period=self.pace.period / _MARGIN)
            self.pace = faster if faster.period > _FASTEST else None
            if self.pace is None:
                self._since = None
            self._plan_growth()

    def refused(self, now: float, wait: float, *, full: bool) -> None:
        """The server refuses and asks to wait so many seconds; once for each wave of refusals.

        Args:
            now: The instant.
            wait: What it asks for, > 0.
            full: Whether that says something of its rate: several calls were refused, or one that came soon
                after a wait. A lone refusal may mean anything.
        """
        if not full:
            if self.pace is not None:
                slower = min(self.pace.period * _MARGIN, max(self.pace.period, wait))
                self.pace = attrs.evolve(self.pace, period=slower)
                self._plan_growth()
            return
        if self._since is None:
            self._since, self._served = now, 0
        elif self._served >= _LEAST_MEASURED and now > self._since:
            period = min((now - self._since) / self._served, wait)
            self.pace = Pace(period / _MARGIN, _SLACK)
            self._since, self._served = now, 0
        self._plan_growth()

    def take(self, now: float) -> None:
        """A call starts."""
        if self.pace is not None:
            self.pace = self.pace.take(now)

    def _plan_growth(self) -> None:
        # About once a second.
        if self.pace is not None:
            self._grow_after = self._served + max(2 * _LEAST_MEASURED, int(1 / self.pace.period))
