"""What a terminal is told of agents while they work."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

import trioeval
from trioeval.agent.open import AgentTerms
from trioeval.agent.protocols import (
    AgentEvent,
    AttemptEnded,
    AttemptStarted,
    AttemptWaiting,
    CaseBlocked,
    CaseEnded,
    CaseQueued,
)
from trioeval.cli.flags import OutputFlags, RunFlags
from trioeval.cli.progress.tasks import TaskProgress, event_line
from trioeval.cli.settings import settle
from trioeval.run import prepare, run_suite
from trioeval.store.planner.planner import open_planner

RUN: dict[str, Any] = {"number": 0, "run_id": "r"}


def told(
    kind: type[AgentEvent], case: str = "a", task: str | None = "t", **more: Any
) -> AgentEvent:
    about: dict[str, Any] = {"task": task, "case": case, "agent": "coder", **more}
    return kind(at=12.5, **about)


def test_a_line_tells_how_many_cases_do_what() -> None:
    """Only what there is; of each case the last that was told of it."""
    progress = TaskProgress(print)
    progress.expect("t", 6)
    assert progress.lines() == []
    for event in (
        told(AttemptStarted, "a", **RUN),
        told(AttemptStarted, "b", **RUN),
        told(AttemptWaiting, "c", number=0),
        told(CaseBlocked, "d", by=("a", "b")),
        told(CaseQueued, "e", position=1),
        told(AttemptWaiting, "f", number=0),
    ):
        progress.observe(event)
    assert progress.lines() == [
        "  t: 2 running, 2 waiting for a slot, 1 blocked, 1 queued, 0/6 over"
    ]
    for event in (
        told(AttemptEnded, "a", **RUN, failed=False),
        told(CaseEnded, "a", ending="done"),
        told(AttemptEnded, "b", **RUN, failed=True),
        told(CaseBlocked, "d", by=()),
        told(CaseQueued, "e", position=0),
        told(CaseEnded, "f", ending="interrupted"),
    ):
        progress.observe(event)
    assert progress.lines() == ["  t: 1 waiting for a slot, 2/6 over"]
    for case in "bcde":
        progress.observe(told(CaseEnded, case, ending="done"))
    assert progress.lines() == []


def test_a_task_whose_cases_are_not_known_has_a_line_too() -> None:
    """Each task has one of its own, with a harmless name."""
    progress = TaskProgress(print)
    progress.observe(told(AttemptStarted, task="red\x1b[31m", **RUN))
    progress.observe(told(CaseEnded, task=None, ending="failed"))
    assert progress.lines() == ["  red [31m: 1 running, 0 over", "  agents: 1 over"]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (told(CaseBlocked, by=("x", "y")), "t/a: blocked by x, y"),
        (told(CaseBlocked, by=()), "t/a: waits for no other case"),
        (told(CaseQueued, position=2), "t/a: waits for its turn, at position 2"),
        (told(CaseQueued, position=0), "t/a: is next"),
        (told(AttemptWaiting, number=3), "t/a: attempt 3 waits for a slot"),
        (told(AttemptStarted, **RUN), "t/a: attempt 0 of coder begins: run r"),
        (told(AttemptEnded, **RUN, failed=False), "t/a: attempt 0 has ended"),
        (
            told(AttemptEnded, **RUN, failed=True, reason="exit: code 3"),
            "t/a: attempt 0 failed: exit: code 3",
        ),
        (told(AttemptEnded, **RUN, failed=False, cancelled=True), "t/a: attempt 0 was cancelled"),
        (told(CaseEnded, task=None, case="\x1b]0;x\x07", ending="done"), "]0;x : done"),
    ],
)
def test_each_event_is_a_line(event: AgentEvent, line: str) -> None:
    """For `--verbose`; names do nothing to a terminal."""
    lines: list[str] = []
    TaskProgress(print, tell=lines.append, began_at=10.0).observe(event)
    assert lines == [event_line(event, 10.0)] == [f"2.500 s {line}"]


def test_lines_of_events_come_in_place_of_the_progress(tmp_path: Path) -> None:
    """Of suites with agents, as of those with questions."""
    suite = suite_of(tmp_path)
    verbose = RunFlags(output=OutputFlags(verbose=True))
    assert not settle(suite, verbose).output.progress
    assert settle(suite, RunFlags()).output.progress


def suite_of(folder: Path) -> trioeval.Suite:
    """A case for each ending but one, and one that nobody can begin when its template is gone."""
    (folder / "gone").mkdir()
    return trioeval.parse_suite(
        {
            "providers": ["exec:sh -c {{act}}"],
            "agents": {"maxConcurrentRuns": 1},
            "tasks": [
                {
                    "id": "t",
                    "type": "agent",
                    "prompts": ["x"],
                    "maxRestarts": 1,
                    "tests": [
                        {"id": "good", "vars": {"act": "touch DONE"}},
                        {"id": "bad", "vars": {"act": "exit 3"}},
                        {"id": "late", "vars": {"act": "touch DONE"}, "dependsOn": "bad"},
                        {"id": "lost", "vars": {"act": "true"}, "workspace": "gone"},
                    ],
                }
            ],
        },
        directory=folder,
    )


def test_every_case_ends_once_however_it_ends(tmp_path: Path) -> None:
    """Also one that was blocked, or could not begin: nothing is left that runs or waits."""
    progress, ended = TaskProgress(print), Counter[tuple[str, str]]()
    progress.expect("t", 4)

    def observe(event: AgentEvent) -> None:
        progress.observe(event)
        if isinstance(event, CaseEnded):
            ended[event.case, event.ending] += 1

    async def emit(_row: Any) -> None:
        await trio.lowlevel.checkpoint()

    async def main() -> None:
        prepared = prepare(suite_of(tmp_path))
        (tmp_path / "gone").rmdir()
        async with open_planner(None, 1) as planner:
            terms = AgentTerms(folder=tmp_path / "agents", planner=planner, observe=observe)
            await run_suite(prepared, emit=emit, agents=terms)

    trio.run(main)
    assert ended == {
        ("good", "done"): 1,
        ("bad", "failed"): 1,
        ("late", "blocked"): 1,
        ("lost", "failed"): 1,
    }
    assert progress.lines() == []
