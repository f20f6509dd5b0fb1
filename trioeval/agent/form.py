"""Tasks of type `agent`: cases that agents work on in their own folders until they are done.

Such a task is a suite of prompts, providers and tests, whose tests are cases, with settings for starting
agents.
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
from trioeval.documents.files import FileContext
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

# The effect of filters on a task of type `agent`: the dependencies of a selected case are run as well.


_SHOWN_CASES = 5  # case names in a message


def with_dependencies(
    suite: Suite, places: Container[int]
) -> tuple[frozenset[int], Sequence[Problem]]:
    """Return selected tests together with the cases that they depend on, without which they could not start.

    Args:
        suite: A task of type `agent`.
        places: The indices of the tests that the filters select.

    Returns:
        The indices of all tests to run, and a warning about those that the filters exclude, if any.

    Example:
        >>> from trioeval import parse_suite
        >>> tests = [{"id": "a"}, {"id": "b", "dependsOn": "a"}, {"id": "c"}]
        >>> task = {"id": "t", "type": "agent", "prompts": ["Do it."], "tests": tests}
        >>> suite = parse_suite({"providers": ["echo"], "tasks": [task]}).tasks[0].suite
        >>> found, warnings = with_dependencies(suite, [1])
        >>> sorted(found), warnings[0].message
        ([0, 1], 'case a is run although the filters exclude it: others depend on it')
    """
    cases = [case_of(test) for test in suite.tests]
    by_name = {case.name: place for place, case in enumerate(cases) if case is not None}
    included = [place for place in range(len(cases)) if place in places]
    found = set(included)
    while included:
        case = cases[included.pop()]
        needed = () if case is None else case.depends_on
        new = {by_name[name] for name in needed if name in by_name} - found
        found |= new
        included += new
    names = [
        case.name
        for place, case in enumerate(cases)
        if case is not None and place in found and place not in places
    ]
    return frozenset(found), [Problem("$.tests", _inclusion_warning(names))] if names else ()


def _inclusion_warning(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"case {names[0]} is run although the filters exclude it: others depend on it"
    rest = len(names) - _SHOWN_CASES
    more = f" and {rest} more" if rest > 0 else ""
    listed = ", ".join(names[:_SHOWN_CASES])
    return f"cases {listed}{more} are run although the filters exclude them: others depend on them"


SETTINGS = tuple(fields_by_key(AgentSettings))
"""Keys of an entry that only tasks of this type have."""
INSTEAD: Mapping[str, str] = {
    "command": 'write "providers": ["exec:<command>"]',
    "maxAttempts": 'write "maxRestarts": it counts all attempts',
    "restarts": 'write "maxRestarts": it counts all attempts',
    "timeout": 'write "attemptTimeout", in seconds',
}
"""Hints for keys that exist elsewhere."""


def agent_suite(
    settings_data: Mapping[str, Any],
    data: Mapping[str, Any],
    context: FileContext,
    templates: Templates,
    structure: Callable[[], tuple[Suite, list[Mistake]]],
) -> tuple[Suite, list[Mistake]]:
    """Return the suite of such a task, and all of its mistakes.

    Args:
        settings_data: The keys of `SETTINGS` in its entry, in either spelling.
        data: The other keys, including those from the top level, as in a whole suite file.
        context: The context of its files.
        templates: Render workspaces.
        structure: Returns the suite of `data`, whose tests may be cases, and its mistakes.
    """
    suite, faults = structure()
    mistakes = Mistakes(faults)
    # Names are collected from the file, so that another mistake hides none of them.
    tests = written_cases(data.get("tests")) if mistakes else suite.tests
    workspaces = WorkspaceTemplates.of(context, templates)
    settings: AgentSettings | None = None
    with mistakes.below():
        settings = _settings_hook(workspaces)(settings_data, AgentSettings)
    mistakes += _missing(data, context)
    if suite.rows_of is None:
        suite = attrs.evolve(suite, tests=with_names(tests))
        cases = Cases.of(suite, data.get("tests"))
        mistakes += cases.mistakes()
        if settings is not None and not mistakes:
            mistakes += cases.workspaces(settings, workspaces)
    return attrs.evolve(suite, settings=settings or AgentSettings()), mistakes


def _missing(data: Mapping[str, Any], context: FileContext) -> Iterator[Mistake]:
    """Yield mistakes for missing keys that an agent needs; empty ones are reported where they are parsed."""
    if data.get("prompts") is None:
        hint = 'for example "prompts": ["Repair {{name}}."]'
        yield Mistake("no prompts are given, so agents have nothing to do", hint)
    tests = data.get("tests")
    hint = 'each is a case: for example "tests": [{"id": "one"}]'
    if tests is None:
        yield Mistake("no tests are given", hint, at=("tests",) if "tests" in data else ())
    elif tests == [] and not context.allow_empty:
        yield Mistake("the list of tests is empty", hint, at=("tests",))


def _settings_hook(workspaces: WorkspaceTemplates) -> Hook:
    hooks: dict[str, Hook] = {"done_file": _done_file, "workspace": workspace_hook(workspaces)}
    structure = object_hook(strict_converter(), AgentSettings, hooks=hooks)

    def hook(value: Any, target: Any) -> AgentSettings:
        settings: AgentSettings = structure(value, target)
        if settings.allow_commands:
            with below("allowCommands"):
                workspaces.context.check_code("what a model runs with allowCommands")
        return settings

    return hook


def _done_file(value: Any, _wanted: Any) -> str:
    text = some_text(value)
    path, foreign = PurePosixPath(text), PureWindowsPath(text)
    is_inside = not (path.is_absolute() or foreign.anchor or ".." in (*path.parts, *foreign.parts))
    if is_template(text):
        message = f"applies to all cases and must not be a template, got {quote(text)}"
        raise MistakenError(Mistake(message, 'write a relative path such as "DONE"'))
    if not is_inside or not path.name or text.endswith(("/", "\\")) or "\0" in text:
        message = f"must be a file in the workspace, got {quote(text)}"
        raise MistakenError(Mistake(message, 'write a relative path such as "DONE"'))
    return text
