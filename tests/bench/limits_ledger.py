"""The cost of the limit ledger: reserve and complete, for one key, for four, and with many leases.

python tests/bench/limits_ledger.py          prints the figures
python tests/bench/limits_ledger.py --long   and the memory of a million leases (QL-35)
"""

import gc
import sys
import time
import tracemalloc
from collections.abc import Sequence

from trioeval.limits import (
    Actual,
    Granted,
    LeaseRequest,
    LimitState,
    Requirement,
    Settlement,
    SharedLimit,
)
from trioeval.limits.ledger import LimitLedger

LIMITS = (
    SharedLimit(key="llm:rpm", kind="rolling", capacity=10**9, window=60),
    SharedLimit(key="llm:tpm", kind="rolling", capacity=10**12, window=60),
    SharedLimit(key="llm:concurrency", kind="concurrency", capacity=64, timeout=30),
    SharedLimit(key="tenant:daily_tokens", kind="budget", capacity=10**12, reset=86_400),
)
LEASES = 20_000
ROUNDS = 15
MILLION = 1_000_000
PER_SECOND = 100
RETENTION = 600
"""Seconds for which the ledger remembers a lease."""


def microseconds(limits: Sequence[SharedLimit], tokens: int | None) -> float:
    """Return the cost of a reserve and its complete in the best round, at 100 leases per second."""
    ledger = LimitLedger(LimitState(limit=limit) for limit in limits)
    needs = tuple(
        Requirement(limit.key, 2000 if "tok" in limit.key or "tpm" in limit.key else 1)
        for limit in limits
    )
    actuals = tuple(Actual(need.key, tokens) for need in needs if need.amount > 1 and tokens)
    best, now = float("inf"), 0.0
    for round_ in range(ROUNDS):
        asks = [LeaseRequest(f"{round_}-{n}", "job", needs) for n in range(LEASES)]
        ends = [Settlement(ask.lease_id, "job", actuals) for ask in asks]
        began = time.process_time()
        for ask, end in zip(asks, ends, strict=True):
            now += 0.01
            granted = ledger.reserve(ask, now)
            ledger.complete(end, now + 0.005)
        best = min(best, (time.process_time() - began) / LEASES * 1e6)
        assert isinstance(granted, Granted)
    return best


def stored() -> tuple[list[int], list[float]]:
    """Return the number of stored leases and their memory in MB after every 100,000 leases.

    Each lease has four limits; 100 start per second. Every second one is completed, the others expire.
    """
    tracemalloc.start()
    ledger = LimitLedger(LimitState(limit=limit) for limit in LIMITS if limit.kind != "concurrency")
    held = SharedLimit(key="llm:concurrency", kind="concurrency", capacity=10**6, timeout=30)
    ledger.define(held, 0.0)
    needs = tuple(Requirement(limit.key, 1) for limit in LIMITS)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    counts: list[int] = []
    sizes: list[float] = []
    for number in range(MILLION):
        now = number / PER_SECOND
        assert isinstance(
            ledger.reserve(LeaseRequest(f"lease-{number}", "job", needs), now), Granted
        )
        if number % 2:
            ledger.complete(Settlement(f"lease-{number}", "job"), now)
        if (number + 1) % (MILLION // 10) == 0:
            counts.append(len(ledger))
            sizes.append((tracemalloc.get_traced_memory()[0] - before) / 1e6)
    tracemalloc.stop()
    return counts, sizes


def main() -> None:
    """Print the figures."""
    for limit in LIMITS:
        print(f"{limit.kind:12} {microseconds([limit], 300):6.2f} µs reserve + complete")
    print(f"four keys    {microseconds(LIMITS, 300):6.2f} µs reserve + complete")
    if "--long" in sys.argv[1:]:
        counts, sizes = stored()
        for tenth, (count, size) in enumerate(zip(counts, sizes, strict=True), 1):
            print(f"{tenth * MILLION // 10:9,} leases: {count:6,} stored, {size:5.1f} MB")
        assert max(counts) <= RETENTION * PER_SECOND + 1


if __name__ == "__main__":
    main()
