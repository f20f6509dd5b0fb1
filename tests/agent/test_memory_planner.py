"""The planner of one program, in virtual time. What it has in common with others: see test_agent_planner."""

import doctest

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trioeval.agent import planner as memory_planner
from trioeval.agent.planner import MemoryPlanner, Submission, planner_turn
from trioeval.errors import UsageError


def submission(id_: str, *depends_on: str) -> Submission:
    return Submission(id=id_, run="run", task=id_, depends_on=depends_on)


def test_ag_36_who_runs_long_is_not_started_again() -> None:
    """Ten of a minute each, two at a time, while others come: each starts once, in the order it came."""
    started: list[tuple[str, float]] = []

    async def work(planner: MemoryPlanner, id_: str) -> None:
        async with planner_turn(planner, submission(id_)) as turn:
            await turn.wait_started()
            started.append((id_, trio.current_time()))
            await trio.sleep(60)
            turn.done = True

    async def main() -> None:
        planner = MemoryPlanner(2, lambda: "now")
        with trio.fail_after(1e7):
            async with trio.open_nursery() as nursery:
                for number in range(10):
                    nursery.start_soon(work, planner, str(number))
                    await trio.sleep(6)
        assert not await planner.snapshot()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert [id_ for id_, _ in started] == [str(number) for number in range(10)]
    assert [at for _, at in started] == [0, 6, 60, 66, 120, 126, 180, 186, 240, 246]


def test_a_cancelled_waiter_keeps_nobody_from_beginning() -> None:
    """Whoever is woken in the step in which it is cancelled gives its place to the next."""

    async def main() -> None:
        planner = MemoryPlanner(1, lambda: "now")
        await planner.submit(submission("first"))
        scope = trio.CancelScope()

        async def wait() -> None:
            with scope:
                async with planner_turn(planner, submission("second")) as turn:
                    await turn.wait_started()
                    await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            await planner.submit(submission("third"))
            with trio.CancelScope() as own:
                own.cancel()
                await planner.finish("first", done=True)
            scope.cancel()
        with trio.fail_after(1):
            await planner.wait_started("third")

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_limit_is_at_least_one() -> None:
    with pytest.raises(UsageError, match="at least 1 root task run at once, not 0"):
        MemoryPlanner(0, lambda: "now")


def test_the_example_is_right() -> None:
    assert doctest.testmod(memory_planner).failed == 0
