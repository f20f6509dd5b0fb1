"""The `settled` callback, which gets outcomes as soon as they exist."""

from typing import Any

import pytest
import trio

from trioeval.errors import CallError, Fault
from trioeval.kernel import (
    Calls,
    Done,
    Interrupted,
    Job,
    Lanes,
    LaneSpec,
    NotRun,
    Outcome,
    Plan,
    run_plan,
)
from trioeval.testing import run_virtual


async def take(job: Job[float], calls: Calls[float]) -> float:
    """A body of one call that takes as many seconds as the job's payload."""
    await calls(job.lane, trio.sleep, job.payload)
    return job.payload


def test_outcomes_are_settled_as_jobs_end_and_emitted_in_index_order() -> None:
    """Each outcome is settled before it is emitted; unstarted jobs are only emitted."""

    async def main() -> list[str]:
        lines = []

        def settled(outcome: Outcome[float]) -> None:
            lines.append(f"{trio.current_time():g}: {outcome.index} settled")

        async def emit(outcome: Outcome[float]) -> None:  # noqa: ASYNC124 - lists do not wait
            kind = type(outcome).__name__
            lines.append(f"{trio.current_time():g}: {outcome.index} emitted as {kind}")

        plan = Plan.of(Job(i, "a", seconds) for i, seconds in enumerate((3.0, 1.0, 9.0, 9.0)))
        lanes = Lanes([LaneSpec("a", 2)])
        await run_plan(plan, take, lanes=lanes, emit=emit, settled=settled, deadline=5.0)
        return lines

    lines = run_virtual(main)
    assert [*lines[:4], *sorted(lines[4:6]), *lines[6:]] == [
        "1: 1 settled",
        "3: 0 settled",
        "3: 0 emitted as Done",
        "3: 1 emitted as Done",
        "5: 2 settled",
        "5: 3 settled",
        "5: 2 emitted as Interrupted",
        "5: 3 emitted as Interrupted",
    ]


def test_a_job_that_is_salvaged_is_settled_once() -> None:
    """A salvaged job is settled once, with its final outcome."""

    async def main() -> list[Outcome[None]]:
        settled: list[Outcome[None]] = []

        async def mishap() -> None:  # noqa: ASYNC124 - never waits
            if trio.current_time() == 0:
                raise CallError(Fault.TRANSIENT, "not now")

        async def perform(job: Job[float], calls: Calls[float]) -> None:
            await calls(job.lane, mishap)

        async def emit(outcome: Outcome[None]) -> None:  # noqa: ASYNC124 - lists do not wait
            assert settled[-1] is outcome

        plan = Plan.of([Job(0, "a", 0.0)])
        await run_plan(
            plan,
            perform,
            lanes=Lanes([LaneSpec("a", retries=0, min_gap=1.0)]),
            emit=emit,
            settled=settled.append,
            salvage_rounds=1,
        )
        return settled

    (outcome,) = run_virtual(main)
    assert isinstance(outcome, Done)


def test_an_exception_of_settled_ends_the_run() -> None:
    """`settled` is not called again, and every outcome is still emitted."""

    async def main() -> tuple[list[int], list[type[Any]]]:
        settled_indices: list[int] = []
        kinds: list[type[Any]] = []

        def settled(outcome: Outcome[float]) -> None:
            settled_indices.append(outcome.index)
            raise ZeroDivisionError

        async def emit(outcome: Outcome[float]) -> None:  # noqa: ASYNC124 - lists do not wait
            kinds.append(type(outcome))

        plan = Plan.of(Job(i, "a", seconds) for i, seconds in enumerate((2.0, 1.0, 9.0)))
        with pytest.raises(ZeroDivisionError):
            await run_plan(plan, take, lanes=Lanes([LaneSpec("a", 2)]), emit=emit, settled=settled)
        assert trio.current_time() == 1.0
        return settled_indices, kinds

    assert run_virtual(main) == ([1], [Interrupted, Done, NotRun])
