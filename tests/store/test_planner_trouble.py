"""Planners on a database that is unusable for a while, or permanently."""

import math
from functools import partial
from pathlib import Path

import pytest
import trio
from planner_model import QUIET, bare_planner, kill, states_of, submission, tables

from trioeval.errors import StoreError
from trioeval.store.planner import planner as agent_planner
from trioeval.store.planner.owners import PlannerSettings
from trioeval.store.planner.planner import open_planner


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


@pytest.mark.trio
async def test_a_database_that_is_locked_for_a_moment_is_awaited(path: Path) -> None:
    """Cancelling the wait changes nothing; entries that left are removed later."""
    planner = bare_planner(path, 2)
    await planner.submit(submission("a"))
    await planner.submit(submission("left"))
    with tables(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with trio.move_on_after(0.05) as scope:
            await planner.submit(submission("b"))
        assert scope.cancelled_caught
        with trio.CancelScope() as scope:
            scope.cancel()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(planner.finish, "a", done=True))
                nursery.start_soon(partial(planner.finish, "left", done=None))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(planner.submit, submission("c", "a"))
            await trio.sleep(0.05)
            other.execute("ROLLBACK")
    assert states_of(await planner.snapshot()) == [("c", "running", 0)]
    kill(planner)


@pytest.mark.trio
async def test_a_database_that_stays_locked_is_an_error(path: Path) -> None:
    """A database that stays locked is an error for all operations, and others take the slot back."""
    warned: list[str] = []
    settings = PlannerSettings(heartbeat=0.01, poll=0.01, patience=0.01)
    with tables(path) as other:
        async with open_planner(path, 1, settings=settings, warn=warned.append) as planner:
            await planner.submit(submission("a"))
            await planner.submit(submission("b"))
            other.execute("BEGIN IMMEDIATE")
            with trio.fail_after(60), pytest.raises(StoreError, match="is locked by another"):
                await planner.wait_started("b")
            with pytest.raises(StoreError, match="is locked by another program"):
                await planner.finish("b", done=None)
            while not warned:  # noqa: ASYNC110 - the warning is given only once
                await trio.sleep(0.01)
            await trio.sleep(0.1)
            other.execute("ROLLBACK")
            await planner.submit(submission("c"))
            with trio.move_on_after(0.02) as scope:
                await planner.wait_started("c")
            assert scope.cancelled_caught
            other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    assert len(list(path.parent.glob("*.lock"))) == 1
    assert all("is locked by another program" in one for one in warned)
    assert "stay there until its run is resumed" in warned[-1]
    assert len(set(warned)) == 2
    async with open_planner(path, 1, settings=QUIET) as planner:
        assert states_of(await planner.snapshot()) == [("a", "queued", 1), ("c", "queued", 2)]
    assert not list(path.parent.glob("*.lock"))


@pytest.mark.parametrize("trouble", ["PRAGMA query_only = 1", "PRAGMA max_page_count = 1"])
@pytest.mark.trio
async def test_temporary_failures_are_not_errors_of_waiters(path: Path, trouble: str) -> None:
    """On a full disk or a read-only medium, all wait, and continue after it."""
    warned: list[str] = []
    settings = PlannerSettings(heartbeat=0.01, poll=0.005)
    name, _, _ = trouble.partition(" =")
    async with open_planner(path, 1, settings=settings, warn=warned.append) as planner:
        connection = planner._connection
        await planner.submit(submission("a"))
        await planner.submit(submission("b"))
        async with trio.open_nursery() as nursery:
            with trio.fail_after(60):
                nursery.start_soon(planner.wait_started, "b")
                async with planner._turn:
                    connection.execute(trouble)
                nursery.start_soon(planner.submit, submission("c" * 9000))
                nursery.start_soon(partial(planner.finish, "a", done=True))
                await trio.sleep(0.1)
                assert planner._turn.locked()
                connection.execute(f"{name} = {0 if 'only' in name else 1 << 30}")
                await planner.wait_started("b")
        assert sorted(entry.submission.id[0] for entry in await planner.snapshot()) == ["b", "c"]
    assert not warned


@pytest.mark.trio
async def test_the_first_submission_stays_first_if_the_database_was_locked(path: Path) -> None:
    planner = bare_planner(path, 1)
    with tables(path) as other:
        other.execute("BEGIN IMMEDIATE")
        async with trio.open_nursery() as nursery:
            for id_ in "abc":
                nursery.start_soon(planner.submit, submission(id_))
                await trio.testing.wait_all_tasks_blocked(0.01)
            await trio.sleep(0.3)  # some attempts
            other.execute("ROLLBACK")
    assert [entry.submission.id for entry in await planner.snapshot()] == ["a", "b", "c"]
    kill(planner)


@pytest.mark.trio
async def test_a_program_that_cannot_leave_in_time_reports_this(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does so even if its patience for other operations is long."""
    monkeypatch.setattr(agent_planner, "_END_PATIENCE", 0.01)
    warned: list[str] = []
    settings = PlannerSettings(heartbeat=math.inf, poll=math.inf)
    with tables(path) as other:
        async with open_planner(path, 1, settings=settings, warn=warned.append) as planner:
            await planner.submit(submission("a"))
            other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    assert len(warned) == 1
    assert "is locked by another program" in warned[0]
    assert "in the queue of agents stay there until its run is resumed" in warned[0]
    monkeypatch.setattr(agent_planner, "_END_PATIENCE", 600.0)
    monkeypatch.setattr(agent_planner, "_END_WITHIN", 0.01)
    with tables(path) as other:
        async with open_planner(path, 1, settings=settings, warn=warned.append) as planner:
            other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
    assert "the database does not respond" in warned[1]
