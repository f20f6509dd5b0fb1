"""Tasks whose tests are rows of other tasks, in runs that end before these tasks are opened."""

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trioeval.cli.environment import EnvironmentSettings, read_environment
from trioeval.cli.flags import OutputFlags, RunFlags
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.run.execution import Execution
from trioeval.cli.run.start import start_of
from trioeval.cli.run.storage import RunStorage
from trioeval.cli.stored_results import open_runs
from trioeval.errors import InputError
from trioeval.loading.load import parse_suite
from trioeval.run import PreparedSuite, prepare

Settle = Callable[[Sequence[Mapping[str, Any]]], PreparedSuite]


def suite(*, fails: bool = False) -> PreparedSuite:
    """Two tasks, the second of which uses the rows of the first."""
    provider = {"id": "exec:false" if fails else "echo"}
    first = {
        "id": "first",
        "type": "prompt_eval",
        "providers": [provider],
        "prompts": ["a"],
        "tests": [{"vars": {"x": "1"}}],
    }
    second = {
        "id": "second",
        "type": "prompt_eval",
        "providers": ["echo"],
        "prompts": ["{{ text }}"],
        "tests": {"fromTask": "first", "vars": {"text": "output"}},
    }
    return prepare(parse_suite({"tasks": [first, second]}), environ={})


def ran(prepared: PreparedSuite, database: Path, interrupts: Interrupts) -> int:
    execution = Execution(
        prepared,
        RunFlags(output=OutputFlags(progress=False, table=False)),
        EnvironmentSettings(),
        RunStorage(database=database, is_cached=False, named=True),
        start_of(prepared, {}),
        None,
        interrupts,
    )
    return trio.run(execution.run)


def settled_by(prepared: PreparedSuite, settle: Settle) -> PreparedSuite:
    first, second = prepared.tasks
    return attrs.evolve(prepared, tasks=(first, attrs.evolve(second, prepare_with_rows=settle)))


def state(database: Path) -> str:
    with open_runs(database, read_environment({})) as reader:
        return reader.run("latest").state


def test_a_run_that_fails_at_a_late_task_is_not_finished(tmp_path: Path) -> None:
    """Its earlier rows have cost money, so the run can be continued when the cause is removed."""

    def settle(_rows: Sequence[Mapping[str, Any]]) -> PreparedSuite:
        raise InputError("these rows are nothing")

    with pytest.RaisesGroup(
        pytest.RaisesExc(InputError, match="these rows are nothing"), flatten_subgroups=True
    ):
        ran(settled_by(suite(), settle), tmp_path / "r.db", Interrupts())
    assert state(tmp_path / "r.db") == "interrupted"


def test_a_task_that_is_cancelled_while_it_is_opened_can_be_continued(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no rows that would show it."""
    interrupts, prepared = Interrupts(), suite()

    def settle(rows: Sequence[Mapping[str, Any]]) -> PreparedSuite:
        for _ in range(2):
            trio.from_thread.run_sync(interrupts._record, signal.SIGINT, None)
        plain = prepared.tasks[1].prepare_with_rows
        assert plain is not None
        return plain(rows)

    assert ran(settled_by(prepared, settle), tmp_path / "r.db", interrupts) == 130
    assert state(tmp_path / "r.db") == "interrupted"
    assert "continue with: trioeval resume" in capsys.readouterr().err


def test_a_task_whose_rows_can_never_exist_is_not_continued(tmp_path: Path) -> None:
    """Continuing would find the same error."""
    assert ran(suite(fails=True), tmp_path / "r.db", Interrupts()) == 100
    assert state(tmp_path / "r.db") == "finished"


def test_a_task_that_was_opened_is_not_opened_again(tmp_path: Path) -> None:
    """It has rows."""
    assert ran(suite(), tmp_path / "r.db", Interrupts()) == 0
    assert state(tmp_path / "r.db") == "finished"
