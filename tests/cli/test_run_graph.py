"""`trioeval runs --graph`: runs that are stored completely, in part, or not at all."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trioeval.agent.journal import ProcessIdentity, RunningAttempt
from trioeval.agent.model import Case
from trioeval.cli.commands.run_graph import show_graph
from trioeval.errors import UsageError
from trioeval.loading.load import parse_suite
from trioeval.report.head import Head, HeadCase
from trioeval.report.stored import RunStart
from trioeval.run import Row, Status, collect
from trioeval.store.store import open_store

ROW: Row = trio.run(collect, parse_suite({"providers": ["echo"], "prompts": ["x"]}))[0]


def head_of(task: str, *needs: str, **more: Any) -> dict[str, Any]:
    head = Head(
        eval_id="e",
        utc_created="2026-01-01T00:00:00.000Z",
        columns=[],
        config={},
        runtime_options={},
        versions={},
        task=task,
        depends_on=needs,
        **more,
    )
    return head.json()


def row_of(task: str, index: int, case: str | None = None, **changes: Any) -> Row:
    test = attrs.evolve(ROW.step.test, extra=None if case is None else Case(name=case))
    step = attrs.evolve(ROW.step, test=test)
    return attrs.evolve(ROW, task=task, index=index, step=step, **changes)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Three tasks: one has cases, one has half of its rows, and one was not started."""
    start = RunStart(
        id="eval-1",
        utc_created="2026-01-01T00:00:00.000Z",
        heads=[
            head_of("half"),
            head_of("repairs", cases=(HeadCase(name="b", depends_on=("a",)), HeadCase(name="a"))),
            head_of("last", "half", "repairs"),
        ],
        rows={"half": 3, "repairs": 2},
    )

    async def main() -> None:
        async with open_store(tmp_path / "runs.db") as store:
            run = store.begin(start)
            run.row(row_of("half", 0))
            run.row(row_of("half", 1, status=Status.FAIL))
            run.row(row_of("repairs", 0, "b", status=Status.ERROR, outcome="blocked"))
            run.row(row_of("repairs", 1, "a"))
            run.finish("interrupted", duration_ms=5.0)

    trio.run(main)
    return tmp_path / "runs.db"


def test_a_stored_run_is_drawn(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing rows were not run; their number may be unknown."""
    assert show_graph(database, "latest", form="text", as_json=False) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "1  half                  1 failed, 1 not graded, 1 not run",
        "1  repairs               1 not graded, 1 blocked",
        "   1  a                  not graded",
        "   2  b ← a              blocked",
        "2  last ← half, repairs  not run",
    ]


def test_a_graph_for_a_document_has_no_other_output(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stdout has no line about the run and can go into a file as it is."""
    show_graph(database, "eval-1", form="dot", as_json=False)
    assert capsys.readouterr().out.startswith("digraph run {\n")


def test_a_graph_is_available_as_json(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has the id and the state of the run."""
    show_graph(database, "latest", form="text", as_json=True)
    graph = json.loads(capsys.readouterr().out)
    assert (graph["id"], graph["state"]) == ("eval-1", "interrupted")
    assert [(task["name"], task["layer"]) for task in graph["tasks"]] == [
        ("half", 1),
        ("repairs", 1),
        ("last", 2),
    ]
    assert graph["tasks"][1]["cases"][0]["states"] == {"blocked": 1}


def test_started_tasks_differ_from_waiting_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """This applies to a running run; in an interrupted one, started rows are not errors."""
    cases = (HeadCase(name="a", rows=2), HeadCase(name="b", depends_on=("a",)))
    start = RunStart(
        id="eval-1",
        utc_created="2026-01-01T00:00:00.000Z",
        heads=[head_of("repairs", cases=cases)],
        rows={"repairs": 3},
    )
    process = ProcessIdentity(pid=1, started=2, host="here", mark="a" * 32)

    async def main() -> None:
        async with open_store(tmp_path / "runs.db") as store:
            run = store.begin(start)
            run.row(row_of("repairs", 0, "a"))
            attempt = RunningAttempt(
                run_id="r", index=1, row="1", number=0, agent="x", process=process
            )
            journal = run.agents("repairs")
            journal.started(attempt)
            await journal.durable()
            show_graph(tmp_path / "runs.db", "latest", form="text", as_json=False)
            run.row(row_of("repairs", 1, "a", status=Status.ERROR, outcome="interrupted"))
            journal.gone("r")
            run.finish("interrupted", duration_ms=5.0)
        show_graph(tmp_path / "runs.db", "latest", form="text", as_json=False)

    trio.run(main)
    lines = [line for line in capsys.readouterr().out.splitlines() if "eval-1" not in line]
    assert lines == [
        "1  repairs   1 not graded, 1 running, 1 waiting",
        "   1  a      1 not graded, 1 running",
        "   2  b ← a  waiting",
        "1  repairs   1 not graded, 1 interrupted, 1 not run",
        "   1  a      1 not graded, 1 interrupted",
        "   2  b ← a  not run",
    ]


def test_a_missing_run_is_reported(database: Path) -> None:
    """The message lists the existing runs."""
    with pytest.raises(UsageError, match="the last ones are eval-1"):
        show_graph(database, "nothing", form="text", as_json=False)
