"""The time of a simulation of a million rows on the virtual clock.

    python tests/bench/simulate_rows.py [ROWS]

One provider with 100 calls at once, latencies from 0.2 to 3 seconds, no limits; then the same with a rate of
which the lane knows, and with a server that refuses. The baseline is bare Trio workers that sleep as long on
Trio's mock clock. The memory is that of the process at its end.

Target: 1,000,000 rows in at most 60 s.
"""

import gc
import itertools
import resource
import sys
import time

import attrs
import trio
import trio.testing

from trioeval import Request, parse_suite
from trioeval.run.prepare import prepare
from trioeval.simulation.model import ProviderModel, SampledCall, ServerLimits, Spread
from trioeval.simulation.run import simulate
from trioeval.simulation.suite import SimulatedSuite

ROWS = 1_000_000


async def never(request: Request) -> str:
    """Stand for a provider that is not called."""
    raise AssertionError(request.prompt)


def simulated(rows: int, **lane: object) -> SimulatedSuite:
    """Return a simulation of a suite with so many rows."""
    suite = {
        "providers": [{"id": "m", "lane": {"maxConcurrency": 100, **lane}}],
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": "a"}}],
        "evaluateOptions": {"repeat": rows},
    }
    prepared = prepare(parse_suite(suite), providers={"m": never}, max_rows=0)
    calls = tuple(SampledCall(at, 50, 100, 0.0001) for at in Spread(0.8, 0.4).sample())
    return SimulatedSuite.of(prepared, {"m": ProviderModel(calls=calls)})


def bare(rows: int) -> float:
    """Return the CPU µs a row of bare Trio workers that sleep as long, on Trio's mock clock."""
    calls = itertools.cycle(Spread(0.8, 0.4).sample())
    left = iter(range(rows))

    async def worker() -> None:
        for _ in left:
            await trio.sleep(next(calls))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(worker)

    cpu = time.process_time()
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    return (time.process_time() - cpu) / rows * 1e6


def measure(title: str, suite: SimulatedSuite) -> None:
    """Simulate a suite and print the figures."""
    gc.collect()
    gc.freeze()  # as the command does
    wall, cpu = time.perf_counter(), time.process_time()
    found = simulate(suite)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    each = cpu / found.rows * 1e6
    print(
        f"{title}: {found.rows:,} rows in {wall:.1f} s, CPU {each:.1f} µs a row; "
        f"makespan {found.makespan:,.0f} s, {found.refused:,} refused"
    )


def main(rows: int = ROWS) -> None:
    """Print the figures."""
    few = max(1, rows // 10)
    print(f"bare Trio workers on the mock clock: CPU {bare(few):.1f} µs a row")
    measure("unlimited", simulated(rows))
    paced = simulated(few, rpm=3000)
    measure("declared rate", paced)
    limits = {spec.name: ServerLimits(max_in_flight=40) for spec in paced.specs}
    measure("refusing server", attrs.evolve(simulated(few), limits=limits))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"memory: {peak:.0f} MB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
