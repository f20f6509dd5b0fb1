"""What a suite brings for scoring: assertion types of its own, derived metrics, functions of verdicts."""

import re
from collections.abc import Mapping
from typing import Any

import attrs
import cattrs

from trioeval.grading import Kind, quote
from trioeval.grading.algebra import SET
from trioeval.grading.expressions import ExpressionError, parse
from trioeval.grading.json_kinds import LENIENT_KINDS
from trioeval.grading.own_kinds import own_kind
from trioeval.scripting.javascript import Script
from trioeval.suite.mistakes import Mistake, MistakenError, kind
from trioeval.suite.models import DerivedMetric
from trioeval.suite.sources.around import Around, names_file
from trioeval.suite.sources.prompt_files import read_text
from trioeval.suite.sources.transform_vars import checked_script, code_file
from trioeval.suite.strict import Hook, object_hook

COUNT = "__count"
"""What expressions call the rows of a column."""
SCORING_FUNCTION = "func"
"""What a file has that makes verdicts, where the suite names no function of it."""
SCORING_NAMES = ("namedScores", "context")
"""What it is called with."""
_TYPE_NAME = re.compile(r"(?!not-)[a-z][a-z0-9]*(?:[-_:][a-z0-9]+)*")


def with_own_types(document: Any, around: Around) -> Around:
    """The surroundings in which the types that a suite brings are known; what is wrong is told elsewhere.

    Where `DISABLE_AJV_STRICT_MODE` is set, JSON schemas may have keywords that nobody knows.
    """
    lenient = LENIENT_KINDS if around.switch("DISABLE_AJV_STRICT_MODE") else {}
    said = document.get("assertionTypes", document.get("assertion_types")) if _is(document) else {}
    found: dict[str, Kind] = {}
    for name, text in said.items() if _is(said) else ():
        try:
            found[name] = _own_type(name, text, around)
        except MistakenError:
            continue
    if not found and not lenient:
        return around
    return attrs.evolve(around, kinds={**around.kinds, **lenient, **found})


def own_types_hook(around: Around) -> Hook:
    """For the assertion types that a suite brings."""

    def hook(value: Any, _wanted: Any) -> Mapping[str, str]:
        if not _is(value):
            raise MistakenError(Mistake(f"must be an object, got {kind(value)}"))
        mistakes: list[Mistake] = []
        for name, text in value.items():
            try:
                _own_type(name, text, around)
            except MistakenError as error:
                mistakes += [part.below(name) for part in error.parts]
        if mistakes:
            raise MistakenError(*mistakes)
        return value  # type: ignore[no-any-return] # looked at above

    return hook


def derived_hook(converter: cattrs.Converter, around: Around) -> Hook:
    """For one derived metric: an expression that can be read, or a function that is there."""
    structure = object_hook(converter, DerivedMetric)

    def hook(value: Any, wanted: Any) -> DerivedMetric:
        metric: DerivedMetric = structure(value, wanted)
        if not metric.name or metric.name == COUNT:
            message = f"must be a name, and not {COUNT}, got {quote(metric.name)}"
            raise MistakenError(Mistake(message, at=("name",)))
        try:
            if names_file(metric.value):
                _python_function(metric.value, around)
            else:
                parse(metric.value)
        except ExpressionError as error:
            message = f"{quote(metric.value)} is no expression: {error}"
            raise MistakenError(Mistake(message, at=("value",))) from None
        except MistakenError as error:
            raise MistakenError(*(part.below("value") for part in error.parts)) from None
        return metric

    return hook


def scoring_hook(around: Around) -> Hook:
    """For the function that makes a verdict of those of the assertions."""

    def hook(value: Any, _wanted: Any) -> str | None:
        if value is None or value == "":
            return None
        read_scoring(value, around)
        return str(value)

    return hook


def read_scoring(text: Any, around: Around) -> Any:
    """The function that makes verdicts: the file and the name of one of Python, or a script.

    Raises:
        MistakenError: There is none.
    """
    if not names_file(text):
        message = f"must name a function of a file, got {quote(text)}"
        raise MistakenError(Mistake(message, 'for example "file://score.py:func"'))
    file, function = code_file(text, around)
    if file.suffix == ".py":
        return file, function or SCORING_FUNCTION
    script = Script(read_text(file), SCORING_NAMES, "module", function or SCORING_FUNCTION)
    return checked_script(script)


def _own_type(name: str, text: Any, around: Around) -> Kind:
    if not _TYPE_NAME.fullmatch(name):
        message = f"{quote(name)} cannot name an assertion type"
        hint = 'write small letters, digits and "-", and no "not-" in front'
        raise MistakenError(Mistake(message, hint, key=True))
    if not names_file(text):
        message = f"must name a function of a file, got {quote(text)}"
        raise MistakenError(Mistake(message, 'for example "file://checks.py:is_polite"'))
    file, function = code_file(text, around)
    if function is None:
        message = f"{quote(text)} names no function"
        raise MistakenError(Mistake(message, f'for example "{text}:is_polite"'))
    found = own_kind(file, function)
    if name == SET or around.kinds.get(name, found) != found:
        message = f"{quote(name)} is an assertion type already"
        raise MistakenError(Mistake(message, "give it another name", key=True))
    return found


def _python_function(text: str, around: Around) -> None:
    file, function = code_file(text, around)
    if file.suffix != ".py" or function is None:
        message = f"{quote(text)} names no function of a Python file"
        raise MistakenError(Mistake(message, 'for example "file://metrics.py:f1"'))


def _is(value: Any) -> bool:
    return isinstance(value, dict)
