"""Bare names of the kernel's generic types are complete types: their parameters are `Any`.

Strict type checkers read this file, and it runs as well.
"""

from collections.abc import Sequence
from typing import Any, assert_type

import trio

from trioeval.kernel import (
    Calls,
    Done,
    Job,
    Lanes,
    LaneSpec,
    Metered,
    Outcome,
    Plan,
    Started,
    collect,
    run_plan,
)
from trioeval.testing import run_virtual


async def length(text: str) -> int:
    await trio.sleep(1)
    return len(text)


async def measured(text: str) -> Metered:
    await trio.sleep(1)
    return Metered(len(text), tokens=1)


async def perform(job: Job, calls: Calls) -> int:
    assert_type(job, Job[Any])
    assert_type(calls, Calls[Any])
    metered: object = await calls(job.lane, measured, job.payload)
    assert metered == len(job.payload)
    return await calls(job.lane, length, job.payload)


def values(outcomes: Sequence[Outcome]) -> list[object]:
    done: list[Done] = [outcome for outcome in outcomes if isinstance(outcome, Done)]
    started: list[Started] = [*done]
    assert_type(done[0].value, Any)
    assert len(started) == len(outcomes)
    return [outcome.value for outcome in done]


async def run_bare() -> None:
    plan: Plan = Plan.of([Job(0, "a", "one"), Job(1, "a", "three")])
    lanes = Lanes([LaneSpec("a")])
    outcomes = await collect(plan, perform, lanes=lanes)
    assert_type(outcomes, list[Outcome[int]])
    assert values(outcomes) == [3, 5]

    kept: list[Outcome] = []

    async def emit(outcome: Outcome) -> None:  # noqa: ASYNC124 - lists do not wait
        kept.append(outcome)

    await run_plan(plan, perform, lanes=lanes, emit=emit)
    assert values(kept) == [3, 5]


async def run_exact() -> None:
    """A bare body fits a plan with exact types."""
    plan = Plan.of([Job(0, "a", "one")])
    assert_type(plan, Plan[str])
    outcomes = await collect(plan, perform, lanes=Lanes([LaneSpec("a")]))
    assert_type(outcomes, list[Outcome[int]])


def test_bare_names_run_as_well() -> None:
    """The calls above are real ones."""
    run_virtual(run_bare)
    run_virtual(run_exact)
