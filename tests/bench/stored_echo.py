"""Tests per second of a suite of the `echo` provider, with and without a store, in turns in one process.

    python tests/bench/stored_echo.py [TESTS] [--profile]

One provider, one prompt, one assertion. Target: at least 8,000 tests per second with the store; all
rows are on disk before the last one is emitted. The CPU time of the event loop's thread shows the cost of the
store there.
"""

import cProfile
import pstats
import statistics
import sys
import tempfile
import time
from pathlib import Path

import attrs
import trio

from trioeval.loading.load import parse_suite
from trioeval.report.head import head_of
from trioeval.report.stored import RunStart
from trioeval.run import Row, RunOptions, prepare, run_with_options
from trioeval.run.journal import RunJournal
from trioeval.store.store import open_store
from trioeval.suite.model import Suite

ROUNDS = 7
WANTED = 8000
VERSIONS = {"trioevalVersion": "0", "pythonVersion": "0", "platform": "-", "arch": "-"}


@attrs.frozen
class Spent:
    """The seconds of one run."""

    wall: float
    loop: float
    """Processor time of the thread that Trio runs in."""
    process: float
    """Processor time of all threads."""


def echo_suite(tests: int) -> Suite:
    """So many tests of one column."""
    return parse_suite(
        {
            "providers": ["echo"],
            "prompts": ["Say {{word}}, and nothing else."],
            "tests": [
                {"vars": {"word": f"w{n}"}, "assert": [{"type": "contains", "value": f"w{n}"}]}
                for n in range(tests)
            ],
        }
    )


async def timed_run(suite: Suite, journal: RunJournal | None) -> Spent:
    """Run a suite that is loaded."""
    rows = 0

    async def emit(_row: Row) -> None:  # noqa: ASYNC124 - counts
        nonlocal rows
        rows += 1

    prepared = prepare(suite)
    before = time.perf_counter(), time.thread_time(), time.process_time()
    await run_with_options(prepared, RunOptions(emit=emit, journal=journal))
    after = time.perf_counter(), time.thread_time(), time.process_time()
    assert rows == len(suite.tests)
    return Spent(*(end - begin for end, begin in zip(after, before, strict=True)))


async def stored_run(suite: Suite, path: Path) -> Spent:
    """The same into a store that is open."""
    async with open_store(path) as store:
        number = time.perf_counter_ns()
        head = head_of(
            suite, prepare(suite).steps, eval_id=f"eval-{number}",
            utc_created="2026-01-01T00:00:00.000Z", versions=VERSIONS,
        )  # fmt: skip
        start = RunStart(
            id=f"eval-{number}", utc_created=head.utc_created, heads=[head.json()],
            rows={None: len(suite.tests)},
        )  # fmt: skip
        run = store.begin(start)
        spent = await timed_run(suite, run)
        run.finish("finished", duration_ms=spent.wall * 1000)
    return spent


def main() -> None:
    """Print the figures."""
    words = [word for word in sys.argv[1:] if word != "--profile"]
    tests = int(words[0]) if words else 5000
    suite = echo_suite(tests)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "results.db"
        if "--profile" in sys.argv:
            profile = cProfile.Profile()
            profile.runcall(trio.run, stored_run, suite, path)
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)
            return
        bare: list[Spent] = []
        stored: list[Spent] = []
        for _ in range(ROUNDS):
            bare.append(trio.run(timed_run, suite, None))
            stored.append(trio.run(stored_run, suite, path))
        size = path.stat().st_size / ROUNDS / tests
    for kind, found in (("without a store", bare), ("stored", stored)):
        wall = statistics.median(one.wall for one in found)
        loop = statistics.median(one.loop for one in found)
        process = statistics.median(one.process for one in found)
        print(
            f"{kind:16}{tests / wall:8,.0f} tests/s, best {tests / min(one.wall for one in found):8,.0f};"
            f" {1e6 * loop / tests:6.1f} us on the loop a test, {1e6 * process / tests:6.1f} in all"
        )
    ratio = statistics.median(two.wall / one.wall for one, two in zip(bare, stored, strict=True))
    more = statistics.median(two.loop - one.loop for one, two in zip(bare, stored, strict=True))
    print(
        f"with the store: {ratio:.2f} x the time, {1e6 * more / tests:.1f} us more on the loop a test"
    )
    print(f"target: {WANTED:,} tests/s stored, at most {1e6 / WANTED:.0f} us in all a test")
    print(f"{size:.0f} bytes of the database a test")


if __name__ == "__main__":
    main()
