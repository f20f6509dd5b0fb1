"""The latency limit against simulated servers: it settles where throughput is best at twice the base latency.

The target of a server: among the fixed widths whose mean latency is at most twice that of width 1, those
whose throughput is within 2 % of the best. The time mean of the settled limit lies within 20 % of that range.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.rates.aimd import AdaptiveLimit, FixedLimit
from trioeval.rates.gradient import GradientLimit

pytestmark = pytest.mark.slow

WIDTH = 128
Course = Callable[[float], float]
"""A quantity over time."""


class Server(Protocol):
    """What serves calls, each known by the instant at which it entered."""

    def enter(self, now: float) -> None:
        """A call arrives."""

    def next_at(self, now: float) -> float:
        """When the next call is over."""

    def leave(self, now: float) -> float:
        """That call is over; when it entered."""


@attrs.define(eq=False)
class Workers:
    """So many calls at once, the others in a queue."""

    count: Course
    base: Course
    rng: random.Random
    jitter: float = 0.0
    queue: deque[float] = attrs.field(factory=deque)
    running: list[tuple[float, float]] = attrs.field(factory=list)

    def enter(self, now: float) -> None:
        self.queue.append(now)
        self._work(now)

    def next_at(self, now: float) -> float:
        return self.running[0][0]

    def leave(self, now: float) -> float:
        entered_at = heapq.heappop(self.running)[1]
        self._work(now)
        return entered_at

    def _work(self, now: float) -> None:
        while self.queue and len(self.running) < self.count(now):
            service = self.base(now) * self.rng.uniform(1 - self.jitter, 1 + self.jitter)
            heapq.heappush(self.running, (now + service, self.queue.popleft()))


@attrs.define(eq=False)
class Batch:
    """All calls at once, each the slower the more there are: latency = base · (1 + n/k).

    `done` is the work that a call would have had done that was there from the beginning; a call is over
    when that has grown by its own work.
    """

    k: Course
    base: Course
    rng: random.Random
    jitter: float = 0.0
    done: float = 0.0
    at: float = 0.0
    running: list[tuple[float, float]] = attrs.field(factory=list)

    def enter(self, now: float) -> None:
        self._work(now)
        work = self.rng.uniform(1 - self.jitter, 1 + self.jitter)
        heapq.heappush(self.running, (self.done + work, now))

    def next_at(self, now: float) -> float:
        return now + max(0.0, self.running[0][0] - self.done) * self._latency(now)

    def leave(self, now: float) -> float:
        self._work(now)
        return heapq.heappop(self.running)[1]

    def _latency(self, now: float) -> float:
        return self.base(now) * (1 + len(self.running) / self.k(now))

    def _work(self, now: float) -> None:
        self.done += (now - self.at) / self._latency(self.at)
        self.at = now


@attrs.frozen
class Measured:
    """What came of a stretch of time."""

    limit: float
    """Mean over time."""
    throughput: float
    latency: float
    highest: int
    """The highest limit."""


def serve(
    server: Server, limit: AdaptiveLimit, spans: list[float], demand: Course
) -> list[Measured]:
    """Run calls as fast as limit and demand allow; what came of each span, one after the other."""
    now, in_flight, measured = 0.0, 0, []
    for end in itertools.accumulate(spans):
        begin, latencies, area, highest = now, [], 0.0, 0
        while now < end:
            while in_flight < min(limit.limit, demand(now)):
                in_flight += 1
                server.enter(now)
                limit.begun(in_flight)
            over_at = server.next_at(now)
            area += limit.limit * (over_at - now)
            now = over_at
            entered_at = server.leave(now)
            in_flight -= 1
            latencies.append(now - entered_at)
            limit.succeeded(now - entered_at, retried=False)
            highest = max(highest, limit.limit)
        count, length = len(latencies), now - begin
        measured.append(Measured(area / length, count / length, sum(latencies) / count, highest))
    return measured


def steadily(amount: float) -> Course:
    """Always the same."""
    return lambda _now: amount


def first_then(first: float, then: float, at: float) -> Course:
    """One amount before an instant, and another from it on."""
    return lambda now: first if now < at else then


always_busy = steadily(WIDTH)


def target(make: Callable[[], Server], length: float) -> tuple[int, int, float]:
    """The least and the greatest of the best fixed widths, and their throughput."""
    by_width = {
        width: serve(make(), FixedLimit(width), [length / 4, length], always_busy)[1]
        for width in range(1, 90)
    }
    allowed = {
        width: measured.throughput
        for width, measured in by_width.items()
        if measured.latency <= 2 * by_width[1].latency
    }
    best = max(allowed.values())
    widths = [width for width, throughput in allowed.items() if throughput >= 0.98 * best]
    return min(widths), max(widths), best
