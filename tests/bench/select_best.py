"""The time of 30 groups of outputs that a judge compares; ideal is the fewest rounds that its lane allows.

python tests/bench/select_best.py

Target: ≤ 1.3 × ideal. The judge takes 200 ms and its lane is 20 wide: two rounds, 0.4 s. The
baseline is the same calls through a `CapacityLimiter`, without comparison.
"""

import statistics
import time

import trio

from trioeval import Reply, Request, collect, parse_suite

GROUPS, SECONDS, WIDTH, ROUNDS = 30, 0.2, 20, 7
IDEAL = SECONDS * -(-GROUPS // WIDTH)
JUDGE = {"id": "judge", "lane": {"maxConcurrency": WIDTH}}
SUITE = parse_suite(
    {
        "providers": [{"id": "model", "lane": {"maxConcurrency": WIDTH}}],
        "prompts": ["a {{n}}", "b {{n}}", "c {{n}}"],
        "tests": [
            {
                "vars": {"n": f"{n}"},
                "assert": [{"type": "select-best", "value": "the best", "provider": JUDGE}],
            }
            for n in range(GROUPS)
        ],
    }
)


async def model(request: Request) -> Reply:
    await trio.lowlevel.checkpoint()
    return Reply(output=request.prompt)


async def judge(_request: Request) -> Reply:
    await trio.sleep(SECONDS)
    return Reply(output="1")


async def bare() -> None:
    """The judge's calls alone."""
    limit = trio.CapacityLimiter(WIDTH)

    async def call() -> None:
        async with limit:
            await trio.sleep(SECONDS)

    async with trio.open_nursery() as nursery:
        for _ in range(GROUPS):
            nursery.start_soon(call)


async def compared() -> None:
    """The suite."""
    rows = await collect(SUITE, providers={"model": model, "judge": judge})
    assert [row.score for row in rows] == [0, 1, 0] * GROUPS


def main() -> None:
    """Print the medians and their ratios."""
    taken: dict[str, list[float]] = {"bare": [], "compared": []}
    for _ in range(ROUNDS):
        for body in (bare, compared):
            began = time.perf_counter()
            trio.run(body)
            taken[body.__name__].append(time.perf_counter() - began)
    found = {name: statistics.median(seconds) for name, seconds in taken.items()}
    print(f"ideal {IDEAL:.3f} s")
    for name, seconds in found.items():
        print(f"{name:9} {seconds:.3f} s  {seconds / IDEAL:.2f} x ideal")


if __name__ == "__main__":
    main()
