"""The changes of extensions before a run begins: workers get them, and do not call the extensions again."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import attrs

from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.suite.model import Suite

SuiteChanges: TypeAlias = Mapping[str | None, Mapping[str, Any]]
"""The parts of suites that `beforeAll` has changed, by task; None is a suite without tasks."""


def suite_changes(prepared: PreparedSuite) -> SuiteChanges:
    """Return what `beforeAll` has changed in a prepared suite; empty for tasks in which it was not called."""
    found = ((part.id, part.prepared.suite.before_all) for part in prepared.parts)
    return {task: changes for task, changes in found if changes is not None}


def with_changes(suite: Suite, changes: SuiteChanges) -> Suite:
    """Return a loaded suite with changes of another process, in which `beforeAll` is not called."""
    if not suite.tasks:
        return attrs.evolve(suite, before_all=changes.get(None))
    tasks = (
        attrs.evolve(task, suite=attrs.evolve(task.suite, before_all=changes.get(task.id)))
        for task in suite.tasks
    )
    return attrs.evolve(suite, tasks=tuple(tasks))


def extension_refusals(part: PreparedTask) -> Iterator[str]:
    """Yield what in the extensions of a task cannot run on other machines yet."""
    suite = part.prepared.suite
    if part.prepare_with_rows is not None and suite.extensions:
        yield "extensions with tests from the rows of another task"
