"""From plain data to a `Suite`, strictly, with everything that is wrong said at once.

Nothing is converted and nothing is ignored: `"5"` is not a number, `true` is not 1, a key that is not
known is a mistake. Each model has a hook made by cattrs; what is written in several ways (a provider as
text or object, `targets` for `providers`) is brought into one form before it.
"""

from typing import Any

import attrs
import cattrs

from trioeval.grading import Assertion, quote
from trioeval.suite.forms import assertion_hook, prompt_hook, provider_hook, test_hook
from trioeval.suite.keys import (
    NOT_YET_AT_TOP,
    NOT_YET_IN_LANES,
    NOT_YET_IN_OPTIONS,
    NOT_YET_IN_TEST_OPTIONS,
    WITHOUT_MEANING,
)
from trioeval.suite.mistakes import Mistake, MistakenError, kind
from trioeval.suite.models import (
    BudgetSettings,
    EvaluateOptions,
    LaneSettings,
    Prompt,
    ProviderEntry,
    Suite,
    Test,
    TestOptions,
)
from trioeval.suite.plain import check_plain
from trioeval.suite.references import check_references
from trioeval.suite.strict import object_hook, strict_converter

_DESCRIBES_ONLY = {"description"}
_EVERYTHING = "{{prompt}}"
"""The prompt of a suite that names none."""


def structure_suite(document: Any) -> Suite:
    """The suite that plain data of the shape of a suite file stands for.

    Raises:
        MistakenError: Everything that is wrong with it. Data that JSON cannot hold is told alone, because
            nothing else can be said of it with confidence.
    """
    if foreign := check_plain(document):
        raise MistakenError(*foreign)
    if not isinstance(document, dict):
        raise MistakenError(Mistake(f"a suite must be an object, got {kind(document)}"))
    known, mistakes = _top(document)
    mistakes += check_references(known)
    suite: Suite | None = None
    try:
        suite = make_converter().structure(known, Suite)
    except MistakenError as error:
        mistakes += error.parts
    if suite is not None and not mistakes:
        return suite
    if "targets" in document:
        mistakes = [respelled(mistake) for mistake in mistakes]
    raise MistakenError(*mistakes)


def make_converter() -> cattrs.Converter:
    """The converter whose `structure(document, Suite)` is the meaning of a suite file."""
    converter = strict_converter()

    def lane_or_name(value: Any, _wanted: Any) -> LaneSettings | str | None:
        if value is None or isinstance(value, str):
            return value
        return converter.structure(value, LaneSettings)

    # A hook looks up those of its fields when it is made: what is inside comes first.
    register = converter.register_structure_hook
    register(LaneSettings, object_hook(converter, LaneSettings, not_yet=NOT_YET_IN_LANES))
    register(LaneSettings | str | None, lane_or_name)
    register(BudgetSettings, object_hook(converter, BudgetSettings))
    register(EvaluateOptions, object_hook(converter, EvaluateOptions, not_yet=NOT_YET_IN_OPTIONS))
    register(TestOptions, object_hook(converter, TestOptions, not_yet=NOT_YET_IN_TEST_OPTIONS))
    register(Assertion, assertion_hook(converter))
    register(Prompt, prompt_hook(converter))
    register(ProviderEntry, provider_hook(converter))
    register(Test, test_hook(converter))
    not_in_files = {"directory": None, "file": None}
    register(Suite, object_hook(converter, Suite, renamed=not_in_files, not_yet=NOT_YET_AT_TOP))
    return converter


def _top(document: dict[str, Any]) -> tuple[dict[str, Any], list[Mistake]]:
    """The top of a file in its plain form, and what is wrong with it as a whole."""
    mistakes: list[Mistake] = []
    known = {
        key: part
        for key, part in document.items()
        if not (key in WITHOUT_MEANING or key.startswith("x-"))
    }
    if "targets" in known:
        if "providers" in known:
            message = "providers and targets are the same key: write one of them"
            mistakes.append(Mistake(message, at=("targets",), key=True))
        known["providers"] = known.pop("targets")
    if not known.get("providers"):
        at = ("providers",) if "providers" in known else ()
        mistakes.append(
            Mistake("there are no providers", 'for example "providers": ["echo"]', at=at)
        )
        known["providers"] = []
    if known.setdefault("prompts", [_EVERYTHING]) == []:
        hint = f"leave the key out for the one prompt {_EVERYTHING}"
        mistakes.append(Mistake("there are no prompts", hint, at=("prompts",)))
    mistakes += _check_tests(known)
    return known, mistakes


def _check_tests(known: dict[str, Any]) -> list[Mistake]:
    """What is wrong with the tests as a list. Takes the key out where it says nothing."""
    match known.get("tests"):
        case []:
            del known["tests"]
        case str() as source:
            del known["tests"]
            message = f"tests from {quote(source)} are not supported yet"
            return [Mistake(message, "write them as a list here", at=("tests",))]
        case list() as tests:
            message = "a test needs at least one of assert, metadata, options, threshold, vars"
            return [
                Mistake(message, at=("tests", position))
                for position, test in enumerate(tests)
                if isinstance(test, dict) and test.keys() <= _DESCRIBES_ONLY
            ]
        case _:
            pass
    return []


def respelled(mistake: Mistake) -> Mistake:
    """The same mistake in a file that says `targets` for `providers`."""
    match mistake.at:
        case ("providers", *rest):
            return attrs.evolve(mistake, at=("targets", *rest))
        case _:
            return mistake
