"""Questions on workers in virtual time: results, events and bounds are those of a run without workers."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from asked_questions import RIGHT, WRONG, Pupil, asked, calls_tool, quiz
from session_workers import SessionCluster, SessionRun, run_on_sessions

from trioeval import ProviderError, Reply, Row, own_provider
from trioeval.evaluation.journal import CallRecord
from trioeval.question_eval import question_of
from trioeval.scaleout.messages import Message
from trioeval.testing import run_virtual
from trioeval.testing.journals import MemoryJournal, WrittenRow

SIZE = 8


def mixed(number: int, _step: int) -> Any:
    """Answer right, wrong or not at all; the fourth question fails."""
    if number == 4:
        return ProviderError("auth", "no key")
    return [RIGHT, WRONG, "I do not know."][number % 3]


def on_workers(
    suite: Mapping[str, Any],
    pupil: Pupil,
    *,
    journal: MemoryJournal | None = None,
    on_message: Callable[[SessionCluster, str, Message], None] = lambda *_: None,
    stop: Callable[[trio.Event], None] = lambda _: None,
    longest_reply: int | None = None,
) -> SessionRun:
    async def main() -> SessionRun:
        event = trio.Event()
        stop(event)
        return await run_on_sessions(
            suite,
            {"pupil": own_provider(pupil, max_tokens=longest_reply)},
            journal=journal,
            on_message=on_message,
            stop=event,
        )

    return run_virtual(main)


def timeless(rows: Sequence[Row]) -> list[Row]:
    """Return rows without times, and without the instants and numbers of their events."""
    found = []
    for row in rows:
        result = question_of(row)
        assert result is not None
        names: Any = tuple(
            (event.name, {**event.details, "duration_ms": 0}) for event in result.events
        )
        own: Any = attrs.evolve(result, wall_time_s=None, wait_s=None, events=names)
        failure = None if row.failure is None else (row.failure.kind, row.failure.message)
        plain: Any = {"wait_ms": 0.0, "waits": {}, "latency_ms": None, "failure": failure}
        found.append(attrs.evolve(row, result=own, **plain))
    return found


def results(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Return what a row says about its question, however often it was placed."""
    found = []
    for row in rows:
        result = question_of(row)
        assert result is not None
        error = result.run_error and result.run_error.kind
        found.append((row.index, row.status, row.error, result.outcome, result.tokens_total, error))
    return found


@pytest.mark.parametrize("entry", [{"concurrency": 3}, {"failFast": True}, {}])
def test_questions_on_workers_are_those_of_one_process(
    tmp_path: Path, entry: Mapping[str, Any]
) -> None:
    """Also their events, and the end of a task after its first failure: QE-39 over workers."""
    suite = quiz(tmp_path, SIZE, entry=entry)
    local = asked(suite, Pupil(mixed))
    run = on_workers(suite, Pupil(mixed))
    assert timeless(run.rows) == timeless(local.rows)
    for index in range(SIZE):
        of_row = [event for event in run.questions if event.index == index]
        assert [event.name for event in of_row] == local.names(index)
        assert [event.at for event in of_row] == sorted(event.at for event in of_row)
    assert sorted(event.sequence for event in run.questions) == list(range(len(run.questions)))
    ends = [event.details for event in run.questions if event.name in {"task_end", "run_end"}]
    assert ends == [
        event.details for event in local.events if event.name in {"task_end", "run_end"}
    ]


@pytest.mark.parametrize("workers", [1, 3])
def test_the_concurrency_of_a_task_holds_over_all_workers(tmp_path: Path, workers: int) -> None:
    live, most = 0, 0

    class Counting(Pupil):
        async def __call__(self, request: Any) -> Any:
            nonlocal live, most
            live += 1
            most = max(most, live)
            try:
                return await super().__call__(request)
            finally:
                live -= 1

    pupil = Counting()
    run = on_workers(quiz(tmp_path, SIZE, entry={"concurrency": workers}), pupil)
    assert len(run.rows) == SIZE
    assert most == workers
    assert run.ended_at < math.ceil(SIZE / workers) * 1.1


def test_tools_and_budgets_of_questions_work_on_workers(tmp_path: Path) -> None:
    suite = quiz(tmp_path, 2, entry={"budget": {"maxSteps": 1}})
    says = lambda number, _step: calls_tool("unknown") if number else RIGHT  # noqa: E731
    suite["tasks"][0]["tools"] = [{"name": "unknown", "target": _tool(tmp_path)}]
    local = asked(suite, Pupil(says), run=trio.run)
    assert local.outcomes == ["correct", "budget_exceeded"]

    async def main() -> SessionRun:
        return await run_on_sessions(suite, {"pupil": own_provider(Pupil(says))})

    assert timeless(trio.run(main).rows) == timeless(local.rows)


def test_questions_within_a_distant_budget_use_all_slots(tmp_path: Path) -> None:
    """They are sent one by one, and each has a lease on the budget."""
    entry = {"concurrency": 16}
    wide: dict[str, Any] = {"providers": [{"id": "pupil", "lane": {"maxConcurrency": 16}}]}
    ended = [
        on_workers(quiz(tmp_path, 64, entry=entry, **wide, **more), Pupil()).ended_at
        for more in ({}, {"evaluateOptions": {"budget": {"requests": 1000}}})
    ]
    assert ended[0] < 5
    assert ended[1] == ended[0]


@pytest.mark.parametrize("budget", [{"tokens": 900}, {"tokens": 2000}, {"requests": 3}])
def test_questions_beyond_a_budget_end_as_in_one_process(
    tmp_path: Path, budget: Mapping[str, int]
) -> None:
    """One that needs more than the whole budget fails alone; the others are not run once it is used up."""
    suite = quiz(tmp_path, 6, entry={"concurrency": 1}, evaluateOptions={"budget": budget})
    file = tmp_path / "questions.json"
    file.write_text(file.read_text().replace("Colour 1?", f"Colour 1{' ' * 2000}?"))
    local = asked(suite, Pupil(), longest_reply=20)
    run = on_workers(suite, Pupil(), longest_reply=20)
    assert results(run.rows) == results(local.rows)


def _tool(folder: Path) -> str:
    file = folder / "tools.py"
    file.write_text("def look(arguments):\n    return 1\n")
    return f"file://{file}:look"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("losses", "width", "dies_after"),
    [([2], 4, 5), ([2], 2, 1), ([], 1, 0), ([11], 3, 0), ([1, 6], 2, 9), ([3, 4, 17], 4, 14)],
)
def test_lost_workers_and_a_killed_run_repeat_no_recorded_question(
    tmp_path: Path, losses: list[int], width: int, dies_after: int
) -> None:
    """Laws TOTAL, ORDER, ONCE and RESUME, wherever workers are lost and the run is cut."""
    suite = quiz(tmp_path, SIZE, entry={"concurrency": width})
    right = asked(suite, Pupil(mixed)).rows
    pupil, journal = Pupil(mixed), MemoryJournal()
    seen = 0

    def lose(cluster: SessionCluster, worker: str, _message: Message) -> None:
        nonlocal seen
        seen += 1
        if seen in losses:
            cluster.lose(worker)
            cluster.join(f"{worker}+")

    run = on_workers(suite, pupil, journal=journal, on_message=lose)
    assert [row.index for row in run.rows] == list(range(SIZE)), "law TOTAL, law ORDER"
    assert results(run.rows) == results(right)
    written = Counter(one.index for one in journal.writes if isinstance(one, WrittenRow))
    assert set(written.values()) == {1}, "law ONCE"
    calls = [one for one in journal.writes if isinstance(one, CallRecord)]
    paid = Counter(one.key for one in calls if isinstance(one.answer, Reply))
    assert set(paid.values()) == {1}, "law RESUME"
    in_flight = width * sum(loss <= seen for loss in losses)
    assert pupil.over <= len(calls) + in_flight, "law RESUME"

    cut = journal.cut(dies_after)
    known = {one.key.index for one in cut.earlier if isinstance(one, CallRecord)}
    again = Pupil(mixed)
    on_workers(suite, again, journal=cut)
    records = cut.records("quiz")
    assert sorted(records) == list(range(SIZE))
    # A failed call is not a reply: that question is asked again unless its row is recorded.
    assert not {index for index in known if index != 4} & again.asked.keys()
    assert [records[row.index]["success"] for row in right] == [
        row.status.is_success for row in right
    ]


def test_a_stop_lets_questions_end_and_cancels_the_others(tmp_path: Path) -> None:
    """Law DRAIN; the journal lets a later run ask those that did not start."""
    suite, journal = quiz(tmp_path, SIZE, entry={"concurrency": 2}), MemoryJournal()
    stops: list[trio.Event] = []

    def on_message(_cluster: SessionCluster, _worker: str, message: Message) -> None:
        if isinstance(message, Row) and message.index == 3:
            stops[0].set()

    pupil = Pupil()
    run = on_workers(suite, pupil, journal=journal, on_message=on_message, stop=stops.append)
    outcomes = [found.outcome for row in run.rows if (found := question_of(row)) is not None]
    assert len(outcomes) == SIZE
    assert set(outcomes) == {"correct", "cancelled"}
    assert outcomes.count("correct") == pupil.over < SIZE
    again = Pupil()
    on_workers(suite, again, journal=journal.cut(len(journal.writes)))
    assert again.over == SIZE - pupil.over
