"""The cost of a lease from Redis, compared with a minimal script on the same connection.

    python tests/bench/limits_redis.py

Starts a private `redis-server` on the loopback interface. One caller, one request after another: reserve and
complete of leases of one and of four limits, alternating with a script that does nothing, so that other load
on the machine affects all of them equally. Then many callers at once, through the one connection they share.
"""

import itertools
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from trioeval.limits import Granted, LeaseRequest, Requirement, Settlement, SharedLimit
from trioeval.limits.redis import RedisLimits, RedisLink, open_link, open_redis

sys.path.insert(0, str(Path(__file__).parents[1] / "limits"))
from redis_server import open_server

ROUNDS = 3_000
CALLERS = 64
LEASES = 20_000
MOST_RATIO = 2.0
LEAST_RATE = 4_000  # reserves a second
ROOM = 10**9
LIMITS = (
    SharedLimit(key="rpm", kind="rolling", capacity=ROOM, window=60),
    SharedLimit(key="tpm", kind="rolling", capacity=ROOM, window=60),
    SharedLimit(key="slots", kind="concurrency", capacity=ROOM, timeout=60),
    SharedLimit(key="day", kind="budget", capacity=ROOM, reset=86_400),
)
ONE = (Requirement("rpm", 1),)
FOUR = (
    Requirement("rpm", 1),
    Requirement("tpm", 900),
    Requirement("slots", 1),
    Requirement("day", 900),
)
_ids = map("lease-{}".format, itertools.count())


async def reserve(limits: RedisLimits, requirements: tuple[Requirement, ...]) -> str:
    """Reserve a lease, which must be granted."""
    lease_id = next(_ids)
    (decision,) = await limits.reserve([LeaseRequest(lease_id, "job", requirements)])
    assert isinstance(decision, Granted), decision
    return lease_id


async def timed(operation: Callable[[], Awaitable[object]]) -> float:
    """Return the microseconds of an operation."""
    began = time.perf_counter()
    await operation()
    return 1e6 * (time.perf_counter() - began)


async def latencies(limits: RedisLimits, link: RedisLink) -> dict[str, float]:
    """The median of each operation, in microseconds."""
    name = await link.request(b"SCRIPT", "LOAD", "return 1")
    last = ""

    async def one() -> None:
        await reserve(limits, ONE)

    async def four() -> None:
        nonlocal last
        last = await reserve(limits, FOUR)

    async def over() -> None:
        await limits.complete([Settlement(last, "job")])

    operations: dict[str, Callable[[], Awaitable[object]]] = {
        "a bare EVALSHA": lambda: link.request(b"EVALSHA", name, 1, "{bench}", "reserve", "", "[]"),
        "reserve of one limit": one,
        "reserve of four limits": four,
        "complete of four limits": over,
    }
    times: dict[str, list[float]] = {what: [] for what in operations}
    for _ in range(ROUNDS):
        for what, operation in operations.items():
            times[what].append(await timed(operation))
    return {what: statistics.median(values) for what, values in times.items()}


async def rate(limits: RedisLimits, requirements: tuple[Requirement, ...]) -> tuple[float, float]:
    """Reserves a second of many callers at once, and what one costs this process, in microseconds."""
    left = iter(range(LEASES))

    async def caller() -> None:
        for _ in left:
            await reserve(limits, requirements)

    began, own = time.perf_counter(), time.process_time()
    async with trio.open_nursery() as nursery:
        for _ in range(CALLERS):
            nursery.start_soon(caller)
    own = time.process_time() - own
    return LEASES / (time.perf_counter() - began), 1e6 * own / LEASES


async def main(url: str) -> bool:
    """Measure, print the figures, and return True if they meet the targets."""
    async with open_redis(url, namespace="bench") as limits, open_link(url, 2.0) as link:
        for limit in LIMITS:
            await limits.define(limit)
        median = await latencies(limits, link)
        bare = median["a bare EVALSHA"]
        for what, value in median.items():
            print(f"{what:<24}{value:8.0f} µs{value / bare:8.2f} ×")
        rates = [await rate(limits, requirements) for requirements in (ONE, FOUR)]
    for count, (speed, own) in zip((1, 4), rates, strict=True):
        print(
            f"{CALLERS} callers, {count} limits each: {speed:8,.0f} reserves/s, {own:.0f} µs of CPU here"
        )
    print(f"at least {LEAST_RATE:,} reserves/s")
    worst = max(median.values()) / bare
    print(f"at most {MOST_RATIO} ×: {worst:.2f} ×")
    return worst <= MOST_RATIO and min(rates)[0] >= LEAST_RATE


if __name__ == "__main__":
    with open_server() as server:
        sys.exit(0 if trio.run(main, server.url) else 1)
