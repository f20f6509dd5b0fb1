"""The progress of agent tasks on a terminal."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

import trioeval
from trioeval.agent.open import AgentOptions
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
from trioeval.cli.settings import resolve_settings
from trioeval.run import RunOptions, prepare, run_with_options
from trioeval.store.planner.planner import open_planner

RUN: dict[str, Any] = {"number": 0, "run_id": "r"}


def event_of(
    kind: type[AgentEvent], case: str = "a", task: str | None = "t", **more: Any
) -> AgentEvent:
    about: dict[str, Any] = {"task": task, "case": case, "agent": "coder", **more}
    return kind(at=12.5, **about)


def test_a_line_counts_cases_by_state() -> None:
    """Only states that occur are shown; each case counts in its latest state."""
    progress = TaskProgress(print)
    progress.expect("t", 6)
    assert progress.lines() == []
    for event in (
        event_of(AttemptStarted, "a", **RUN),
        event_of(AttemptStarted, "b", **RUN),
        event_of(AttemptWaiting, "c", number=0),
        event_of(CaseBlocked, "d", by=("a", "b")),
        event_of(CaseQueued, "e", position=1),
        event_of(AttemptWaiting, "f", number=0),
    ):
        progress.observe(event)
    assert progress.lines() == [
        "  t: 2 running, 2 waiting for a slot, 1 blocked, 1 queued, 0/6 over"
    ]
    for event in (
        event_of(AttemptEnded, "a", **RUN, failed=False),
        event_of(CaseEnded, "a", ending="done"),
        event_of(AttemptEnded, "b", **RUN, failed=True),
        event_of(CaseBlocked, "d", by=()),
        event_of(CaseQueued, "e", position=0),
        event_of(CaseEnded, "f", ending="interrupted"),
    ):
        progress.observe(event)
    assert progress.lines() == ["  t: 1 waiting for a slot, 2/6 over"]
    for case in "bcde":
        progress.observe(event_of(CaseEnded, case, ending="done"))
    assert progress.lines() == []


def test_a_task_with_unknown_cases_has_a_line() -> None:
    """Each task has its own line, with a harmless name."""
    progress = TaskProgress(print)
    progress.observe(event_of(AttemptStarted, task="red\x1b[31m", **RUN))
    progress.observe(event_of(CaseEnded, task=None, ending="failed"))
    assert progress.lines() == ["  red [31m: 1 running, 0 over", "  agents: 1 over"]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (event_of(CaseBlocked, by=("x", "y")), "t/a: blocked by x, y"),
        (event_of(CaseBlocked, by=()), "t/a: waits for no other case"),
        (event_of(CaseQueued, position=2), "t/a: waits for its turn, at position 2"),
        (event_of(CaseQueued, position=0), "t/a: is next"),
        (event_of(AttemptWaiting, number=3), "t/a: attempt 3 waits for a slot"),
        (event_of(AttemptStarted, **RUN), "t/a: attempt 0 of coder begins: run r"),
        (event_of(AttemptEnded, **RUN, failed=False), "t/a: attempt 0 has ended"),
        (
            event_of(AttemptEnded, **RUN, failed=True, reason="exit: code 3"),
            "t/a: attempt 0 failed: exit: code 3",
        ),
        (
            event_of(AttemptEnded, **RUN, failed=False, cancelled=True),
            "t/a: attempt 0 was cancelled",
        ),
        (event_of(CaseEnded, task=None, case="\x1b]0;x\x07", ending="done"), "]0;x : done"),
    ],
)
def test_each_event_is_a_line(event: AgentEvent, line: str) -> None:
    """With `--verbose` each event is a line; names cannot control a terminal."""
    lines: list[str] = []
    TaskProgress(print, print_line=lines.append, began_at=10.0).observe(event)
    assert lines == [event_line(event, 10.0)] == [f"2.500 s {line}"]


def test_event_lines_replace_the_progress(tmp_path: Path) -> None:
    """This is the same for suites with agents and with questions."""
    suite = suite_of(tmp_path)
    verbose = RunFlags(output=OutputFlags(verbose=True))
    assert not resolve_settings(suite, verbose).output.progress
    assert resolve_settings(suite, RunFlags()).output.progress


def suite_of(folder: Path) -> trioeval.Suite:
    """A case for each ending but one, and a case that cannot start once its template is missing."""
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


def test_every_case_ends_exactly_once(tmp_path: Path) -> None:
    """A case that was blocked or could not start ends as well: none remains running or waiting."""
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
            terms = AgentOptions(folder=tmp_path / "agents", planner=planner, observe=observe)
            await run_with_options(prepared, RunOptions(emit=emit, agents=terms))

    trio.run(main)
    assert ended == {
        ("good", "done"): 1,
        ("bad", "failed"): 1,
        ("late", "blocked"): 1,
        ("lost", "failed"): 1,
    }
    assert progress.lines() == []
