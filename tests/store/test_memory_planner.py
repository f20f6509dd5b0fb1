"""The planner of one program, in virtual time; for common behaviour see test_agent_planner."""

import doctest
import math
import threading
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from trioeval.agent.planner import Submission, planner_turn
from trioeval.errors import UsageError
from trioeval.store.planner import planner as sql_planner
from trioeval.store.planner.planner import AgentPlanner, open_planner


def submission(id_: str, *depends_on: str) -> Submission:
    return Submission(id=id_, run="run", task=id_, depends_on=depends_on)


def test_ag_36_a_long_entry_is_not_started_again() -> None:
    """Ten entries of a minute each, two at a time, while others arrive: each starts once, in order."""
    started: list[tuple[str, float]] = []

    async def work(planner: AgentPlanner, id_: str) -> None:
        async with planner_turn(planner, submission(id_)) as turn:
            await turn.wait_started()
            started.append((id_, trio.current_time()))
            await trio.sleep(60)
            turn.done = True

    async def main() -> None:
        async with open_planner(None, 2) as planner:
            with trio.fail_after(1e7):
                async with trio.open_nursery() as nursery:
                    for number in range(10):
                        nursery.start_soon(work, planner, str(number))
                        await trio.sleep(6)
            assert not await planner.snapshot()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert [id_ for id_, _ in started] == [str(number) for number in range(10)]
    assert [at for _, at in started] == [0, 6, 60, 66, 120, 126, 180, 186, 240, 246]


def test_a_cancelled_waiter_delays_no_other_start() -> None:
    """A waiter that is woken and cancelled at once gives its slot to the next."""

    async def main() -> None:
        scope = trio.CancelScope()

        async def wait(planner: AgentPlanner) -> None:
            with scope:
                async with planner_turn(planner, submission("second")) as turn:
                    await turn.wait_started()
                    await trio.sleep_forever()

        async with open_planner(None, 1) as planner:
            await planner.submit(submission("first"))
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait, planner)
                await wait_all_tasks_blocked()
                await planner.submit(submission("third"))
                with trio.CancelScope() as own:
                    own.cancel()
                    await planner.finish("first", done=True)
                scope.cancel()
            with trio.fail_after(1):
                await planner.wait_started("third")

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_a_cancelled_end_lets_the_next_entry_start() -> None:
    """No later action would make up for it, and nothing polls."""

    async def main() -> None:
        async with open_planner(None, 1) as planner:
            await planner.submit(submission("first"))
            await planner.submit(submission("second"))
            for end in (
                partial(planner.finish, "first", done=True),
                partial(planner.finish, "second", done=None),
            ):
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await end()
                assert scope.cancelled_caught
            await planner.submit(submission("third"))
            with trio.fail_after(1):
                await planner.wait_started("third")

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_it_has_no_thread_no_file_and_no_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All work is done in the step of the caller; a stopped wall clock is accepted."""
    monkeypatch.chdir(tmp_path)

    async def main() -> None:
        threads = trio.to_thread.current_default_thread_limiter().statistics()
        before = threading.active_count()
        async with open_planner(None, 1, wall=lambda: 0.0) as planner:
            with trio.testing.assert_checkpoints():
                entry = await planner.submit(submission("a"))
            assert entry.utc_started == "1970-01-01T00:00:00.000Z"
            waits = trio.lowlevel.current_statistics()
            assert (waits.tasks_living, waits.seconds_to_next_deadline) == (3, math.inf)
            await planner.finish("a", done=True)
            assert not await planner.snapshot()
            assert threading.active_count() == before
        assert threads == trio.to_thread.current_default_thread_limiter().statistics()

    trio.run(main)
    assert not list(tmp_path.iterdir())


def test_a_limit_is_at_least_one() -> None:
    async def main() -> None:
        async with open_planner(None, 0):
            pass  # pragma: no cover

    with pytest.raises(UsageError, match="a limit of at least 1 root task, got 0"):
        trio.run(main)


def test_the_example_is_correct() -> None:
    assert doctest.testmod(sql_planner).failed == 0
