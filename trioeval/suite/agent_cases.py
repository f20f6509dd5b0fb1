"""What does not go together in the cases of a task of type `agent`: names, dependencies, workspaces."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.agents.dependencies import cycle_in, normalized
from trioeval.errors import TemplateError, UsageError
from trioeval.grading import quote
from trioeval.suite.agent_models import AgentSettings, Case
from trioeval.suite.agent_tests import OWN_NAMES, with_names
from trioeval.suite.agent_workspaces import WorkspaceTemplates
from trioeval.suite.expand import combinations
from trioeval.suite.merge import merged
from trioeval.suite.mistakes import Mistake, MistakenError, nearest
from trioeval.suite.models import Suite, Test
from trioeval.suite.paths import DocumentPath
from trioeval.suite.provider_names import entries_of
from trioeval.suite.strict import camel
from trioeval.suite.templates import is_template

_CONVERSATION = "_conversation"


@attrs.frozen
class Cases:
    """The cases of a task, and where they stand."""

    suite: Suite
    """Its tests have names."""
    entries: Sequence[Any]
    """What the file says under `tests`."""
    is_whole: bool
    """Whether these are all of its tests: none was left out because its file is wrong."""

    @classmethod
    def of(cls, suite: Suite, said: Any, *, is_right: bool) -> "Cases":
        """The cases of a suite.

        Args:
            suite: Its tests have names.
            said: What the file says under `tests`.
            is_right: Whether nothing is wrong there.
        """
        entries = entries_of(said)
        return cls(suite, entries, is_right or all(map(_is_test, entries)))

    def mistakes(self) -> Iterator[Mistake]:
        """All that does not go together, but for workspaces."""
        named = [(place, case) for place, case in enumerate(self._cases) if case is not None]
        yield from self._same_names(named)
        yield from self._own_names()
        graph: dict[str, list[str]] = {}
        names = {case.name for _, case in named}
        # Of a test that is wrong its id is known all the same.
        said = [entry.get("id") for entry in self.entries if isinstance(entry, dict)]
        names |= {name for name in said if isinstance(name, str)}
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
        """Templates of workspaces that are not there, or are done already.

        Of variables that hooks, registers, code or filters of the suite's own make nothing is known here.
        """
        suite = self.suite
        is_made = bool(
            suite.extensions
            or suite.nunjucks_filters
            or any(test.options.store_output_as for test in suite.tests)
        )
        if settings.workspace is not None and not is_template(settings.workspace):
            said = settings.workspace
            yield from _found(said, {}, settings, templates, ("workspace",))
        for place, test in enumerate(suite.tests):
            own = None if test.case is None else test.case.workspace
            text = own or settings.workspace
            if test.case is None or text is None or (own is None and not is_template(text)):
                continue
            whole = merged(suite.default_test, test)
            if is_template(text) and (is_made or not _are_known(text, whole, templates)):
                continue
            at = ("workspace",) if own is None else self.at(place, "workspace")
            for mistake in _found(text, whole.vars, settings, templates, at):
                message = f"{mistake.message} (case {test.case.name})"
                yield attrs.evolve(mistake, message=message)

    def at(self, place: int, *below: str) -> DocumentPath:
        """Where a part of a test stands; tests of files have no place of their own here."""
        before, after = self.entries[: place + 1], self.entries[place - len(self.suite.tests) :]
        entry = place if all(map(_is_test, before)) else None
        if entry is None and all(map(_is_test, after)):
            entry = len(self.entries) + place - len(self.suite.tests)
        if entry is None or entry >= len(self.entries):
            return ("tests",)
        return ("tests", entry, *_spelled(self.entries[entry], below))

    @property
    def _cases(self) -> Sequence[Case | None]:
        return [test.case for test in self.suite.tests]

    def _same_names(self, named: Sequence[tuple[int, Case]]) -> Iterator[Mistake]:
        counts = Counter(case.name for _, case in named)
        seen: set[str] = set()
        for place, case in named:
            if counts[case.name] > 1 and case.name in seen:
                message = f"another test has the id {quote(case.name)} as well"
                yield Mistake(message, at=self.at(place, "id"))
            seen.add(case.name)

    def _own_names(self) -> Iterator[Mistake]:
        """Variables that agents would see something else of, each told once where it stands."""
        default = self.suite.default_test
        told: dict[Mistake, None] = {}
        for name in sorted(OWN_NAMES.intersection({} if default is None else default.vars)):
            told[_taken(name, ("defaultTest", "vars", name))] = None
        for place, test in enumerate(self.suite.tests):
            for name in sorted(OWN_NAMES.intersection(test.vars)):
                told[_taken(name, self.at(place, "vars", name))] = None
        yield from told

    def _unknown(self, place: int, case: Case, names: Collection[str]) -> Iterator[Mistake]:
        for name in case.depends_on:
            if name == case.name:
                yield Mistake("a case cannot depend on itself", at=self._at_name(place, name))
            elif name not in names and self.is_whole:
                message = f"there is no case {quote(name)}, on which {quote(case.name)} depends"
                hint = nearest(name, {*names} - {case.name})
                yield Mistake(message, hint, at=self._at_name(place, name))

    def _at_name(self, place: int, name: str) -> DocumentPath:
        """Where a test names another."""
        at = self.at(place, "dependsOn")
        if len(at) == 1:
            return at
        said = next(
            part for key, part in self.entries[int(at[1])].items() if camel(key) == "dependsOn"
        )
        for position, one in enumerate(said if isinstance(said, list) else ()):
            if isinstance(one, str) and name in _names_in(one):
                return (*at, position)
        return at

    def _circles(self, graph: dict[str, list[str]]) -> Iterator[Mistake]:
        """One mistake a circle; they are taken out of the graph."""
        places = {case.name: place for place, case in enumerate(self._cases) if case is not None}
        while (circle := cycle_in(graph)) is not None:
            yield Mistake(
                f"cases wait for each other: {' → '.join(circle)}",
                "each of them waits for the next; leave one dependency out",
                at=self.at(places[circle[0]], "dependsOn"),
            )
            graph[circle[0]].remove(circle[1])

    def _orders(self) -> Iterator[Mistake]:
        """Other reasons for an order of rows, which the dependencies would contradict."""
        hint = "leave it out, or the dependencies"
        default = self.suite.default_test
        places: list[tuple[Callable[..., DocumentPath], Test]] = [
            (lambda *below, place=place: self.at(place, *below), test)
            for place, test in enumerate(self.suite.tests)
        ]
        if default is not None:
            places.append((lambda *below: ("defaultTest", *below), default))
        for at, test in places:
            if test.options.run_serially:
                message = "runSerially cannot stand beside dependsOn: cases have an order already"
                yield Mistake(message, hint, at=at("options", "runSerially"))
            if test.options.store_output_as:
                message = "registers cannot stand beside dependsOn: cases have an order already"
                yield Mistake(message, hint, at=at("options", "storeOutputAs"))
        if any(_CONVERSATION in prompt.raw for prompt in self.suite.prompts):
            message = f"a prompt uses {_CONVERSATION} beside dependsOn: cases have an order already"
            yield Mistake(message, hint, at=("prompts",))

    def _several(self, graph: Mapping[str, Sequence[str]]) -> Iterator[Mistake]:
        """Cases with dependencies that stand for several rows of a column."""
        linked = {name for name, others in graph.items() if others}
        linked |= {other for others in graph.values() for other in others}
        for place, test in enumerate(self.suite.tests):
            whole = merged(self.suite.default_test, test)
            if test.case is None or test.case.name not in linked:
                continue
            rows = 1 if whole.options.disable_var_expansion else combinations(whole.vars)
            if rows != 1:
                message = f"{quote(test.case.name)} stands for {rows} rows, and dependsOn means one"
                hint = 'write a test for each, or set "disableVarExpansion" in its options'
                yield Mistake(message, hint, at=self.at(place, "vars"))


def with_cases(suite: Suite, said: Any) -> Suite:
    """A suite whose tests have names and go together.

    Args:
        suite: One whose tests may have been changed.
        said: What they were read from.

    Raises:
        MistakenError: They do not.
    """
    found = attrs.evolve(suite, tests=with_names(suite.tests))
    if mistakes := [*Cases.of(found, said, is_right=True).mistakes()]:
        raise MistakenError(*(part.below("suite") for part in mistakes))
    return found


def _is_test(entry: Any) -> bool:
    """Whether an entry is a test, not a file of tests."""
    return isinstance(entry, dict) and "path" not in entry


def _taken(name: str, at: DocumentPath) -> Mistake:
    message = f"a variable cannot be called {quote(name)}: of every case that is something else"
    return Mistake(message, "give it another name", at=at, key=len(at) > 1)


def _spelled(entry: Mapping[str, Any], keys: Sequence[str]) -> DocumentPath:
    """As much of a path as an entry has, as it spells it."""
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
        return normalized(text)
    except UsageError:
        return ()


def _are_known(text: str, test: Test, templates: WorkspaceTemplates) -> bool:
    """Whether the variables of a workspace are plain texts and numbers, or not there and never will be."""
    values = [test.vars.get(name, "") for name in templates.templates.references(text)]
    return not test.options.transform_vars and all(
        isinstance(value, int | float) or (isinstance(value, str) and not is_template(value))
        for value in values
    )


def _found(
    said: str,
    variables: Mapping[str, Any],
    settings: AgentSettings,
    templates: WorkspaceTemplates,
    at: DocumentPath,
) -> Iterator[Mistake]:
    try:
        templates.find_undone(said, variables, settings.done_file)
    except MistakenError as error:
        yield from (attrs.evolve(part, at=at) for part in error.parts)
    except TemplateError as error:
        yield Mistake(str(error), at=at)
