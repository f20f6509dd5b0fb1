"""Judges an output by all assertions of a row."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from trioeval.errors import GradingError, TemplateError
from trioeval.grading.algebra import aggregate
from trioeval.grading.kinds import KINDS, split_type
from trioeval.grading.model import HEAVIEST, Assertion, Verdict
from trioeval.grading.text import number_text, output_text, quote


def grade(
    output: object,
    assertions: Sequence[Assertion],
    *,
    threshold: float | None = None,
    render: Callable[[str], str] = str,
    short_circuit: bool = False,
) -> Verdict:
    """The verdict on an output: that of each assertion, and what they add up to. Pure if `render` is.

    Args:
        output: What the provider answered: text, or JSON data.
        assertions: What is expected of it. None at all is a pass.
        threshold: Least weighted score to pass; None wants every assertion to pass.
        render: Fills in the templates of values and metrics.
        short_circuit: Judge nothing more after the first assertion that fails, which then decides, whatever
            the threshold is.

    Raises:
        GradingError: An assertion could not be evaluated, its template included, and its weight is not
            0; the first one is told. Or the output is not JSON data.

    Example:
        >>> verdict = grade(
        ...     "Hello", [Assertion(type="contains", value="{{x}}")], render=lambda _: "ll"
        ... )
        >>> verdict.passed, verdict.score, verdict.parts[0].reason
        (True, 1.0, 'the output contains "ll"')
    """
    try:
        text = output_text(output)
    except (TypeError, ValueError) as error:
        msg = f"the output cannot be graded: {error}"
        raise GradingError(msg) from error
    except RecursionError as error:
        msg = "the output cannot be graded: it is nested too deeply"
        raise GradingError(msg) from error
    parts: list[Verdict] = []
    for place, assertion in enumerate(assertions):
        part = _judge(assertion, place, text, render)
        parts.append(part)
        if short_circuit and not part.passed and assertion.weight:
            return aggregate(parts)
    return aggregate(parts, threshold=threshold)


def _judge(assertion: Assertion, place: int, output: str, render: Callable[[str], str]) -> Verdict:
    try:
        return _verdict(assertion, output, render)
    except (GradingError, TemplateError) as error:
        if assertion.weight == 0:
            return Verdict(passed=True, score=0.0, reason=str(error), assertion=assertion)
        msg = f"assert[{place}] ({assertion.type}): {error}"
        raise GradingError(msg) from error


def _verdict(assertion: Assertion, output: str, render: Callable[[str], str]) -> Verdict:
    base, inverted = split_type(assertion.type)
    kind = KINDS.get(base)
    if kind is None:
        msg = f"{quote(assertion.type)} is not an assertion type"
        raise GradingError(msg)
    if not 0 <= assertion.weight <= HEAVIEST:
        msg = f"the weight must be from 0 to {number_text(HEAVIEST)}, got {quote(assertion.weight)}"
        raise GradingError(msg)
    value = _rendered(assertion.value, render)
    if not kind.accepts(value):
        origin = "" if value == assertion.value else f", rendered from {quote(assertion.value)}"
        msg = f"the value must be {kind.right}, got {quote(value)}{origin}"
        raise GradingError(msg)
    finding = kind.judge(output, value)
    passed = finding.invertible and finding.holds is not inverted
    return Verdict(
        passed=passed,
        score=float(passed),
        reason=finding.reason,
        assertion=_with_metric(assertion, render),
    )


def _rendered(value: Any, render: Callable[[str], str]) -> Any:
    match value:
        case str():
            return render(value)
        case list() | tuple():
            return [render(member) if isinstance(member, str) else member for member in value]
        case _:
            return value


def _with_metric(assertion: Assertion, render: Callable[[str], str]) -> Assertion:
    if assertion.metric is None:
        return assertion
    metric = render(assertion.metric)
    return assertion if metric == assertion.metric else attrs.evolve(assertion, metric=metric)
