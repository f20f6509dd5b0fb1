"""The entries of `tasks`: each is a suite of its own, which has from the top what it does not say.

A task is made into a whole document first, and then read as any other suite. What is wrong at the top is told
once, however many tasks have it from there.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import attrs

from trioeval.grading import quote
from trioeval.suite.column_models import folder_of
from trioeval.suite.column_producers import written_columns
from trioeval.suite.mistakes import Mistake, MistakenError, PartlyRightError, kind, nearest
from trioeval.suite.models import Suite, Task
from trioeval.suite.paths import DocumentPath, show_path
from trioeval.suite.row_sources import ROW_NAMES, unknown_columns
from trioeval.suite.task_documents import COLUMNS, OF_TASKS_ONLY, TaskDocument, document_of
from trioeval.suite.templates import Templates

_INTO_TASK = "write it into one of the tasks"


def in_every_task(suite: Suite, change: Callable[[Suite], Suite]) -> Suite:
    """A suite that is changed itself, and in each of its tasks."""
    tasks = tuple(attrs.evolve(task, suite=change(task.suite)) for task in suite.tasks)
    return change(attrs.evolve(suite, tasks=tasks) if tasks else suite)


def read_tasks(
    top: Mapping[str, Any], structure: Callable[[TaskDocument], Suite]
) -> tuple[Task, ...]:
    """The tasks of a suite.

    Args:
        top: The suite file as plain data, whose providers are called `providers`.
        structure: From the data of one of them to its suite.

    Raises:
        PartlyRightError: Everything that is wrong with them, with the tasks that the rest of them are.
        MistakenError: There are none.
    """
    mistakes = [
        Mistake(f"{key} stands beside $.tasks", _INTO_TASK, at=(key,), key=True)
        for key in OF_TASKS_ONLY
        if key in top
    ]
    entries = top["tasks"]
    if not isinstance(entries, list):
        message = f"must be a list of tasks, got {kind(entries)}"
        raise MistakenError(*mistakes, Mistake(message, at=("tasks",)))
    if not entries:
        raise MistakenError(*mistakes, Mistake("there are no tasks", at=("tasks",)))
    documents: list[TaskDocument] = []
    for place, entry in enumerate(entries):
        found, wrong = document_of(place, entry, top)
        documents += [found] if found else []
        mistakes += (mistake.below("tasks", place) for mistake in wrong)
    mistakes += _graph_mistakes(documents)
    # Where one cannot be read, there is a task without anything.
    tasks = [Task(id="", suite=Suite(providers=(), prompts=())) for _ in entries]
    for document in documents:
        if document.type is None:
            continue
        try:
            suite = structure(document)
        except PartlyRightError as error:
            mistakes += map(document.placed, error.parts)
            suite = error.right
        tasks[document.place] = Task(
            id=document.id,
            suite=suite,
            depends_on=tuple(document.depends_on),
            when_failed=document.when_failed,
        )
    mistakes += _link_mistakes(documents, tasks, entries)
    if mistakes:
        # What several tasks have from the top is told once.
        raise PartlyRightError(*dict.fromkeys(mistakes), right=tuple(tasks))
    return tuple(tasks)


def _graph_mistakes(documents: Sequence[TaskDocument]) -> Iterator[Mistake]:
    """Ids that are given twice, and dependencies that cannot hold."""
    places: dict[str, int] = {}
    for document in documents:
        if document.id in places:
            where = show_path(("tasks", places[document.id]))
            yield Mistake(
                f"{where} has the id {quote(document.id)} as well",
                at=("tasks", document.place, "id"),
            )
        places.setdefault(document.id, document.place)
    graph: dict[str, list[str]] = {name: [] for name in places}
    for document in documents:
        for name, below in document.depends_on.items():
            at = ("tasks", document.place, *below)
            if name == document.id:
                yield Mistake("a task cannot depend on itself", at=at)
            elif name not in places:
                others = places.keys() - {document.id}
                yield Mistake(f"there is no task {quote(name)}", nearest(name, others), at=at)
            else:
                graph[document.id].append(name)
    depends = {document.id: document.depends_on for document in reversed(documents)}
    yield from _cycles(graph, places, depends)


def _cycles(
    graph: dict[str, list[str]],
    places: Mapping[str, int],
    depends: Mapping[str, Mapping[str, DocumentPath]],
) -> Iterator[Mistake]:
    """Tasks that wait for each other, one mistake a cycle; the cycles are taken out of the graph."""
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            waits = list(reversed(error.args[1]))
            yield Mistake(
                f"tasks wait for each other: {' → '.join(waits)}",
                "each of them waits for the next; leave one dependency out",
                at=("tasks", places[waits[0]], *_without_place(depends[waits[0]][waits[1]])),
            )
            graph[waits[0]].remove(waits[1])
        else:
            return


def _without_place(at: DocumentPath) -> DocumentPath:
    """The whole list of dependencies for one of them."""
    return at[:1] if at[0] == "dependsOn" else at


def _link_mistakes(
    documents: Sequence[TaskDocument], tasks: Sequence[Task], entries: Sequence[Any]
) -> Iterator[Mistake]:
    """Rows that tasks take from others and that have no such columns, and folders of several datasets."""
    left = {document.id: _left(document, tasks[document.place].suite) for document in documents}
    templates = Templates()
    folders: dict[Path, int] = {}
    for document in documents:
        place, suite = document.place, tasks[document.place].suite
        wrong = unknown_columns(entries[place], suite, left.get, templates)
        yield from (mistake.below("tasks", place) for mistake in wrong)
        if suite.columns is None:
            continue
        said = suite.columns.output_dir is not None
        if not said and (Path(document.id).name != document.id or "\\" in document.id):
            message = f"{quote(document.id)} cannot be the name of a folder"
            hint = 'give the task another id, or write "outputDir"'
            yield Mistake(message, hint, at=("tasks", place, "id"))
            continue
        folder = folder_of(suite.columns, document.id)
        first = folders.setdefault(folder.resolve(), place)
        if first != place:
            where = show_path(("tasks", first))
            message = f"{where} has the folder {folder} as well"
            at = ("tasks", place, *(("outputDir",) if said else ()))
            yield Mistake(message, "each dataset needs its own", at=at)


def _left(document: TaskDocument, suite: Suite) -> Collection[str] | None:
    """The columns of the rows that a task leaves; None if they are not known."""
    if suite.columns is not None:
        return written_columns(suite.columns)
    return None if document.type in (None, COLUMNS) else ROW_NAMES
