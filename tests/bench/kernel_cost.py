"""The kernel's cost of a no-op job, compared with a minimal pool of Trio workers on a shared iterator.

    python tests/bench/kernel_cost.py

Both run jobs whose only act is a checkpoint, at width 100, in turns within one process; the figure is the
median of the ratios. The kernel's path has everything on it: lane, slot, timeout scope, retries, what is
learned from a reply, ledger, ordered emit. Then the cost a job of plans of different length, of jobs on no
lane, and of jobs that are found to need none when they are the next of theirs.
"""

import math
import statistics
import time
from collections.abc import Sequence
from typing import overload

import attrs
import trio

from trioeval.kernel import Calls, Job, Lanes, LaneSpec, Outcome, Plan, run_plan

WIDTH = 100
ROUNDS = 7


@attrs.frozen
class NoOps(Sequence[Job[None]]):
    """A lazy plan of jobs that do nothing."""

    size: int
    timeout: float = math.inf
    lane: str | None = "lane"

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> Job[None]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job[None]]: ...
    def __getitem__(self, index: int | slice) -> Job[None] | Sequence[Job[None]]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self.size))]
        return Job(index, self.lane, None, self.timeout)


async def bare_pool(size: int) -> None:
    """Workers on a shared iterator: the least that Trio can do."""
    indices = iter(range(size))

    async def worker() -> None:
        for _ in indices:
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for _ in range(WIDTH):
            nursery.start_soon(worker)


async def body(job: Job[None], calls: Calls[None]) -> None:
    """One call that only passes the scheduler."""
    await calls(job.lane, trio.lowlevel.checkpoint)


async def ignore(_outcome: Outcome[None]) -> None:
    """Discard an outcome."""


async def kernel(size: int, limit: float) -> None:
    """The same jobs through the whole kernel."""
    lanes = Lanes([LaneSpec("lane", WIDTH)])
    await run_plan(Plan(NoOps(size, limit), ("lane",)), body, lanes=lanes, emit=ignore)


async def empty(_job: Job[None], _calls: Calls[None]) -> None:
    """A body that makes no calls."""


async def on_no_lane(size: int) -> None:
    """Jobs on no lane."""
    plan = Plan(NoOps(size, lane=None), (None,))
    await run_plan(plan, empty, lanes=Lanes([]), emit=ignore)


async def found(size: int) -> None:
    """Jobs that are found to need no lane."""
    plan = Plan(NoOps(size), ("lane",), needs_no_lane=lambda _job: True)
    await run_plan(plan, empty, lanes=Lanes([LaneSpec("lane", WIDTH)]), emit=ignore)


def seconds(main: object, *args: object) -> float:
    """Duration of one Trio run."""
    started = time.perf_counter()
    trio.run(main, *args)  # type: ignore[arg-type]
    return time.perf_counter() - started


def main(size: int = 100_000) -> None:
    """Print the figures."""
    for jobs in (1_000, 10_000, 100_000, 1_000_000):
        cost = min(seconds(kernel, jobs, math.inf) for _ in range(1 if jobs == 1_000_000 else 5))
        print(f"kernel cost at {jobs:>9,} jobs: {cost / jobs * 1e6:.1f} µs a job")
    for name, kind in (("on no lane", on_no_lane), ("found to need no lane", found)):
        cost = min(seconds(kind, size) for _ in range(5))
        print(f"kernel cost of a job {name}: {cost / size * 1e6:.1f} µs, {size / cost:,.0f} jobs/s")
    for name, timeout in (("no timeout", math.inf), ("with a timeout each", 60.0)):
        ratios, costs = [], []
        for _ in range(ROUNDS):
            bare = seconds(bare_pool, size)
            full = seconds(kernel, size, timeout)
            ratios.append(full / bare)
            costs.append(full / size * 1e6)
        print(
            f"kernel cost, {name}: {statistics.median(costs):.1f} µs a job, "
            f"{statistics.median(ratios):.2f} × bare pool (of {ROUNDS}: "
            f"{min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
