"""Several tasks of questions in one run, in virtual time: concurrency, and the events of the run."""

from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from asked_questions import RIGHT, WRONG, Pupil, asked, number_of, quiz
from journalled import Notes

from trioeval import Reply, Request, Row


def two(folder: Path, size: int = 3) -> Any:
    """Return two tasks of the same questions that run concurrently."""
    document = quiz(folder, size)
    (first,) = document["tasks"]
    document["tasks"].append({**first, "id": "other"})
    return document


def test_a_run_has_its_own_start_and_end_events(tmp_path: Path) -> None:
    """All events share one sequence of numbers, and the last one contains the totals of both tasks."""
    pupil = Pupil(says=lambda number, step: WRONG if (number, step) == (2, 1) else RIGHT)
    ran = asked(two(tmp_path), pupil)
    first, *_, last = ran.events
    assert (first.name, last.name) == ("run_start", "run_end")
    assert {(event.task, event.index, event.job) for event in (first, last)} == {(None, None, None)}
    assert (first.at, last.at) == (0, ran.ended_at)
    assert sorted(event.sequence for event in ran.events) == list(range(len(ran.events)))
    assert (first.sequence, last.sequence) == (0, len(ran.events) - 1)
    lives = [event.sequence for question in ran.questions for event in question.events]
    assert len(lives) == len(set(lives))
    assert last.details == {
        "tasks_total": 2,
        "tasks_passed": 1,
        "tasks_failed": 1,
        "tasks_errored": 0,
        "pass_rate": 0.5,
        "tokens_total": 90,
        "questions_total": 6,
        "questions_ended": 6,
        "questions_correct": 5,
        "questions_incorrect": 1,
        "question_accuracy": pytest.approx(5 / 6),
    }


def test_rows_of_an_earlier_execution_are_counted_at_the_end(tmp_path: Path) -> None:
    """They are not run again, and their tokens are counted."""
    document = quiz(tmp_path, 3)
    whole = Notes()
    asked(document, Pupil(), journal=whole)
    before = [one for one in whole.writes if not isinstance(one, Row) or one.index < 2]
    pupil = Pupil()
    ran = asked(document, pupil, journal=Notes(before=before))
    assert sorted(pupil.asked) == []
    last = ran.events[-1]
    assert last.name == "run_end"
    assert (last.details["questions_total"], last.details["tokens_total"]) == (3, 45)


def test_a_cancelled_run_has_an_end_event(tmp_path: Path) -> None:
    """Every task is an error then."""

    async def context(go: Any, _ran: Any) -> None:
        with trio.move_on_after(1.5):
            await go()

    ran = asked(two(tmp_path), Pupil(), around=context)
    last = ran.events[-1]
    assert (last.name, last.details["tasks_errored"]) == ("run_end", 2)


def test_a_run_without_questions_has_no_such_events(tmp_path: Path) -> None:
    """No task of the run needs them."""

    async def pupil(_request: Request) -> str:  # noqa: ASYNC124
        return "hi"

    document = {"providers": ["pupil"], "prompts": ["x"], "tests": [{"vars": {}}]}
    ran = asked(document, pupil)
    assert len(ran.rows) == 1
    assert ran.events == []


@attrs.define
class _Busy:
    """A provider that counts concurrent questions."""

    now: int = 0
    most: int = 0
    by_provider: Counter[str] = attrs.field(factory=Counter)

    async def __call__(self, request: Request) -> Reply:
        number_of(request)
        self.now += 1
        self.most = max(self.most, self.now)
        await trio.sleep(1)
        self.now -= 1
        return Reply(output=RIGHT)


@pytest.mark.parametrize(("lanes", "at_once"), [(("one", "one"), 2), (("one", "two"), 4)])
def test_workers_apply_to_each_lane_of_a_task(
    tmp_path: Path, lanes: tuple[str, str], at_once: int
) -> None:
    """Providers that share a lane share its workers; each other lane has as many."""
    providers = [
        {"id": "pupil", "label": label, "lane": lane}
        for label, lane in zip("ab", lanes, strict=True)
    ]
    document = quiz(tmp_path, 6, entry={"workers": 2}, providers=providers)
    document["lanes"] = {lane: {"maxConcurrency": 9} for lane in lanes}
    busy = _Busy()
    ran = asked(document, busy)
    assert (len(ran.rows), busy.most) == (12, at_once)
