"""Tasks of type `agent`: cases that agents work on in folders of their own until they are done.

Such a task is a suite of prompts, providers and tests, whose tests are cases, with settings of how agents are
started.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import attrs

from trioeval.agent.cases import (
    Cases,
    WorkspaceTemplates,
    with_names,
    workspace_hook,
    written_cases,
)
from trioeval.agent.model import AgentSettings, case_of
from trioeval.documents.files import Around
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, below
from trioeval.documents.structure import (
    Hook,
    fields_by_key,
    object_hook,
    some_text,
    strict_converter,
)
from trioeval.errors import Problem
from trioeval.grading import quote
from trioeval.suite.model import Suite
from trioeval.templates import Templates, is_template

# What filters leave of a task of type `agent`: with a case, all that it depends on is run.


_TOLD = 5  # names of cases


@attrs.frozen
class Selected:
    """Tests that are run."""

    places: Container[int] | None
    """Among all tests of the suite; None is all of them."""
    warnings: Sequence[Problem] = ()
    """Which of them nobody has asked for, in one."""


def with_dependencies(suite: Suite, places: Container[int] | None) -> Selected:
    """The same tests of a suite, and the cases that they depend on: without those none could be begun.

    Args:
        suite: Any; one whose tests are no cases is left as it is.
        places: The tests that filters leave.

    Example:
        >>> from trioeval import parse_suite
        >>> tests = [{"id": "a"}, {"id": "b", "dependsOn": "a"}, {"id": "c"}]
        >>> task = {"id": "t", "type": "agent", "prompts": ["Do it."], "tests": tests}
        >>> suite = parse_suite({"providers": ["echo"], "tasks": [task]}).tasks[0].suite
        >>> found = with_dependencies(suite, [1])
        >>> sorted(found.places), found.warnings[0].message
        ([0, 1], 'case a is run although the filters leave it out: others depend on it')
    """
    if not isinstance(suite.settings, AgentSettings) or places is None:
        return Selected(places)
    cases = [case_of(test) for test in suite.tests]
    by_name = {case.name: place for place, case in enumerate(cases) if case is not None}
    wanted = [place for place in range(len(cases)) if place in places]
    found = set(wanted)
    while wanted:
        case = cases[wanted.pop()]
        needed = () if case is None else case.depends_on
        new = {by_name[name] for name in needed if name in by_name} - found
        found |= new
        wanted += new
    names = [
        case.name
        for place, case in enumerate(cases)
        if case is not None and place in found and place not in places
    ]
    return Selected(frozenset(found), [Problem("$.tests", _told(names))] if names else ())


def _told(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"case {names[0]} is run although the filters leave it out: others depend on it"
    rest = len(names) - _TOLD
    more = f" and {rest} more" if rest > 0 else ""
    listed = ", ".join(names[:_TOLD])
    return (
        f"cases {listed}{more} are run although the filters leave them out: others depend on them"
    )


SETTINGS = tuple(fields_by_key(AgentSettings))
"""Keys of an entry that only tasks of this type have."""
INSTEAD: Mapping[str, str] = {
    "command": 'write "providers": ["exec:<command>"]',
    "maxAttempts": 'write "maxRestarts": it counts all attempts',
    "restarts": 'write "maxRestarts": it counts all attempts',
    "timeout": 'write "attemptTimeout", in seconds',
}
"""What was meant by keys that there are elsewhere."""


def agent_suite(
    said: Mapping[str, Any],
    data: Mapping[str, Any],
    around: Around,
    templates: Templates,
    structure: Callable[[], tuple[Suite, list[Mistake]]],
) -> tuple[Suite, list[Mistake]]:
    """The suite of such a task, and everything that is wrong with it.

    Args:
        said: What its entry says under `SETTINGS`, in either spelling.
        data: What else it says, and has from the top, as a whole suite file would say it.
        around: What its files are read against.
        templates: Render workspaces.
        structure: Gives the suite that `data` is, whose tests may be cases, and what is wrong with it.
    """
    suite, faults = structure()
    mistakes = Mistakes(faults)
    # Names are looked for in what stands there, so that another mistake hides none of them.
    tests = written_cases(data.get("tests")) if mistakes else suite.tests
    workspaces = WorkspaceTemplates.of(around, templates)
    settings: AgentSettings | None = None
    with mistakes.below():
        settings = _settings_hook(workspaces)(said, AgentSettings)
    mistakes += _missing(data, around)
    if suite.rows_of is None:
        suite = attrs.evolve(suite, tests=with_names(tests))
        cases = Cases.of(suite, data.get("tests"))
        mistakes += cases.mistakes()
        if settings is not None and not mistakes:
            mistakes += cases.workspaces(settings, workspaces)
    return attrs.evolve(suite, settings=settings or AgentSettings()), mistakes


def _missing(data: Mapping[str, Any], around: Around) -> Iterator[Mistake]:
    """What an agent cannot be without; what stands there and is empty is told where it is read."""
    if data.get("prompts") is None:
        hint = 'for example "prompts": ["Repair {{name}}."]'
        yield Mistake("there are no prompts, so nothing is to be done", hint)
    tests = data.get("tests")
    if tests is None or (tests == [] and not around.allow_empty):
        at = ("tests",) if "tests" in data else ()
        yield Mistake(
            "there are no tests", 'each is a case: for example "tests": [{"id": "one"}]', at=at
        )


def _settings_hook(workspaces: WorkspaceTemplates) -> Hook:
    hooks: dict[str, Hook] = {"done_file": _done_file, "workspace": workspace_hook(workspaces)}
    structure = object_hook(strict_converter(), AgentSettings, hooks=hooks)

    def hook(value: Any, wanted: Any) -> AgentSettings:
        settings: AgentSettings = structure(value, wanted)
        if settings.allow_commands:
            with below("allowCommands"):
                workspaces.around.check_code("what a model runs with allowCommands")
        return settings

    return hook


def _done_file(value: Any, _wanted: Any) -> str:
    said = some_text(value)
    path, foreign = PurePosixPath(said), PureWindowsPath(said)
    is_inside = not (path.is_absolute() or foreign.anchor or ".." in (*path.parts, *foreign.parts))
    if is_template(said):
        message = f"is the same for all cases and no template, got {quote(said)}"
        raise MistakenError(Mistake(message, 'write a relative path such as "DONE"'))
    if not is_inside or not path.name or said.endswith(("/", "\\")) or "\0" in said:
        message = f"must be a file in the workspace, got {quote(said)}"
        raise MistakenError(Mistake(message, 'write a relative path such as "DONE"'))
    return said
