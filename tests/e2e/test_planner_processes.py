"""Programs that share a queue: real processes on a real database, some of which are killed."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from trioeval.agent.planner import Submission
from trioeval.errors import UsageError
from trioeval.store.planner.owners import PlannerSettings
from trioeval.store.planner.planner import open_planner

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("planner_program.py")
QUICK = PlannerSettings(poll=0.02)


@contextlib.contextmanager
def program(
    folder: Path, name: str, limit: int, count: int, *hanging: int
) -> Iterator["subprocess.Popen[str]"]:
    """A program that is ready, and starts its tasks when it gets a line."""
    arguments = [folder / "results.db", name, limit, count, folder / "log", *hanging]
    with subprocess.Popen(
        [sys.executable, PROGRAM, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert read(child) == "ready"
            yield child
        finally:
            child.kill()


def read(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def go(child: "subprocess.Popen[str]") -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


def submitted(folder: Path) -> set[str]:
    """The tasks in the queue, and those that have ended."""
    with contextlib.closing(sqlite3.connect(folder / "results.db")) as connection:
        found = {str(name) for (name,) in connection.execute("SELECT id FROM entry")}
    lines = (folder / "log").read_text().splitlines()
    return found | {line.removeprefix("end ") for line in lines if line.startswith("end ")}


def locks(folder: Path) -> int:
    return len(list(folder.glob("*.lock")))


def submission(id_: str) -> Submission:
    return Submission(id=id_, run="own", task=id_)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_ag_36_and_37_a_slot_is_released_when_its_program_ends_and_not_before(
    tmp_path: Path, ending: signal.Signals
) -> None:
    """A silent program keeps it. A killed program keeps its submissions, an interrupted one does not."""

    async def main(child: "subprocess.Popen[str]") -> None:
        database = tmp_path / "results.db"
        async with open_planner(database, 1, settings=QUICK) as planner:
            with contextlib.closing(sqlite3.connect(database)) as connection, connection:
                connection.execute("UPDATE owner SET heartbeat_s = 0")
                connection.execute("UPDATE entry SET utc_started = '2001-01-01T00:00:00.000Z'")
            assert (await planner.submit(submission("mine"))).position == 2
            found = await planner.recover()
            assert (found.kept, found.requeued) == (("other-0",), ())
            with pytest.raises(UsageError, match="another program has submitted it"):
                await planner.submit(submission("other-0"))
            with trio.move_on_after(0.2) as scope:  # some polls of the queue
                await planner.wait_started("mine")
            assert scope.cancelled_caught
            child.send_signal(ending)
            with trio.fail_after(60):
                await planner.wait_started("mine")
            await trio.to_thread.run_sync(child.wait)
            entries = await planner.snapshot()
            shown = [(one.submission.id, one.state, one.owner is None) for one in entries]
            left = [("other-0", "queued", True), ("other-1", "queued", True)]
            assert shown == [*left * (ending == signal.SIGKILL), ("mine", "running", False)]
            assert locks(tmp_path) == 1

    with program(tmp_path, "other", 1, 2, 0) as child:
        go(child)
        assert read(child) == "other-0"
        trio.run(main, child)
    assert locks(tmp_path) == 0


def test_ag_41_programs_that_share_a_planner_start_each_task_once(tmp_path: Path) -> None:
    """Three programs with ten tasks each, two slots in all, and a program that is killed while it holds one.

    Its remaining tasks stay in the queue, in their order, for its next execution.
    """
    with (
        program(tmp_path, "a", 2, 10) as first,
        program(tmp_path, "b", 2, 10) as second,
        program(tmp_path, "c", 2, 10, 4) as victim,
    ):
        for child in (first, second, victim):
            go(child)
        started = {read(victim) for _ in range(5)}
        while "c-4" not in started:
            started.add(read(victim))
        while not {f"c-{number}" for number in range(10)} <= submitted(tmp_path):
            time.sleep(0.01)  # between two polls
        victim.send_signal(signal.SIGSTOP)  # otherwise it could start a task after that log entry
        os.waitpid(victim.pid, os.WUNTRACED)
        with (tmp_path / "log").open("a") as file:
            file.write("kill c\n")
        victim.kill()
        assert (first.wait(60), second.wait(60)) == (0, 0)
    lines = (tmp_path / "log").read_text().splitlines()
    check_log(lines)
    ended = {line.removeprefix("end ") for line in lines if line.startswith("end ")}
    assert {f"{name}-{number}" for name in "ab" for number in range(10)} <= ended
    assert "c-4" not in ended

    async def resume() -> None:
        async with open_planner(tmp_path / "results.db", 2, settings=QUICK) as planner:
            left = await planner.snapshot()
            assert [one.order for one in left] == sorted(one.order for one in left)
            names = {f"c-{number}" for number in range(10)}
            # A task that had ended may have been killed before it left the queue.
            assert names - ended <= {one.submission.id for one in left} <= names
            for one in left:
                again = await planner.submit(one.submission)
                assert (again.order, again.state) == (one.order, "running")
                await planner.finish(one.submission.id, done=True)

    trio.run(resume)
    assert locks(tmp_path) == 0


def check_log(lines: list[str]) -> None:
    """Check that no task starts twice, and that at most two run at once."""
    running: set[str] = set()
    started: set[str] = set()
    killed = ""
    most = 0
    for line in lines:
        what, name = line.split()
        if what == "kill":
            killed = name
            running = {one for one in running if not one.startswith(killed)}
        elif what == "start":
            assert name not in started
            started.add(name)
            running.add(name)
        else:
            running.discard(name)
        most = max(most, len(running))
        assert len(running) <= 2
    assert most == 2
