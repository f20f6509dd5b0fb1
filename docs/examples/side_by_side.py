"""A Trio application with a time limit of its own, and two suites on shared lanes inside it.

What was finished when the time is up is kept, in order; the rest says that it was not.
"""

import trio

from trioeval import PreparedSuite, Row, parse_suite, prepare, run_suite
from trioeval.kernel import Lanes
from trioeval.providers import Request
from trioeval.run import make_lanes


async def slow_model(request: Request) -> str:
    """Stands for a model that takes a second to answer."""
    await trio.sleep(1)
    return request.prompt.upper()


def questions(topic: str, count: int) -> PreparedSuite:
    suite = parse_suite(
        {
            "providers": [{"id": "slow_model", "lane": {"maxConcurrency": 2}}],
            "prompts": [f"{topic} {{{{number}}}}"],
            "tests": [{"vars": {"number": number}} for number in range(1, count + 1)],
        }
    )
    return prepare(suite, providers={"slow_model": slow_model})


async def run_into(kept: list[Row], suite: PreparedSuite, lanes: Lanes) -> None:
    async def keep(row: Row) -> None:  # noqa: ASYNC124 - lists do not wait
        kept.append(row)

    await run_suite(suite, emit=keep, lanes=lanes)


async def main() -> None:
    rivers, hills = questions("river", 3), questions("hill", 4)
    lanes = make_lanes(rivers, hills)
    river_rows: list[Row] = []
    hill_rows: list[Row] = []
    with trio.move_on_after(2.5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_into, river_rows, rivers, lanes)
            nursery.start_soon(run_into, hill_rows, hills, lanes)
    for row in (*river_rows, *hill_rows):
        print(row.index, row.status.value, row.output or row.error)


if __name__ == "__main__":
    trio.run(main)
