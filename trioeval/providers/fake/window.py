"""Limits of the fake provider, kept exactly: a rolling window, or a bucket that fills up again.

Not the arithmetic of `trioeval.rates`: this one judges whether that arithmetic keeps to a limit, so
it shares nothing with it. A window is half-open: what was taken at t counts until just before t +
length.
"""

import math
from collections import deque
from typing import Protocol

import attrs

ROUNDING = 1e-9
"""Units by which a bucket may be off for the rounding of instants: a wait that was told is enough."""


class Limit(Protocol):
    """How much may be taken, and when. Time never goes back."""

    @property
    def limit(self) -> int:
        """What the server says that it allows in a window."""
        ...

    def wait(self, now: float, amount: int) -> float:
        """Seconds until `amount` fits if nothing else is taken; 0 if it fits now."""
        ...

    def take(self, now: float, amount: int) -> None:
        """Count an amount that `wait` has let in."""
        ...

    def remaining(self, now: float) -> int:
        """What is still free, in whole units."""
        ...

    def until_empty(self, now: float) -> float:
        """Seconds until everything is free again."""
        ...


@attrs.define(eq=False)
class Bucket:
    """At most `burst` at once, and `limit` in `length` seconds thereafter; full at first."""

    limit: int
    length: float
    burst: int
    _owed: float = attrs.field(init=False, default=0.0)
    """What was taken and has not come back."""
    _at: float = attrs.field(init=False, default=0.0)

    def wait(self, now: float, amount: int) -> float:
        """Seconds until `amount` (≤ burst) fits if nothing else is taken; 0 if it fits now."""
        self._refill(now)
        excess = self._owed + amount - self.burst
        return excess * self.length / self.limit if excess > ROUNDING else 0.0

    def take(self, now: float, amount: int) -> None:
        """Count an amount that `wait` has let in."""
        self._refill(now)
        self._owed += amount

    def remaining(self, now: float) -> int:
        """What is still free, in whole units."""
        self._refill(now)
        return max(0, math.floor(self.burst - self._owed + ROUNDING))

    def until_empty(self, now: float) -> float:
        """Seconds until the bucket is full again."""
        self._refill(now)
        return self._owed * self.length / self.limit

    def _refill(self, now: float) -> None:
        self._owed = max(0.0, self._owed - (now - self._at) * self.limit / self.length)
        self._at = now


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
