"""Rows of echo a second, here and on worker processes: `python tests/bench/scale_out.py [rows]`.

Prints for each run, without the start of the workers, the time from the first to the last row and the
computing: of the thread of the run, which bounds the rows a second of any number of workers; of this process,
which with workers of this machine includes Dask's scheduler; and of all workers. Computing depends less than
the time on what else the machine does.

The baseline of two workers is two processes at once that know nothing of each other, each with half of the
rows: cores that share caches or execution units compute less than twice as much as one.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import attrs
import psutil  # type: ignore[import-untyped]
import trio

from trioeval.report.activity import Activity
from trioeval.report.worker_lanes import WorkerLanes
from trioeval.run import Row, RunOptions, prepare, run_with_options
from trioeval.scaleout.watching import WorkerViews
from trioeval.scaleout.workers import SourceLoader, open_workers


async def ignore(_row: Row) -> None:
    """Ignore a row."""


@attrs.frozen
class Costs:
    """Seconds of time and of computing; as an instant, since any start."""

    time: float
    thread: float
    """Computing of this thread."""
    process: float
    workers: float
    """Computing of the child processes."""

    @classmethod
    def now(cls) -> Costs:
        """Return the costs until now."""
        children = psutil.Process().children(recursive=True)
        computed = sum(sum(child.cpu_times()[:2]) for child in children)
        return cls(time.perf_counter(), time.thread_time(), time.process_time(), computed)

    def since(self, before: Costs, rows: int) -> str:
        """Return the costs since an instant as text."""
        spent = [
            now - then for now, then in zip(attrs.astuple(self), attrs.astuple(before), strict=True)
        ]
        took, here, process, workers = (1e6 * seconds / rows for seconds in spent)
        computing = f"{here:4.0f} us here, {process:4.0f} with Dask, {workers:4.0f} in workers"
        return f"{spent[0]:7.1f} s, {took:6.0f} us a row; computing a row: {computing}"


async def run(path: str, workers: int, rows: int) -> str:
    """Return the costs of a run on some workers, or in this process for 0."""
    prepared, stop = prepare(path), trio.Event()
    gc.freeze()  # as the command does
    gc.set_threshold(50_000)
    if not workers:
        before = Costs.now()
        activity = Activity(trio.current_time())  # as the command has
        await run_with_options(prepared, RunOptions(emit=ignore, observe=activity.observe))
        return Costs.now().since(before, rows)
    async with (
        open_workers(f"local:{workers}") as pool,
        pool.open_run(prepared, SourceLoader(path), None) as opened,
    ):
        before = Costs.now()
        views = WorkerViews(lanes=WorkerLanes(Activity(trio.current_time())))
        async with opened.coordinate(stop, print, views=views) as coordinator:
            await run_with_options(
                prepared, RunOptions(emit=ignore, stop=stop, adapt=coordinator.adapt)
            )
        return Costs.now().since(before, rows)


def main() -> None:
    """Measure and print."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    counts = [int(one) for one in sys.argv[2:]] or [0, 1, 2]
    test = {"assert": [{"type": "contains", "value": "word"}]}
    suite = {
        "providers": ["echo"],
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": f"word {number}"}, **test} for number in range(rows)],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "suite.json"
        path.write_text(json.dumps(suite))
        for workers in counts:
            name = f"{workers} workers" if workers else "this process"
            print(f"{name:>14}: {trio.run(run, str(path), workers, rows)}")
    if len(sys.argv) < 3:
        half = [sys.executable, __file__, str(rows // 2), "0"]
        both = [subprocess.Popen(half, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        for one in both:
            print(f"one of 2 alone{one.communicate()[0].rstrip()[14:]}")


if __name__ == "__main__":
    main()
