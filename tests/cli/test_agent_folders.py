"""Run folders of agents are removed with their runs, and nothing else; the plan of a run with agents."""

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import trioeval
from trioeval.cli.commands.agent_folders import case_folders, remove_cases, report_deleted
from trioeval.cli.run.plan import plan_lines
from trioeval.errors import UsageError
from trioeval.report.head import Head, HeadCase
from trioeval.report.stored import StoredRunFacts
from trioeval.run import prepare
from trioeval.session.agents import agent_options, check_workspaces


def run_folder(folder: Path) -> Path:
    """Create the remains of a run: a bus, a case that was worked on, and one that was only started."""
    run = folder / ".trioeval" / "agents" / "eval-1"
    for path in ("bus", "t/a/workspace/src", "t/a/logs", "t/a/bus", "t/b/bus", "t/b/logs"):
        (run / path).mkdir(parents=True)
    (run / "bus" / "bus-00000001.log").touch()
    (run / "t" / "a" / "case.json").write_text(json.dumps({"digest": "d", "case": "a"}))
    (run / "t" / "a" / "workspace" / "src" / "x.py").touch()
    return run


def test_all_files_of_a_run_are_removed(tmp_path: Path) -> None:
    """This includes files that an agent has locked; targets of its links are kept."""
    run, outside = run_folder(tmp_path), tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").touch()
    workspace = run / "t" / "a" / "workspace"
    (workspace / "link").symlink_to(outside)
    (workspace / "src").chmod(0o500)
    assert remove_cases(run) == 2
    assert not run.exists()
    assert [*outside.iterdir()] == [outside / "mine"]
    assert outside.stat().st_mode & 0o700 == 0o700


def _as_a_link(run: Path) -> None:
    elsewhere = run.parent.parent / "elsewhere"
    run.rename(elsewhere)
    run.symlink_to(elsewhere)


def _all_as_a_link(run: Path) -> None:
    elsewhere = run.parent.parent / "elsewhere"
    run.parent.rename(elsewhere)
    run.parent.symlink_to(elsewhere)


def _case_as_a_link(run: Path) -> None:
    elsewhere = run.parent.parent / "elsewhere"
    (run / "t" / "a").rename(elsewhere)
    (run / "t" / "a").symlink_to(elsewhere)


def _not_a_case(run: Path) -> None:
    (run / "t" / "a" / "case.json").unlink()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda run: (run / "notes.txt").touch(), "notes.txt is not the folder of a case"),
        (lambda run: (run / "t" / "notes").touch(), "t/notes is not the folder of a case"),
        (lambda run: (run / "t" / "b" / "x").touch(), "t/b is not the folder of a case"),
        (_not_a_case, "t/a is not the folder of a case"),
        (_case_as_a_link, "t/a is not the folder of a case"),
        (_as_a_link, "it is a link, or in one"),
        (_all_as_a_link, "it is a link, or in one"),
    ],
)
def test_files_of_other_origin_are_kept(tmp_path: Path, spoil: Any, why: str) -> None:
    """Nothing is removed from a folder that contains anything else."""
    run = run_folder(tmp_path)
    spoil(run)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(OSError, match=why):
        remove_cases(run)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_case_without_a_row_is_found(tmp_path: Path) -> None:
    """It is found by the position of its row, in any of several columns, and never in another case."""
    run = tmp_path / "eval-1"
    for name in ("a.one", "a.two", "a.b.one", "b", "a.two.old-1"):
        (run / "t" / name / "workspace").mkdir(parents=True)
    (run / "t" / "c").mkdir()
    named = [HeadCase(name="a", rows=2), HeadCase(name="a.b.one"), HeadCase(name="b")]
    head = Head(
        eval_id="eval-1",
        utc_created="",
        columns=[],
        config={},
        runtime_options={},
        versions={},
        task="t",
        cases=(*named, HeadCase(name="c")),
    )
    found = [[path.name for path in case_folders(run, head, index)] for index in range(6)]
    assert found == [*[["a.one", "a.two"]] * 2, ["a.b.one"], ["b"], [], []]
    assert case_folders(run, attrs.evolve(head, task="other"), 0) == []


def facts_of(run: str) -> StoredRunFacts:
    nothing: dict[str, Any] = dict.fromkeys(attrs.fields_dict(StoredRunFacts))
    return StoredRunFacts(**{**nothing, "id": run, "rows": 2})


def test_deletion_reports_the_rows_of_each_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Remaining folders are reported; an id that is a path, as in foreign files, names no folder."""
    run_folder(tmp_path).rename(tmp_path / ".trioeval" / "agents" / "eval-0")
    run = run_folder(tmp_path)
    ids = ("eval-0", "eval-2", "../agents/eval-1", ".", "..")
    ended = {"eval-0": 1, "eval-2": 3}
    assert report_deleted(tmp_path / ".trioeval" / "r.db", map(facts_of, ids), ended)
    assert run.exists()
    (run / "notes.txt").touch()
    assert not report_deleted(tmp_path / ".trioeval" / "r.db", [facts_of("eval-1")])
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        "deleted eval-0: 2 rows, and 2 folders of cases; ended 1 process of its agents",
        "deleted eval-2: 2 rows; ended 3 processes of its agents",
    ]
    assert lines[2:5] == [f"deleted {one}: 2 rows" for one in ids[2:]]
    assert (
        lines[5]
        == f"deleted eval-1: 2 rows; {run} was not removed: {run}/notes.txt is not the folder of a case"
    )


def planned(**task: Any) -> list[str]:
    document = {
        "providers": ["echo", {"id": "exec:true", "label": "program"}],
        "agents": {"maxConcurrentRuns": 3, "maxConcurrentRootTasks": 2},
        "tasks": [
            {
                "id": "t",
                "type": "agent",
                "prompts": ["x"],
                "tests": [{"id": "a"}, {"id": "b", "dependsOn": "a"}],
                **task,
            }
        ],
    }
    return list(plan_lines(prepare(trioeval.parse_suite(document))))


@pytest.mark.parametrize("limit", [0, 1])
def test_agents_of_a_run_that_is_not_stored_queue_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """The queue lasts as long as the run; without a limit no queue is needed. No file is created."""
    monkeypatch.chdir(tmp_path)
    document = {
        "providers": ["echo"],
        "agents": {"maxConcurrentRootTasks": limit},
        "tasks": [{"id": "t", "type": "agent", "prompts": ["x"], "tests": [{"id": "a"}]}],
    }
    prepared = prepare(trioeval.parse_suite(document))

    async def states() -> list[str]:
        async with AsyncExitStack() as stack:
            terms = await agent_options(prepared, None, "r", stack, warn=pytest.fail)
            assert terms is not None
            assert terms.folder is None
            if (planner := terms.planner) is None:
                return []
            wanted = [trioeval.agent.Submission(id=one, run="r", task=one) for one in "ab"]
            return [(await planner.submit(one)).state for one in wanted]

    assert trio.run(states) == (["running", "queued"] if limit else [])
    assert not [*tmp_path.iterdir()]


def test_a_plan_shows_the_bounds_of_agents() -> None:
    """It shows cases, providers, slots, turns, and the limits of a case."""
    lines = planned(maxRestarts=5, attemptTimeout=60, maxTokens=1000, maxCost=2.5, maxSteps=7)
    bounds = (
        "at most 5 attempts, 60 seconds each, 7 replies of a model each, none after 1000 tokens, "
        "none after 2.5 US dollars"
    )
    assert lines == [
        "task t: 4 rows of 2 tests in 2 columns",
        "  column 0: echo | x",
        "  column 1: program | x",
        "  workspace empty, done with DONE; 2 cases wait for others",
        f"  a case: {bounds}",
        "  lane echo: 2 rows, 4 at once",
        "  lane agent runs: 2 rows, 3 at once",
        "agent cases: at most 2 at once, over all programs that share the database",
        "no lane has a rate, so the duration depends on the calls; no provider was called",
    ]
    programs = planned(providers=["exec:true"])
    assert "  a case: at most 100 attempts" in programs


def test_a_workspace_that_contains_its_copy_is_refused(tmp_path: Path) -> None:
    """It is refused before the run, for a task or a case, unless runs are stored elsewhere."""
    for name in ("in", "out"):
        (tmp_path / "suite" / name).mkdir(parents=True)
    test = {"id": "a", "workspace": "in"}
    task = {"id": "t", "type": "agent", "prompts": ["x"], "workspace": "out", "tests": [test]}
    document = {"providers": ["echo"], "tasks": [task]}
    prepared = prepare(trioeval.parse_suite(document, directory=tmp_path / "suite"))
    for database in (None, tmp_path / "suite" / "r.db", tmp_path / ".trioeval" / "results.db"):
        check_workspaces(prepared, database)
    for name in ("in", "out"):
        kept = tmp_path / "suite" / name / ".trioeval"
        with pytest.raises(UsageError) as caught:
            check_workspaces(prepared, kept / "results.db")
        message = (
            f'the workspace "{name}" of task t contains {kept}/agents, where its copies are created'
        )
        assert str(caught.value).startswith(message)
