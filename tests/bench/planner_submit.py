"""The cost of a submission to the shared planner queue, after many finished and behind many waiting ones.

    python tests/bench/planner_submit.py

Target: at most 1 ms per submission after 10,000 finished ones. A transaction is made in a thread, and
the file is on a real disk.
"""

import statistics
import tempfile
import time
from pathlib import Path

import trio

from trioeval.agent.planner import Submission
from trioeval.store.planner.planner import AgentPlanner, open_planner

WANTED = 1.0  # ms
COUNT = 500


def submission(id_: str) -> Submission:
    return Submission(id=id_, run="run", task=f"task/{id_}")


async def timed(planner: AgentPlanner, name: str) -> tuple[float, float]:
    """Milliseconds to submit one, and to finish it."""
    submits, finishes = [], []
    for number in range(COUNT):
        began = time.perf_counter()
        await planner.submit(submission(f"{name}-{number}"))
        between = time.perf_counter()
        await planner.finish(f"{name}-{number}", done=True)
        submits.append(between - began)
        finishes.append(time.perf_counter() - between)
    return 1000 * statistics.median(submits), 1000 * statistics.median(finishes)


async def measure(over: int, waiting: int) -> float:
    """Finish some submissions, queue others, then measure."""
    with tempfile.TemporaryDirectory() as folder:
        async with open_planner(Path(folder) / "results.db", 1) as planner:
            await planner.submit(submission("first"))
            for number in range(over):
                await planner.submit(submission(f"over-{number}"))
                await planner.finish(f"over-{number}", done=True)
            for number in range(waiting):
                await planner.submit(submission(f"waits-{number}"))
            submit, finish = await timed(planner, "x")
    print(f"{over:7} over, {waiting:6} waiting: submit {submit:.3f} ms, finish {finish:.3f} ms")
    return submit


async def main() -> None:
    """Measure all cases."""
    await measure(0, 0)
    submit = await measure(10_000, 0)
    await measure(0, 10_000)
    print(f"target {WANTED} ms with 10,000 over: {'yes' if submit <= WANTED else 'NO'}")


if __name__ == "__main__":
    trio.run(main)
