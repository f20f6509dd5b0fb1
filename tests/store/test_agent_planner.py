"""Planners, in memory and in a database: order, limits, dependencies, and dead programs."""

import contextlib
import functools
import re
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from planner_model import (
    QUICK,
    QUIET,
    bare_planner,
    bury,
    kill,
    owner_of,
    states_of,
    submission,
    tables,
)

from trioeval.agent.planner import planner_turn
from trioeval.cli import run_command_line
from trioeval.errors import StoreError, UsageError
from trioeval.store.cache.file import Owners
from trioeval.store.planner.owners import PlannerSettings
from trioeval.store.planner.planner import AgentPlanner, open_planner
from trioeval.store.planner.queue import read_entries


@contextlib.asynccontextmanager
async def opened(kind: str, path: Path, limit: int) -> AsyncGenerator[AgentPlanner]:
    database = None if kind == "memory" else path
    async with open_planner(database, limit, settings=QUIET) as planner:
        yield planner


@pytest.fixture(params=["memory", "database"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


@pytest.mark.trio
async def test_ag_30_to_32_positions_follow_the_order(kind: str, path: Path) -> None:
    """With a limit of two, the third entry has position 1 and starts when one ends."""
    async with opened(kind, path, 2) as planner:
        entries = [await planner.submit(submission(id_)) for id_ in "abc"]
        assert states_of(entries) == [("a", "running", 0), ("b", "running", 0), ("c", "queued", 1)]
        assert [entry.order for entry in entries] == [1, 2, 3]
        assert [entry.utc_started is None for entry in entries] == [False, False, True]
        await planner.finish("a", done=True, schedule=False)
        assert states_of(await planner.snapshot()) == [("b", "running", 0), ("c", "queued", 1)]
        await planner.finish("b", done=True)
        assert states_of(await planner.snapshot()) == [("c", "running", 0)]
        await planner.wait_started("c")


@pytest.mark.trio
async def test_ag_33_a_resubmitted_entry_keeps_its_order(kind: str, path: Path) -> None:
    async with opened(kind, path, 1) as planner:
        for id_ in "abc":
            await planner.submit(submission(id_))
        again = await planner.submit(submission("b", "x"))
        assert (again.order, again.state, again.position) == (2, "blocked", 1)
        assert again.submission.depends_on == ("x",)
        await planner.submit(submission("b"))
        assert states_of(await planner.snapshot())[1:] == [("b", "queued", 1), ("c", "queued", 2)]
        with pytest.raises(
            UsageError, match=r"^a: it already runs, and cannot be submitted again$"
        ):
            await planner.submit(submission("a"))


@pytest.mark.trio
async def test_ag_34_a_blocked_entry_takes_no_slot(kind: str, path: Path) -> None:
    """With a limit of 1 a later dependency starts before its dependant."""
    async with opened(kind, path, 1) as planner:
        first = await planner.submit(submission("a", "b"))
        assert (first.state, first.position) == ("blocked", 1)
        assert (await planner.submit(submission("b"))).state == "running"
        await planner.finish("b", done=True)
        assert states_of(await planner.snapshot()) == [("a", "running", 0)]


@pytest.mark.trio
async def test_an_unfinished_entry_blocks_others_until_it_is_resubmitted(
    kind: str, path: Path
) -> None:
    async with opened(kind, path, 2) as planner:
        await planner.submit(submission("b"))
        await planner.submit(submission("a", "b", "b"))
        await planner.finish("b", done=False)
        assert states_of(await planner.snapshot()) == [("a", "blocked", 1)]
        await planner.submit(submission("b"))
        await planner.finish("b", done=None)
        assert states_of(await planner.snapshot()) == [("a", "blocked", 1)]
        await planner.submit(submission("b"))
        await planner.finish("b", done=True)
        assert states_of(await planner.snapshot()) == [("a", "running", 0)]


@pytest.mark.trio
async def test_a_resubmitted_entry_is_no_longer_done(kind: str, path: Path) -> None:
    """A resubmitted entry is not done, and its unstarted dependants wait again."""
    async with opened(kind, path, 1) as planner:
        await planner.submit(submission("b"))
        await planner.finish("b", done=True)
        await planner.submit(submission("x"))
        await planner.submit(submission("a", "b"))
        await planner.submit(submission("b"))
        shown = states_of(await planner.snapshot())
        assert shown == [("x", "running", 0), ("a", "blocked", 1), ("b", "queued", 2)]


@pytest.mark.trio
async def test_waiters_are_woken_in_order_and_leave_the_queue_when_cancelled(
    kind: str, path: Path
) -> None:
    async with opened(kind, path, 1) as planner:
        began: list[str] = []

        async def work(id_: str) -> None:
            async with planner_turn(planner, submission(id_)) as turn:
                turn.done = True
                await turn.wait_started()
                began.append(id_)

        await planner.submit(submission("first"))
        with trio.move_on_after(0) as scope:
            await planner.submit(submission("never"))
        assert scope.cancelled_caught
        await planner.submit(submission("waits"))
        with trio.move_on_after(0.01) as scope:
            await planner.wait_started("waits")
        assert scope.cancelled_caught
        assert states_of(await planner.snapshot())[1:] == [("waits", "queued", 1)]
        await planner.finish("waits", done=None)
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(work, str(number))
            await trio.testing.wait_all_tasks_blocked(0.05)
            order = [entry.submission.id for entry in await planner.snapshot()][1:]
            await planner.finish("first", done=True)
        assert began == order
        assert not await planner.snapshot()


@pytest.mark.trio
async def test_a_limit_changes_at_once_and_stops_no_entry(kind: str, path: Path) -> None:
    async with opened(kind, path, 2) as planner:
        for id_ in "abcdef":
            await planner.submit(submission(id_))
        await planner.set_limit(5)
        await planner.wait_started("e")
        await planner.set_limit(1)
        states = [entry.state for entry in await planner.snapshot()]
        assert states == ["running"] * 5 + ["queued"]
        with pytest.raises(UsageError, match="a limit of at least 1 root task, got 0"):
            await planner.set_limit(0)


@pytest.mark.trio
async def test_invalid_entries_are_refused(kind: str, path: Path) -> None:
    """Blank ids, self-dependencies and unknown entries are refused."""
    async with opened(kind, path, 1) as planner:
        with pytest.raises(UsageError, match="needs an id; it has ' '"):
            await planner.submit(submission(" "))
        with pytest.raises(UsageError, match=r"^a: it depends on itself"):
            await planner.submit(submission("a", "b", "a"))
        await planner.finish("missing", done=True)
        await planner.finish("missing", done=None)
        with pytest.raises(UsageError, match="missing: not queued by this program"):
            await planner.wait_started("missing")
        await planner.submit(submission("a"))
        await planner.submit(submission("b"))
        with pytest.RaisesGroup(
            pytest.RaisesExc(UsageError, match="b: not queued by this program")
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(planner.wait_started, "b")
                await trio.testing.wait_all_tasks_blocked(0.02)
                await planner.finish("b", done=None)
        assert (await planner.recover()).kept == ("a",)


@pytest.mark.trio
async def test_an_interrupted_turn_leaves_no_outcome(kind: str, path: Path) -> None:
    """An interrupted entry leaves the queue without an outcome, and its dependants keep waiting."""
    async with opened(kind, path, 1) as planner:
        with trio.CancelScope() as scope:
            async with planner_turn(planner, submission("a")) as turn:
                await turn.wait_started()
                await planner.submit(submission("b", "a"))
                scope.cancel()
                await trio.lowlevel.checkpoint()
        assert states_of(await planner.snapshot()) == [("b", "blocked", 1)]
        async with planner_turn(planner, submission("a")) as turn:
            turn.done = True
        assert states_of(await planner.snapshot()) == [("b", "running", 0)]


@pytest.mark.trio
async def test_a_blocked_entry_keeps_its_order_when_it_is_released(kind: str, path: Path) -> None:
    """A blocked entry keeps its order when it is released."""
    async with opened(kind, path, 1) as planner:
        async with (
            planner_turn(planner, submission("a")) as first,
            planner_turn(planner, submission("b", "a", "x")) as second,
            planner_turn(planner, submission("c")) as third,
        ):
            await third.clear_dependencies()
            assert (second.entry.state, second.entry.position) == ("blocked", 1)
            await second.clear_dependencies()
            shown = (second.entry.order, second.entry.state, second.entry.position)
            assert shown == (2, "queued", 1)
            assert second.entry.submission.depends_on == ()
            await first.clear_dependencies()
            assert (await planner.clear_dependencies("a")).state == "running"
            await planner.finish("a", done=False)
            await second.wait_started()
            with pytest.raises(UsageError, match="a: not queued by this program"):
                await planner.clear_dependencies("a")
        async with (
            planner_turn(planner, submission("b")) as needed,
            planner_turn(planner, submission("d", "b")) as turn,
        ):
            await planner.finish("b", done=True)
            await turn.wait_started()
            await turn.clear_dependencies()
            assert (needed.entry.state, turn.entry.state) == ("running", "running")


@pytest.mark.trio
async def test_ag_36_a_long_entry_of_one_of_two_programs_is_not_started_again(path: Path) -> None:
    """A long-running entry is not started again by another program."""
    settings = PlannerSettings(heartbeat=0.01, poll=0.005)
    started: list[str] = []
    now = 1_000_000.0

    def wall() -> float:
        """A clock that only polls of the two programs advance, however long the machine delays one."""
        nonlocal now
        now += settings.heartbeat / 20
        return now

    async def work(planner: AgentPlanner, id_: str) -> None:
        async with planner_turn(planner, submission(id_)) as turn:
            await turn.wait_started()
            started.append(id_)
            # Four times the silence after which another program considers it dead.
            until = now + 12 * settings.heartbeat
            while now < until:  # noqa: ASYNC110 - threads move it
                await trio.sleep(settings.poll)
            turn.done = True

    async with (
        open_planner(path, 2, settings=settings, wall=wall) as first,
        open_planner(path, 2, settings=settings, wall=wall) as second,
    ):
        with tables(path) as connection:  # the second is on another machine
            connection.execute(
                "UPDATE owner SET host = 'elsewhere' WHERE id <> ?", (owner_of(first),)
            )
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(work, first, f"a{number}")
                nursery.start_soon(work, second, f"b{number}")
        assert not await first.snapshot()
    assert sorted(started) == ["a0", "a1", "a2", "b0", "b1", "b2"]


@pytest.mark.trio
async def test_a_started_change_does_not_wait_for_the_event_loop(path: Path) -> None:
    """A transaction never waits for an event loop that writes to the same database."""
    settings = PlannerSettings(heartbeat=0.001, poll=0.001)
    async with open_planner(path, 1, settings=settings) as planner:
        await planner.submit(submission("a"))
        for _ in range(100):
            await trio.sleep(0.001)  # until heartbeats are in progress
            with tables(path):
                pass
        assert states_of(await planner.snapshot()) == [("a", "running", 0)]


@pytest.mark.trio
async def test_a_planner_that_is_cancelled_while_it_opens_ends(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelling an opening planner waits for its thread and then ends."""
    opened = False
    bury = Owners.bury

    with trio.CancelScope() as scope:

        def cancelled_meanwhile(owners: Owners, warn: Callable[[str], None]) -> None:
            trio.from_thread.run_sync(scope.cancel)
            bury(owners, warn)

        monkeypatch.setattr(Owners, "bury", cancelled_meanwhile)
        async with open_planner(path, 1):
            opened = True
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert opened


@pytest.mark.trio
async def test_a_refused_entry_changes_nothing(kind: str, path: Path) -> None:
    async with opened(kind, path, 1) as planner:
        await planner.submit(submission("a"))
        with pytest.raises(UsageError, match="already runs"):
            async with planner_turn(planner, submission("a")):
                pass  # pragma: no cover
        assert states_of(await planner.snapshot()) == [("a", "running", 0)]


@pytest.mark.trio
async def test_a_program_that_ends_leaves_nothing(path: Path) -> None:
    """A program that ends leaves no entry or file, and its error is raised unchanged."""
    async with open_planner(path, 1, settings=QUICK) as other:
        with pytest.raises(KeyError, match="mine"):  # noqa: PT012
            async with open_planner(path, 1, settings=QUICK) as planner:
                await planner.submit(submission("a"))
                await planner.submit(submission("b"))
                await other.submit(submission("c"))
                assert len(list(path.parent.glob("*.lock"))) == 2
                raise KeyError("mine")
        with trio.fail_after(60):
            await other.wait_started("c")
        assert states_of(await other.snapshot()) == [("c", "running", 0)]
    assert not list(path.parent.glob("*.lock"))
    with tables(path) as connection:
        for table in ("owner", "entry", "entry_needs", "entry_count"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)  # noqa: S608


@pytest.mark.trio
async def test_ag_35_a_killed_program_is_followed_in_the_old_order(path: Path) -> None:
    """Entries of a killed program are queued again once, in their old order."""
    dead = bare_planner(path, 1)
    await dead.submit(submission("ran"))
    await dead.submit(submission("waited"))
    await dead.submit(submission("needs", "ran"))
    kill(dead)
    lock = Owners.of(path).path(owner_of(dead))
    assert lock.exists()
    planner = bare_planner(path, 1)
    found = await planner.recover()
    assert (found.requeued, found.kept, found.problems) == (("ran",), (), ())
    assert not lock.exists()
    again = await planner.recover()
    assert (again.requeued, again.kept, again.problems) == ((), (), ())
    entries = await planner.snapshot()
    assert states_of(entries) == [
        ("ran", "queued", 1),
        ("waited", "queued", 2),
        ("needs", "blocked", 3),
    ]
    assert {entry.owner for entry in entries} == {None}
    assert [(await planner.submit(submission(id_))).order for id_ in ("waited", "ran")] == [2, 1]
    assert [entry.state for entry in await planner.snapshot()] == ["queued", "running", "blocked"]
    kill(planner)


@pytest.mark.trio
async def test_queued_entries_of_a_killed_program_are_skipped(path: Path) -> None:
    """Queued entries of a killed program are skipped, and its running ones release their slots."""
    dead, planner = bare_planner(path, 2), bare_planner(path, 2)
    await dead.submit(submission("a"))
    await planner.submit(submission("b"))
    await dead.submit(submission("c"))
    await planner.submit(submission("d"))
    await planner.submit(submission("e"))
    kill(dead)
    await planner.finish("b", done=True)
    shown = [(entry.submission.id, entry.state) for entry in await planner.snapshot()]
    assert shown == [("a", "queued"), ("c", "queued"), ("d", "running"), ("e", "running")]
    kill(planner)


@pytest.mark.trio
async def test_ag_37_running_entries_of_a_living_program_are_kept(path: Path) -> None:
    """A silent program whose lock is held keeps its entries."""
    first, second = bare_planner(path, 1), bare_planner(path, 1)
    await first.submit(submission("a"))
    with tables(path) as connection:
        connection.execute("UPDATE owner SET heartbeat_s = 0")
        found = await second.recover()
        assert (found.requeued, found.kept) == ((), ("a",))
        # Nor is it on another machine, where the lock is seen.
        connection.execute("UPDATE owner SET host = 'elsewhere'")
    settings = PlannerSettings(heartbeat=1)
    third = bare_planner(path, 1, settings)
    assert (await third.recover()).kept == ("a",)
    assert (await second.submit(submission("b"))).state == "queued"
    with pytest.raises(UsageError, match="a: another program has submitted it, and still runs"):
        await second.submit(submission("a"))
    await second.finish("a", done=True)
    assert states_of(await second.snapshot()) == [("a", "running", 0), ("b", "queued", 1)]
    for planner in (first, second, third):
        kill(planner)


@pytest.mark.parametrize(("seen", "kept"), [(1_000_000.0 - 2, True), (1_000_000.0 - 3, False)])
@pytest.mark.trio
async def test_ag_37_locks_of_other_machines_may_be_invisible(
    path: Path,
    seen: float,
    kept: bool,  # noqa: FBT001
) -> None:
    """A program of another machine lives for three heartbeats, whatever its lock shows."""
    first = bare_planner(path, 1)
    await first.submit(submission("a"))
    kill(first)
    with tables(path) as connection:
        connection.execute("UPDATE owner SET host = 'elsewhere', heartbeat_s = ?", (seen,))
    second = bare_planner(path, 1, PlannerSettings(heartbeat=1))
    assert (await second.recover()).kept == (("a",) if kept else ())
    kill(second)


@pytest.mark.trio
async def test_a_program_taken_for_dead_takes_its_slots_back(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program taken for dead takes its slots back with a warning."""
    first = bare_planner(path, 1)
    await first.submit(submission("a"))
    await first.submit(submission("b"))
    Owners.of(path).path(owner_of(first)).unlink()
    second = bare_planner(path, 1, PlannerSettings(heartbeat=1))
    assert (await second.recover()).kept == ("a",)  # it was seen recently
    with tables(path) as connection:
        connection.execute("UPDATE owner SET heartbeat_s = 0 WHERE id = ?", (owner_of(first),))
    assert (await second.recover()).requeued == ("a",)
    await first.set_limit(1)
    assert states_of(await first.snapshot()) == [("a", "running", 0), ("b", "queued", 1)]
    assert {entry.owner for entry in await first.snapshot()} == {owner_of(first)}
    assert "another program took this one for dead" in capsys.readouterr().out
    kill(first)
    kill(second)


@pytest.mark.trio
async def test_ag_38_an_entry_that_is_found_done_leaves_the_queue(path: Path) -> None:
    """A finished entry leaves the queue, even after its program died."""
    dead = bare_planner(path, 1)
    await dead.submit(submission("a"))
    await dead.submit(submission("b"))
    await dead.submit(submission("c", "b"))
    kill(dead)
    async with open_planner(path, 1, settings=QUIET) as planner:
        await planner.finish("b", done=True)
        assert states_of(await planner.snapshot()) == [("a", "queued", 1), ("c", "queued", 2)]
        assert (await planner.submit(submission("c", "b"))).state == "running"


@pytest.mark.trio
async def test_the_smallest_limit_of_the_living_programs_applies(path: Path) -> None:
    """The smallest limit of the living programs applies."""
    first, second, third = (bare_planner(path, limit) for limit in (3, 2, 1))
    await first.submit(submission("a"))
    await second.submit(submission("b"))
    await third.recover()
    assert (await first.submit(submission("c"))).state == "queued"
    await third.set_limit(2)
    assert (await first.submit(submission("d"))).state == "queued"
    await third.set_limit(3)
    await second.clear()  # this removes b too
    assert [state for _, state, _ in states_of(await first.snapshot())] == ["running"] * 3
    await third.set_limit(1)
    assert (await first.submit(submission("e"))).state == "queued"
    kill(third)
    await first.finish("a", done=True)
    assert states_of(await first.snapshot())[-1] == ("e", "running", 0)
    kill(first)
    bury(second)


BAD = [
    ("state = 'odd'", "its state is 'odd', not one of blocked, queued, running"),
    ("owner = x'00ff'", r"its owner cannot be read \(b'\\x00\\xff'\)"),
    ("id = x'ff'", r"its id cannot be read \(b'\\xff'\)"),
    ("id = ' '", r"its id cannot be read \(' '\)"),
    ("task = CAST(x'ff' AS TEXT)", r"its task cannot be read \(b'\\xff'\)"),
    ("utc_submitted = x'ff'", r"its utc_submitted cannot be read"),
    ("owner = NULL, state = 'running'", "it is marked as running without a program"),
]


@pytest.mark.parametrize(("change", "problem"), BAD)
@pytest.mark.trio
async def test_ag_39_an_entry_that_cannot_be_read_is_held_back(
    path: Path, change: str, problem: str
) -> None:
    """An unreadable entry is reported and held back, and all others continue."""
    warned: list[str] = []
    first = bare_planner(path, 1)
    await first.submit(submission("a"))
    await first.submit(submission("bad"))
    await first.submit(submission("c"))
    with tables(path) as connection:
        connection.execute(f"UPDATE entry SET {change} WHERE id = 'bad'")  # noqa: S608
    await first.finish("a", done=True)
    assert [entry.submission.id for entry in await first.snapshot()] == ["c"]
    await first.wait_started("c")
    await first.set_limit(2)
    async with open_planner(path, 2, settings=QUIET, warn=warned.append) as planner:
        found = await planner.recover()
        assert (found.kept, found.requeued) == (("c",), ())
        assert (await planner.submit(submission("d"))).state == "running"
    assert [*found.problems] == warned
    with pytest.raises(UsageError, match=problem):
        raise UsageError(warned[0])
    assert warned[0].startswith(f"{path}: place 2 of the queue of agents")
    kill(first)


@pytest.mark.trio
async def test_an_unreadable_entry_is_repaired_when_it_is_resubmitted(path: Path) -> None:
    first = bare_planner(path, 1)
    await first.submit(submission("bad"))
    with tables(path) as connection:
        connection.execute("UPDATE entry SET state = 'odd', task = 3")
    entry = await first.submit(submission("bad"))
    assert (entry.order, entry.state, entry.position) == (1, "running", 0)
    kill(first)


@pytest.mark.parametrize(("change", "problem"), BAD)
@pytest.mark.trio
async def test_a_damaged_waiting_entry_is_written_again(
    path: Path, change: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged waiting entry is written again by its own program."""
    warned: list[str] = []
    often = PlannerSettings(heartbeat=0.01, poll=0.01, patience=5.0)
    async with open_planner(path, 1, settings=often, warn=warned.append) as planner:
        await planner.submit(submission("a"))
        await planner.submit(submission("bad", "a"))
        await planner.clear_dependencies("bad")
        with tables(path) as connection:
            connection.execute(f"UPDATE entry SET {change} WHERE id = 'bad'")  # noqa: S608
        assert run_command_line(["runs", "--queue", "--db", str(path)]) == 0
        listed = capsys.readouterr().err
        assert "warning: " in listed
        assert re.search(problem, listed)
        await planner.finish("a", done=False)
        with trio.fail_after(60):
            await planner.wait_started("bad")
        assert states_of(await planner.snapshot()) == [("bad", "running", 0)]
    (line,) = {one for one in warned if one.endswith("it is written again")}
    assert re.search(problem, line) or "bad is not in the queue of agents any more" in line


def steps_of(connection: sqlite3.Connection, work: Any) -> int:
    """Return the instructions that SQLite executes."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    connection.set_progress_handler(count, 1)
    work()
    connection.set_progress_handler(None, 0)
    return counted


def test_ag_40_the_cost_does_not_grow_with_finished_entries(path: Path) -> None:
    """To submit and to finish takes as many instructions after 100,000 others as after none.

    It grows with the logarithm of the number of queued entries.
    """
    found: dict[tuple[int, int], list[int]] = {}
    for over, waiting in [(0, 0), (1000, 0), (100_000, 0), (0, 4000), (0, 20_000)]:
        file = path.with_name(f"{over}-{waiting}.db")
        planner = bare_planner(file, 1)
        with tables(file) as connection:
            connection.execute("BEGIN")
            numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            connection.execute(
                f"{numbers} INSERT INTO entry_done SELECT 'o' || i, 'r', 1 FROM n WHERE ? > 0",  # noqa: S608
                (over, over),
            )
            connection.execute("INSERT INTO sqlite_sequence VALUES ('entry', 1000000)")
            connection.execute(
                f"{numbers} INSERT INTO entry (id, run, task, state, owner, utc_submitted) "  # noqa: S608
                "SELECT 'w' || i, 'r', 't', 'blocked', ?, 'u' FROM n WHERE ? > 0",
                (waiting, owner_of(planner), waiting),
            )
            connection.execute("COMMIT")
        own = planner._connection

        def do(planner: Any = planner) -> None:
            async def main() -> None:
                await planner.submit(submission("x"))
                await planner.submit(submission("y", "x"))
                await planner.finish("x", done=True)

            trio.run(main)

        do()
        trio.run(functools.partial(planner.finish, "y", done=None))
        steps = steps_of(own, do)
        found[over, waiting] = [steps]
        assert trio.run(planner.snapshot)[-1].state == "running"
        kill(planner)
    none = found[0, 0][0]
    assert found[1000, 0][0] == none
    assert found[100_000, 0][0] == none
    assert found[0, 20_000][0] < none + 2000
    assert found[0, 20_000][0] < 1.5 * found[0, 4000][0]


@pytest.mark.trio
async def test_positions_are_counted_over_many_blocks(path: Path) -> None:
    """Positions are right over many blocks, whatever entries leave or start."""
    planner = bare_planner(path, 1)
    for number in range(300):
        await planner.submit(submission(f"n{number}"))
    for number in range(0, 300, 7):
        await planner.finish(f"n{number}", done=None)
    entries = await planner.snapshot()
    for entry in entries[1::20]:
        again = await planner.submit(submission(entry.submission.id))
        assert again.position == entry.position > 0
    with tables(path) as connection:
        total = connection.execute(
            "SELECT sum(waiting) FROM entry_count WHERE level = 5"
        ).fetchone()
    assert total == (len(entries) - 1,)
    kill(planner)


@pytest.mark.trio
async def test_ag_42_a_log_that_is_cut_anywhere_contains_the_last_complete_change(
    path: Path, tmp_path: Path
) -> None:
    """A log cut at any byte gives the state of the last complete change."""
    planner = bare_planner(path, 2)
    own = planner._connection
    own.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    own.execute("PRAGMA wal_autocheckpoint = 0")
    log = Path(f"{path}-wal")
    states, sizes = [], []

    def look(connection: sqlite3.Connection) -> list[Any]:
        counts = connection.execute("SELECT * FROM entry_count ORDER BY level, block").fetchall()
        done = connection.execute("SELECT id, done FROM entry_done ORDER BY id").fetchall()
        return [*read_entries(connection), counts, done]

    async def change(work: Any) -> None:
        await work
        states.append(look(own))
        sizes.append(log.stat().st_size)  # noqa: ASYNC240

    for id_ in "abc":
        await change(planner.submit(submission(id_)))
    await change(planner.submit(submission("d", "a")))
    await change(planner.finish("a", done=True))
    await change(planner.finish("b", done=None))
    await change(planner.submit(submission("b")))
    await change(planner.finish("c", done=False))
    whole = log.read_bytes()  # noqa: ASYNC240
    page = 24 + own.execute("PRAGMA page_size").fetchone()[0]
    ends = range(32, len(whole) + 1, page)
    cuts = {0, 1, 31, len(whole) - 1, len(whole)}
    cuts |= {cut + change for cut in ends for change in (-1, 0, 23)} & set(range(len(whole)))
    shutil.copy(path, tmp_path / "base.db")
    kill(planner)
    for cut in sorted(cuts):
        copy = tmp_path / f"cut-{cut}.db"
        shutil.copy(tmp_path / "base.db", copy)
        Path(f"{copy}-wal").write_bytes(whole[:cut])  # noqa: ASYNC240
        with contextlib.closing(sqlite3.connect(copy)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            committed = sum(size <= cut for size in sizes)
            assert look(connection) == (states[committed - 1] if committed else [[], []])
    assert len(cuts) > 50


@pytest.mark.trio
async def test_invalid_arguments_of_a_planner_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 1 root task"):
        async with open_planner(tmp_path / "x.db", 0):
            pass  # pragma: no cover
    (tmp_path / "no.db").write_text("x" * 600)
    with pytest.raises(StoreError, match="this is not an SQLite database"):
        async with open_planner(tmp_path / "no.db", 1):
            pass  # pragma: no cover
    with pytest.raises(UsageError, match=r"^times .*: heartbeat is 0, patience is nan$"):
        PlannerSettings(heartbeat=0, patience=float("nan"))
    async with open_planner(tmp_path / "x.db", 1, settings=QUIET) as planner:
        for id_ in ("a\0b", "\ud800"):
            with pytest.raises(UsageError, match="characters that no database can store"):
                await planner.submit(submission(id_))
        odd = submission("a").__class__(id="ü", run="r\0", task="t\ud800")
        assert (await planner.submit(odd)).submission.run == "r\\x00"
