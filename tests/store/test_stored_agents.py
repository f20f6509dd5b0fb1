"""Recorded processes of agents are found by the next execution, and by no other."""

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import attrs
import trio
from stored_things import start_of

from trioeval.agent.journal import ProcessIdentity, RunningAttempt
from trioeval.report.stored import StoredRunFacts
from trioeval.store.reader import read_store
from trioeval.store.store import open_store

TASKS = ("repairs", "later")
HEADS = [{"task": task} for task in TASKS]
AGAIN = start_of("eval-1", heads=HEADS)


def running(run_id: str, index: int = 0, pid: int = 7) -> RunningAttempt:
    process = ProcessIdentity(pid=pid, started=99, host="here", mark="a" * 32)
    return RunningAttempt(
        run_id=run_id, index=index, row=f"row {index}\0", number=2, agent="exec:x", process=process
    )


def begin(path: Path, name: str, attempts: Sequence[RunningAttempt]) -> None:
    """A run with attempts that start and do not end."""

    async def main() -> None:
        async with open_store(path) as store:
            run = store.begin(start_of(name, heads=HEADS))
            journal = run.agents("repairs")
            for one in attempts:
                journal.started(attrs.evolve(one, process=attrs.evolve(one.process, pid=0)))
                await journal.durable()
                journal.started(one)
            await journal.durable()

    trio.run(main)


def test_an_attempt_is_found_with_all_data_of_its_process(tmp_path: Path) -> None:
    """A recorded attempt is found with its latest data, and not those of other tasks or runs."""
    path = tmp_path / "results.db"
    first, second = running("r1"), running("r2", 3, pid=8)
    begin(path, "eval-1", [first, second])
    begin(path, "eval-2", [running("r9")])

    async def main() -> None:
        async with open_store(path) as store:
            run = await store.resume("eval-1", AGAIN)
            journal = run.agents("repairs")
            left = journal.left()
            assert [attrs.evolve(one, row="") for one in left] == [
                attrs.evolve(one, row="") for one in (first, second)
            ]
            assert run.agents("later").left() == []
            journal.started(running("r3"))
            journal.gone("r1")
            journal.gone("never there")
            await journal.durable()
            assert [one.run_id for one in journal.left()] == ["r2"]
        async with open_store(path) as store:
            found = (await store.resume("eval-1", AGAIN)).agents("repairs").left()
            assert [one.run_id for one in found] == ["r2", "r3"]

    trio.run(main)


def test_recovered_processes_are_those_of_an_earlier_execution(tmp_path: Path) -> None:
    """RESUME: the execution that recovers them ends them, and those of unknown tasks are left out."""
    path = tmp_path / "results.db"
    begin(path, "eval-1", [running("r1")])

    async def main() -> None:
        async with open_store(path) as store:
            run = await store.resume("eval-1", AGAIN)
            for one in ("r1", running("r2"), running("r3"), "r3"):
                run.recover_attempt("repairs", one)
                run.recover_attempt("no task of the run", one)
            await run.durable()
            assert [one.run_id for one in run.agents("repairs").left()] == ["r2"]

    trio.run(main)


def test_an_unreadable_record_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    """Its reader continues with the others."""
    path, reported = tmp_path / "results.db", list[str]()
    begin(path, "eval-1", [running("r1")])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE running_attempt SET process = ?", (json.dumps({"pid": 1}),))
    connection.close()

    async def main() -> None:
        async with open_store(path, on_warning=reported.append) as store:
            assert (await store.resume("eval-1", AGAIN)).agents("repairs").left() == ()

    trio.run(main)
    assert len(reported) == 1
    assert "the running agents of an earlier execution cannot be read" in reported[0]


def test_processes_of_agents_are_reported_before_a_run_is_deleted(tmp_path: Path) -> None:
    """They are passed to a callback before the deletion."""
    path, reported = tmp_path / "results.db", list[tuple[str, list[int]]]()
    begin(path, "eval-1", [running("r1", pid=1), running("r2", 3, pid=2)])
    begin(path, "eval-2", [running("r3", pid=3), running("r4", 1, pid=4)])
    begin(path, "eval-3", [])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE running_attempt SET process = '{}' WHERE id = 'r4'")
    connection.close()

    def end(run: StoredRunFacts, processes: Sequence[ProcessIdentity]) -> None:
        reported.append((run.id, sorted(process.pid for process in processes)))

    with read_store(path) as reader:
        assert reader.rows_with_processes(reader.run("eval-1"), "repairs") == {0, 3}
        assert reader.rows_with_processes(reader.run("eval-1"), "later") == set()
        reader.delete(reader.run("eval-1"), end)
        reader.prune(keep=0, end=end)
        assert reader.runs() == []
    assert reported == [("eval-1", [1, 2]), ("eval-2", [3])]


def test_ag_79_six_writers_lose_no_record(tmp_path: Path) -> None:
    """Six programs on one database record forty attempts each, twice."""
    path = tmp_path / "results.db"
    begin(path, "eval-0", [])
    writers = [
        Thread(
            target=begin,
            args=(path, f"eval-{n}", [running(f"{n}-{k}", k, pid=k + 1) for k in range(40)]),
        )
        for n in range(1, 7)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    with sqlite3.connect(path) as connection:
        found = connection.execute("SELECT id, pid FROM running_attempt").fetchall()
    connection.close()
    assert dict(found) == {f"{n}-{k}": k + 1 for n in range(1, 7) for k in range(40)}
