"""`calls.waiting()` excludes a body's own waits from its working time."""

from collections.abc import Awaitable, Callable

import pytest
import trio

from trioeval.kernel import (
    Calls,
    Done,
    Job,
    Lanes,
    LaneSpec,
    Outcome,
    Plan,
    TimedOut,
    Waiting,
    WaitReason,
    collect,
)
from trioeval.testing import run_virtual

Body = Callable[[Job[None], Calls[None]], Awaitable[None]]


def run_one(body: Body, timeout: float) -> Outcome[None]:
    async def main() -> Outcome[None]:
        plan = Plan.of([Job(0, "a", None, timeout)])
        (outcome,) = await collect(plan, body, lanes=Lanes([LaneSpec("a", 2)]))
        return outcome

    return run_virtual(main)


def test_the_clock_is_stopped_while_a_body_waits() -> None:
    """LIMIT: the clock is stopped during a marked wait and continues after it."""

    async def body(_job: Job[None], calls: Calls[None]) -> None:
        await trio.sleep(0.5)
        with calls.waiting():
            await trio.sleep(10.0)
        await trio.sleep(0.75)

    assert run_one(body, 2.0) == Done(0, 0.0, 11.25, 10.0, 0, None)
    assert run_one(body, 1.0) == TimedOut(0, 0.0, 11.0, 10.0, 0, 1.0)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (LaneSpec("a", 2, min_gap=5.0), WaitReason.DELAY),
        (LaneSpec("a", 2, rpm=60, min_gap=5.0), WaitReason.DELAY),
        (LaneSpec("a", 2, rpm=12), WaitReason.PACE),
        (LaneSpec("a", 2, rpm=12, min_gap=1.0), WaitReason.PACE),
    ],
)
def test_the_reason_of_a_wait_is_the_rate_or_the_gap(spec: LaneSpec, why: WaitReason) -> None:
    """It is the one that ends later."""
    waits: list[Waiting] = []

    async def body(job: Job[None], calls: Calls[None]) -> None:
        await calls(job.lane, trio.sleep, 1.0)

    async def main() -> None:
        await collect(
            Plan.of([Job(0, "a", None), Job(1, "a", None)]),
            body,
            lanes=Lanes([spec]),
            observe=lambda event: waits.append(event) if isinstance(event, Waiting) else None,
        )

    run_virtual(main)
    assert [(wait.why, wait.until) for wait in waits] == [(why, 5.0)]


def test_a_call_in_flight_beside_a_waiting_branch_is_working_time() -> None:
    """LIMIT: the clock continues in that case."""

    async def wait(calls: Calls[None], seconds: float) -> None:
        with calls.waiting():
            await trio.sleep(seconds)

    async def body(job: Job[None], calls: Calls[None]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait, calls, 3.0)
            nursery.start_soon(wait, calls, 1.0)
            await calls(job.lane, trio.sleep, 2.0)

    assert run_one(body, 3.0) == Done(0, 0.0, 3.0, 1.0, 1, None)
    assert run_one(body, 2.0) == TimedOut(0, 0.0, 2.0, 0.0, 1, 2.0)


def test_a_call_inside_a_marked_wait_is_working_time() -> None:
    """LIMIT: the clock continues during the call."""

    async def body(job: Job[None], calls: Calls[None]) -> None:
        with calls.waiting():
            await trio.sleep(4.0)
            await calls(job.lane, trio.sleep, 2.0)
            await trio.sleep(4.0)

    assert run_one(body, 2.5) == Done(0, 0.0, 10.0, 8.0, 1, None)


def test_the_clock_continues_after_a_cancelled_wait() -> None:
    """LIMIT: a cancelled wait is over."""

    async def body(_job: Job[None], calls: Calls[None]) -> None:
        with trio.move_on_after(3.0), calls.waiting():
            await trio.sleep_forever()
        await trio.sleep(2.0)

    assert run_one(body, 2.5) == Done(0, 0.0, 5.0, 3.0, 0, None)
    assert run_one(body, 1.5) == TimedOut(0, 0.0, 4.5, 3.0, 0, 1.5)
