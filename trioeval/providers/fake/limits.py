"""The rate limits of the fake provider: admission of requests, and rate limit headers."""

import math
from collections import deque
from typing import TypeAlias, assert_never

import attrs

from trioeval.providers.fake.settings import FakeSettings, Hints

# Exact limits of the fake provider: a rolling window, or a bucket that refills.
#
# The arithmetic is independent of `trioeval.rates`, because it tests whether that keeps to a limit. A window
# is half-open: an amount taken at t counts until just before t + length.


ROUNDING = 1e-9
"""Tolerance of a bucket in units, for rounded instants: waiting the reported time always suffices."""


@attrs.define(eq=False, repr=False)
class TokenBucket:
    """At most `burst` at once, and `limit` in `length` seconds thereafter; full at the start."""

    limit: int
    length: float
    burst: int
    _owed: float = attrs.field(init=False, default=0.0)
    """Units taken and not yet refilled."""
    _at: float = attrs.field(init=False, default=0.0)

    def wait(self, now: float, amount: int) -> float:
        """Return the seconds until `amount` (≤ burst) fits if nothing else is taken; 0 if it fits now."""
        self._refill(now)
        excess = self._owed + amount - self.burst
        return excess * self.length / self.limit if excess > ROUNDING else 0.0

    def take(self, now: float, amount: int) -> None:
        """Count an amount for which `wait` returned 0."""
        self._refill(now)
        self._owed += amount

    def remaining(self, now: float) -> int:
        """Return the available units, rounded down."""
        self._refill(now)
        return max(0, math.floor(self.burst - self._owed + ROUNDING))

    def until_empty(self, now: float) -> float:
        """Return the seconds until the bucket is full again."""
        self._refill(now)
        return self._owed * self.length / self.limit

    def _refill(self, now: float) -> None:
        self._owed = max(0.0, self._owed - (now - self._at) * self.limit / self.length)
        self._at = now


@attrs.define(eq=False, repr=False)
class RollingWindow:
    """At most `limit` in any window of `length` seconds."""

    limit: int
    length: float
    _taken: deque[tuple[float, int]] = attrs.field(init=False, factory=deque)
    _used: int = attrs.field(init=False, default=0)

    def wait(self, now: float, amount: int) -> float:
        """Return the seconds until `amount` fits if nothing else is taken; 0 if it fits now.

        An amount above the limit never fits; its wait ends when the window is empty.
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
        """Count an amount for which `wait` returned 0."""
        self._taken.append((now, amount))
        self._used += amount

    def remaining(self, now: float) -> int:
        """Return the available units."""
        self._forget(now)
        return max(0, self.limit - self._used)

    def until_empty(self, now: float) -> float:
        """Return the seconds until all of the limit is available again."""
        self._forget(now)
        return self._taken[-1][0] + self.length - now if self._taken else 0.0

    def _forget(self, now: float) -> None:
        while self._taken and self._taken[0][0] + self.length <= now:
            self._used -= self._taken.popleft()[1]


Limit: TypeAlias = TokenBucket | RollingWindow
"""A limit on one dimension. Time must not go backwards."""

Headers = tuple[tuple[str, str], ...]


@attrs.frozen
class ExceededLimit:
    """A limit that a request would exceed."""

    dimension: str
    """`requests` or `tokens`, as in the error's type."""
    limit: int
    wait: float
    """Seconds until the request would fit."""


@attrs.frozen
class Limits:
    """Limits on requests and tokens. Refused requests count towards neither."""

    _limits: dict[str, Limit]
    """Limits by dimension; an unlimited dimension is absent."""
    _hints: Hints

    @classmethod
    def of(cls, settings: FakeSettings) -> "Limits":
        """Return unused limits."""
        limits: dict[str, Limit] = {}
        if settings.rpm is not None and settings.burst is not None:
            limits["requests"] = TokenBucket(settings.rpm, settings.window_s, settings.burst)
        elif settings.rpm is not None:
            limits["requests"] = RollingWindow(settings.rpm, settings.window_s)
        if settings.tpm is not None:
            limits["tokens"] = RollingWindow(settings.tpm, settings.window_s)
        return cls(limits, settings.hints)

    def take(self, now: float, tokens: int) -> ExceededLimit | None:
        """Take one request and its tokens; or take nothing, and return the exceeded limit."""
        amounts = {"requests": 1, "tokens": tokens}
        for dimension, limit in self._limits.items():
            wait = limit.wait(now, amounts[dimension])
            if wait > 0:
                return ExceededLimit(dimension, limit.limit, wait)
        for dimension, limit in self._limits.items():
            limit.take(now, amounts[dimension])
        return None

    def headers(self, now: float) -> Headers:
        """Return the rate limit headers of a reply."""
        if self._hints not in ("all", "limits"):
            return ()
        return tuple(
            header
            for dimension, limit in self._limits.items()
            for header in (
                (f"x-ratelimit-limit-{dimension}", str(limit.limit)),
                (f"x-ratelimit-remaining-{dimension}", str(limit.remaining(now))),
                (f"x-ratelimit-reset-{dimension}", format_duration(limit.until_empty(now))),
            )
        )


def retry_headers(wait: float, hints: Hints = "all") -> Headers:
    """Return the headers for a wait, rounded up, in all spellings that the server supports."""
    seconds = ("retry-after", str(math.ceil(wait)))
    match hints:
        case "all":
            return seconds, ("retry-after-ms", str(math.ceil(wait * 1000)))
        case "retry_after":
            return (seconds,)
        case "limits" | "none":
            return ()
        case _:
            assert_never(hints)


def format_duration(seconds: float) -> str:
    """Return a duration as in rate limit headers: `12ms`, `1.5s`, `6m0s`; rounded up to 1 ms."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:  # noqa: PLR2004 - of a second
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes}m{rest / 1000:g}s" if minutes else f"{rest / 1000:g}s"
