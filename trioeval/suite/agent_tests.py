"""Tests of tasks of type `agent`: what they say besides what all tests say, and what each is called."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import cattrs

from trioeval.agents.dependencies import normalized
from trioeval.errors import UsageError
from trioeval.grading import quote
from trioeval.grading.kinds import split_type
from trioeval.suite.agent_models import Case
from trioeval.suite.merge import DONE_TYPE
from trioeval.suite.mistakes import Mistake, MistakenError, kind
from trioeval.suite.models import Test
from trioeval.suite.strict import Hook, camel, object_hook, snake

RENAMED: Mapping[str, str | None] = {"name": "id", "when_failed": "onFailedDependency"}
"""Keys of a case that are called otherwise than its fields."""
CASE_KEYS = tuple(RENAMED.get(field.name) or camel(field.name) for field in attrs.fields(Case))
"""Keys of a test that only tests of such tasks have."""
SPELLED_CASE_KEYS = frozenset((*CASE_KEYS, *map(snake, CASE_KEYS)))
"""The same in both spellings."""
OWN_NAMES = frozenset({"prompt", "promptFile", "workspace", "suite", "attempt", "case", "done"})
"""What words of commands, configs of models and assertions have for every case: no variables of a test."""
AGENT_TYPES = frozenset({DONE_TYPE, "command", "file-contains", "file-exists", "file-json"})
"""Types of assertions that need the workspace of a case, or how its agent ended."""

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST = 100
_SLUG = 60  # of a description, so that a number has its place behind


def case_hook(converter: cattrs.Converter, workspace: Hook | None) -> Hook:
    """For what a test says as a case; one that says no `id` is called "" until `with_names`.

    Args:
        converter: Of suites.
        workspace: For the key `workspace`; None if the test is of another task, where all of these keys are
            refused.
    """
    if workspace is None:
        return _refuse
    hooks: dict[str, Hook] = {"name": _name, "depends_on": _depends_on, "workspace": workspace}
    structure = object_hook(converter, Case, renamed=RENAMED, hooks=hooks)

    def hook(value: Any, _wanted: Any) -> Case:
        found: Case = structure({"id": None, **value}, Case)
        return found

    return hook


def with_case(structure: Hook, case: Hook) -> Hook:
    """For a test that may say something as a case.

    Args:
        structure: For all else that it says.
        case: As `case_hook` makes it.
    """

    def hook(value: Any, wanted: Any) -> Test:
        if not isinstance(value, dict) or SPELLED_CASE_KEYS.isdisjoint(value):
            test: Test = structure(value, wanted)
            return test
        mistakes: list[Mistake] = []
        read: list[Any] = []
        parts: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        for key, part in value.items():
            parts[key in SPELLED_CASE_KEYS][key] = part
        for part, structured in zip(parts, (structure, case), strict=True):
            try:
                read.append(structured(part, Test))
            except MistakenError as error:
                mistakes += error.parts
        if mistakes:
            raise MistakenError(*mistakes)
        found, case_said = read
        whole: Test = attrs.evolve(found, case=case_said)
        return whole

    return hook


def _refuse(value: Any, _wanted: Any) -> Case:
    said = (f"{key} belongs to tests of tasks of type agent" for key in value)
    raise MistakenError(*map(_misplaced, said, value))


def refuse_case_keys(default_test: Mapping[str, Any]) -> None:
    """A default test is no case.

    Raises:
        MistakenError: It says what only a case can say.
    """
    if keys := [key for key in default_test if key in SPELLED_CASE_KEYS]:
        said = (f"{key} belongs to single tests, not to what all of them have" for key in keys)
        raise MistakenError(*map(_misplaced, said, keys))


def _misplaced(message: str, key: str) -> Mistake:
    return Mistake(message, "leave it out", at=(key,), key=True)


def misplaced_type(name: str) -> Iterator[Mistake]:
    """That an assertion type stands where there is no agent."""
    base, _ = split_type(name)
    if base in AGENT_TYPES:
        yield Mistake(f"{base} is only for tests of tasks of type agent", at=("type",))


def _name(value: Any, _wanted: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MistakenError(Mistake(f"must be text, got {kind(value)}"))
    if not _NAME.fullmatch(value) or ".." in value or len(value) > _LONGEST:
        hint = f"use 1 to {_LONGEST} letters of ASCII, digits, -, _ and single dots"
        near = slug(value)
        hint = f"{hint}: for example {quote(near)}" if near else hint
        raise MistakenError(Mistake(f"{quote(value)} is no name of a case", hint))
    return value


def _depends_on(value: Any, _wanted: Any) -> tuple[str, ...]:
    said = [value] if isinstance(value, str) else value
    if not isinstance(said, list) or not all(isinstance(one, str) for one in said):
        message = f"must be a list of the ids of tests, got {kind(value)}"
        raise MistakenError(Mistake(message))
    mistakes: list[Mistake] = []
    for place, one in enumerate(said):
        try:
            normalized(one)
        except UsageError as error:
            mistakes.append(Mistake(str(error), at=() if said is not value else (place,)))
    if mistakes:
        raise MistakenError(*mistakes)
    return normalized(said)


def slug(text: str) -> str:
    """A text as part of a name; empty if nothing of it can be.

    Example:
        >>> slug("Répare le test n° 3 !"), slug("修理")
        ('repare-le-test-n-3', '')
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:_SLUG].strip("-")


def with_names(tests: Sequence[Test]) -> tuple[Test, ...]:
    """Tests as cases with different names: the ids that they have, else made of their descriptions.

    Where two descriptions are alike, the later case has a number behind its name. Ids that are given twice
    stay as they are.

    Example:
        >>> tests = [Test(description="Fix it"), Test(), Test(description="fix it!")]
        >>> [test.case.name for test in with_names(tests) if test.case]
        ['fix-it', 'case-2', 'fix-it-2']
    """
    taken = {test.case.name for test in tests if test.case is not None}
    numbers: dict[str, int] = {}
    found: list[Test] = []
    for place, test in enumerate(tests):
        case = test.case or Case(name="")
        if not case.name:
            base = slug(test.description or "") or f"case-{place + 1}"
            name = base
            while name in taken:
                numbers[base] = numbers.get(base, 1) + 1
                name = f"{base}-{numbers[base]}"
            taken.add(name)
            case = attrs.evolve(case, name=name)
        found.append(test if case is test.case else attrs.evolve(test, case=case))
    return tuple(found)
