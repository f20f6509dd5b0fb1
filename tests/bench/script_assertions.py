"""The time of 100 `python` assertions, compared with calls of the same functions in one warm pool.

python tests/bench/script_assertions.py

Target: ≤ 1.5 × the calls, which carry the same arguments: code, output and the context of a row. Rows run
in complete runs. The first row, which starts the workers, is left out. The cost of rows without assertions is
printed separately, because with one assertion per row it is a large part. Rows and calls alternate, so that
other load on the machine affects both.
"""

import os
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trio

from trioeval.evaluation.scripts import Scripts, open_scripts
from trioeval.loading.load import parse_suite
from trioeval.providers.programs.workers import Encoded
from trioeval.run import Row, run_suite

ASSERTIONS, ROUNDS, MORE, WORKERS = 100, 7, 10, 2
OUTPUT = "the quick brown fox jumps over the lazy dog " * 20
CODES = [
    f"sum(ord(character) for character in output) % {number + 2} < 1000"
    for number in range(ASSERTIONS)
]
SHOW = "{'pass': True, 'score': 1, 'reason': '', 'metadata': context}"


async def calls(scripts: Scripts, context: Mapping[str, Any]) -> float:
    """Seconds for bare calls in warm workers."""

    async def call(code: str) -> None:
        assert await scripts.judge(code, OUTPUT, Encoded.of(dict(context)))

    started = time.perf_counter()
    async with trio.open_nursery() as nursery:
        for code in CODES * MORE:
            nursery.start_soon(call, code)
    return time.perf_counter() - started


async def rows(directory: Path, codes: list[str], repeat: int) -> tuple[float, Row]:
    """Seconds for a run of equal rows, and the last of them."""
    test = {
        "providerOutput": OUTPUT,
        "assert": [{"type": "python", "value": code} for code in codes],
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
    found: list[Row] = []

    async def emit(row: Row) -> None:
        await trio.lowlevel.checkpoint()
        assert row.verdict is not None, row.error
        assert row.verdict.passed, row.error
        found.append(row)

    started = time.perf_counter()
    await run_suite(suite, emit=emit)
    return time.perf_counter() - started, found[-1]


async def warm_rows(directory: Path, codes: list[str], each: int) -> float:
    """Seconds for as many rows as there are calls, without what the first row takes."""
    first, _ = await rows(directory, codes, 1)
    all_of_them, _ = await rows(directory, codes, 1 + MORE * ASSERTIONS // each)
    return all_of_them - first


async def compare(directory: Path, each: int) -> tuple[float, float, float]:
    """Seconds for the calls, for rows with `each` assertions, and for as many rows with none."""
    _, row = await rows(directory, [*CODES[: each - 1], SHOW], 1)
    assert row.verdict is not None
    context = row.verdict.parts[-1].metadata
    taken: list[tuple[float, float, float]] = []
    async with open_scripts(directory, os.environ, workers=WORKERS) as scripts:
        await calls(scripts, context)
        for _ in range(ROUNDS):
            bare = await calls(scripts, context)
            judged = await warm_rows(directory, CODES[:each], each)
            empty = await warm_rows(directory, [], each)
            taken.append((bare, judged, empty))
    bare, judged, empty = (statistics.median(times) / MORE for times in zip(*taken, strict=True))
    return bare, judged, empty


def main() -> None:
    """Print the figures."""
    with TemporaryDirectory() as folder:
        for each in (1, 10, ASSERTIONS):
            bare, judged, empty = trio.run(compare, Path(folder), each)
            print(
                f"{ASSERTIONS} assertions, {each} a row: {judged / bare:.2f} × the calls, "
                f"{(judged - empty) / bare:.2f} × without the rows' own time "
                f"(calls {bare * 1000:.1f} ms, judged {judged * 1000:.1f} ms, rows {empty * 1000:.1f} ms)"
            )


if __name__ == "__main__":
    main()
