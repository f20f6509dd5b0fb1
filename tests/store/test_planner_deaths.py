"""Remains of dead programs in the queue, and their removal."""

import contextlib
import json
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from planner_model import QUICK, QUIET, bare_planner, kill, submission, tables

from trioeval.agent.processes import this_host
from trioeval.errors import StoreError
from trioeval.providers.programs.processes import make_mark
from trioeval.report.stored import RunStart
from trioeval.store.database import lock_run
from trioeval.store.planner import planner as agent_planner
from trioeval.store.planner.owners import PlannerClient, PlannerSettings, join_planner
from trioeval.store.planner.planner import open_planner
from trioeval.store.planner.queue import Recovery, read_queue
from trioeval.store.runs import begin_run, finish_run, record_resumption
from trioeval.store.schema import INDEX_BITS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


def begin_attempt(path: Path, process: "subprocess.Popen[bytes]", mark: str) -> int:
    """Record that the first execution of the run is at an attempt; return the number of the run."""
    identity = {"pid": process.pid, "started": 0, "host": this_host(), "mark": mark}
    with tables(path) as connection:
        start = RunStart(id="run", utc_created="2026-01-01T00:00:00Z")
        number, parts = begin_run(connection, start)
        for name, text in (("attempt", json.dumps(identity)), ("odd", "no JSON")):
            connection.execute(
                "INSERT INTO running_attempt VALUES (?, ?, 'row', 0, 'agent', ?, ?, 'u', 1)",
                (name, parts[None] << INDEX_BITS | 3, process.pid, text),
            )
    return number


@contextlib.contextmanager
def agent(mark: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The recorded process of a killed program."""
    with subprocess.Popen(["/bin/sleep", "600"], env={"MARK": mark}) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.trio
async def test_processes_of_a_dead_program_are_ended_before_its_slot_is_free(
    path: Path,
) -> None:
    """Processes of a dead program are ended before its slot is released, over further deaths."""
    mark = make_mark()
    dead, finder, third = (bare_planner(path, 1) for _ in range(3))
    for planner, id_ in ((dead, "a"), (dead, "b"), (finder, "c")):
        await planner.submit(submission(id_))
    with agent(mark) as child:
        begin_attempt(path, child, mark)
        kill(dead)
        await finder._change(lambda line: line.schedule(2, patrol=True))
        assert (await third.recover()).kept == ("a", "c")
        with trio.move_on_after(0.1) as scope:
            await third.submit(submission("a"))
        assert scope.cancelled_caught
        shown = [(entry.submission.id, entry.state) for entry in await third.snapshot()]
        assert shown == [("a", "running"), ("b", "queued"), ("c", "running")]
        assert child.poll() is None
        finder.leave_remains()
        kill(finder)
        again = await third.submit(submission("a"))
        assert (again.order, again.state) == (1, "queued")
        assert child.wait(60) == -signal.SIGTERM
    assert (await third.recover()).requeued == ("c",)
    await third.wait_started("a")
    assert len(list(path.parent.glob("*.lock"))) == 1
    kill(third)


@pytest.mark.parametrize("goes_on", ["", "again", "as it was"])
@pytest.mark.trio
async def test_agents_of_dead_programs_are_ended_by_a_waiting_program(
    path: Path, goes_on: str
) -> None:
    """Processes that another program has started since it continued the run are not ended."""
    async with open_planner(path, 1, settings=QUICK) as planner:
        dead = bare_planner(path, 1)
        await dead.submit(submission("a"))
        mark = make_mark()
        with agent(mark) as child, contextlib.ExitStack() as stack:
            number = begin_attempt(path, child, mark)
            if goes_on:
                stack.callback(lock_run(path, "run").leave)
            if goes_on == "again":
                with tables(path) as connection:
                    record_resumption(connection, number, RunStart(id="run", utc_created="u"))
            await planner.submit(submission("b"))
            kill(dead)
            with trio.fail_after(60):
                await planner.wait_started("b")
            assert child.poll() is None if goes_on == "as it was" else child.wait(60) < 0


@pytest.mark.trio
async def test_ag_38_a_finished_run_leaves_nothing_in_the_queue(path: Path) -> None:
    """A finished run leaves nothing in the queue, even without a planner at its end."""
    dead, planner = bare_planner(path, 1), bare_planner(path, 1)
    for id_ in ("a", "b"):
        await dead.submit(submission(id_, "x"))
    await planner.finish("missing", done=True)
    await dead.submit(submission("c"))
    await dead.finish("c", done=True)
    kill(dead)

    def left(connection: sqlite3.Connection) -> list[int]:
        counts = (
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            for table in ("entry", "entry_needs", "entry_done")
        )
        return list(counts)

    with tables(path) as connection:
        number, _ = begin_run(connection, RunStart(id="run", utc_created="2026-01-01T00:00:00Z"))
        ending: dict[str, Any] = {"duration_ms": 1.0, "derived": "null", "part_totals": {}}
        finish_run(connection, number, 1, "interrupted", **ending)
        assert left(connection) == [2, 2, 1]
        finish_run(connection, number, 1, "finished", **ending)
        assert left(connection) == [0, 0, 0]
        late = bare_planner(path, 1)
        await late.submit(submission("a", "x"))
        connection.execute("INSERT INTO entry_done VALUES ('c', 'run', 1)")
        kill(late)
        assert await planner.recover() == Recovery()
        assert left(connection) == [0, 0, 0]
    kill(planner)


ODD_OWNERS = [
    ("heartbeat_s = 'odd'", "when it was seen cannot be read ('odd')"),
    ("heartbeat_s = x'ff'", r"when it was seen cannot be read (b'\xff')"),
    ("host = x'ff'", r"its host cannot be read (b'\xff')"),
    ("id = x'ff'", r"program b'\xff' of the queue of agents: its id cannot be read"),
]


@pytest.mark.parametrize(("change", "problem"), ODD_OWNERS)
@pytest.mark.trio
async def test_ag_39_an_unreadable_program_ends_no_other(
    path: Path, change: str, problem: str
) -> None:
    """Only its lock shows whether it lives; the queue can be shown nevertheless."""
    warned: list[str] = []
    first = bare_planner(path, 1)
    await first.submit(submission("a"))
    kill(first)
    with tables(path) as connection:
        connection.execute("UPDATE owner SET host = 'elsewhere'")
        connection.execute(f"UPDATE owner SET {change}")  # noqa: S608
    assert [(one.host, one.pid) for one in read_queue(path, 0)] == [(None, None)]
    async with open_planner(path, 1, settings=QUIET, warn=warned.append) as planner:
        assert (await planner.submit(submission("b"))).state == "running"
    assert len(warned) == 1
    assert problem in warned[0]


@pytest.mark.trio
async def test_no_file_of_programs_that_never_joined_the_queue_is_left(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This covers one that could write nothing, and one that was killed before it wrote anything."""
    settings = PlannerSettings(patience=0.01)
    with tables(path) as other:

        def enter_and_lock(database: Path) -> PlannerClient:
            other.execute("BEGIN IMMEDIATE")
            return join_planner(database)

        with monkeypatch.context() as patch:
            patch.setattr(agent_planner, "join_planner", enter_and_lock)
            with pytest.raises(StoreError, match="is locked by another program"):
                async with open_planner(path, 1, settings=settings):
                    pass  # pragma: no cover
        other.execute("ROLLBACK")
    assert not list(path.parent.glob("*.lock"))
    left = join_planner(path).lock
    assert left is not None
    left.leave()
    assert len(list(path.parent.glob("*.lock"))) == 1
    async with open_planner(path, 1, settings=QUIET):
        assert len(list(path.parent.glob("*.lock"))) == 1
    assert not list(path.parent.glob("*.lock"))
