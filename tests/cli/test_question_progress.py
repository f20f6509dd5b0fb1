"""The progress of questions on a terminal."""

from typing import Any

import attrs

from trioeval.cli.progress.tasks import TaskProgress, event_line
from trioeval.question_eval.answer import QuestionEvent


def event(name: str, index: int | None = 0, /, **details: Any) -> QuestionEvent:
    return QuestionEvent(
        sequence=0,
        at=11.5,
        task="quiz",
        index=index,
        name=name,
        details=details,
    )


def test_a_line_counts_finished_and_running_questions() -> None:
    """Each question counts once."""
    progress = TaskProgress(print)
    assert progress.lines() == []
    progress.observe(event("task_start", None))
    for index in range(5):
        progress.observe(event("queued", index))
    assert progress.lines() == ["  quiz: 0/5 questions: none yet"]
    for index in range(4):
        progress.observe(event("scheduled", index))
        progress.observe(event("reserving", index))
        progress.observe(event("running", index))
    progress.observe(event("correct", 0))
    progress.observe(event("parse_error", 1))
    progress.observe(event("waiting_rate_limit", 2))
    assert progress.lines() == [
        "  quiz: 2/5 questions: 1 correct, 1 parse error, 1 running, 1 waiting"
    ]


def test_events_are_single_lines_whatever_their_text() -> None:
    """Line breaks, control characters and long texts are escaped or cut."""
    line = event_line(event("tool_finish", 0, name="look", error="a\nb\x1b[1m" + "x" * 999), 10.0)
    assert line.startswith('1.500 s quiz-1: tool finish, name "look", error "a')
    assert line.isprintable()
    assert len(line) <= 400
    waits = event("waiting_rate_limit", 1, keys=["a", "b"], retry_after_ms=12.4)
    assert event_line(waits, 11.5) == (
        "0.000 s quiz-2: waiting rate limit, keys a b, retry after ms 12"
    )
    ended = event("task_end", None, status="pass", reason=None)
    assert event_line(ended, 0.0) == '11.500 s quiz: task end, status "pass"'


def test_numbers_of_a_run_stay_aligned() -> None:
    """A share is not a whole number."""
    ended = event("run_end", None, tasks_total=2, question_accuracy=2 / 3)
    assert event_line(attrs.evolve(ended, task=None), 10.0) == (
        "1.500 s questions: run end, tasks total 2, question accuracy 0.667"
    )


def test_each_event_is_reported_once() -> None:
    """Only the printer of lines reports it."""
    lines: list[str] = []
    progress = TaskProgress(print, print_line=lines.append, began_at=11.5)
    progress.observe(event("queued"))
    assert lines == ["0.000 s quiz-1: queued"]
