"""Changes of lanes during runs: another max concurrency, a pause, and resuming."""

from collections.abc import Callable, Sequence

import pytest
import trio

from trioeval.errors import CallError, Fault, PlanError
from trioeval.kernel import (
    BreakerState,
    Calls,
    Done,
    Event,
    Failed,
    Job,
    Lane,
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
    await calls("a", trio.sleep, job.payload)


def run_retuned(
    durations: Sequence[float], width: int, changes: Sequence[tuple[float, Callable[[Lane], None]]]
) -> list[tuple[float, float]]:
    """Return starts and ends of jobs, with changes of their lane at some instants."""

    async def main() -> list[Outcome[None]]:
        lanes = Lanes([LaneSpec("a", width)])
        outcomes: list[Outcome[None]] = []

        async def run() -> None:
            plan = Plan.of(Job(i, "a", seconds) for i, seconds in enumerate(durations))
            outcomes.extend(await collect(plan, take, lanes=lanes))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            for at, change in changes:
                await trio.sleep_until(at)
                change(lanes["a"])
        return outcomes

    outcomes = run_virtual(main)
    assert all(isinstance(outcome, Done) for outcome in outcomes)
    return [(o.started_at, o.finished_at) for o in outcomes if isinstance(o, Done)]


def widen(to: int) -> Callable[[Lane], None]:
    def change(lane: Lane) -> None:
        lane.max_concurrency = to
        assert lane.max_concurrency == to

    return change


def test_a_larger_max_concurrency_wakes_waiters_at_once() -> None:
    """EAGER: with more slots, all calls that fit start at that instant."""
    assert run_retuned([8] * 4, 1, [(2.0, widen(3))]) == [
        (0.0, 8.0),
        (2.0, 10.0),
        (2.0, 10.0),
        (8.0, 16.0),
    ]


def test_a_smaller_max_concurrency_does_not_interrupt_calls() -> None:
    """With fewer slots calls in flight continue; the next one starts when there is room."""
    assert run_retuned([2, 4, 6, 1], 3, [(1.0, widen(1))]) == [
        (0.0, 2.0),
        (0.0, 4.0),
        (0.0, 6.0),
        (6.0, 7.0),
    ]


def test_a_paused_lane_starts_and_interrupts_no_call() -> None:
    """A paused lane starts nothing, even with free slots, and calls in flight continue."""
    changes = [(1.0, Lane.pause), (8.0, Lane.resume)]
    assert run_retuned([2, 1, 1], 1, changes) == [(0.0, 2.0), (8.0, 9.0), (9.0, 10.0)]


def test_a_max_concurrency_set_during_a_pause_applies_after_it() -> None:
    """A max concurrency set during a pause applies after it."""
    changes = [(1.0, Lane.pause), (3.0, widen(2)), (5.0, Lane.resume)]
    assert run_retuned([2, 1, 1], 1, changes) == [(0.0, 2.0), (5.0, 6.0), (5.0, 6.0)]


def test_a_paused_lane_reports_its_pause() -> None:
    """Statistics and repr of a lane show a pause."""
    lane = Lanes([LaneSpec("a")])["a"]

    async def main() -> None:
        lane.pause()
        seen = lane.statistics()
        assert (seen.paused, seen.limit, seen.max_concurrency) == (True, 0, 4)
        assert repr(lane) == "<Lane 'a': 0 of 4 in flight, 0 queued, paused>"
        lane.resume()
        assert not lane.statistics().paused

    run_virtual(main)


@pytest.mark.parametrize("width", [0, -2, 1.5, True])
def test_a_max_concurrency_out_of_range_is_rejected(width: int) -> None:
    """A rejected max concurrency changes nothing."""
    lane = Lanes([LaneSpec("a", 3)])["a"]
    with pytest.raises(
        PlanError, match="lane 'a': max_concurrency must be a whole number of at least 1, got"
    ):
        lane.max_concurrency = width
    assert lane.max_concurrency == 3


def test_resume_opens_a_lane_that_was_closed() -> None:
    """`resume` opens a closed lane with a reset breaker."""

    async def main() -> tuple[Outcome[None], str, BreakerState, Outcome[None]]:
        lanes = Lanes([LaneSpec("a", breaker_threshold=1)])

        async def refused(job: Job[float], calls: Calls[float]) -> None:
            async def send() -> None:
                raise CallError(Fault.FATAL, "no such key")

            await calls("a", send)

        plan = Plan.of([Job(0, "a", 1.0)])
        (first,) = await collect(plan, refused, lanes=lanes)
        shown, state = repr(lanes["a"]), lanes["a"].statistics().state
        lanes["a"].resume()
        (second,) = await collect(plan, take, lanes=lanes)
        return first, shown, state, second

    first, shown, state, second = run_virtual(main)
    assert isinstance(first, Failed)
    assert shown == "<Lane 'a': 0 of 0 in flight, 0 queued, breaker open>"
    assert state is BreakerState.OPEN
    assert second == Done(0, 0.0, 1.0, 0.0, 1, None)


def test_an_observer_may_end_a_wait_at_once() -> None:
    """EAGER: an observer may resume the lane at the moment in which a wait is reported."""

    async def main() -> list[Outcome[None]]:
        lanes = Lanes([LaneSpec("a")])
        lanes["a"].pause()

        def resume(event: Event) -> None:
            if isinstance(event, Waiting) and event.why is WaitReason.PAUSED:
                lanes["a"].resume()

        plan = Plan.of(Job(i, "a", 10.0) for i in range(4))
        return await collect(plan, take, lanes=lanes, observe=resume)

    assert [o.started_at for o in run_virtual(main) if isinstance(o, Done)] == [0.0] * 4
