"""A simulated provider with its own limits, in virtual time, to test schedulers against.

It counts requests and tokens as real services do, with buckets that fill steadily, refuses the excess, fails
now and then, and reports as much of its limits as its settings say. It knows nothing of lanes and shares no
arithmetic with them, so that an error there does not cancel out here.

All random numbers come from one seeded generator: equal settings and equal requests give equal replies.
"""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import attrs
import trio

from trioeval.errors import CallError, Fault, UsageError
from trioeval.kernel import Metered
from trioeval.rates import Allowance, RateHint

Hints: TypeAlias = Literal["none", "retry_after", "whole_seconds", "headers"]

_ROUNDING = 1e-9  # of a request: a bucket filled in many steps is never exactly full


@attrs.frozen
class SimulatedServer:
    """The limits, the speed and the hints of a simulated server.

    Raises:
        UsageError: A value is out of range.
    """

    latency: float = 0.05
    """Seconds of a request that is served, ≥ 0."""
    jitter: float = 0.0
    """Share by which the latency varies both ways, evenly, from 0 to 1."""
    rpm: float | None = None
    """Requests per minute at which its bucket fills, > 0; None sets no rate."""
    burst: int | None = None
    """Requests that the bucket holds, ≥ 1; it is full at first. None holds a minute's requests."""
    tpm: float | None = None
    """Tokens per minute, > 0, in a bucket that holds a minute's tokens; None sets no rate."""
    max_in_flight: int | None = None
    """Requests that it serves at once; it refuses more."""
    full_wait: float = 0.0
    """Seconds that it asks refused ones to wait, ≥ 0; 0 names no wait."""
    slow_from: int | None = None
    """Requests in flight beyond which the latency grows in proportion, ≥ 1; None never slows down."""
    throttle_rate: float = 0.0
    """Share of the requests that it refuses at random, without a hint."""
    error_rate: float = 0.0
    """Share of the requests that fail after their latency."""
    outages: tuple[tuple[float, float], ...] = ()
    """Spans, from and to, in which every request fails at once."""
    refusal_latency: float = 0.0
    """Seconds that a refused request takes, ≥ 0."""
    hints: Hints = "retry_after"
    """Kind of hints: none; with a refusal the exact wait, or the wait rounded up to whole seconds; or
    the exact wait, and with every successful reply the remaining amounts."""
    seed: int = 0

    def __attrs_post_init__(self) -> None:
        for field in ("latency", "refusal_latency", "full_wait"):
            self._require(field, "at least 0 and finite", lambda seconds: 0 <= seconds < math.inf)
        for field in ("jitter", "throttle_rate", "error_rate"):
            self._require(field, "from 0 to 1", lambda share: 0 <= share <= 1)
        for field in ("rpm", "tpm"):
            self._require(field, "more than 0 and finite", lambda rate: 0 < rate < math.inf)
        for field in ("burst", "max_in_flight", "slow_from"):
            self._require(field, "at least 1", lambda count: count >= 1)

    def _require(self, field: str, allowed: str, fits: Callable[[float], bool]) -> None:
        value: float | None = getattr(self, field)
        if value is not None and not fits(value):
            msg = f"SimulatedServer.{field} must be {allowed}, got {value!r}"
            raise UsageError(msg)


@attrs.define(eq=False, repr=False)
class _Bucket:
    """Fills at `rate` a second up to `size`; full at first."""

    rate: float
    size: float
    level: float = attrs.field(init=False)
    filled_at: float = -math.inf

    def __attrs_post_init__(self) -> None:
        self.level = self.size

    def fill(self, now: float) -> None:
        if self.level < self.size:
            self.level = min(self.size, self.level + (now - self.filled_at) * self.rate)
        self.filled_at = now

    def wait(self, amount: float) -> float:
        """Return the seconds until it holds `amount`, or is full."""
        missing = min(amount, self.size) - self.level
        return 0.0 if missing <= _ROUNDING else missing / self.rate

    def left(self) -> Allowance:
        return Allowance(
            limit=self.rate * 60,
            remaining=max(0.0, math.floor(self.level + _ROUNDING)),
            reset_after=(self.size - self.level) / self.rate,
        )


@attrs.define(eq=False, repr=False)
class SimulatedProvider:
    """A server at work. Belongs to one Trio run.

    Example:
        >>> async def main():
        ...     provider = SimulatedProvider(SimulatedServer(latency=1.0, rpm=60, burst=1))
        ...     first = await provider.send()
        ...     async with trio.open_nursery() as nursery:
        ...         nursery.start_soon(provider.send)
        ...     return first.value, provider.requests, trio.current_time()
        >>> trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
        (1, 2, 2.0)
    """

    server: SimulatedServer
    requests: int = attrs.field(init=False, default=0)
    """Requests received."""
    throttled: int = attrs.field(init=False, default=0)
    """Requests refused, because there were too many or at random."""
    errors: int = attrs.field(init=False, default=0)
    """Requests failed, at random or in an outage."""
    in_flight: int = attrs.field(init=False, default=0)
    """Requests being served now."""
    max_in_flight: int = attrs.field(init=False, default=0)
    """The most requests served at once."""
    starts: list[float] = attrs.field(init=False, factory=list)
    """The instants at which requests arrived."""
    _random: random.Random = attrs.field(init=False)
    _buckets: dict[Literal["requests", "tokens"], _Bucket] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        server = self.server
        self._random = random.Random(server.seed)  # noqa: S311 - a simulation keeps no secrets
        if server.rpm is not None:
            size = server.rpm if server.burst is None else server.burst
            self._buckets["requests"] = _Bucket(server.rpm / 60, size)
        if server.tpm is not None:
            self._buckets["tokens"] = _Bucket(server.tpm / 60, server.tpm)

    async def send(self, tokens: int = 0) -> Metered[int]:
        """Make one request. A checkpoint, even if it fails at once.

        Args:
            tokens: Its tokens, ≥ 0; more than a minute's is served when the bucket is full.

        Returns:
            The number of the request, from 1, with the tokens and, if the server reports them, its limits.

        Raises:
            CallError: It was refused (`RATE_LIMITED`) or failed (`TRANSIENT`).
        """
        now, server = trio.current_time(), self.server
        self.requests += 1
        self.starts.append(now)
        number = self.requests
        # Drawn for every request, so that the result of one does not change the random numbers of the next.
        bad_luck, mishap, swing = (self._random.random() for _ in range(3))
        if any(begin <= now < end for begin, end in server.outages):
            self.errors += 1
            await trio.sleep(server.refusal_latency)
            raise CallError(Fault.TRANSIENT, "the service is unavailable")
        wait = self._refusal(now, tokens)
        if wait is not None or bad_luck < server.throttle_rate:
            self.throttled += 1
            await trio.sleep(server.refusal_latency)
            raise CallError(Fault.RATE_LIMITED, "too many requests", retry_after=wait or None)
        for bucket, amount in self._costs(tokens):
            bucket.level -= amount
        with self._serving():
            slow = max(1.0, self.in_flight / (server.slow_from or math.inf))
            await trio.sleep(server.latency * slow * (1 + server.jitter * (2 * swing - 1)))
        if mishap < server.error_rate:
            self.errors += 1
            raise CallError(Fault.TRANSIENT, "an internal error", tokens=tokens)
        return Metered(number, tokens=tokens, hint=self._hint())

    def _refusal(self, now: float, tokens: int) -> float | None:
        """Return the wait that a refusal names, 0 if it names none; None if the request is served."""
        server = self.server
        for bucket in self._buckets.values():
            bucket.fill(now)
        wait = max((bucket.wait(amount) for bucket, amount in self._costs(tokens)), default=0.0)
        if wait > 0:
            if server.hints == "none":
                return 0.0
            return math.ceil(wait) if server.hints == "whole_seconds" else wait
        full = server.max_in_flight is not None and self.in_flight >= server.max_in_flight
        return server.full_wait if full else None

    def _costs(self, tokens: int) -> Iterator[tuple[_Bucket, float]]:
        amounts: dict[Literal["requests", "tokens"], float] = {"requests": 1, "tokens": tokens}
        return ((bucket, amounts[name]) for name, bucket in self._buckets.items())

    @contextmanager
    def _serving(self) -> Iterator[None]:
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            yield
        finally:  # also when the caller cancels
            self.in_flight -= 1

    def _hint(self) -> RateHint | None:
        if self.server.hints != "headers":
            return None
        now = trio.current_time()
        for bucket in self._buckets.values():
            bucket.fill(now)
        return RateHint(**{name: bucket.left() for name, bucket in self._buckets.items()})
