"""When the next request may start.

The problem: at most `burst + T/period` starts in every window of length T, and never two starts closer
than `min_gap`. The rule is the generic cell rate algorithm (GCRA, ITU-T I.371): one instant,
`next_request_at`, moves forward by one period with every start, and a start is allowed when that instant
is no more than `burst - 1` periods ahead. It needs one float where a log of past starts would need many,
and it is exact.

Not a token bucket as large as the minute: that admits almost twice the declared rate in a rolling minute.
Not a reservation of future starts either: a waiter that is cancelled would leave a hole. Look with
`earliest`, sleep outside, then `take`.

Law: PACE.
"""

import math
from typing import Self

import attrs


@attrs.frozen
class Pace:
    """The state of one lane's pace; `take` returns the next state.

    Example:
        >>> pace = Pace.per_minute(60, burst=2)
        >>> pace = pace.take(0.0).take(0.0)  # two may start together
        >>> pace.earliest(0.0)
        1.0
    """

    period: float = 0.0
    """Seconds per request in the long run, ≥ 0; 0 sets no rate."""
    burst: int = 1
    """Requests that may start together after a pause, ≥ 1."""
    min_gap: float = 0.0
    """Least seconds between two starts, ≥ 0."""
    next_request_at: float = -math.inf
    """The instant at which the rate is used up exactly (GCRA's theoretical arrival time)."""
    next_gap_at: float = -math.inf
    """The instant at which the least gap after the last start is over."""
    unlimited: bool = attrs.field(init=False)
    """Whether every instant is allowed, whatever happened before."""

    @unlimited.default
    def _is_unlimited(self) -> bool:
        return self.period == 0.0 and self.min_gap == 0.0

    @classmethod
    def per_minute(cls, rpm: float | None, *, burst: int = 1, min_gap: float = 0.0) -> Self:
        """A pace of `rpm` requests per minute (> 0); None sets no rate."""
        return cls(0.0 if rpm is None else 60.0 / rpm, burst, min_gap)

    @property
    def rpm(self) -> float | None:
        """Requests per minute; None if there is no rate."""
        return 60.0 / self.period if self.period else None

    def at(self, now: float, rpm: float) -> Self:
        """The pace at another rate, > 0, from `now` on. What is owed are requests, not seconds."""
        owed = max(0.0, self.next_request_at - now) / self.period if self.period else 0.0
        period = 60.0 / rpm
        return attrs.evolve(self, period=period, next_request_at=now + owed * period)

    def earliest(self, now: float) -> float:
        """The first instant at or after `now` at which a request may start."""
        return max(now, self.rate_allows_at, self.next_gap_at)

    @property
    def rate_allows_at(self) -> float:
        """The first instant at which the rate, without the gap, allows a start."""
        return self.next_request_at - (self.burst - 1) * self.period

    def take(self, now: float) -> Self:
        """The pace after a start at `now`, which must not be before `earliest(now)`."""
        return type(self)(
            self.period,
            self.burst,
            self.min_gap,
            max(self.next_request_at, now) + self.period,
            now + self.min_gap,
        )
