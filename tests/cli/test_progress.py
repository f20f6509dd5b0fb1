"""The picture of a run that is under way."""

import trio

from trioeval.cli.progress import Progress
from trioeval.kernel import Calls, Job, Lanes, LaneSpec, Plan, collect
from trioeval.tasks import Status
from trioeval.tasks.columns.making import OWN_LANES
from trioeval.testing import run_virtual


def test_every_lane_has_a_line_that_says_what_it_does_and_waits_for() -> None:
    """Rows so far, calls in flight of the width, and the reason of a wait with its end."""

    async def main() -> list[str]:
        lanes = Lanes([LaneSpec("fast", 3), LaneSpec("paced", 2, rpm=6), LaneSpec("full", 1)])
        progress = Progress(9, lanes)

        async def body(job: Job[None], calls: Calls[None]) -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(calls, job.lane, trio.sleep, 5)

        plan = Plan.of(Job(i, name, None) for i, name in enumerate(lanes))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.Event().wait)
            nursery.start_soon(lambda: collect(plan, body, lanes=lanes, observe=progress.observe))
            await trio.sleep(1)
            shown = progress.lines(trio.current_time())
            nursery.cancel_scope.cancel()
        return shown

    assert run_virtual(main) == [
        "0/9 rows: 0 pass, 0 fail, 0 error",
        "  fast: 2/3 in flight, 2 calls",
        "  paced: 1/2 in flight, 1 calls, waiting 9.0 s: its rate",
        "  full: 1/1 in flight, 1 calls, waiting: all slots are taken",
    ]


def test_the_lanes_of_what_asks_nobody_are_not_told() -> None:
    progress = Progress(1, Lanes([LaneSpec(name, 3) for name in ("fast", *OWN_LANES)]))
    assert [line.split(":")[0].strip() for line in progress.lines(0.0)] == ["0/1 rows", "fast"]


def test_a_run_that_goes_on_begins_with_the_rows_that_are_there() -> None:
    """They count as done before their turn comes, and are told apart until then."""
    kept = 3
    progress = Progress(5, Lanes([LaneSpec("a", 1)]), lambda: kept)
    progress.add(Status.PASS)
    assert progress.lines(0)[0] == "4/5 rows: 1 pass, 0 fail, 0 error, 3 there already"
    kept = 0
    assert progress.lines(0)[0] == "1/5 rows: 1 pass, 0 fail, 0 error"
