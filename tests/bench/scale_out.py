"""Rows of echo a second, here and on worker processes: `python tests/bench/scale_out.py [rows]`.

Prints the seconds of each run from the first to the last row, without the start of the workers, and the
computing of this process, which bounds the rows a second of any number of workers.
"""

import functools
import gc
import json
import sys
import tempfile
import time
from pathlib import Path

import trio

from trioeval.run import PreparedSuite, Row, RunOptions, prepare, run_with_options
from trioeval.scaleout.address import LocalWorkers
from trioeval.scaleout.coordinator import Coordinator, open_coordinator
from trioeval.scaleout.dask_cluster import open_cluster
from trioeval.scaleout.private_files import Location


async def ignore(_row: Row) -> None:
    """Ignore a row."""


def load_moved(path: str, location: Location) -> PreparedSuite:
    """Load a suite on a worker."""
    return prepare(location.path(Path(path)))


async def seconds(path: str, workers: int) -> tuple[float, float]:
    """Return the seconds of a run on some workers, or in this process for 0, and of its own computing."""
    prepared, stop = prepare(path), trio.Event()
    gc.freeze()  # as the command does
    gc.set_threshold(50_000)
    if not workers:
        began_at, computed = time.perf_counter(), time.process_time()
        await run_with_options(prepared, RunOptions(emit=ignore))
        return time.perf_counter() - began_at, time.process_time() - computed
    opened = open_cluster(
        LocalWorkers(workers),
        prepared,
        functools.partial(load_moved, path),
        run_id=None,
        warn=print,
    )
    async with opened as cluster:
        coordinator = Coordinator(cluster, prepared, stop, print)
        cluster.connect(coordinator)
        began_at, computed = time.perf_counter(), time.process_time()
        async with open_coordinator(coordinator):
            await run_with_options(
                prepared, RunOptions(emit=ignore, stop=stop, adapt=coordinator.adapt)
            )
        return time.perf_counter() - began_at, time.process_time() - computed


def main() -> None:
    """Measure and print."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    test = {"assert": [{"type": "contains", "value": "word"}]}
    suite = {
        "providers": ["echo"],
        "prompts": ["say {{word}}"],
        "tests": [{"vars": {"word": f"word {number}"}, **test} for number in range(rows)],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "suite.json"
        path.write_text(json.dumps(suite))
        for workers in (0, 1, 2):
            took, computed = trio.run(seconds, str(path), workers)
            name = f"{workers} workers" if workers else "this process"
            each, here = 1e6 * took / rows, 1e6 * computed / rows
            print(f"{name:>14}: {took:7.1f} s, {each:6.0f} us a row, {here:6.0f} us of them here")


if __name__ == "__main__":
    main()
