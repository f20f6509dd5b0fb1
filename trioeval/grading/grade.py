"""Grading a reply: every assertion judged, then one verdict over all of them."""

import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from trioeval.errors import GradingError, Problem
from trioeval.grading.algebra import aggregate
from trioeval.grading.model import Assertion, Verdict
from trioeval.grading.types import ASSERTION_TYPES, HINTS, JUDGES, check_value

_NOT = "not-"


def grade(
    output: object,
    assertions: Sequence[Assertion],
    *,
    threshold: float | None = None,
    render: Callable[[str], str] = str,
) -> Verdict:
    """Judge an output by every assertion. Pure; the order of the assertions is that of the parts.

    Args:
        output: What the provider answered: text, or structured output.
        assertions: What is expected of it.
        threshold: Least weighted score to pass; replaces "no assertion failed".
        render: Makes the text of a value from its template.

    Raises:
        GradingError: An assertion cannot be evaluated.
        TemplateError: `render` raised it.

    Example:
        >>> grade("Hello World", [Assertion(type="icontains", value="world")]).passed
        True
    """
    return aggregate(
        [_judge(output, assertion, render) for assertion in assertions], threshold=threshold
    )


def check_assertion(assertion: Assertion) -> Iterator[Problem]:
    """What is wrong with an assertion, as far as it is known before a run.

    The paths of the problems are relative to the assertion: `.type`, `.value`.
    """
    base = assertion.type.removeprefix(_NOT)
    if base not in ASSERTION_TYPES:
        yield Problem(".type", f'"{assertion.type}" is not an assertion type', _type_hint(assertion.type))
        return
    if not (math.isfinite(assertion.weight) and assertion.weight >= 0):
        yield Problem(".weight", f"must be at least 0 and finite, got {assertion.weight!r}")
    yield from check_value(assertion, base)


def _judge(output: object, assertion: Assertion, render: Callable[[str], str]) -> Verdict:
    judge = JUDGES.get(assertion.type.removeprefix(_NOT))
    if judge is None:
        msg = f'"{assertion.type}" is not an assertion type'
        raise GradingError(msg)
    inverted = assertion.type.startswith(_NOT)
    held = judge(output, attrs.evolve(assertion, value=_rendered(assertion.value, render)))
    passed = not held.fails_either_way and held.holds is not inverted
    return Verdict(
        passed=passed,
        score=float(passed),
        reason=held.reason,
        assertion=assertion,
    )


def _rendered(value: Any, render: Callable[[str], str]) -> Any:
    match value:
        case str():
            return render(value)
        case list():
            return [render(item) if isinstance(item, str) else item for item in value]
        case _:
            return value


def _type_hint(name: str) -> str:
    if hint := HINTS.get(name):
        return hint
    known = sorted(ASSERTION_TYPES | {_NOT + base for base in ASSERTION_TYPES})
    if close := difflib.get_close_matches(name, known, n=1):
        return f'did you mean "{close[0]}"?'
    return f"known are {', '.join(sorted(ASSERTION_TYPES))}, each also with {_NOT}"
