"""LIMIT where Trio does not know every deadline: jobs during a round register theirs later.

The first job with a timeout starts a round of one second. A job that starts and ends within it sets no
deadline of Trio; every other job must be cut off as if it had one from its first step.
"""

import math
from collections.abc import Awaitable, Callable

import pytest
import trio

from trioeval.kernel import Calls, Done, Job, Lanes, LaneSpec, Outcome, Plan, TimedOut, collect
from trioeval.kernel.timeouts import Timeouts, Timer
from trioeval.testing import run_virtual


def run_jobs(*jobs: tuple[float, float], width: int = 99) -> list[Outcome[None]]:
    """Return the outcomes of jobs with one call each, given their seconds and their timeouts."""

    async def body(job: Job[float], calls: Calls[float]) -> None:
        await calls("a", trio.sleep, job.payload)

    plan = Plan.of(Job(i, "a", seconds, timeout) for i, (seconds, timeout) in enumerate(jobs))
    return run_virtual(lambda: collect(plan, body, lanes=Lanes([LaneSpec("a", width)])))


def test_timeouts_of_every_length_are_exact() -> None:
    timeouts = [2.0**i for i in range(-6, 12)]
    outcomes = run_jobs((0.25, 9.0), *((9e9, timeout) for timeout in timeouts), width=1)
    start = 0.25
    for index, timeout in enumerate(timeouts, 1):
        assert outcomes[index] == TimedOut(index, start, start + timeout, 0.0, 1, timeout)
        start += timeout


def test_concurrent_timeouts_are_exact() -> None:
    """This holds for jobs that start during a round too."""
    timeouts = [0.125, 300.0, 0.75, 1.0, 64.0, 1.25, 1.75, 2.0, 3.0, 2.5, 0.5]
    first = [(0.25, 9.0)] * len(timeouts)
    outcomes = run_jobs(*first, *((9e9, timeout) for timeout in timeouts), width=len(timeouts))
    for index, timeout in enumerate(timeouts, len(first)):
        assert outcomes[index] == TimedOut(index, 0.25, 0.25 + timeout, 0.0, 1, timeout)


@pytest.mark.parametrize("timeout", [0.75, 1.75, 5.0])
def test_a_call_that_ends_as_the_timeout_expires_has_timed_out(timeout: float) -> None:
    """A call that ends at the instant of the timeout has timed out."""
    for _ in range(20):  # the order in which Trio runs tasks is random
        _, outcome = run_jobs((0.25, 9.0), (timeout, timeout), width=1)
        assert outcome == TimedOut(1, 0.25, 0.25 + timeout, 0.0, 1, timeout)


def test_the_timeout_of_a_job_is_over_with_it() -> None:
    """The timeout of a job does not affect the next job of its worker."""
    outcomes = run_jobs((0.5, 10.0), (9.75, 10.0), width=1)
    assert outcomes == [Done(0, 0.0, 0.5, 0.0, 1, None), Done(1, 0.5, 10.25, 0.0, 1, None)]


def with_timekeeper(use: Callable[[Timeouts], Awaitable[None]]) -> None:
    """Call `use` beside a timekeeper."""

    async def main() -> None:
        timeouts = Timeouts()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(timeouts.keep)
            await use(timeouts)
            nursery.cancel_scope.cancel()

    run_virtual(main)


def test_deadlines_are_set_in_trio_for_jobs_that_last_longer_than_a_round() -> None:
    async def use(timeouts: Timeouts) -> None:
        with Timer(timeouts) as first, Timer(timeouts) as second, Timer(timeouts) as third:
            first.set(60.0)
            assert first.known_deadline == 60.0  # no deadline counts yet
            await trio.testing.wait_all_tasks_blocked()
            second.set(61.0)
            third.set(1.5)
            assert (second.known_deadline, third.known_deadline) == (math.inf, 1.5)
            third.set(math.inf)
            assert third.known_deadline == math.inf
            await trio.sleep(1.0)
            await trio.testing.wait_all_tasks_blocked()
            assert second.known_deadline == 61.0

    with_timekeeper(use)


def test_the_timekeeper_sleeps_while_no_job_starts() -> None:
    """The timekeeper wakes at most once per start, and never without timeouts."""

    async def use(timeouts: Timeouts) -> None:
        with Timer(timeouts) as timer:
            timer.set(math.inf)
            await trio.testing.wait_all_tasks_blocked()
            assert timeouts.near == math.inf
            timer.set(60.0)
            await trio.testing.wait_all_tasks_blocked()
            assert timeouts.near == 2.0
            await trio.sleep(1.0)
            await trio.testing.wait_all_tasks_blocked()
            assert timeouts.near == math.inf

    with_timekeeper(use)


def test_a_timer_ends_with_its_worker() -> None:
    async def use(timeouts: Timeouts) -> None:
        with Timer(timeouts):
            assert len(timeouts.timers) == 1
        assert not timeouts.timers

    with_timekeeper(use)
