"""The resumption of a stored run: its rows get their current indices, and those to run again are marked."""

import itertools
import sqlite3
from array import array
from collections.abc import Container, Iterator, Mapping, Sequence

from trioeval.evaluation.reconcile import Reconciled, Retry, needs_new_replies, runs_again
from trioeval.evaluation.status import has_ended
from trioeval.report.stored import RunStart
from trioeval.run import Status
from trioeval.store.records import is_unreadable
from trioeval.store.run import ResumedRun
from trioeval.store.run_list import key_range
from trioeval.store.runs import Mark, forget_replies, mark_rows, move_rows, record_resumption
from trioeval.store.schema import INDEX_BITS

_INDEX = (1 << INDEX_BITS) - 1


def resume_run(
    connection: sqlite3.Connection,
    run_id: str,
    start: RunStart,
    retry: Retry,
    reconciled: Mapping[str | None, Reconciled],
) -> ResumedRun | None:
    """Record that a run is resumed, and how; None if it does not exist. In a transaction."""
    line = connection.execute("SELECT run FROM run WHERE id = ?", (run_id,)).fetchone()
    if line is None:
        return None
    number: int = line[0]
    execution = record_resumption(connection, number, start)
    parts = dict(connection.execute("SELECT task, part FROM part WHERE run = ?", (number,)))
    kept: dict[str | None, frozenset[int]] = {}
    retried: dict[str | None, frozenset[int]] = {}
    damaged: dict[str | None, Sequence[int]] = {}
    connection.create_function("is_unreadable", 2, is_unreadable, deterministic=True)
    for task, part in parts.items():
        changes = reconciled.get(task)
        if changes is not None:
            name = f"{run_id}{'' if task is None else f'-{task}'}"
            gone = (*changes.gone, *changes.dropped)
            move_rows(connection, part, gone, _moved(changes, name))
        if found := _damaged(connection, part):
            damaged[task] = found
        kept[task], retried[task] = _mark(connection, part, retry, changes, {*found})
        if retry.which in ("errors", "none"):
            from trioeval.store.dataset import try_lost_again

            try_lost_again(connection, part, is_wanted=retry.which == "errors")
    anew = {task: _anew(connection, part, retried[task]) for task, part in parts.items()}
    return ResumedRun(
        number=number,
        execution=execution,
        parts=parts,
        kept=kept,
        retried=retried,
        anew=anew,
        damaged=damaged,
        reconciled=frozenset(reconciled),
    )


def _damaged(connection: sqlite3.Connection, part: int) -> list[int]:
    """Return the rows whose records cannot be read, or do not exist."""
    found = connection.execute(
        "SELECT result.key FROM result LEFT JOIN record USING (key) "
        "WHERE result.key BETWEEN ? AND ? AND (body IS NULL "
        "OR typeof(body) = 'text' AND NOT json_valid(body) "
        "OR is_unreadable(CAST(body AS BLOB), typeof(body) = 'text')) ORDER BY result.key",
        key_range(part),
    )
    return [key & _INDEX for (key,) in found]


def _moved(changes: Reconciled, name: str) -> Iterator[tuple[int, int, int, int, int, str]]:
    for old, new in itertools.chain(changes.moved(), changes.moved_calls()):
        step = changes.steps[new]
        test, prompt, repeat = step.test_idx, step.prompt_idx, step.repeat_index
        text = f"{name}-test-{test}-prompt-{prompt}-repeat-{repeat}"
        yield old, new, test, prompt, repeat, text


def _anew(connection: sqlite3.Connection, part: int, retried: frozenset[int]) -> frozenset[int]:
    """Return the rows whose earlier replies must not be reused by any provider or cache."""
    if not retried:
        return frozenset()
    found = connection.execute(
        "SELECT DISTINCT key FROM call WHERE key BETWEEN ? AND ? "
        "AND NOT recalled AND reply IS NOT NULL",
        key_range(part),
    )
    return retried.intersection(key & _INDEX for (key,) in found)


_SUCCESSES = {status.value: status.is_success for status in Status if status.has_verdict}
"""True for each status that is a success, by its stored name; statuses without a verdict are missing."""


def _mark(
    connection: sqlite3.Connection,
    part: int,
    retry: Retry,
    changes: Reconciled | None,
    damaged: Container[int],
) -> tuple[frozenset[int], frozenset[int]]:
    """Mark the rows of a part that are run again; return the kept ones, and those that count meanwhile."""
    marks: Mapping[Mark, array[int]] = {mark: array("q") for mark in Mark}
    anew = array("q")
    kept: list[int] = []
    retried: list[int] = []
    for key, outcome, status, before in connection.execute(
        "SELECT key, outcome, status, again FROM result WHERE key BETWEEN ? AND ?", key_range(part)
    ):
        index, passed = key & _INDEX, _SUCCESSES.get(status)
        if needs_new_replies(retry, outcome, passed=passed, index=index):
            anew.append(index)
        mark = Mark(before)
        if index in damaged or (changes is not None and changes.state(index) != "kept"):
            mark = Mark.CHANGED
        elif mark is Mark.RETRIED and retry.which == "none":
            mark = Mark.KEPT
        elif mark is Mark.KEPT and runs_again(retry, outcome, passed=passed, index=index):
            mark = Mark.RETRIED
        if mark != before:
            marks[mark].append(index)
        if has_ended(outcome) and mark is not Mark.CHANGED:
            (kept if mark is Mark.KEPT else retried).append(index)
    mark_rows(connection, part, marks)
    forget_replies(connection, part, anew)
    return frozenset(kept), frozenset(retried)
