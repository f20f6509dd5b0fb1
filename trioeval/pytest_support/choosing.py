"""What of a suite is run: the rows that somebody asks for, and what those cannot be without."""

from collections.abc import Iterable, Sequence

import attrs

from trioeval.pytest_support.keys import Key, TaskKey
from trioeval.suite import Expansion
from trioeval.suite.narrowed import narrowed
from trioeval.tasks import PreparedSuite, PreparedTask


def chosen(prepared: PreparedSuite, keys: Iterable[Key]) -> PreparedSuite:
    """The suite with the rows that are asked for.

    A task that is asked for comes whole, and so does each that a task with rows or as a whole depends on.
    With a case of agents come those that it depends on, and with a row whose output is compared the others.

    Args:
        prepared: The suite.
        keys: Rows and tasks of it.

    Example:
        >>> import trioeval
        >>> from trioeval.pytest_support.keys import RowKey
        >>> from trioeval.tasks import prepare
        >>> tests = [{"vars": {"x": "1"}}, {"vars": {"x": "2"}}]
        >>> suite = trioeval.parse_suite({"providers": ["echo"], "prompts": ["p"], "tests": tests})
        >>> [step.vars["x"] for step in chosen(prepare(suite), [RowKey(None, 1, 0)]).steps]
        ['2']
    """
    rows: dict[str | None, set[tuple[int, int]]] = {}
    whole: set[str | None] = set()
    for key in keys:
        if isinstance(key, TaskKey):
            whole.add(key.task)
        else:
            rows.setdefault(key.task, set()).add((key.test_idx, key.prompt_idx))
    if not prepared.tasks:
        return prepared if None in whole else _with_rows(prepared, rows.get(None, set()))
    whole |= _needed(prepared.tasks, whole | rows.keys())
    tasks = [
        part
        if part.id in whole
        else attrs.evolve(part, prepared=_with_rows(part.prepared, rows[part.id]))
        for part in prepared.tasks
        if part.id in whole or part.id in rows
    ]
    return attrs.evolve(prepared, tasks=tuple(tasks))


def _needed(tasks: Sequence[PreparedTask], ids: set[str | None]) -> set[str | None]:
    """The tasks that some depend on, and those that these depend on, and so on."""
    by_id = {task.id: task for task in tasks}
    found: set[str | None] = set()
    left = [one for task in ids for one in by_id[task].depends_on]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += by_id[one].depends_on
    return found


def _with_rows(prepared: PreparedSuite, wanted: set[tuple[int, int]]) -> PreparedSuite:
    if prepared.suite.agents is not None:
        wanted = _with_cases(prepared.steps, wanted)
    return attrs.evolve(prepared, steps=narrowed(prepared.steps, wanted))


def _with_cases(steps: Expansion, wanted: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The same rows of agents, and those of the cases that they depend on."""
    by_case = {
        (step.test.case.name, step.prompt_idx, step.repeat_index): step
        for step in steps
        if step.test.case is not None
    }
    left = [step for step in steps if (step.test_idx, step.prompt_idx) in wanted]
    found = set(wanted)
    while left:
        step = left.pop()
        for name in () if step.test.case is None else step.test.case.depends_on:
            other = by_case.get((name, step.prompt_idx, step.repeat_index))
            if other is not None and (other.test_idx, other.prompt_idx) not in found:
                found.add((other.test_idx, other.prompt_idx))
                left.append(other)
    return found
