"""The latency limit on simulated servers: it settles where throughput is best at twice the base latency.

The target of a server: among the fixed limits whose mean latency is at most twice that of limit 1, those
whose throughput is within 2 % of the best. The time mean of the settled limit lies within 20 % of that
range.
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

from trioeval.rates.adaptive_limit import GradientLimit, Limit, Refusal

pytestmark = pytest.mark.slow

WIDTH = 128
Course = Callable[[float], float]
"""A quantity over time."""


class Server(Protocol):
    """A simulated server; calls are identified by their instants of arrival."""

    def enter(self, now: float) -> None:
        """Add a call."""

    def next_at(self, now: float) -> float:
        """Return when the next call is over."""

    def leave(self, now: float) -> float:
        """Remove the call that is over; return its arrival."""


@attrs.define(eq=False)
class Workers:
    """A server with a number of workers and a queue."""

    count: Course
    base: Course
    rng: random.Random
    jitter: float = 0.0
    queue: deque[float] = attrs.field(factory=deque)
    running: list[tuple[float, float]] = attrs.field(factory=list)

    def enter(self, now: float) -> None:
        self.queue.append(now)
        self._work(now)

    def next_at(self, now: float) -> float:  # noqa: ARG002 - a batch needs it
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
    """All calls at once, each slower the more there are: latency = base · (1 + n/k).

    `done` is the work of a call that was running from the beginning; a call is over when `done` has grown by
    its own work.
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
    """The results of a period."""

    limit: float
    """Mean over time."""
    throughput: float
    latency: float
    highest: int
    """The highest limit."""


def serve(server: Server, limit: Limit, spans: list[float], demand: Course) -> list[Measured]:
    """Run calls as fast as limit and demand allow; return the results of each period."""
    now, in_flight, measured = 0.0, 0, []
    for end in itertools.accumulate(spans):
        begin, latencies, area, highest = now, [], 0.0, 0
        while now < end:
            while in_flight < min(limit.limit, demand(now)):
                in_flight += 1
                server.enter(now)
                limit.started(in_flight)
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


def constant(amount: float) -> Course:
    """Return a constant."""
    return lambda _now: amount


def chance(seed: int) -> random.Random:
    """Return reproducible random numbers."""
    return random.Random(seed)  # noqa: S311 - a simulation


def first_then(first: float, then: float, at: float) -> Course:
    """Return one amount before an instant, and another from it on."""
    return lambda now: first if now < at else then


always_busy = constant(WIDTH)
one_second = constant(1.0)
Kind = type[Workers] | type[Batch]
kinds = pytest.mark.parametrize("kind", [Workers, Batch])
jitters = pytest.mark.parametrize("jitter", [0.0, 0.3])


@attrs.frozen
class Target:
    """The results of the best fixed limits of a server."""

    least: int
    greatest: int
    throughput: float

    def check(self, measured: Measured) -> None:
        """Check a limit within 20 % of the best ones, and nearly the same throughput."""
        assert 0.8 * self.least <= measured.limit <= 1.2 * self.greatest
        assert measured.throughput >= 0.9 * self.throughput


def target(make: Callable[[], Server], highest: int, length: float = 200.0) -> Target:
    """Return the best fixed limits of a server up to `highest`, by trying all."""
    by_width = {
        width: serve(make(), Limit(width), [length / 4, length], always_busy)[1]
        for width in range(1, highest + 1)
    }
    allowed = {
        width: measured.throughput
        for width, measured in by_width.items()
        if measured.latency <= 2 * by_width[1].latency
    }
    best = max(allowed.values())
    widths = [width for width, throughput in allowed.items() if throughput >= 0.98 * best]
    return Target(min(widths), max(widths), best)


@jitters
@kinds
@pytest.mark.parametrize("size", [1, 8, 32])
def test_the_limit_settles_where_throughput_is_best(kind: Kind, size: int, jitter: float) -> None:
    """The limit settles within 20 % of the best fixed one for queues and batches, with or without jitter."""

    def make() -> Server:
        return kind(constant(size), one_second, chance(size), jitter)

    measured = serve(make(), GradientLimit(WIDTH), [200.0, 1000.0], always_busy)[1]
    target(make, 2 * size + 4).check(measured)


@jitters
@kinds
@pytest.mark.parametrize(("before", "after"), [(16, 4), (4, 16)])
def test_the_limit_follows_the_capacity(kind: Kind, before: int, after: int, jitter: float) -> None:
    """The limit follows a server whose capacity changes, in either direction."""
    changing = kind(first_then(before, after, 300.0), one_second, chance(1), jitter)
    spans = [300.0, 200.0, 1000.0]
    measured = serve(changing, GradientLimit(WIDTH), spans, always_busy)[-1]
    target(lambda: kind(constant(after), one_second, chance(1)), 36).check(measured)


@jitters
@kinds
@pytest.mark.parametrize(("before", "after"), [(1.0, 1.5), (1.0, 3.0), (3.0, 1.0)])
def test_the_limit_follows_the_base_latency(
    kind: Kind, before: float, after: float, jitter: float
) -> None:
    """Slower or faster calls are not mistaken for a queue, or for its absence."""
    base = first_then(before, after, 300.0)
    changing = kind(constant(12), base, chance(2), jitter)
    spans = [300.0, 2500.0, 1500.0]
    measured = serve(changing, GradientLimit(WIDTH), spans, always_busy)[-1]
    target(lambda: kind(constant(12), constant(after), chance(2)), 28).check(measured)


@kinds
def test_a_full_server_never_becomes_the_base(kind: Kind) -> None:
    """A permanently full server never becomes the base."""
    server = kind(constant(8), one_second, chance(3), 0.3)
    measured = serve(server, GradientLimit(WIDTH), [200.0, 20_000.0], always_busy)[1]
    best = target(lambda: kind(constant(8), one_second, chance(3)), 20)
    best.check(measured)
    assert measured.highest <= 1.5 * best.greatest


@jitters
@kinds
def test_the_limit_does_not_grow_while_few_calls_are_in_flight(kind: Kind, jitter: float) -> None:
    """The limit does not grow in idle phases, and applies to the burst after one."""
    server = kind(constant(12), one_second, chance(4), jitter)
    busy, idle, burst = serve(
        server,
        GradientLimit(WIDTH),
        [300.0, 700.0, 50.0],
        lambda now: 3 if 300.0 <= now < 1000.0 else WIDTH,
    )
    assert idle.highest <= busy.highest
    assert burst.limit <= 1.2 * 24


def test_an_idle_lane_never_grows() -> None:
    """The limit of a lane with one call at a time never grows."""
    server = Workers(constant(100), one_second, chance(5))
    measured = serve(server, GradientLimit(WIDTH), [1000.0], constant(1))[0]
    assert measured.highest == 2


@attrs.frozen
class Refused:
    """Refusals of calls that started a number of epochs ago."""

    behind: int
    times: int


@attrs.frozen
class Retuned:
    """The max concurrency changes."""

    width: int


@attrs.frozen
class Round:
    """A number of calls in flight, and their latency."""

    in_flight: int
    latency: float
    failed: bool


events = st.lists(
    st.builds(Refused, st.integers(0, 2), st.integers(1, 5))
    | st.builds(Retuned, st.integers(1, 20))
    | st.builds(
        Round,
        st.integers(1, 20),
        st.sampled_from((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 50.0)) | st.floats(0, 1e300),
        st.booleans(),
    ),
    max_size=60,
)


def feed(limit: GradientLimit, count: int, latency: float) -> None:
    """Serve a number of calls one after the other, each with as many in flight as the limit allows."""
    for _ in range(count):
        limit.started(limit.limit)
        limit.succeeded(latency, retried=False)


def go_round(limit: GradientLimit, latency: float = 1.0) -> None:
    """Serve the calls that do not count after a change of the limit, and a round."""
    feed(limit, limit.limit - 1 + max(4, limit.limit), latency)


def refuse_two(limit: GradientLimit) -> None:
    """Refuse as many calls of the current epoch as cut the limit, in a round without earlier refusals."""
    epoch = limit.epoch
    for _ in range(2):
        limit.congested(Refusal(epoch))


@given(st.integers(1, 20), events)
def test_gradient_limit_keeps_the_laws_of_limits(width: int, script: list[Round | Refused]) -> None:
    """AIMD: 1 ≤ limit ≤ max concurrency; two refusals of an epoch cut it once, by 0.7, without growth."""
    limit = GradientLimit(width)
    for event in script:
        before, epoch = limit.limit, limit.epoch
        match event:
            case Refused(behind, times):
                for _ in range(times):
                    limit.congested(Refusal(limit.epoch - behind))
                cuts = limit.epoch - epoch  # the round may have had a refusal earlier
                assert cuts in ((0,) if behind else (times // 2, (times + 1) // 2))
                for _ in range(cuts):
                    before = max(1, int(0.7 * before))
                assert limit.limit == before
            case Retuned(width):
                limit.retune(width)
                assert limit.limit == min(before, width)
            case Round(in_flight, latency, failed):
                for _ in range(in_flight):
                    limit.started(min(in_flight, limit.limit))
                    limit.succeeded(latency, retried=False)
                    if failed:
                        limit.failed()
        assert 1 <= limit.limit <= limit.max_concurrency == width
        assert not limit.calm


def test_a_burst_of_refusals_cuts_once() -> None:
    """Refusals of calls from before a cut do not cut again; two of the new epoch do."""
    limit = GradientLimit(64)
    while limit.limit < 32:
        go_round(limit)
    for _ in range(20):
        limit.congested(Refusal(0))
    assert (limit.limit, limit.epoch) == (22, 1)
    limit.congested(Refusal(1))
    assert (limit.limit, limit.epoch) == (22, 1)
    limit.congested(Refusal(1))
    assert (limit.limit, limit.epoch) == (15, 2)


def test_a_lone_refusal_does_not_cut_a_latency_limit() -> None:
    """A single refusal per round never cuts the limit."""
    limit = GradientLimit(64)
    while limit.limit < 32:
        go_round(limit)
    for _ in range(10):
        limit.congested(Refusal(0))
        go_round(limit, 2.0)
        assert (limit.limit, limit.epoch) == (32, 0)


def test_growth_doubles_until_a_refusal_and_is_linear_after_it() -> None:
    """The limit doubles until a refusal and grows by one after it."""
    limit, seen = GradientLimit(64), []
    for _ in range(4):
        go_round(limit)
        seen.append(limit.limit)
    refuse_two(limit)
    for _ in range(3):
        seen.append(limit.limit)
        go_round(limit)
    assert seen == [2, 4, 8, 16, 11, 12, 13]


def test_a_round_with_a_failure_does_not_grow_but_may_shrink() -> None:
    """A round with a failure may lower the limit but not raise it."""
    limit = GradientLimit(64)
    go_round(limit)
    go_round(limit)
    assert limit.limit == 4
    feed(limit, 3, 1.0)
    limit.failed()
    feed(limit, 4, 1.0)
    assert limit.limit == 4
    limit.failed()
    feed(limit, 4, 4.0)
    assert limit.limit == 2


def test_one_slow_round_halves_the_limit_and_no_more() -> None:
    """One slow round at most halves the limit."""
    limit = GradientLimit(64)
    while limit.limit < 32:
        go_round(limit)
    go_round(limit, 1000.0)
    assert limit.limit == 16


def test_a_change_of_the_limit_is_judged_by_calls_that_started_after_it() -> None:
    """Calls in flight at a cut do not count against the new limit."""
    limit = GradientLimit(64)
    while limit.limit < 8:
        go_round(limit)
    go_round(limit, 4.0)
    assert limit.limit == 4
    for _ in range(4):  # the lane starts nothing while these exceed the limit
        limit.succeeded(4.0, retried=False)
    feed(limit, 3, 4.0)
    assert limit.limit == 4
    feed(limit, 4, 2.0)
    assert limit.limit == 4


def test_a_refusal_while_the_base_is_measured_cuts_the_earlier_limit() -> None:
    """The limit returns to the reduced value after the measurement."""
    limit = GradientLimit(10)
    while limit.limit < 10:
        go_round(limit)
    while limit.limit > 1:
        feed(limit, 1, 2.0)
    refuse_two(limit)
    assert limit.limit == 1
    go_round(limit)
    assert limit.limit == 7


def test_a_max_concurrency_lowered_while_the_base_is_measured_applies_afterwards() -> None:
    """The earlier limit is not restored beyond it."""
    limit = GradientLimit(10)
    while limit.limit < 10:
        go_round(limit)
    while limit.limit > 1:
        feed(limit, 1, 2.0)
    limit.retune(3)
    go_round(limit)
    assert limit.limit == 3
