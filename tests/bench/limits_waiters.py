"""The cost of waiting for the limits of this process and of being served.

    python tests/bench/limits_waiters.py

First on the real clock: 200 jobs of 20 ms on a limit of 4 with 8 workers, and 512 callers of 50 ms on a limit
of 8, against the time that they must take. Then the overhead of calls that take no time: a permit that is
free, a permit that 512 callers wait for, one that 64 lanes with keys of their own wait for, and a job of the
kernel on a lane with shared limits against one without.
"""

import math
import time
from collections.abc import Awaitable, Callable

import trio

from trioeval.kernel import Calls, Job, Lanes, LaneSpec, Outcome, Permits, Plan, run_plan
from trioeval.limits import SharedLimit
from trioeval.limits.memory import MemoryLimits
from trioeval.limits.model import LimitKey

SLOTS = LimitKey("slots", "slots")
FOUR = [SLOTS, LimitKey("rpm", "requests"), LimitKey("tpm", "tokens"), LimitKey("daily", "tokens")]
MANY = 10**12


def limits_of(slots: int, *more: str) -> MemoryLimits:
    """A limit that is short, and others that are not."""
    return MemoryLimits(
        [
            SharedLimit(key="slots", kind="concurrency", capacity=slots, timeout=60),
            SharedLimit(key="rpm", kind="rolling", capacity=MANY, window=60),
            SharedLimit(key="tpm", kind="rolling", capacity=MANY, window=60),
            SharedLimit(key="daily", kind="budget", capacity=MANY),
            *(SharedLimit(key=key, kind="rolling", capacity=MANY, window=60) for key in more),
        ]
    )


def ignore(_shortage: object) -> None:
    """Ignore a shortage."""


async def emit(_outcome: Outcome[None]) -> None:
    """Discard an outcome."""


async def jobs(count: int, width: int, seconds: float, permits: Permits | None) -> None:
    """Jobs of one call through the kernel."""

    async def send() -> None:
        if seconds:
            await trio.sleep(seconds)
        else:
            await trio.lowlevel.checkpoint()

    async def body(job: Job[None], calls: Calls[None]) -> None:
        await calls(job.lane, send, tokens=100)

    lanes = Lanes([LaneSpec("lane", width)], permits=None if permits is None else {"lane": permits})
    plan = Plan.of(Job(index, "lane", None) for index in range(count))
    await run_plan(plan, body, lanes=lanes, emit=emit)


async def callers(permits: list[Permits], count: int, seconds: float) -> None:
    """So many callers at once, each of which takes one permit of one of these."""

    async def call(index: int) -> None:
        permit = await permits[index % len(permits)].take(index, 100, 0.0, ignore)
        await trio.sleep(seconds)
        permit.settle(60, 0.0)

    async with trio.open_nursery() as nursery:
        for index in range(count):
            nursery.start_soon(call, index)


async def free(keys: list[LimitKey], count: int) -> None:
    """Permits that are there."""
    permits = limits_of(MANY).permits("lane", keys)
    for index in range(count):
        permit = permits.take_nowait(index, 100, 0.0)
        assert permit is not None
        permit.settle(60, 0.0)


def seconds(main: Callable[[], Awaitable[None]]) -> float:
    """Of one run."""
    began = time.perf_counter()
    trio.run(main)
    return time.perf_counter() - began


def busy(main: Callable[[], Awaitable[None]], times: int = 5) -> float:
    """Seconds of the processor, of the fastest of so many runs."""
    best = math.inf
    for _ in range(times):
        began = time.process_time()
        trio.run(main)
        best = min(best, time.process_time() - began)
    return best


async def contended(*, lanes: int, count: int) -> None:
    """Callers that wait for one limit, on lanes that have one limit more of their own."""
    own = [f"own {lane}" for lane in range(lanes)]
    limits = limits_of(8, *own)
    permits = [limits.permits(key, [SLOTS, LimitKey(key, "requests")]) for key in own]
    await callers(permits, count, 0.0)


def measure_waits() -> None:
    """Measure waits on the real clock."""

    async def two_hundred() -> None:
        await jobs(200, 8, 0.02, limits_of(4).permits("lane", [SLOTS]))

    async def without_one() -> None:
        await jobs(200, 4, 0.02, None)

    async def waiting() -> None:
        await callers([limits_of(8).permits("lane", [SLOTS])], 512, 0.05)

    for name, run, ideal in (
        ("200 jobs of 20 ms, 8 workers, capacity 4", two_hundred, 1.0),
        ("200 jobs of 20 ms, 4 workers, no limits", without_one, 1.0),
        ("512 waiters of 50 ms, capacity 8", waiting, 3.2),
    ):
        took = seconds(run)
        print(f"limits, {name}: {took:.2f} s, {took / ideal:.3f} × ideal")


def measure_permits() -> None:
    """Measure the overhead of calls that take no time."""
    for name, keys in (("one key", [SLOTS]), ("four keys", FOUR)):
        cost = busy(lambda keys=keys: free(keys, 20_000)) / 20_000  # type: ignore[misc]
        print(f"limits, permit of {name} that is there: {cost * 1e6:.1f} µs")
    for lanes in (1, 64):
        cost = busy(lambda lanes=lanes: contended(lanes=lanes, count=512)) / 512  # type: ignore[misc]
        print(f"limits, permit that 512 callers on {lanes} lanes wait for: {cost * 1e6:.1f} µs")


def measure_jobs() -> None:
    """The cost that shared limits add to a job of the kernel."""

    async def without() -> None:
        await jobs(20_000, 100, 0.0, None)

    async def with_limits() -> None:
        await jobs(20_000, 100, 0.0, limits_of(MANY).permits("lane", [SLOTS]))

    async def short() -> None:
        await jobs(20_000, 100, 0.0, limits_of(50).permits("lane", [SLOTS]))

    for name, run in (
        ("without limits", without),
        ("with limits that have room", with_limits),
        ("with one that has not", short),
    ):
        print(f"limits, job of the kernel {name}: {busy(run, 3) / 20_000 * 1e6:.1f} µs")


if __name__ == "__main__":
    measure_waits()
    measure_permits()
    measure_jobs()
