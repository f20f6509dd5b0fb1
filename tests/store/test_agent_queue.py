"""The queue as `trioeval runs --queue` shows it."""

import contextlib
import json
import os
import sqlite3
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
from planner_model import bare_planner, kill, submission

from trioeval.cli import run_command_line
from trioeval.errors import StoreError
from trioeval.report.stored import RunStart
from trioeval.store.database import open_database
from trioeval.store.planner.queue import read_queue
from trioeval.store.runs import begin_run, delete_run
from trioeval.store.schema import MIGRATIONS, RUNS


def queue(path: Path, *flags: str) -> tuple[int, Path]:
    return run_command_line(["runs", "--queue", "--db", str(path), *flags]), path


def test_the_queue_is_shown_with_its_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Entries are in order; a killed program is shown as dead, and showing changes nothing."""
    path = tmp_path / "results.db"
    dead, lives = bare_planner(path, 2), bare_planner(path, 2)
    trio.run(dead.submit, submission("a"))
    trio.run(lives.submit, submission("b"))
    trio.run(lives.submit, submission("c\x1b[31m", "b", "a"))
    kill(dead)
    assert queue(path, "--json")[0] == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["id"], one["order"], one["position"], one["state"]) for one in found] == [
        ("a", 1, 0, "running"),
        ("b", 2, 0, "running"),
        ("c\x1b[31m", 3, 1, "blocked"),
    ]
    assert [one["pid"] for one in found] == [None, os.getpid(), os.getpid()]
    assert found[2]["dependsOn"] == ["a", "b"]
    assert (found[0]["run"], found[0]["task"], found[0]["host"]) == ("run", "task/a", None)
    assert found[0]["submitted"] == found[0]["started"] == "1970-01-12T13:46:40.000Z"
    assert queue(path)[0] == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0] == ["order", "position", "state", "run", "task", "program", "since", "(UTC)"]
    assert lines[2] == ["1", "–", "running", "run", "task/a", "dead", "1970-01-12", "13:46:40"]
    assert lines[4][-4:] == ["[31m", str(os.getpid()), "1970-01-12", "13:46:40"]
    assert trio.run(lives.recover).requeued == ("a",)
    kill(lives)


def test_programs_of_other_machines_live_until_their_heartbeats_expire(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    planner = bare_planner(path, 1)
    trio.run(planner.submit, submission("a"))
    kill(planner)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE owner SET host = 'elsewhere', heartbeat_s = 1000")
    assert [(one.host, one.pid) for one in read_queue(path, 1014)] == [("elsewhere", os.getpid())]
    assert [(one.host, one.pid) for one in read_queue(path, 1016)] == [(None, None)]


def test_an_empty_queue_is_shown_as_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """This includes a database of a version before agents; a missing one is an error."""
    path, old = tmp_path / "results.db", tmp_path / "old.db"
    assert queue(path)[0] == 2
    assert "no database of runs; use --db" in capsys.readouterr().err
    open_database(path, RUNS).close()
    before = attrs.evolve(RUNS, migrations=MIGRATIONS[:2])
    open_database(old, before).close()
    for file in (path, old):
        assert queue(file)[0] == 0
        message = "the queue is empty; only suites with maxConcurrentRootTasks use it\n"
        assert capsys.readouterr().err == message
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE owner")
    with pytest.raises(StoreError, match="cannot be used"):
        read_queue(path)


def test_a_deleted_run_leaves_nothing_in_the_queue(tmp_path: Path) -> None:
    """Its running entries of a killed program and its finished ones are removed; others stay."""
    path = tmp_path / "results.db"
    dead = bare_planner(path, 5)
    for id_, run in [("a", "gone"), ("b", "gone"), ("c", "gone"), ("d", "stays")]:
        trio.run(dead.submit, attrs.evolve(submission(id_, "x"), run=run))
    trio.run(partial(dead.finish, "c", done=True))
    kill(dead)
    start = RunStart(id="gone", utc_created="2026-01-01T00:00:00Z")
    with contextlib.closing(open_database(path, RUNS)) as connection:
        number, _ = begin_run(connection, start)
        delete_run(connection, number)
        assert [one.submission.id for one in read_queue(path)] == ["d"]
        tables = {"entry_needs": 1, "entry_done": 0, "run": 0}
        for table, rows in tables.items():
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (rows,)  # noqa: S608
