"""The entries of `tasks`: each is a suite of its own, which has from the top what it does not say.

A task is made into a whole document first, and then read as any other suite. Of every part of that
document it is known where it stands in the file, so a mistake is told where it was made: at the top once,
however many tasks have it from there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

import attrs

from trioeval.grading import quote
from trioeval.suite.forms import provider_settings
from trioeval.suite.mistakes import Mistake, MistakenError, PartlyRightError, kind, nearest
from trioeval.suite.models import Suite, Task
from trioeval.suite.paths import DocumentPath, show_path
from trioeval.suite.question_entries import FROM_THE_TOP, SETTINGS
from trioeval.suite.strict import camel

PROMPT_EVAL = "prompt_eval"
QUESTION_EVAL = "question_eval"
_LATER_TYPES = ("agent", "columns")
_TYPES = (PROMPT_EVAL, QUESTION_EVAL, *_LATER_TYPES)
_OWN = ("id", "type", "dependsOn")
_OF_QUESTIONS = ("description", "evaluateOptions", "providers")
"""What such a task may say of the keys of a suite."""
_OF_A_SUITE = (
    "defaultTest",
    "description",
    "evaluateOptions",
    "prompts",
    "providers",
    "scenarios",
    "tests",
)
_OF_TASKS_ONLY = ("prompts", "scenarios", "tests")
_AT_THE_TOP = (
    "assertionTypes",
    "commandLineOptions",
    "derivedMetrics",
    "env",
    "extensions",
    "lanes",
    "metadata",
    "nunjucksFilters",
    "outputPath",
    "quota",
    "tags",
)
_ELSEWHERE = {
    **dict.fromkeys(_AT_THE_TOP, "write it at the top of the file"),
    **dict.fromkeys(("agent", "model"), "say who is asked by providers"),
}
"""Where what no task has is to be written."""
_INTO_TASK = "write it into one of the tasks"
_OF_THE_TOP_ONLY = ("budget", "maxEvalTimeMs")
"""Options that hold for the whole run."""
_NOT_INHERITED = ("description", "outputPath", "tasks", *_OF_TASKS_ONLY)


@attrs.frozen
class TaskDocument:
    """A task as a whole suite file would say it."""

    place: int
    """Its position in the list."""
    id: str
    depends_on: tuple[str, ...]
    data: Mapping[str, Any] | None
    """None of a type that cannot be read."""
    questions: Mapping[str, Any] | None = None
    """Of a task of questions: what it says of them, in the spelling of the file."""
    sources: Mapping[DocumentPath, DocumentPath] = attrs.field(factory=dict)
    """Where parts of `data` stand in the file; all others stand in the entry, at the same path."""

    def placed(self, mistake: Mistake) -> Mistake:
        """A mistake of `data`, where it was made."""
        if mistake.file is not None:
            return mistake
        for depth in range(len(mistake.at), 0, -1):
            if (source := self.sources.get(mistake.at[:depth])) is not None:
                return attrs.evolve(mistake, at=(*source, *mistake.at[depth:]))
        return mistake.below("tasks", self.place)


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
        for key in _OF_TASKS_ONLY
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
        found, wrong = _document_of(place, entry, top)
        documents += [found] if found else []
        mistakes += (mistake.below("tasks", place) for mistake in wrong)
    mistakes += _graph_mistakes(documents)
    # Where one cannot be read, there is a task without anything.
    tasks = [Task(id="", suite=Suite(providers=(), prompts=())) for _ in entries]
    for document in documents:
        if document.data is None:
            continue
        try:
            suite = structure(document)
        except PartlyRightError as error:
            mistakes += map(document.placed, error.parts)
            suite = error.right
        tasks[document.place] = Task(id=document.id, suite=suite, depends_on=document.depends_on)
    if mistakes:
        # What several tasks have from the top is told once.
        raise PartlyRightError(*dict.fromkeys(mistakes), right=tuple(tasks))
    return tuple(tasks)


def _document_of(
    place: int, entry: Any, top: Mapping[str, Any]
) -> tuple[TaskDocument | None, list[Mistake]]:
    """The document of one entry, None if it is no object; and what is wrong with it."""
    if not isinstance(entry, dict):
        return None, [Mistake(f"must be an object, got {kind(entry)}")]
    said, mistakes = _spelled_out(entry)
    mistakes += _type_mistakes(said)
    name, depends_on = said.get("id", f"task-{place + 1}"), said.get("dependsOn", [])
    if not isinstance(name, str) or not name or any(letter.isspace() for letter in name):
        message = f"must be text without spaces, got {kind(name)}"
        mistakes.append(Mistake(message, at=("id",)))
        name = f"task-{place + 1}"
    depends_on = [depends_on] if isinstance(depends_on, str) else depends_on
    if not isinstance(depends_on, list) or not all(isinstance(one, str) for one in depends_on):
        message = f"must be a list of the ids of tasks, got {kind(depends_on)}"
        mistakes.append(Mistake(message, at=("dependsOn",)))
        depends_on = []
    waits_for = tuple(dict.fromkeys(depends_on))
    if any(mistake.at == ("type",) for mistake in mistakes):
        # The keys of another type would all be said to be wrong.
        mistakes = [mistake for mistake in mistakes if mistake.at in _OWN_PLACES]
        return TaskDocument(place, name, waits_for, None), mistakes
    of_questions = said.get("type") == QUESTION_EVAL
    inherited = {
        key: part
        for key, part in top.items()
        if (camel(key) in FROM_THE_TOP if of_questions else camel(key) not in _NOT_INHERITED)
    }
    sources: dict[DocumentPath, DocumentPath] = {(key,): (key,) for key in inherited}
    own = {key: part for key, part in said.items() if key not in (*_OWN, *SETTINGS)}
    for key in own.keys() & inherited.keys():
        del sources[key,]
    mistakes += _inherit_options(own, inherited, sources)
    mistakes += _inherit_providers(own, inherited, sources)
    data = {**inherited, **own}
    questions = _settings_of(entry) if of_questions else None
    return TaskDocument(place, name, waits_for, data, questions, sources), mistakes


_OWN_PLACES = tuple((key,) for key in _OWN)


def _spelled_out(entry: Mapping[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
    """The keys of an entry in camelCase, and those that are none."""
    said: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    mistakes: list[Mistake] = []
    of_questions = entry.get("type") == QUESTION_EVAL
    known = (*_OWN, *_OF_QUESTIONS, *SETTINGS) if of_questions else (*_OWN, *_OF_A_SUITE)
    others, other_type = (_OF_A_SUITE, PROMPT_EVAL) if of_questions else (SETTINGS, QUESTION_EVAL)
    for key, part in entry.items():
        name = key if key in known else camel(key)
        if name in others and name not in known:
            message = f"{key} belongs to tasks of type {other_type}"
            mistakes.append(Mistake(message, "leave it out", at=(key,), key=True))
        elif name not in known:
            hint = _ELSEWHERE.get(name) or nearest(key, known)
            mistakes.append(Mistake(f'"{key}" is not a key here', hint, at=(key,), key=True))
        elif name in spelled:
            message = f"{spelled[name]} and {key} are the same key: write one of them"
            mistakes.append(Mistake(message, at=(key,), key=True))
        elif part is not None:
            said[name], spelled[name] = part, key
    return said, mistakes


def _settings_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What an entry says of its questions; of a key that stands in both spellings, the first."""
    found: dict[str, tuple[str, Any]] = {}
    for key, part in entry.items():
        if camel(key) in SETTINGS and part is not None:
            found.setdefault(camel(key), (key, part))
    return dict(found.values())


def _type_mistakes(said: Mapping[str, Any]) -> Iterator[Mistake]:
    found = said.get("type")
    if "type" not in said:
        yield Mistake('"type" is missing', f'write "type": "{PROMPT_EVAL}"')
    elif found in _LATER_TYPES:
        yield Mistake(f"tasks of type {found} are not supported yet", at=("type",))
    elif found not in _TYPES:
        hint = nearest(found, _TYPES) if isinstance(found, str) else f"write {PROMPT_EVAL}"
        yield Mistake(f"{kind(found)} is not a type of tasks", hint, at=("type",))


def _inherit_options(
    own: dict[str, Any],
    inherited: Mapping[str, Any],
    sources: dict[DocumentPath, DocumentPath],
) -> Iterator[Mistake]:
    """Options of the task over those of the top, key by key."""
    said, above = own.get("evaluateOptions"), inherited.get("evaluateOptions")
    if not isinstance(said, dict):
        return
    spelled = {camel(key): key for key in said}
    for name in _OF_THE_TOP_ONLY:
        if name in spelled:
            hint = "write it in $.evaluateOptions: it holds for all tasks together"
            at = ("evaluateOptions", spelled[name])
            yield Mistake(f"{spelled[name]} belongs to the top", hint, at=at, key=True)
    if isinstance(above, dict):
        more = {key: part for key, part in above.items() if camel(key) not in spelled}
        own["evaluateOptions"] = {**more, **said}
        sources.update({("evaluateOptions", key): ("evaluateOptions", key) for key in more})


def _inherit_providers(
    own: dict[str, Any],
    inherited: Mapping[str, Any],
    sources: dict[DocumentPath, DocumentPath],
) -> Iterator[Mistake]:
    """Providers that the task names are those of the top."""
    said = own.get("providers")
    said = [said] if isinstance(said, str) else said
    if not isinstance(said, list):
        return
    found = own["providers"] = list(said)
    above = _entries(inherited.get("providers"))
    for position, name in enumerate(said):
        if not isinstance(name, str):
            continue
        places = _places_of(name, above)
        if len(places) > 1:
            message = f"{quote(name)} names {len(places)} providers"
            several = ", ".join(show_path(("providers", place)) for place in places)
            hint = f"give labels to {several}, and name one of them"
            yield Mistake(message, hint, at=("providers", position))
        elif places:
            found[position] = above[places[0]]
            sources["providers", position] = ("providers", places[0])


def _entries(providers: Any) -> Sequence[Any]:
    match providers:
        case list():
            return providers
        case None:
            return ()
        case _:
            return (providers,)


def _places_of(name: str, providers: Sequence[Any]) -> list[int]:
    """Where the providers stand that have a label, or else an id."""
    named: dict[str, list[int]] = {"label": [], "id": []}
    for place, entry in enumerate(providers):
        try:
            _, settings = provider_settings(entry)
        except MistakenError:  # told where it stands
            continue
        for key, places in named.items():
            if isinstance(settings, dict) and settings.get(key) == name:
                places.append(place)
    return named["label"] or named["id"]


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
        for position, name in enumerate(document.depends_on):
            at: DocumentPath = ("tasks", document.place, "dependsOn", position)
            if name == document.id:
                yield Mistake("a task cannot depend on itself", at=at)
            elif name not in places:
                others = places.keys() - {document.id}
                yield Mistake(f"there is no task {quote(name)}", nearest(name, others), at=at)
            else:
                graph[document.id].append(name)
    yield from _cycles(graph, places)


def _cycles(graph: dict[str, list[str]], places: Mapping[str, int]) -> Iterator[Mistake]:
    """Tasks that wait for each other, one mistake a cycle; the cycles are taken out of the graph."""
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            waits = list(reversed(error.args[1]))
            yield Mistake(
                f"tasks wait for each other: {' → '.join(waits)}",
                "each of them waits for the next; leave one dependency out",
                at=("tasks", places[waits[0]], "dependsOn"),
            )
            graph[waits[0]].remove(waits[1])
        else:
            return
