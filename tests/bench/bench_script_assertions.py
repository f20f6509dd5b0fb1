"""How much longer 100 `python` assertions take than calls of the same functions in one warm pool.

Rows run for real, with everything that a run does besides; the time of the first ones, which start the
workers, is left out.

python tests/bench/bench_script_assertions.py
"""

import os
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from trioeval.providers.programs.workers import Encoded
from trioeval.suite import parse_suite
from trioeval.tasks import Row, run_suite
from trioeval.tasks.scripts import open_scripts

ASSERTIONS = 100
ROUNDS = 7
MORE = 10
WORKERS = 2
CODE = "sum(ord(character) for character in output) % {} < 1000"
OUTPUT = "the quick brown fox jumps over the lazy dog " * 20
CONTEXT = Encoded.of({"prompt": "p", "vars": {}})


def codes() -> list[str]:
    """As many as there are assertions, all different."""
    return [CODE.format(number + 2) for number in range(ASSERTIONS)]


async def calls(directory: Path) -> float:
    """Seconds for bare calls in warm workers."""
    async with open_scripts(directory, os.environ, workers=WORKERS) as scripts:

        async def round_of() -> float:
            started = time.perf_counter()
            async with trio.open_nursery() as nursery:
                for code in codes():
                    nursery.start_soon(scripts.judge, code, OUTPUT, CONTEXT)
            return time.perf_counter() - started

        await round_of()
        return statistics.median([await round_of() for _ in range(ROUNDS)])


async def run_of(directory: Path, repeat: int, each: int) -> float:
    """Seconds for a run of so many rows with `each` assertions."""
    test = {
        "providerOutput": OUTPUT,
        "assert": [{"type": "python", "value": code} for code in codes()[:each]],
    }
    suite = parse_suite(
        {
            "providers": ["echo"],
            "prompts": ["p"],
            "tests": [test],
            "evaluateOptions": {"repeat": repeat},
        },
        directory=directory,
        environ={**os.environ, "TRIOEVAL_PYTHON_WORKERS": str(WORKERS)},
    )

    async def emit(row: Row) -> None:
        await trio.lowlevel.checkpoint()
        assert row.verdict is not None, row.error
        assert row.verdict.passed, row.error

    started = time.perf_counter()
    await run_suite(suite, emit=emit)
    return time.perf_counter() - started


async def rows(directory: Path, each: int) -> float:
    """Seconds for as many assertions more, in rows that have so many each."""
    few, many = [], []
    for _ in range(ROUNDS):
        few.append(await run_of(directory, 1, each))
        many.append(await run_of(directory, 1 + MORE * ASSERTIONS // each, each))
    return (statistics.median(many) - statistics.median(few)) / MORE


def main() -> None:
    """Print the figure."""
    with TemporaryDirectory() as folder:
        bare = trio.run(calls, Path(folder))
        print(f"{ASSERTIONS} calls: {bare * 1000:.1f} ms")
        for each in (1, 10, ASSERTIONS):
            judged = trio.run(rows, Path(folder), each)
            print(
                f"{ASSERTIONS} assertions, {each} a row: {judged * 1000:.1f} ms, "
                f"{judged / bare:.2f} × (wanted: at most 1.5 ×)"
            )


if __name__ == "__main__":
    main()
