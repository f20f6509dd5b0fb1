# Apart from `loading.structure`: together they exceed 600 lines.
"""The part of a suite that is right although the rest is wrong, so that more can be said of it at once.

What is looked for in a suite later, such as keys of providers, is looked for in this part as well. So it must
not give rise to complaints of its own: entries keep their positions, one that is wrong leaves something
harmless in its place, and what could miss something that was left out is left out too.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import attrs
import cattrs

from trioeval.documents.files import names_file
from trioeval.documents.mistakes import MistakenError
from trioeval.grading import Assertion
from trioeval.suite.form import provider_settings
from trioeval.suite.model import ProviderEntry, Suite, Test

T = TypeVar("T")

_HARMLESS = ProviderEntry(id="echo")
_NEUTRAL: Mapping[str, Any] = {"type": "contains", "value": "x", "weight": 0}
"""Stands where an assertion is wrong."""
_ENTRIES = ("providers", "tests", "defaultTest", "scenarios")
_DEPTH = 2
"""Levels at which the keys of an object are judged one by one."""
_PROGRAM = re.compile(r"\.(?:py|[cm]?[jt]s)(?::[\w.]+)?$")


def right_part(known: Mapping[str, Any], converter: cattrs.Converter) -> Suite:
    """The suite that the right parts of a document are.

    Tests that have lost variables say so as their fault. Programs that make tests are not called again.

    Args:
        known: The document in its plain form, with its prompts and tasks read.
        converter: Of suites; it should not warn.
    """
    base = {"providers": [], "prompts": known["prompts"], "tests": []}
    others = {key: part for key, part in known.items() if key not in {*_ENTRIES, "prompts"}}
    kept = _right(others, lambda part: converter.structure({**base, **part}, Suite), _DEPTH + 1)
    suite = converter.structure({**base, **(kept or {})}, Suite)
    env_is_right = not kept or kept.get("env") == known.get("env")
    default, is_whole = _default_test(known.get("defaultTest"), converter)
    tests = _tests(known.get("tests"), converter)
    # Keys, lanes, judges and columns that were left out would all be missed by assertions.
    can_be_judged = (
        env_is_right
        and not _lost_files(known.get("providers"), converter)
        and _keys(kept, "lanes") == _keys(known, "lanes")
        and _names_judges(known.get("defaultTest"), converter)
    )
    if not can_be_judged:
        tests = tuple(attrs.evolve(test, assertions=()) for test in tests)
        default = None if default is None else attrs.evolve(default, assertions=())
    return attrs.evolve(
        suite,
        providers=tuple(
            _alone(
                entry if env_is_right else attrs.evolve(_HARMLESS, transform=entry.transform), suite
            )
            for entry in _providers(known.get("providers"), converter)
        ),
        default_test=default,
        tests=tests if is_whole else tuple(attrs.evolve(test, fault=_LOST) for test in tests),
    )


def _keys(document: Any, key: str) -> Collection[str]:
    part = (document or {}).get(key)
    return set(part) if isinstance(part, dict) else ()


def _names_judges(test: Any, converter: cattrs.Converter) -> bool:
    """Whether all that a test says of who judges, and how, is right."""
    if not isinstance(test, dict):
        return True
    options = test.get("options")
    said = options if isinstance(options, dict) else {}
    how = {key: said[key] for key in ("provider", "rubricPrompt", "rubric_prompt") if key in said}
    found = {key: test[key] for key in ("provider",) if key in test}
    return (
        _attempt(lambda one: converter.structure(one, Test), {**found, "options": how}) is not None
    )


_LOST = "a part of it is wrong"


def _right(value: Any, structure: Callable[[Any], object], depth: int) -> Any:
    """A value without its parts that are wrong; None if nothing is left."""
    if _attempt(structure, value) is not None:
        return value
    if not (depth and isinstance(value, dict)):
        return None

    def below(key: str) -> Callable[[Any], object]:
        return lambda part: structure({key: part})

    found = {key: _right(part, below(key), depth - 1) for key, part in value.items()}
    kept = {key: part for key, part in found.items() if part is not None}
    return kept if _attempt(structure, kept) is not None else None


def _attempt(structure: Callable[[Any], T], value: Any) -> T | None:
    try:
        return structure(value)
    except MistakenError:
        return None


def _alone(entry: ProviderEntry, suite: Suite) -> ProviderEntry:
    """A provider that needs no lane or prompt which may have been left out."""
    lost = isinstance(entry.lane, str) and entry.lane not in suite.lanes
    return attrs.evolve(entry, prompts=None, lane=None if lost else entry.lane)


def _providers(entries: Any, converter: cattrs.Converter) -> list[ProviderEntry]:
    found: list[ProviderEntry] = []
    for entry in entries if isinstance(entries, list) else [entries]:
        document = {"providers": [entry], "prompts": (), "tests": []}
        suite = _attempt(lambda whole: converter.structure(whole, Suite), document)
        found += suite.providers if suite else [_provider(entry, converter)]
    return found


def _lost_files(entries: Any, converter: cattrs.Converter) -> bool:
    """Whether there are files of providers, nobody knows how many, that are wrong."""
    return any(
        names_file(entry)
        and _attempt(
            lambda one: converter.structure(
                {"providers": [one], "prompts": (), "tests": []}, Suite
            ),
            entry,
        )
        is None
        for entry in (entries if isinstance(entries, list) else [entries])
    )


def _provider(entry: Any, converter: cattrs.Converter) -> ProviderEntry:
    """What is left of a provider that is wrong; without its config it cannot be judged."""
    try:
        _, settings = provider_settings(entry)
        name = {"id": settings["id"]}
        one = converter.structure(name, ProviderEntry)
    except (MistakenError, KeyError, TypeError):
        name, one = {"id": _HARMLESS.id}, _HARMLESS
        settings = entry if isinstance(entry, dict) else {}
    kept = _right(settings, lambda part: converter.structure({**name, **part}, ProviderEntry), 1)
    if kept is None:
        return _HARMLESS
    one = converter.structure({**name, **kept}, ProviderEntry)
    if any(kept.get(key) != settings.get(key) for key in ("id", "config", "env")):
        return attrs.evolve(_HARMLESS, transform=one.transform)
    return one


def _default_test(value: Any, converter: cattrs.Converter) -> tuple[Test | None, bool]:
    """The default test, and whether it has all of its variables."""
    document = {"providers": [], "prompts": (), "tests": [], "defaultTest": value}
    suite = _attempt(lambda whole: converter.structure(whole, Suite), document)
    if suite is not None:
        return suite.default_test, True
    default = _test(value, converter)
    return attrs.evolve(default, fault=None), default.fault is None


def _test(value: Any, converter: cattrs.Converter) -> Test:
    """What is left of a test that is wrong."""
    if isinstance(value, dict) and isinstance(value.get("assert"), list):
        judged = _names_judges(value, converter)
        kept_assertions = _assertions(value["assert"], converter) if judged else []
        value = {**value, "assert": kept_assertions}
    kept = _right(value, lambda part: converter.structure(part, Test), _DEPTH)
    found: Test = converter.structure(kept or {}, Test)
    is_whole = isinstance(value, dict) and value.get("vars") == (kept or {}).get("vars")
    return found if is_whole else attrs.evolve(found, fault=_LOST)


def _assertions(value: Sequence[Any], converter: cattrs.Converter) -> list[Any]:
    """A list of assertions with something harmless in the places of those that are wrong."""
    found: list[Any] = []
    for one in value:
        if isinstance(one, dict) and isinstance(one.get("assert"), list):
            one = {**one, "assert": _assertions(one["assert"], converter)}  # noqa: PLW2901 - the same, right
        is_right = _attempt(lambda part: converter.structure(part, Assertion), one) is not None
        found.append(one if is_right else _NEUTRAL)
    return found


def _tests(value: Any, converter: cattrs.Converter) -> Sequence[Test]:
    found: list[Test] = []
    for entry in value if isinstance(value, list) else [] if value is None else [value]:
        named = entry.get("path") if isinstance(entry, dict) else entry
        if isinstance(named, str) and _PROGRAM.search(named):
            found.append(Test(fault=_LOST))
            continue
        document = {"providers": [], "prompts": (), "tests": [entry]}
        suite = _attempt(lambda whole: converter.structure(whole, Suite), document)
        found += suite.tests if suite else [_test(entry, converter)]
    return tuple(found)
