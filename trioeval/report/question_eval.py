"""Summaries of `question_eval` tasks: of one task, and of all tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from trioeval.documents.structure import camel
from trioeval.report.head import Head
from trioeval.report.totals import Totals
from trioeval.text import counted

if TYPE_CHECKING:
    from trioeval.question_eval.counts import QuestionCounts, QuestionOutcome, TaskCounts

EndedTask: TypeAlias = tuple[Head, Totals]
"""An ended task of any type."""


def counts_of(totals: Totals) -> QuestionCounts:
    """Return the outcomes of the questions of all columns."""
    from trioeval.question_eval.counts import QuestionCounts

    return QuestionCounts.joined(column.questions for column in totals.columns)


def task_json(head: Head, totals: Totals) -> dict[str, Any]:
    """Return the members of a document about a `question_eval` task; an empty object for any other task."""
    if head.questions_file is None:
        return {}
    counts = counts_of(totals)
    return {
        "status": counts.status,
        "failureReason": counts.reason,
        "questionEval": {"questionsFile": head.questions_file, "summary": counts.json()},
    }


def summary_json(tasks: Iterable[EndedTask]) -> dict[str, Any]:
    """Return the member of a document about all `question_eval` tasks; an empty object if there are none."""
    counts = _tasks_of(tasks)
    if not counts.tasks:
        return {}
    return {"summary": {camel(name): fact for name, fact in counts.facts().items()}}


def _tasks_of(tasks: Iterable[EndedTask]) -> TaskCounts:
    from trioeval.question_eval.counts import TaskCounts

    return TaskCounts(
        [counts_of(totals) for head, totals in tasks if head.questions_file is not None]
    )


def sentence(head: Head, totals: Totals) -> str | None:
    """Return the summary of a `question_eval` task as text; None for any other task."""
    from trioeval.question_eval.counts import OUTCOMES

    if head.questions_file is None:
        return None
    counts = counts_of(totals)
    others = [
        _counted(count, name)
        for name in OUTCOMES
        if name not in {"correct", "incorrect"} and (count := counts.by_outcome[name])
    ]
    why = "" if counts.reason is None else f" ({counts.reason})"
    parts = [f"{counts.correct} of {counts.ended} correct, accuracy {counts.accuracy:.3f}"]
    return f"{counts.status}{why}: " + ", ".join([*parts, *others])


def run_sentence(tasks: Iterable[EndedTask]) -> str | None:
    """Return the summary of all `question_eval` tasks as text; None unless there are several."""
    counts = _tasks_of(tasks)
    if len(counts.tasks) <= 1:
        return None
    questions = counts.questions
    ended = (
        f"{counts.passed} passed, {counts.failed} failed, {counted(counts.errored, 'error')}",
        f"{questions.correct} of {questions.ended} correct, accuracy {questions.accuracy:.3f}",
        counted(questions.tokens, "token"),
    )
    return f"{len(counts.tasks)} tasks of questions: " + "; ".join(ended)


def _counted(count: int, outcome: QuestionOutcome) -> str:
    words = outcome.replace("_", " ")
    return f"{count} {words}s" if count > 1 and words.endswith("error") else f"{count} {words}"
