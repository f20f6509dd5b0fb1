"""A limit over a rolling window, kept exactly: every amount is remembered until it has left.

Not the arithmetic of `trioeval.rates`: this one judges whether that arithmetic keeps to a limit, so
it shares nothing with it. The window is half-open: what was taken at t counts until just before t +
length.
"""

from collections import deque

import attrs


@attrs.define(eq=False)
class RollingWindow:
    """At most `limit` in any window of `length` seconds."""

    limit: int
    length: float
    _taken: deque[tuple[float, int]] = attrs.field(init=False, factory=deque)
    _used: int = attrs.field(init=False, default=0)

    def wait(self, now: float, amount: int) -> float:
        """Seconds until `amount` fits if nothing else is taken; 0 if it fits now.

        An amount above the limit never fits; it is told to wait until the window is empty.
        """
        self._forget(now)
        excess = self._used + amount - self.limit
        if excess <= 0:
            return 0.0
        for at, part in self._taken:
            excess -= part
            if excess <= 0:
                return at + self.length - now
        return self.until_empty(now) or self.length

    def take(self, now: float, amount: int) -> None:
        """Count an amount that `wait` has let in."""
        self._taken.append((now, amount))
        self._used += amount

    def remaining(self, now: float) -> int:
        """What is still free."""
        self._forget(now)
        return max(0, self.limit - self._used)

    def until_empty(self, now: float) -> float:
        """Seconds until all of the limit is free again."""
        self._forget(now)
        return self._taken[-1][0] + self.length - now if self._taken else 0.0

    def _forget(self, now: float) -> None:
        while self._taken and self._taken[0][0] + self.length <= now:
            self._used -= self._taken.popleft()[1]
