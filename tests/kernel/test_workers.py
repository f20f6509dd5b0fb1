"""A crew by itself: what no schedule of a whole run reaches for certain."""

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


def test_a_crew_with_all_its_live_jobs_admits_no_other() -> None:
    """WIDTH of live jobs: also for a worker that was sent while there was room."""

    async def main() -> list[int | None]:
        lanes, plan = Lanes([LaneSpec("a")]), Plan.of(Job(i, "a", None) for i in range(9))
        running = RunState(lanes, math.inf, trio.Event(), plan, silent)
        crew = LaneWorkers(running, lanes["a"], max_live=2)
        admitted = [crew.admit_nowait(0.0) for _ in range(3)]
        crew.leave()
        admitted.append(crew.admit_nowait(0.0))
        admitted.append(await crew.admit())
        return [job.index if job else None for job in admitted]

    assert run_virtual(main) == [0, 1, None, 2, None]


def test_nothing_is_kept_of_a_job_that_has_its_outcome() -> None:
    """Not even how often it was run again: there may be millions of them."""

    async def main() -> tuple[bool, object]:
        lanes, plan = Lanes([LaneSpec("a")]), Plan.of([Job(0, "a", None)])
        running = RunState(lanes, math.inf, trio.Event(), plan, silent, rounds=2)
        crew = LaneWorkers(running, lanes["a"], max_live=2)
        job = crew.admit_nowait(0.0)
        assert job is not None
        before = state(running)
        calls = running.start(job, Timer(running.timeouts), 0.0, rested=crew.rested)
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
