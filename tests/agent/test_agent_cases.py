"""Complete tasks of agents in one process: folders, failing buses, queues, stops, reused cases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trioeval import Reply, Request, Row, parse_suite
from trioeval.agent.bus.reading import read_bus
from trioeval.agent.open import AgentOptions
from trioeval.agent.planner import Submission, planner_turn
from trioeval.agent.protocols import AgentEvent, AttemptStarted, CaseEnded, CaseQueued
from trioeval.evaluation.reconcile import parse_retry
from trioeval.run import RunOptions, run_with_options
from trioeval.run.prepare import prepare
from trioeval.store.planner.planner import open_planner
from trioeval.testing.journals import MemoryJournal


async def worker(request: Request) -> Reply:
    """Finish at once, except for cases that are lazy, lack a dependency, or sleep."""
    await trio.sleep(request.vars.get("nap", 0))
    needs = trio.Path(request.vars.get("needs", "."))
    if not request.vars.get("lazy") and await needs.exists():
        await trio.Path(request.vars["done"]).touch()
    return Reply(output=f"attempt {request.vars['attempt']}")


def task_of(*tests: Mapping[str, Any], task: str = "work", **more: Any) -> dict[str, Any]:
    return {
        "id": task,
        "type": "agent",
        "prompts": ["Do it."],
        "providers": ["worker"],
        "restartDelay": 0,
        "maxRestarts": 1,
        "tests": [*tests],
        **more,
    }


@attrs.define
class Ran:
    rows: dict[tuple[str | None, int], Row] = attrs.field(factory=dict)
    warned: list[str] = attrs.field(factory=list)
    events: list[AgentEvent] = attrs.field(factory=list)

    @property
    def outcomes(self) -> list[str]:
        """Return the outcome of each row, and whether it passed."""
        return [f"{row.outcome} {row.status.value}" for _, row in sorted(self.rows.items())]


async def play(*tasks: Mapping[str, Any], folder: Path | None = None, **how: Any) -> Ran:
    """Run tasks of agents."""
    ran = Ran()
    terms = how.pop("terms", {})
    observe = terms.pop("observe", ran.events.append)

    async def keep(row: Row) -> None:  # noqa: ASYNC124 - dicts do not wait
        ran.rows[row.task, row.index] = row

    prepared = prepare(
        parse_suite({"tasks": [*tasks]}, environ={}), providers={"worker": worker}, environ={}
    )
    with trio.fail_after(60):
        await run_with_options(
            prepared,
            RunOptions(
                emit=keep,
                warn=ran.warned.append,
                agents=AgentOptions(folder=folder, observe=observe, **terms),
                **how,
            ),
        )
    return ran


def agent_of(row: Row) -> Mapping[str, Any]:
    assert row.reply is not None
    found: Mapping[str, Any] = row.reply.metadata["agent"]
    return found


def test_ag_14_failing_buses_change_nothing_else_in_the_run(tmp_path: Path) -> None:
    """The bus of the run and those of its cases fail; the failure is reported once."""
    tests: list[dict[str, Any]] = [
        {"id": "a"},
        {"id": "b", "dependsOn": ["a"]},
        {"id": "c", "vars": {"lazy": True}},
    ]
    right = trio.run(lambda: play(task_of(*tests), folder=tmp_path / "right"))
    for broken in ("bus", "work/a/bus", "work/b/bus", "work/c/bus"):
        path = tmp_path / "run" / broken
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a file")
    ran = trio.run(lambda: play(task_of(*tests), folder=tmp_path / "run"))
    assert ran.outcomes == right.outcomes == ["done pass", "done pass", "done fail"]
    assert [len(agent_of(row)["attempts"]) for row in ran.rows.values()] == [1, 1, 1]
    assert (len(ran.warned), right.warned) == (1, [])
    assert "messages of agents cannot be written (1 so far)" in ran.warned[0]


def test_case_folders_are_inside_the_run_folder_for_any_task_name(tmp_path: Path) -> None:
    """Without a folder they are removed at the end of the run."""
    names = ["bus", "../../out", "plain"]
    tasks = [task_of({"id": "a"}, task=name) for name in names]
    ran = trio.run(lambda: play(*tasks, folder=tmp_path / "x" / "run"))
    assert ran.outcomes == ["done pass"] * 3
    folders = [Path(agent_of(row)["folder"]) for row in ran.rows.values()]
    assert {folder.parent.parent for folder in folders} == {tmp_path / "x" / "run"}
    assert [one.name for one in tmp_path.iterdir()] == ["x"]
    assert not read_bus(tmp_path / "x" / "run" / "bus").messages
    ran = trio.run(lambda: play(task_of({"id": "a"})))
    assert not Path(agent_of(ran.rows["work", 0])["folder"]).exists()


def test_a_stop_ends_the_wait_for_slots_that_others_hold(tmp_path: Path) -> None:
    """The wait ends however long others hold them; no job of the run is left in the queue."""
    stop = trio.Event()

    def observe(event: AgentEvent) -> None:
        if isinstance(event, CaseQueued) and event.position == 2:
            stop.set()

    async def main() -> Ran:
        other = Submission(id="other", run="other", task="t")
        async with open_planner(None, 1) as planner, planner_turn(planner, other) as turn:
            await turn.wait_started()
            ran = await play(
                task_of({"id": "a"}, {"id": "b"}),
                folder=tmp_path / "run",
                stop=stop,
                terms={"planner": planner, "observe": observe},
            )
            assert [one.submission.id for one in await planner.snapshot()] == ["other"]
            return ran

    assert trio.run(main).outcomes == ["not_run not_run"] * 2


def test_cases_start_one_after_the_other(tmp_path: Path) -> None:
    """They start in their order; the observer gets every event of each."""
    tests = [{"id": case} for case in "abc"]

    async def main() -> Ran:
        async with open_planner(None, 1) as planner:
            return await play(task_of(*tests), folder=tmp_path / "run", terms={"planner": planner})

    ran = trio.run(main)
    assert ran.outcomes == ["done pass"] * 3
    ends = [event.case for event in ran.events if isinstance(event, CaseEnded)]
    assert ends == ["a", "b", "c"]


@pytest.mark.parametrize("lazy", [False, True])
def test_dependents_get_the_outcome_of_a_reused_case(
    tmp_path: Path,
    lazy: bool,  # noqa: FBT001
) -> None:
    """The reused case is not started again."""
    tests: list[dict[str, Any]] = [
        {"id": "a", "vars": {"lazy": lazy}},
        {"id": "b", "dependsOn": ["a"]},
        {"id": "c", "dependsOn": ["b"]},
    ]
    journal = MemoryJournal()
    trio.run(lambda: play(task_of(*tests), folder=tmp_path / "run", journal=journal))
    first_row = next(n for n, write in enumerate(journal.writes) if hasattr(write, "outcome"))
    cut = journal.cut(first_row + 1)
    ran = trio.run(lambda: play(task_of(*tests), folder=tmp_path / "run", journal=cut))
    ended = ["blocked not_run"] * 2 if lazy else ["done pass"] * 2
    assert ran.outcomes == ended
    assert [row.index for row in ran.rows.values()] == [1, 2]


def test_a_rerun_case_waits_for_rerun_dependencies(tmp_path: Path) -> None:
    """Its folder contains the done file until that is moved aside; reused dependents are reported."""
    needed = tmp_path / "needed"
    needed.touch()
    tests: list[dict[str, Any]] = [
        {"id": "a", "vars": {"nap": 0.05, "needs": str(needed)}},
        *({"id": case, "dependsOn": [on]} for case, on in ("ba", "cb", "da")),
    ]

    def run(journal: MemoryJournal) -> Ran:
        return trio.run(lambda: play(task_of(*tests), folder=tmp_path / "run", journal=journal))

    journal = MemoryJournal()
    assert run(journal).outcomes == ["done pass"] * 4

    again = run(journal.again(parse_retry("0,1")))
    assert again.outcomes == ["done pass"] * 2
    events = [(type(event), event.case) for event in again.events]
    assert events.index((CaseEnded, "a")) < events.index((AttemptStarted, "b"))
    assert again.warned == []

    needed.unlink()
    alone = run(journal.again(parse_retry("0,1")))
    assert alone.outcomes == ["done fail", "blocked not_run"]
    (line,) = alone.warned
    assert line.startswith("case a is no longer done; these cases, which depend on it, keep")
    assert "keep their results: c, d; run them again with --retry" in line


def test_an_empty_prompt_is_an_error_of_its_case(tmp_path: Path) -> None:
    """No dependent starts."""
    ran = trio.run(
        lambda: play(
            task_of(
                {"id": "a"},
                {"id": "b", "vars": {"what": "Do it."}},
                {"id": "c", "vars": {"what": "Do it."}, "dependsOn": ["a"]},
                prompts=[" {{ what }}"],
            ),
            folder=tmp_path / "run",
        )
    )
    assert ran.outcomes == ["failed error", "done pass", "blocked not_run"]
    assert ran.rows["work", 0].error == "the prompt of case a is empty"


def test_a_folder_that_cannot_be_created_is_reported_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(Exception, match="the folder of agents cannot be created"):
        trio.run(lambda: play(task_of({"id": "a"}), folder=tmp_path / "run"))
