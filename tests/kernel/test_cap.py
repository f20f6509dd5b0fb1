"""The cap over all lanes: fair between them, and released however a call ends."""

from collections.abc import Sequence

import pytest
import trio

from trioeval.errors import PlanError
from trioeval.kernel import (
    Calls,
    Done,
    Job,
    Lanes,
    LaneSpec,
    Outcome,
    Plan,
    Waiting,
    WaitReason,
    collect,
)
from trioeval.testing import run_virtual


async def take(job: Job[float], calls: Calls[float]) -> None:
    await calls(job.lane, trio.sleep, job.payload)


def run_capped(
    cap: int, jobs: Sequence[tuple[str, float]], *lanes: LaneSpec, timeout: float = 1e9
) -> list[Outcome[None]]:
    plan = Plan.of(Job(i, lane, seconds, timeout) for i, (lane, seconds) in enumerate(jobs))
    return run_virtual(lambda: collect(plan, take, lanes=Lanes(lanes, cap=cap)))


def starts(outcomes: Sequence[Outcome[None]]) -> list[float]:
    """Return the starts of calls, which may wait for the cap after the admission of their job."""
    return [
        outcome.started_at + outcome.waited for outcome in outcomes if isinstance(outcome, Done)
    ]


def test_the_cap_bounds_all_lanes_together() -> None:
    """WIDTH: a cap of two bounds two lanes of four slots."""
    jobs = [("a", 1.0), ("b", 1.0)] * 4
    outcomes = run_capped(2, jobs, LaneSpec("a"), LaneSpec("b"))
    assert sorted(starts(outcomes)) == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]


def test_lanes_take_turns_at_the_cap() -> None:
    """A lane with a hundred jobs does not starve another one with ten."""
    jobs = [("busy", 1.0)] * 100 + [("other", 1.0)] * 10
    begun = starts(run_capped(1, jobs, LaneSpec("busy", 50), LaneSpec("other", 50)))
    assert sorted(begun) == [float(n) for n in range(110)]
    assert max(begun[100:]) <= 20.0


def test_a_body_that_calls_again_at_once_does_not_overtake_a_waiting_lane() -> None:
    """A body that calls again at once queues behind a lane that waits for the cap."""
    started: list[tuple[str, float]] = []

    async def send(lane: str) -> None:
        started.append((lane, trio.current_time()))
        await trio.sleep(1)

    async def body(job: Job[None], calls: Calls[None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(again_and_again, calls)
            await trio.sleep(0.5)
            await calls("b", send, "b")

    async def again_and_again(calls: Calls[None]) -> None:
        for _ in range(3):
            await calls("a", send, "a")

    async def main() -> None:
        lanes = Lanes([LaneSpec("a"), LaneSpec("b")], cap=1)
        await collect(Plan.of([Job(0, "a", None)]), body, lanes=lanes)

    run_virtual(main)
    assert started == [("a", 0.0), ("b", 1.0), ("a", 2.0), ("a", 3.0)]


def test_a_lane_that_waits_for_its_pace_holds_no_part_of_the_cap() -> None:
    """A lane that waits for its pace holds no part of the cap."""
    jobs = [("slow", 1.0)] * 2 + [("fast", 1.0)] * 20
    begun = starts(run_capped(2, jobs, LaneSpec("slow", rpm=1), LaneSpec("fast")))
    assert begun[:2] == [0.0, 60.0]
    assert max(begun[2:]) <= 11.0


def test_a_call_that_times_out_releases_the_cap() -> None:
    """LEAK: a cancelled call releases the cap at that instant."""
    jobs = [("a", 9.0), ("b", 1.0)]
    outcomes = run_capped(1, jobs, LaneSpec("a"), LaneSpec("b"), timeout=3.0)
    assert starts(outcomes) in ([0.0], [3.0])  # either lane may be first


def test_a_cancelled_waiter_does_not_keep_its_place_at_the_cap() -> None:
    """LEAK: a cancelled first waiter releases its lane's place at the cap."""

    async def main() -> tuple[float, bool]:
        lanes = Lanes([LaneSpec(name) for name in "abc"], cap=1)
        served_at = -1.0

        async def body(job: Job[None], calls: Calls[None]) -> None:
            nonlocal served_at
            async with trio.open_nursery() as nursery:
                nursery.start_soon(calls, "a", trio.sleep, 4)
                await trio.sleep(1)
                nursery.start_soon(give_up, calls)
                await trio.sleep(1)
                await calls("c", trio.sleep, 1)
                served_at = trio.current_time()

        async def give_up(calls: Calls[None]) -> None:
            with trio.move_on_after(2):
                await calls("b", trio.sleep, 1)

        await collect(Plan.of([Job(0, "a", None)]), body, lanes=lanes)
        assert lanes.cap is not None
        return served_at, lanes.cap.idle

    assert run_virtual(main) == (5.0, True)


def test_a_wait_for_the_cap_is_reported() -> None:
    """A wait for the cap is reported with its reason."""
    waits: list[Waiting] = []

    async def main() -> None:
        lanes = Lanes([LaneSpec("a"), LaneSpec("b")], cap=1)
        plan = Plan.of([Job(0, "a", 2.0)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: collect(plan, take, lanes=lanes))
            await trio.sleep(1)
            await collect(
                Plan.of([Job(0, "b", 2.0)]),
                take,
                lanes=lanes,
                observe=lambda event: waits.append(event) if isinstance(event, Waiting) else None,
            )

    run_virtual(main)
    assert waits == [Waiting(1.0, "b", WaitReason.CAP, None, None)]


@pytest.mark.parametrize("cap", [0, -1, 1.5, True])
def test_a_cap_is_a_whole_number_of_at_least_one(cap: int) -> None:
    """A cap that is not a whole number of at least 1 is rejected."""
    with pytest.raises(PlanError) as caught:
        Lanes([LaneSpec("a")], cap=cap)
    assert str(caught.value) == f"cap must be a whole number of at least 1, got {cap!r}"
