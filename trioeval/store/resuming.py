"""Going on with a stored run: its rows get the places they have now, and what is run again is marked."""

import sqlite3
from array import array
from collections.abc import Iterator, Mapping

import attrs

from trioeval.store.facts import RunStart
from trioeval.store.runs import go_on, key_range, mark_again, move_rows
from trioeval.store.schema import INDEX_BITS
from trioeval.tasks.reconcile import Reconciled
from trioeval.tasks.retries import Retry, asks_anew, runs_again

_INDEX = (1 << INDEX_BITS) - 1


@attrs.frozen(kw_only=True)
class Going:
    """A run that goes on; by itself, one that begins."""

    number: int = 0
    execution: int = 1
    parts: Mapping[str | None, int] = attrs.field(factory=dict)
    kept: Mapping[str | None, frozenset[int]] = attrs.field(factory=dict, repr=False)
    """Of each task, the rows that are not run again."""


def take_up(
    connection: sqlite3.Connection,
    run_id: str,
    start: RunStart,
    retry: Retry,
    reconciled: Mapping[str | None, Reconciled],
) -> Going | None:
    """Write down that a run goes on, and how; None if there is no such run. In a transaction."""
    found = connection.execute("SELECT run FROM run WHERE id = ?", (run_id,)).fetchone()
    if found is None:
        return None
    number: int = found[0]
    execution = go_on(connection, number, start)
    parts = dict(
        connection.execute("SELECT task, part FROM part WHERE run = ?", (number,)).fetchall()
    )
    kept: dict[str | None, frozenset[int]] = {}
    for task, part in parts.items():
        changes = reconciled.get(task)
        if changes is not None:
            name = f"{run_id}{'' if task is None else f'-{task}'}"
            move_rows(connection, part, changes.gone, _moved(changes, name))
        kept[task] = _mark(connection, part, retry, changes)
    return Going(number=number, execution=execution, parts=parts, kept=kept)


def _moved(changes: Reconciled, name: str) -> Iterator[tuple[int, int, int, int, int, str]]:
    for old, new in changes.moved():
        step = changes.steps[new]
        test, prompt, repeat = step.test_idx, step.prompt_idx, step.repeat_index
        text = f"{name}-test-{test}-prompt-{prompt}-repeat-{repeat}"
        yield old, new, test, prompt, repeat, text


def _mark(
    connection: sqlite3.Connection, part: int, retry: Retry, changes: Reconciled | None
) -> frozenset[int]:
    """Mark the rows of a part that are run again; those that are not."""
    again, anew = array("q"), array("q")
    kept: list[int] = []
    for key, outcome, status, is_marked in connection.execute(
        "SELECT key, outcome, status, again FROM result WHERE key BETWEEN ? AND ?", key_range(part)
    ):
        index, passed = key & _INDEX, None if status == "error" else status == "pass"
        if asks_anew(retry, outcome, passed=passed, index=index):
            anew.append(index)
        has_changed = changes is not None and changes.state(index) != "kept"
        if is_marked or has_changed or runs_again(retry, outcome, passed=passed, index=index):
            again.append(index)
        else:
            kept.append(index)
    mark_again(connection, part, again, anew)
    return frozenset(kept)
