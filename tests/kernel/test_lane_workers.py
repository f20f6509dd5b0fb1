"""LaneWorkers by itself: cases that no schedule of a whole run reaches reliably."""

import math

import trio

from trioeval.errors import CallError, Fault
from trioeval.kernel import (
    Calls,
    CallStarted,
    Done,
    Event,
    Failed,
    Job,
    Lanes,
    LaneSpec,
    Outcome,
    Plan,
    Waiting,
    run_plan,
)
from trioeval.kernel.run_state import RunState
from trioeval.kernel.timeouts import Timer
from trioeval.kernel.workers import LaneWorkers
from trioeval.testing import run_virtual


async def silent(_job: Job[None], _calls: Calls[None]) -> None:
    """A body that does nothing."""


def test_a_lane_at_its_bound_of_live_jobs_admits_no_other() -> None:
    """The bound also applies to a worker that was started while there was room."""

    async def main() -> list[int | None]:
        lanes, plan = Lanes([LaneSpec("a")]), Plan.of(Job(i, "a", None) for i in range(9))
        running = RunState(lanes, math.inf, trio.Event(), plan, silent)
        workers = LaneWorkers(running, lanes["a"], max_live=2)
        admitted = [workers.admit_nowait(0.0) for _ in range(3)]
        workers.leave()
        admitted.append(workers.admit_nowait(0.0))
        admitted.append(await workers.admit())
        return [job.index if job else None for job in admitted]

    assert run_virtual(main) == [0, 1, None, 2, None]


def test_no_state_is_left_of_a_job_that_has_its_outcome() -> None:
    """Not even the number of its runs is stored: there may be millions of jobs."""

    async def main() -> tuple[bool, object]:
        lanes, plan = Lanes([LaneSpec("a")]), Plan.of([Job(0, "a", None)])
        running = RunState(lanes, math.inf, trio.Event(), plan, silent, rounds=2)
        workers = LaneWorkers(running, lanes["a"], max_live=2)
        job = workers.admit_nowait(0.0)
        assert job is not None
        before = state(running)
        calls = running.start(job, Timer(running.timeouts), 0.0, rested=workers.rested)
        failed = Failed(0, 0.0, 1.0, 0.0, 1, CallError(Fault.TRANSIENT))
        running.finish(calls, failed)
        assert list(running.next_round()) == [0]
        kept = state(running) != before
        running.settle(Done(0, 0.0, 2.0, 0.0, 2, None))
        await trio.lowlevel.checkpoint()
        return kept, state(running) == before

    def state(running: RunState[None, None]) -> object:
        return dict(running._salvages), set(running._aside)

    assert run_virtual(main) == (True, True)


def test_without_pauses_a_worker_whose_call_lasted_takes_the_next_job_itself() -> None:
    """The jobs start at the same instants, and no worker has to wait next in line after the first ones."""

    async def call_each(job: Job[None], calls: Calls[None]) -> None:
        await calls("a", trio.sleep, 1 + job.index / 16)

    async def ignore(_outcome: Outcome[None]) -> None:
        await trio.lowlevel.checkpoint()

    def events_of(pause_after: float) -> list[Event]:
        events: list[Event] = []
        plan = Plan.of(Job(i, "a", None) for i in range(12))

        async def main() -> None:
            lanes = Lanes([LaneSpec("a", 2)])
            await run_plan(
                plan,
                call_each,
                lanes=lanes,
                emit=ignore,
                observe=events.append,
                pause_after=pause_after,
            )

        run_virtual(main)
        return events

    with_pauses, without = events_of(0.001), events_of(math.inf)
    assert starts(without) == starts(with_pauses)
    assert not [event for event in without if isinstance(event, Waiting) and event.at > 0]


def starts(events: list[Event]) -> list[tuple[int, float]]:
    """Return the jobs in the order of their calls, with the instants."""
    return [(event.index, event.at) for event in events if isinstance(event, CallStarted)]
