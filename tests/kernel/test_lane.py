"""One lane: cancelled waits, waits that end at the same instant, and statistics."""

import itertools
import math

import attrs
import pytest
import trio

from trioeval.errors import PlanError
from trioeval.kernel import (
    BreakerState,
    Calls,
    Event,
    Job,
    Lanes,
    LaneSpec,
    LaneStatistics,
    Plan,
    Waiting,
    WaitReason,
    collect,
)
from trioeval.kernel.reservations import CallRequest
from trioeval.testing import run_virtual


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        (
            {"max_concurrency": 0},
            "lane 'a': max_concurrency must be a whole number of at least 1, got 0",
        ),
        (
            {"max_concurrency": True},
            "lane 'a': max_concurrency must be a whole number of at least 1, got True",
        ),
        ({"burst": 1.5}, "lane 'a': burst must be a whole number of at least 1, got 1.5"),
        ({"rpm": 0}, "lane 'a': rpm must be more than 0 and finite, got 0"),
        ({"rpm": -3}, "lane 'a': rpm must be more than 0 and finite, got -3"),
        ({"rpm": float("nan")}, "lane 'a': rpm must be more than 0 and finite, got nan"),
        ({"rpm": float("inf")}, "lane 'a': rpm must be more than 0 and finite, got inf"),
        ({"min_gap": -1}, "lane 'a': min_gap must be at least 0 seconds and finite, got -1"),
    ],
)
def test_a_lane_rejects_limits_out_of_range(limits: dict[str, float], message: str) -> None:
    """The message names the lane, the field, the range and the value."""
    with pytest.raises(PlanError) as caught:
        LaneSpec("a", **limits)  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_lanes_have_different_names() -> None:
    """Two lanes with one name are rejected."""
    with pytest.raises(PlanError, match="two lanes are named 'a'"):
        Lanes([LaneSpec("a"), LaneSpec("a", max_concurrency=2)])


def test_statistics_and_repr_are_snapshots() -> None:
    """Statistics have the name, max concurrency, calls in flight, waiters and next start."""

    async def main() -> tuple[LaneStatistics, str, LaneStatistics]:
        lanes = Lanes([LaneSpec("a", max_concurrency=2, rpm=30)])

        async def body(job: Job[None], calls: Calls[None]) -> None:
            await calls("a", trio.sleep, 7)

        async with trio.open_nursery() as nursery:
            plan = Plan.of(Job(i, "a", None) for i in range(5))
            nursery.start_soon(lambda: collect(plan, body, lanes=lanes))
            await trio.sleep(3)
            during, shown = lanes.statistics()["a"], repr(lanes)
        return during, shown, lanes.statistics()["a"]

    during, shown, after = run_virtual(main)
    fresh = LaneStatistics(
        name="a",
        max_concurrency=2,
        limit=2,
        in_flight=0,
        waiting=0,
        resting=0,
        why=None,
        next_start_at=16.0,
        blocked_until=-math.inf,
        state=BreakerState.CLOSED,
        paused=False,
        reason=None,
        started=5,
        succeeded=5,
        refused=0,
        retried=0,
        cuts=0,
        rpm=30.0,
        tpm=None,
    )
    assert during == attrs.evolve(fresh, in_flight=2, next_start_at=4.0, started=2, succeeded=0)
    assert shown == "<Lanes [<Lane 'a': 2 of 2 in flight, 0 queued>]>"
    assert after == fresh


def test_waits_are_reported_with_reason_and_end() -> None:
    """Every wait is reported with its reason, and its end if known."""

    async def main() -> list[Event]:
        events: list[Event] = []

        async def body(job: Job[None], calls: Calls[None]) -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(calls, "a", trio.sleep, 5)
                    await trio.testing.wait_all_tasks_blocked()

        lanes = Lanes([LaneSpec("a", max_concurrency=2, min_gap=2)])
        await collect(Plan.of([Job(0, "a", None)]), body, lanes=lanes, observe=events.append)
        return [event for event in events if isinstance(event, Waiting)]

    assert run_virtual(main) == [
        Waiting(0.0, "a", WaitReason.DELAY, 2.0, 0),
        Waiting(0.0, "a", WaitReason.TURN, None, 0),
        Waiting(2.0, "a", WaitReason.DELAY, 4.0, 0),
        Waiting(4.0, "a", WaitReason.SLOT, None, 0),
    ]


@pytest.mark.parametrize("cancel_at", [0.5, 1.0, 2.0])
def test_a_cancelled_wait_costs_nothing(cancel_at: float) -> None:
    """PACE: cancelled waiters leave no hole, whether queued, just served or served."""

    async def main() -> list[float]:
        lanes, starts = Lanes([LaneSpec("a", rpm=60)]), list[float]()

        async def send() -> None:
            starts.append(trio.current_time())

        async def impatient(job: Job[None], calls: Calls[None]) -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(give_up, calls)
                await trio.sleep(3)
                nursery.start_soon(calls, "a", send)

        async def give_up(calls: Calls[None]) -> None:
            with trio.move_on_at(cancel_at):
                await calls("a", send)
                await calls("a", send)

        await collect(Plan.of([Job(0, "a", None)]), impatient, lanes=lanes)
        assert lanes.statistics()["a"].in_flight == 0
        return starts

    starts = run_virtual(main)
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
    assert starts[-1] == 3.0
    assert all(gap >= 1 for gap in gaps)
    assert starts[:-1] == [float(n) for n in range(len(starts) - 1)]


def test_calls_start_in_the_order_in_which_they_came() -> None:
    """Calls start first come, first served, over jobs and branches."""

    async def main() -> list[int]:
        order: list[int] = []

        async def send(number: int) -> None:
            order.append(number)
            await trio.sleep(1)

        async def body(job: Job[None], calls: Calls[None]) -> None:
            async with trio.open_nursery() as nursery:
                for number in range(8):
                    nursery.start_soon(calls, "a", send, number)
                    await trio.testing.wait_all_tasks_blocked()

        lanes = Lanes([LaneSpec("a", max_concurrency=2, min_gap=0.25)])
        await collect(Plan.of([Job(0, "a", None)]), body, lanes=lanes)
        return order

    assert run_virtual(main) == [*range(8)]


def test_a_job_that_pauses_before_its_call_queues() -> None:
    """An admitted job that pauses queues like all others once the lane was used."""

    async def main() -> list[tuple[int, float]]:
        starts: list[tuple[int, float]] = []

        async def send(index: int) -> None:
            starts.append((index, trio.current_time()))
            await trio.sleep(4)

        async def body(job: Job[None], calls: Calls[None]) -> None:
            if job.index == 0:
                await trio.sleep(1)
            await calls("a", send, job.index)

        lanes = Lanes([LaneSpec("a", max_concurrency=1)])
        await collect(Plan.of(Job(i, "a", None) for i in range(3)), body, lanes=lanes)
        return starts

    assert run_virtual(main) == [(1, 0.0), (0, 4.0), (2, 8.0)]


def test_a_new_call_does_not_overtake_a_waiter_woken_at_the_same_instant() -> None:
    """A released slot goes to the waiter, not to the next call of its former holder."""

    async def main() -> list[str]:
        order: list[str] = []

        async def send(name: str) -> None:
            order.append(name)
            await trio.sleep(4)

        async def body(job: Job[None], calls: Calls[None]) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(twice, calls)
                await trio.sleep(1)
                nursery.start_soon(calls, "a", send, "in line")

        async def twice(calls: Calls[None]) -> None:
            await calls("a", send, "first")
            await calls("a", send, "newcomer")

        await collect(
            Plan.of([Job(0, "a", None)]), body, lanes=Lanes([LaneSpec("a", max_concurrency=1)])
        )
        return order

    assert run_virtual(main) == ["first", "in line", "newcomer"]


def test_the_admission_of_a_job_ends_with_the_turn_of_another() -> None:
    """An admitted job that pauses does not overtake a waiter for the pace."""

    async def main() -> bool:
        clock, lane = trio.lowlevel.current_clock(), Lanes([LaneSpec("a", min_gap=2)])["a"]
        assert isinstance(clock, trio.testing.MockClock)
        paused, first = object(), CallRequest(0, None)
        assert lane.start_nowait(first, object(), 0.0)
        first.used = 0, 0.0
        lane.end(first, None)
        lane.admitted = paused
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lane.wait_start, CallRequest(1, None), lambda _now: None)
            await trio.testing.wait_all_tasks_blocked()
            clock.jump(2)  # the pace is open, and no task has run since
            return lane.start_nowait(CallRequest(0, None), paused, trio.current_time())
        raise AssertionError

    assert run_virtual(main) is False


def test_a_lane_can_be_added_while_runs_use_others() -> None:
    """It shares the numbers for back-offs and the cap with the others; names stay different."""

    async def main() -> list[float]:
        lanes = Lanes([LaneSpec("a")], cap=1)
        added = lanes.add(LaneSpec("b", 3))
        assert lanes["b"] is added
        assert list(lanes) == ["a", "b"]
        with pytest.raises(PlanError, match="two lanes are named 'a'"):
            lanes.add(LaneSpec("a"))

        async def perform(job: Job, calls: Calls) -> None:
            await calls(job.lane, trio.sleep, 1)

        plan = Plan.of(Job(index, name, None) for index, name in enumerate("ab"))
        return [outcome.finished_at for outcome in await collect(plan, perform, lanes=lanes)]  # type: ignore[union-attr]

    assert sorted(run_virtual(main)) == [1.0, 2.0]
