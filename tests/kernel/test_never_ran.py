"""Jobs that a run never reached, as ranges in place of single outcomes."""

from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.kernel import Job, Lanes, LaneSpec, NotRun, Outcome, Plan, run_plan
from trioeval.testing import run_virtual

SECONDS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), min_size=1, max_size=40)


@pytest.mark.slow
@settings(max_examples=50)
@given(SECONDS, st.integers(0, 30))
def test_ranges_and_outcomes_are_the_same_in_the_same_order(
    jobs: list[tuple[str, int]], stop_at: int
) -> None:
    """TOTAL, ORDER: each index occurs once; ranges replace single outcomes, and are as long as possible."""

    async def run(*, as_ranges: bool) -> tuple[list[Any], int]:
        found: list[Any] = []
        stop = trio.Event()

        async def perform(job: Job[int], calls: Any) -> int:
            return int(await calls(job.lane, send, job.payload))

        async def send(seconds: int) -> int:
            await trio.sleep(seconds)
            return seconds

        async def emit(outcome: Outcome[int]) -> None:  # noqa: ASYNC124
            found.append(outcome)

        async def never_ran(left: range, outcome: NotRun) -> None:  # noqa: ASYNC124
            assert left.start == outcome.index
            found.append((left, outcome.cut))

        async def stop_later() -> None:
            await trio.sleep(stop_at + 0.5)  # not an instant at which a job ends
            stop.set()

        plan = Plan.of(Job(n, lane, payload=s) for n, (lane, s) in enumerate(jobs))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_later)
            summary = await run_plan(
                plan,
                perform,
                lanes=Lanes(LaneSpec(name) for name in "abc"),
                emit=emit,
                never_ran=never_ran if as_ranges else None,
                stop=stop,
            )
            nursery.cancel_scope.cancel()
        assert summary.size == len(jobs)
        return found, summary.not_run

    singles, not_run = run_virtual(lambda: run(as_ranges=False))
    ranges, left = run_virtual(lambda: run(as_ranges=True))
    assert left == not_run
    spelt: list[Any] = []
    before = None
    for one in ranges:
        if isinstance(one, tuple):
            assert not isinstance(before, tuple)
            spelt += [NotRun(index, one[1]) for index in one[0]]
        else:
            spelt.append(one)
        before = one
    assert spelt == singles
