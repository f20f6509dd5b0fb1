"""LaneWorkers by itself: cases that no schedule of a whole run reaches reliably."""

import math

import trio

from trioeval.errors import CallError, Fault
from trioeval.kernel import Calls, Done, Failed, Job, Lanes, LaneSpec, Plan
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
