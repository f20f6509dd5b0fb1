"""The types that type checkers infer for the public API; mypy reads this file, and it runs as well."""

from typing import assert_type

import trio

import trioeval
from trioeval.kernel import (
    Calls,
    Done,
    Job,
    Lanes,
    LaneSpec,
    Outcome,
    Plan,
    Summary,
    collect,
    run_plan,
)
from trioeval.testing import run_virtual


async def double(number: int) -> int:
    await trio.lowlevel.checkpoint()
    return 2 * number


async def body(job: Job[int], calls: Calls[int]) -> str:
    """A call returns what its send returns; a payload is what the plan holds."""
    assert_type(job.payload, int)
    found = await calls(job.lane, double, job.payload)
    assert_type(found, int)
    return str(found)


async def keep(outcome: Outcome[str]) -> None:
    if isinstance(outcome, Done):
        assert_type(outcome.value, str)


async def run_both() -> None:
    plan = Plan.of([Job(0, "a", 1)])
    assert_type(plan, Plan[int])
    lanes = Lanes([LaneSpec("a")])
    assert_type(await run_plan(plan, body, lanes=lanes, emit=keep), Summary)
    outcomes = await collect(plan, body, lanes=lanes)
    assert_type(outcomes, list[Outcome[str]])
    rows = await trioeval.collect(trioeval.parse_suite({"providers": ["echo"], "prompts": ["x"]}))
    assert_type(rows, list[trioeval.Row])
    assert_type(rows[0].status, trioeval.Status)


def test_what_is_inferred_is_what_happens() -> None:
    """The calls above are real ones."""
    run_virtual(run_both)
