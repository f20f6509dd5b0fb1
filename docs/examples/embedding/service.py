"""A Trio service with two suites side by side on one lane, one of which is cut off and continued.

The nightly run is cancelled, as by a deployment, and continued; the other one does not notice.
"""

import sys
from pathlib import Path

import trio

import trioeval

ASKED: list[str] = []
ENOUGH = 4  # rows before the nightly run is cancelled


async def model(request: trioeval.Request) -> str:
    """Stands for a model that takes a while to answer."""
    ASKED.append(request.prompt)
    await trio.sleep(0.02)
    return request.prompt.upper()


def questions(topic: str, count: int) -> trioeval.Suite:
    return trioeval.parse_suite(
        {
            "providers": [{"id": "model", "lane": {"maxConcurrency": 2}}],
            "prompts": [f"{topic} {{{{number}}}}"],
            "tests": [{"vars": {"number": number}} for number in range(1, count + 1)],
        }
    )


async def nightly(session: trioeval.Session, folder: Path) -> None:
    suite, recorded = questions("river", 9), list[str | None]()
    with trio.CancelScope() as scope:
        async with session.run(suite, id="nightly") as run:
            async for row in run.rows():
                recorded.append(row.prompt)
                if len(recorded) == ENOUGH:
                    scope.cancel()
    async with session.run(suite, id="nightly", resume=True) as run:
        outputs = [row.output async for row in run.rows()]
    assert run.summary is not None
    print(f"{run.id}: {run.summary.ended}, {len(outputs)} rows, the last one {outputs[-1]}")
    print("requests of recorded rows:", [ASKED.count(str(prompt)) for prompt in recorded])
    await run.write(folder / "nightly.html", folder / "nightly.jsonl")


async def on_demand(session: trioeval.Session) -> None:
    async with session.run(questions("hill", 3), id="on-demand") as run:
        print("on demand:", [row.output async for row in run.rows()])


async def main(folder: Path) -> None:
    async with (
        trioeval.open_session(store=folder / "runs.db", providers={"model": model}) as session,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(nightly, session, folder)
        nursery.start_soon(on_demand, session)


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
