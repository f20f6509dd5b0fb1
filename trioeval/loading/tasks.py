"""The entries of `tasks`: each is a suite that inherits from the top of the file what it does not set itself.

A task is made into a whole document first, and then read as any other suite. A mistake at the top is reported
once, even if several tasks inherit it.
"""

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, get_args

import attrs

from trioeval.agent.form import SETTINGS as AGENT_SETTINGS
from trioeval.agent.model import AgentSettings
from trioeval.columns import is_columns
from trioeval.columns.form import SETTINGS as COLUMN_SETTINGS
from trioeval.columns.model import ColumnsSettings
from trioeval.documents.mistakes import (
    Mistake,
    MistakenError,
    kind,
    moved_unknown_keys,
    nearest,
    unknown_key,
)
from trioeval.documents.paths import DocumentPath, show_path
from trioeval.documents.structure import camel, fields_by_key
from trioeval.grading import quote
from trioeval.question_eval.form import SETTINGS as QUESTION_SETTINGS
from trioeval.question_eval.model import QuestionSettings
from trioeval.suite.dependencies import FailedDependency
from trioeval.suite.form import entries_of, places_of
from trioeval.suite.model import UNREADABLE, PromptEvalSettings, Suite, Task
from trioeval.suite.rows_of_task import ROW_NAMES, tasks_named, unknown_columns
from trioeval.templates import Templates

# One entry of `tasks` as a whole suite document: its own keys, and those inherited from the top.
#
# The source of every part of that document is recorded, so a mistake is reported at its origin.


PROMPT_EVAL = PromptEvalSettings.type
QUESTION_EVAL = QuestionSettings.type
COLUMNS = ColumnsSettings.type
AGENT = AgentSettings.type
_NO_TASKS = "add a task, or write providers, prompts and tests instead of tasks"
_TYPES = (PROMPT_EVAL, QUESTION_EVAL, COLUMNS, AGENT)
_WHEN_FAILED = "onFailedDependency"
_OWN = ("id", "type", "dependsOn", _WHEN_FAILED)
_OF_ALL = ("description", "evaluateOptions", "providers")
"""Keys of a suite that tasks of all types may have."""
_OF_A_SUITE = (
    "defaultTest",
    "description",
    "evaluateOptions",
    "prompts",
    "providers",
    "scenarios",
    "tests",
)
OF_TASKS_ONLY = ("prompts", "scenarios", "tests")
_ELSEWHERE = {
    **dict.fromkeys(
        fields_by_key(Suite).keys() - {*_OF_A_SUITE, "tasks"}, "write it at the top of the file"
    ),
    **dict.fromkeys(("agent", "model"), "name the model under providers"),
}
"""Hints for keys that no task has."""
_OF_THE_TOP_ONLY = ("budget", "maxEvalTimeMs", "maxRows", "maxTotalConcurrency")
"""Options that apply to the whole run."""
_NOT_INHERITED = ("description", "outputPath", "tasks", *OF_TASKS_ONLY)
_SETTINGS: Mapping[str, Collection[str]] = {
    PROMPT_EVAL: (),
    QUESTION_EVAL: QUESTION_SETTINGS,
    COLUMNS: COLUMN_SETTINGS,
    AGENT: AGENT_SETTINGS,
}
"""Keys that are not keys of a suite, by the type of the task."""
_KEYS: Mapping[str, Collection[str]] = {
    PROMPT_EVAL: _OF_A_SUITE,
    QUESTION_EVAL: (*_OF_ALL, *QUESTION_SETTINGS),
    COLUMNS: (*_OF_ALL, *COLUMN_SETTINGS),
    AGENT: (*(key for key in _OF_A_SUITE if key != "scenarios"), *AGENT_SETTINGS),
}
"""All keys except those of `_OWN`."""


@attrs.frozen
class TaskDocument:
    """A task as a whole suite document."""

    place: int
    """Its index in the list."""
    id: str
    depends_on: Mapping[str, DocumentPath]
    """The tasks that it depends on, each with the path in the entry that names it."""
    type: str | None
    """None if the type is invalid."""
    when_failed: FailedDependency = "skip"
    data: Mapping[str, Any] = attrs.field(factory=dict)
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """The keys that only its type has, in the spelling of the file."""
    sources: Mapping[DocumentPath, DocumentPath] = attrs.field(factory=dict)
    """The paths in the file of parts of `data`; all others are in the entry, at the same path."""

    def placed(self, mistake: Mistake) -> Mistake:
        """Return a mistake of `data` with the path of its origin."""
        if mistake.file is not None:
            return mistake
        for depth in range(len(mistake.at), 0, -1):
            if (source := self.sources.get(mistake.at[:depth])) is not None:
                return attrs.evolve(mistake, at=(*source, *mistake.at[depth:]))
        return mistake.below("tasks", self.place)


def document_of(
    place: int, entry: Any, top: Mapping[str, Any]
) -> tuple[TaskDocument | None, list[Mistake]]:
    """Return the document of one entry, None if it is not an object; and its mistakes."""
    from trioeval.question_eval.form import FROM_THE_TOP

    if not isinstance(entry, dict):
        return None, [Mistake(f"must be an object, got {kind(entry)}")]
    written, mistakes = _spelled_out(entry)
    mistakes += _type_mistakes(written)
    name, depends_on = written.get("id", f"task-{place + 1}"), written.get("dependsOn", [])
    if not isinstance(name, str) or not name or any(letter.isspace() for letter in name):
        message = f"must be text without spaces, got {kind(name)}"
        mistakes.append(Mistake(message, at=("id",)))
        name = f"task-{place + 1}"
    depends_on = [depends_on] if isinstance(depends_on, str) else depends_on
    if not isinstance(depends_on, list) or not all(isinstance(one, str) for one in depends_on):
        message = f"must be a list of the ids of tasks, got {kind(depends_on)}"
        mistakes.append(Mistake(message, at=("dependsOn",)))
        depends_on = []
    waits_for: dict[str, DocumentPath] = {}
    for position, one in enumerate(depends_on):
        waits_for.setdefault(one, ("dependsOn", position))
    when_failed = written.get(_WHEN_FAILED, "skip")
    if when_failed not in _POLICIES:
        right = f"{', '.join(_POLICIES[:-1])} or {_POLICIES[-1]}"
        message = f"must be {right}, got {kind(when_failed)}"
        mistakes.append(Mistake(message, at=(_WHEN_FAILED,)))
        when_failed = "skip"
    if any(mistake.at == ("type",) for mistake in mistakes):
        # Keys of another type would all be reported as unknown.
        mistakes = [mistake for mistake in mistakes if mistake.at in _OWN_PLACES]
        return TaskDocument(place, name, waits_for, None), mistakes
    named: str = written.get("type", PROMPT_EVAL)
    for at, one in tasks_named(entry):
        waits_for.setdefault(one, at)
        if when_failed == "run":
            message = f"a task that takes the rows of {quote(one)} cannot run without them"
            mistakes.append(Mistake(message, 'write "skip", "block" or "fail"', at=(_WHEN_FAILED,)))
            when_failed = "skip"
    is_suite = named in {PROMPT_EVAL, AGENT}
    inherited = {
        key: part
        for key, part in top.items()
        if (camel(key) not in _NOT_INHERITED if is_suite else camel(key) in FROM_THE_TOP)
    }
    sources: dict[DocumentPath, DocumentPath] = {(key,): (key,) for key in inherited}
    own = {key: part for key, part in written.items() if key not in (*_OWN, *_SETTINGS[named])}
    for key in own.keys() & inherited.keys():
        del sources[key,]
    mistakes += _inherit_options(own, inherited, sources)
    mistakes += _inherit_providers(own, inherited, sources)
    data = {**inherited, **own}
    settings = _settings_of(entry, _SETTINGS[named])
    return (
        TaskDocument(place, name, waits_for, named, when_failed, data, settings, sources),
        mistakes,
    )


_POLICIES: tuple[str, ...] = get_args(FailedDependency)
_OWN_PLACES = tuple((key,) for key in _OWN)


def _spelled_out(entry: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
    """Return the keys of an entry in camelCase, and mistakes for unknown ones."""
    from trioeval.agent.form import INSTEAD

    written: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    mistakes: list[Mistake] = []
    named = entry.get("type")
    own_keys = _KEYS.get(named, _OF_A_SUITE) if isinstance(named, str) else _OF_A_SUITE
    known = (*_OWN, *own_keys)
    for key, part in entry.items():
        name = key if key in known else camel(key)
        other = next((one for one, keys in _KEYS.items() if name in keys), None)
        if name not in known and other is not None:
            message = f"{key} is a key of tasks of type {other}"
            mistakes.append(Mistake(message, "leave it out", at=(key,), key=True))
        elif name not in known:
            meant = INSTEAD.get(name) if named == AGENT else None
            if hint := meant or _ELSEWHERE.get(name):
                mistakes.append(Mistake(f'"{key}" is not a key here', hint, at=(key,), key=True))
            else:
                mistakes += unknown_key(key, known)
        elif name in spelled:
            message = f"{spelled[name]} and {key} are the same key: write one of them"
            mistakes.append(Mistake(message, at=(key,), key=True))
        elif part is not None:
            written[name], spelled[name] = part, key
    return written, mistakes


def _settings_of(entry: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Return the keys of its type that an entry has; of a key in both spellings, the first."""
    found: dict[str, tuple[str, Any]] = {}
    for key, part in entry.items():
        if camel(key) in keys and part is not None:
            found.setdefault(camel(key), (key, part))
    return dict(found.values())


def _type_mistakes(written: Mapping[str, Any]) -> Iterator[Mistake]:
    found = written.get("type")
    if "type" not in written:
        yield Mistake('"type" is missing', f'write "type": "{PROMPT_EVAL}"')
    elif found not in _TYPES:
        hint = nearest(found, _TYPES) if isinstance(found, str) else f"write {PROMPT_EVAL}"
        yield Mistake(f"{kind(found)} is not a type of task", hint, at=("type",))


def _inherit_options(
    own: dict[str, Any],
    inherited: Mapping[str, Any],
    sources: dict[DocumentPath, DocumentPath],
) -> Iterator[Mistake]:
    """Merge the options of the task over those of the top, key by key."""
    written, above = own.get("evaluateOptions"), inherited.get("evaluateOptions")
    if not isinstance(written, dict):
        return
    spelled = {camel(key): key for key in written}
    for name in _OF_THE_TOP_ONLY:
        if name in spelled:
            hint = "move it to $.evaluateOptions: it applies to all tasks together"
            at = ("evaluateOptions", spelled[name])
            yield Mistake(f"{spelled[name]} cannot be set in a task", hint, at=at, key=True)
    if isinstance(above, dict):
        more = {key: part for key, part in above.items() if camel(key) not in spelled}
        own["evaluateOptions"] = {**more, **written}
        sources.update({("evaluateOptions", key): ("evaluateOptions", key) for key in more})


def _inherit_providers(
    own: dict[str, Any],
    inherited: Mapping[str, Any],
    sources: dict[DocumentPath, DocumentPath],
) -> Iterator[Mistake]:
    """Replace providers that the task names by those of the top."""
    written = own.get("providers")
    written = [written] if isinstance(written, str) else written
    if not isinstance(written, list):
        return
    found = own["providers"] = list(written)
    above = entries_of(inherited.get("providers"))
    for position, name in enumerate(written):
        if not isinstance(name, str):
            continue
        places = places_of(name, above)
        if len(places) > 1:
            message = f"{quote(name)} names {len(places)} providers"
            several = ", ".join(show_path(("providers", place)) for place in places)
            hint = f"give labels to {several}, and name one of them"
            yield Mistake(message, hint, at=("providers", position))
        elif places:
            found[position] = above[places[0]]
            sources["providers", position] = ("providers", places[0])


_INTO_TASK = "move it to one of the tasks"


def read_tasks(
    top: Mapping[str, Any],
    structure: Callable[[TaskDocument], tuple[Suite, Sequence[Mistake]]],
) -> tuple[Task, ...]:
    """Read the tasks of a suite.

    Raises:
        MistakenError: All of their mistakes.
    """
    mistakes = [
        Mistake(f"{key} and $.tasks exclude each other", _INTO_TASK, at=(key,), key=True)
        for key in OF_TASKS_ONLY
        if key in top
    ]
    entries = top["tasks"]
    if not isinstance(entries, list):
        message = f"must be a list of tasks, got {kind(entries)}"
        raise MistakenError(*mistakes, Mistake(message, at=("tasks",)))
    if not entries:
        raise MistakenError(
            *mistakes, Mistake("the list of tasks is empty", _NO_TASKS, at=("tasks",))
        )
    documents: list[TaskDocument] = []
    for place, entry in enumerate(entries):
        with moved_unknown_keys(functools.partial(_in_task, place)):
            found, wrong = document_of(place, entry, top)
        documents += [found] if found else []
        mistakes += (mistake.below("tasks", place) for mistake in wrong)
    mistakes += _graph_mistakes(documents)
    # An unreadable task is represented by an empty one.
    tasks = [Task(id="", suite=UNREADABLE) for _ in entries]
    for document in documents:
        if document.type is None:
            continue
        with moved_unknown_keys(document.placed):
            suite, faults = structure(document)
        mistakes += map(document.placed, faults)
        tasks[document.place] = Task(
            id=document.id,
            suite=suite,
            depends_on=tuple(document.depends_on),
            when_failed=document.when_failed,
        )
    mistakes += _link_mistakes(documents, tasks, entries)
    if mistakes:
        # Mistakes that several tasks inherit from the top are reported once.
        raise MistakenError(*dict.fromkeys(mistakes))
    return tuple(tasks)


def _in_task(place: int, mistake: Mistake) -> Mistake:
    return mistake.below("tasks", place)


def _graph_mistakes(documents: Sequence[TaskDocument]) -> Iterator[Mistake]:
    """Yield mistakes for duplicate ids, and for dependencies that are invalid."""
    places: dict[str, int] = {}
    for document in documents:
        if document.id in places:
            where = show_path(("tasks", places[document.id]))
            yield Mistake(
                f"duplicate id {quote(document.id)}: {where} has it as well",
                at=("tasks", document.place, "id"),
            )
        places.setdefault(document.id, document.place)
    graph: dict[str, list[str]] = {name: [] for name in places}
    for document in documents:
        for name, below in document.depends_on.items():
            at = ("tasks", document.place, *below)
            if name == document.id:
                yield Mistake("a task cannot depend on itself", "name another task", at=at)
            elif name not in places:
                others = places.keys() - {document.id}
                yield Mistake(f"unknown task {quote(name)}", nearest(name, others), at=at)
            else:
                graph[document.id].append(name)
    depends = {document.id: document.depends_on for document in reversed(documents)}
    yield from _cycles(graph, places, depends)


def _cycles(
    graph: dict[str, list[str]],
    places: Mapping[str, int],
    depends: Mapping[str, Mapping[str, DocumentPath]],
) -> Iterator[Mistake]:
    """Yield a mistake for each cycle of tasks; the cycles are removed from the graph."""
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            waits = list(reversed(error.args[1]))
            yield Mistake(
                f"tasks wait for each other: {' → '.join(waits)}",
                "each of them waits for the next; remove one dependency",
                at=("tasks", places[waits[0]], *_without_place(depends[waits[0]][waits[1]])),
            )
            graph[waits[0]].remove(waits[1])
        else:
            return


def _without_place(at: DocumentPath) -> DocumentPath:
    """Return the path of the whole list of dependencies for a path in it."""
    return at[:1] if at[0] == "dependsOn" else at


def _link_mistakes(
    documents: Sequence[TaskDocument], tasks: Sequence[Task], entries: Sequence[Any]
) -> Iterator[Mistake]:
    """Yield mistakes for unknown columns of rows of other tasks, and for folders of several datasets."""
    from trioeval.columns.model import folder_of

    left = {
        document.id: _remaining_keys(document, tasks[document.place].suite)
        for document in documents
    }
    templates = Templates()
    folders: dict[Path, int] = {}
    for document in documents:
        place, suite = document.place, tasks[document.place].suite
        wrong = unknown_columns(entries[place], suite, left.get, templates)
        yield from (mistake.below("tasks", place) for mistake in wrong)
        settings = suite.settings
        if not is_columns(settings):
            continue
        written = settings.output_dir is not None
        if not written and (Path(document.id).name != document.id or "\\" in document.id):
            message = f"{quote(document.id)} is not a valid name of a folder"
            hint = 'give the task another id, or write "outputDir"'
            yield Mistake(message, hint, at=("tasks", place, "id"))
            continue
        folder = folder_of(settings, document.id)
        first = folders.setdefault(folder.resolve(), place)
        if first != place:
            where = show_path(("tasks", first))
            message = f"{where} uses the folder {folder} as well"
            at = ("tasks", place, *(("outputDir",) if written else ()))
            yield Mistake(message, "each dataset needs its own", at=at)


def _remaining_keys(document: TaskDocument, suite: Suite) -> Collection[str] | None:
    """Return the columns of the rows of a task; None if they are unknown."""
    from trioeval.columns.types import written_columns

    if is_columns(suite.settings):
        return written_columns(suite.settings)
    return None if document.type in (None, COLUMNS) else ROW_NAMES
