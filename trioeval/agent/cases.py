"""The cases of a task of type `agent`: their form in tests, their names and their workspaces."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import cattrs

from trioeval.agent.case_keys import KEYS, SPELLED, refuse_by_default
from trioeval.agent.model import AgentSettings, Case, case_of
from trioeval.agent.workspace import check_not_done, is_bundle
from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake, MistakenError, kind, nearest
from trioeval.documents.paths import DocumentPath
from trioeval.documents.structure import Hook, camel, object_hook, some_text
from trioeval.errors import AgentError, TemplateError, UsageError
from trioeval.executables import find_program, install_hint, missing_program
from trioeval.grading import quote
from trioeval.suite.dependencies import cycle_in, parse_names
from trioeval.suite.expand import combinations
from trioeval.suite.form import entries_of
from trioeval.suite.merge import merged
from trioeval.suite.model import Suite, Test
from trioeval.suite.test_form import ExtraForm
from trioeval.templates import Templates, is_template

# Tests of tasks of type `agent`: their additional keys, and their names.


OWN_NAMES = frozenset({"prompt", "promptFile", "workspace", "suite", "attempt", "case", "done"})
"""Names that commands, model configs and assertions have for every case: reserved, not variables of tests."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST = 100
_SLUG = 60  # characters of a description, which leaves room for a number


def case_form(converter: cattrs.Converter, workspace: Hook) -> ExtraForm:
    """Return the form of the additional keys of a case; one without an `id` is called "" until `with_names`.

    Args:
        converter: The converter of suites.
        workspace: The hook for the key `workspace`.
    """
    hooks: dict[str, Hook] = {"name": _name, "depends_on": _depends_on, "workspace": workspace}
    structure = object_hook(converter, Case, hooks=hooks)

    def hook(value: Any, _wanted: Any) -> Case:
        found: Case = structure({"id": None, **value}, Case)
        return found

    return ExtraForm(
        keys=SPELLED,
        structure=hook,
        allowed=KEYS,
        refuse=refuse_by_default,
        misplaced=lambda _type: (),
    )


def _name(value: Any, _wanted: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MistakenError(Mistake(f"must be text, got {kind(value)}"))
    if not _NAME.fullmatch(value) or ".." in value or len(value) > _LONGEST:
        hint = f"use 1 to {_LONGEST} letters of ASCII, digits, -, _ and single dots"
        near = slug(value)
        hint = f"{hint}: for example {quote(near)}" if near else hint
        raise MistakenError(Mistake(f"{quote(value)} is not a valid id of a case", hint))
    return value


def _depends_on(value: Any, _wanted: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        message = f"must be a list of the ids of tests, got {kind(value)}"
        raise MistakenError(Mistake(message))
    mistakes: list[Mistake] = []
    for place, one in enumerate(names):
        try:
            parse_names(one)
        except UsageError as error:
            mistakes.append(Mistake(str(error), at=() if names is not value else (place,)))
    if mistakes:
        raise MistakenError(*mistakes)
    return parse_names(names)


def slug(text: str) -> str:
    """Return a text as part of a name; empty if none of its characters can be used.

    Example:
        >>> slug("Répare le test n° 3 !"), slug("修理")
        ('repare-le-test-n-3', '')
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:_SLUG].strip("-")


def with_names(tests: Sequence[Test]) -> tuple[Test, ...]:
    """Return tests as cases with unique names: their ids, or else names made from their descriptions.

    If two descriptions are alike, the name of the later case gets a number. Duplicate ids are kept.

    Example:
        >>> tests = [Test(description="Fix it"), Test(), Test(description="fix it!")]
        >>> [test.extra.name for test in with_names(tests) if test.extra]
        ['fix-it', 'case-2', 'fix-it-2']
    """
    taken = {test.extra.name for test in tests if test.extra is not None}
    numbers: dict[str, int] = {}
    found: list[Test] = []
    for place, test in enumerate(tests):
        case = case_of(test) or Case(name="")
        if not case.name:
            base = slug(test.description or "") or f"case-{place + 1}"
            name = base
            while name in taken:
                numbers[base] = numbers.get(base, 1) + 1
                name = f"{base}-{numbers[base]}"
            taken.add(name)
            case = attrs.evolve(case, name=name)
        found.append(test if case is test.extra else attrs.evolve(test, extra=case))
    return tuple(found)


def written_cases(data: Any) -> tuple[Test, ...]:
    """Return the ids and dependencies of cases in tests of which some are invalid.

    Empty if there are tests in files, which may contain any names.
    """
    entries = entries_of(data)
    return tuple(map(_written_case, entries)) if all(map(_is_test, entries)) else ()


def _written_case(entry: Mapping[str, Any]) -> Test:
    parts = {camel(key): part for key, part in entry.items()}
    name, description = parts.get("id"), parts.get("description")
    try:
        depends_on = _depends_on(parts.get("dependsOn") or [], None)
    except MistakenError:  # reported elsewhere
        depends_on = ()
    return Test(
        description=description if isinstance(description, str) else None,
        extra=Case(name=name if isinstance(name, str) else "", depends_on=depends_on),
    )


# The folder, or file of `git bundle`, that the workspace of a case is a copy of.


@attrs.frozen
class WorkspaceTemplates:
    """Finds the templates of workspaces."""

    context: FileContext
    """The context of their paths."""
    templates: Templates
    """Renders them."""

    @classmethod
    def of(cls, context: FileContext, templates: Templates) -> "WorkspaceTemplates":
        """Return an instance with templates that refuse missing variables.

        Leaving out a variable would give the path of another folder.
        """
        return cls(context, attrs.evolve(templates, strict=True))

    def find(self, template: str, variables: Mapping[str, Any]) -> Path:
        """Return the folder, or the file of `git bundle`, that a text names.

        Raises:
            MistakenError: It does not exist, is outside of the suite's folder, or another kind of file.
            TemplateError: The text cannot be rendered with these variables.
        """
        named = self.templates.render(template, variables)
        if not named.strip():
            raise MistakenError(Mistake(f"the workspace {quote(template)} is an empty path"))
        path = self.context.file_or_folder(named)
        if path.is_dir():
            return path
        try:
            if not is_bundle(path):
                message = f"{quote(named)} is neither a folder nor a file of `git bundle`"
                raise MistakenError(Mistake(message))
        except OSError as error:
            message = f"{quote(named)} cannot be read: {error.strerror}"
            raise MistakenError(Mistake(message)) from None
        if find_program("git", self.context.environ) is None:
            message = missing_program("git", f"opening {quote(named)}")
            raise MistakenError(Mistake(message, install_hint("name a folder")))
        return path

    def find_undone(self, template: str, variables: Mapping[str, Any], done_file: str) -> Path:
        """Return the same as `find`; the contents of a folder must not mark the task as done."""
        path = self.find(template, variables)
        try:
            if path.is_dir():
                check_not_done(path, done_file)
        except AgentError as error:
            raise MistakenError(Mistake(str(error))) from None
        return path


def workspace_hook(workspaces: WorkspaceTemplates) -> Hook:
    """Return the hook for the key `workspace`: a template, or an existing path."""

    def hook(value: Any, _wanted: Any) -> str:
        text = some_text(value)
        if error := workspaces.templates.syntax_error(text):
            raise MistakenError(Mistake(error))
        if not is_template(text):
            workspaces.find(text, {})
        return text

    return hook


_CONVERSATION = "_conversation"


# Contradictions in the cases of a task of type `agent`: names, dependencies, workspaces.


@attrs.frozen
class Cases:
    """The cases of a task, with their places in the file."""

    suite: Suite
    """A suite whose tests have names."""
    entries: Sequence[Any]
    """The value of `tests` in the file."""

    @classmethod
    def of(cls, suite: Suite, data: Any) -> "Cases":
        """Return the cases of a suite."""
        return cls(suite, entries_of(data))

    def mistakes(self) -> Iterator[Mistake]:
        """Yield all contradictions, except those of workspaces."""
        named = [(place, case) for place, case in enumerate(self._cases) if case is not None]
        yield from self._same_names(named)
        yield from self._own_names()
        graph: dict[str, list[str]] = {}
        names = {case.name for _, case in named}
        for place, case in named:
            yield from self._unknown(place, case, names)
            graph.setdefault(case.name, [one for one in case.depends_on if one != case.name])
        yield from self._circles(graph)
        if any(graph.values()):
            yield from self._orders()
            yield from self._several(graph)

    def workspaces(
        self, settings: AgentSettings, templates: WorkspaceTemplates
    ) -> Iterator[Mistake]:
        """Yield mistakes for templates of workspaces that do not exist, or are done already.

        Variables that hooks, registers, code or the suite's own filters create are unknown here.
        """
        suite = self.suite
        is_made = bool(
            suite.extensions
            or suite.nunjucks_filters
            or any(test.options.store_output_as for test in suite.tests)
        )
        if settings.workspace is not None and not is_template(settings.workspace):
            workspace = settings.workspace
            yield from _workspace_mistakes(workspace, {}, settings, templates, ("workspace",))
        for place, test in enumerate(suite.tests):
            case = case_of(test)
            own = None if case is None else case.workspace
            text = own or settings.workspace
            if case is None or text is None or (own is None and not is_template(text)):
                continue
            whole = merged(suite.default_test, test)
            if is_template(text) and (is_made or not _are_known(text, whole, templates)):
                continue
            at = ("workspace",) if own is None else self.at(place, "workspace")
            for mistake in _workspace_mistakes(text, whole.vars, settings, templates, at):
                message = f"{mistake.message} (case {case.name})"
                yield attrs.evolve(mistake, message=message)

    def at(self, place: int, *below: str) -> DocumentPath:
        """Return the path of a part of a test; tests in files have no path of their own here."""
        before, after = self.entries[: place + 1], self.entries[place - len(self.suite.tests) :]
        entry = place if all(map(_is_test, before)) else None
        if entry is None and all(map(_is_test, after)):
            entry = len(self.entries) + place - len(self.suite.tests)
        if entry is None or entry >= len(self.entries):
            return ("tests",)
        return ("tests", entry, *_spelled(self.entries[entry], below))

    @property
    def _cases(self) -> Sequence[Case | None]:
        return [case_of(test) for test in self.suite.tests]

    def _same_names(self, named: Sequence[tuple[int, Case]]) -> Iterator[Mistake]:
        counts = Counter(case.name for _, case in named)
        seen: set[str] = set()
        for place, case in named:
            if counts[case.name] > 1 and case.name in seen:
                message = f"another test has the id {quote(case.name)}, too"
                yield Mistake(message, at=self.at(place, "id"))
            seen.add(case.name)

    def _own_names(self) -> Iterator[Mistake]:
        """Yield mistakes for variables that agents would see with other values, each once."""
        default = self.suite.default_test
        mistakes: dict[Mistake, None] = {}
        for name in sorted(OWN_NAMES.intersection({} if default is None else default.vars)):
            mistakes[_taken_name(name, ("defaultTest", "vars", name))] = None
        for place, test in enumerate(self.suite.tests):
            for name in sorted(OWN_NAMES.intersection(test.vars)):
                mistakes[_taken_name(name, self.at(place, "vars", name))] = None
        yield from mistakes

    def _unknown(self, place: int, case: Case, names: Collection[str]) -> Iterator[Mistake]:
        for name in case.depends_on:
            if name == case.name:
                yield Mistake("a case cannot depend on itself", at=self._at_name(place, name))
            elif name not in names:
                message = f"unknown case {quote(name)}, on which {quote(case.name)} depends"
                hint = nearest(name, {*names} - {case.name})
                yield Mistake(message, hint, at=self._at_name(place, name))

    def _at_name(self, place: int, name: str) -> DocumentPath:
        """Return the path at which a test names another."""
        at = self.at(place, "dependsOn")
        if len(at) == 1:
            return at
        dependencies = next(
            part for key, part in self.entries[int(at[1])].items() if camel(key) == "dependsOn"
        )
        for position, one in enumerate(dependencies if isinstance(dependencies, list) else ()):
            if isinstance(one, str) and name in _names_in(one):
                return (*at, position)
        return at

    def _circles(self, graph: dict[str, list[str]]) -> Iterator[Mistake]:
        """Yield one mistake per cycle, and remove cycles from the graph."""
        places = {case.name: place for place, case in enumerate(self._cases) if case is not None}
        while (circle := cycle_in(graph)) is not None:
            yield Mistake(
                f"the dependencies of cases form a cycle: {' → '.join(circle)}",
                "each of them waits for the next; remove one dependency",
                at=self.at(places[circle[0]], "dependsOn"),
            )
            graph[circle[0]].remove(circle[1])

    def _orders(self) -> Iterator[Mistake]:
        """Yield mistakes for other orders of rows, which would contradict the dependencies."""
        hint = "remove it, or the dependencies"
        default = self.suite.default_test
        places: list[tuple[Callable[..., DocumentPath], Test]] = [
            (lambda *below, place=place: self.at(place, *below), test)
            for place, test in enumerate(self.suite.tests)
        ]
        if default is not None:
            places.append((lambda *below: ("defaultTest", *below), default))
        for at, test in places:
            if test.options.run_serially:
                message = (
                    "runSerially cannot be combined with dependsOn: cases have an order already"
                )
                yield Mistake(message, hint, at=at("options", "runSerially"))
            if test.options.store_output_as:
                message = "registers cannot be combined with dependsOn: cases have an order already"
                yield Mistake(message, hint, at=at("options", "storeOutputAs"))
        if any(_CONVERSATION in prompt.raw for prompt in self.suite.prompts):
            message = f"a prompt uses {_CONVERSATION} with dependsOn: cases have an order already"
            yield Mistake(message, hint, at=("prompts",))

    def _several(self, graph: Mapping[str, Sequence[str]]) -> Iterator[Mistake]:
        """Yield mistakes for cases with dependencies that have several rows in a column."""
        linked = {name for name, others in graph.items() if others}
        linked |= {other for others in graph.values() for other in others}
        for place, test in enumerate(self.suite.tests):
            whole = merged(self.suite.default_test, test)
            if test.extra is None or test.extra.name not in linked:
                continue
            rows = 1 if whole.options.disable_var_expansion else combinations(whole.vars)
            if rows != 1:
                message = (
                    f"{quote(test.extra.name)} has {rows} rows, but dependsOn requires exactly one"
                )
                hint = 'write a test for each, or set "disableVarExpansion" in its options'
                yield Mistake(message, hint, at=self.at(place, "vars"))


def with_cases(suite: Suite, data: Any) -> Suite:
    """Return a suite whose tests, if they are cases, have names and are checked.

    Args:
        suite: A suite, whose tests may have been changed; without cases it is returned unchanged.
        data: The tests as read from the file.

    Raises:
        MistakenError: The cases contain contradictions.
    """
    if not isinstance(suite.settings, AgentSettings):
        return suite
    found = attrs.evolve(suite, tests=with_names(suite.tests))
    if mistakes := [*Cases.of(found, data).mistakes()]:
        raise MistakenError(*(part.below("suite") for part in mistakes))
    return found


def _is_test(entry: Any) -> bool:
    """Return whether an entry is a test, not a file of tests."""
    return isinstance(entry, dict) and "path" not in entry


def _taken_name(name: str, at: DocumentPath) -> Mistake:
    message = f"the variable name {quote(name)} is reserved: every case has it with another meaning"
    return Mistake(message, "choose another name", at=at, key=len(at) > 1)


def _spelled(entry: Mapping[str, Any], keys: Sequence[str]) -> DocumentPath:
    """Return as much of a path as an entry has, in its spelling."""
    here: Any = entry
    found: list[str] = []
    for wanted in keys:
        key = next((key for key in here if camel(key) == wanted), None)
        if key is None:
            break
        found.append(key)
        here = here[key] if isinstance(here[key], dict) else {}
    return tuple(found)


def _names_in(text: str) -> Sequence[str]:
    try:
        return parse_names(text)
    except UsageError:
        return ()


def _are_known(text: str, test: Test, templates: WorkspaceTemplates) -> bool:
    """Return whether the variables of a workspace are plain texts and numbers, or will never exist."""
    values = [test.vars.get(name, "") for name in templates.templates.references(text)]
    return not test.options.transform_vars and all(
        isinstance(value, int | float) or (isinstance(value, str) and not is_template(value))
        for value in values
    )


def _workspace_mistakes(
    template: str,
    variables: Mapping[str, Any],
    settings: AgentSettings,
    templates: WorkspaceTemplates,
    at: DocumentPath,
) -> Iterator[Mistake]:
    try:
        templates.find_undone(template, variables, settings.done_file)
    except MistakenError as error:
        yield from (attrs.evolve(part, at=at) for part in error.parts)
    except TemplateError as error:
        yield Mistake(str(error), at=at)
