"""The steps from an assertion of a suite to a verdict, all of them pure.

`make_ready` renders the texts of an assertion and checks its value; its kind judges; `verdict_of` turns the
finding into a verdict, and inverts it for `not-`; `ungraded` and `grading_error` handle an assertion that
could not be evaluated. The tasks that run rows wait between these steps; `grade` does not wait, for types
that judge without external calls.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import attrs

from trioeval.errors import GradingError, Problem, TemplateError
from trioeval.grading.algebra import SET, Place, fold, leaves
from trioeval.grading.kind import (
    ComparisonJudge,
    ExternalJudge,
    Finding,
    Judge,
    Kind,
    Kinds,
    SlowError,
    finding_of,
)
from trioeval.grading.model import HEAVIEST, NOTHING_SPENT, Assertion, JudgeUsage, Verdict
from trioeval.grading.registry import COMPARISONS, KINDS, split_type
from trioeval.grading.subject import Subject
from trioeval.text import AsWritten, Computed, FromModel, is_template, number_text, quote

# Problems of assertions, found before any call of a provider.


INSTEAD: Mapping[str, str] = {
    "not-empty": r'write {"type": "regex", "value": "\\S"}',
    "min-length": 'write {"type": "regex", "value": "^[^]{10,}$"} for at least 10 characters',
    "max-length": 'write {"type": "regex", "value": "^[^]{0,10}$"} for at most 10 characters',
    "json-schema-valid": 'use "is-json"',
    "contains-json-property": 'use "is-json" and a "regex" for the property',
    "human": "opinions of people are stored with the results; they cannot be evaluated",
    "pi": 'its service is not supported; use "llm-rubric" with a threshold, or "g-eval"',
}
"""Hints for types that are often guessed."""


TYPES_ARE_LISTED = "all types are listed in docs/reference/assertions.md"
"""The hint for a type without a near match."""

_LENGTHS = ("min-length", "max-length")
_SUGGESTED = 3
_NEAR = 0.06  # difference in similarity to the nearest name

_WEIGHTS = f"from {number_text(-HEAVIEST)} to {number_text(HEAVIEST)}"

_EXAMPLE = "10"
"""The length in the hints above."""


def check_assertion(
    assertion: Assertion, *, value_given: bool = True, kinds: Kinds = KINDS
) -> Iterator[Problem]:
    """Yield the problems of an assertion that can be found before a run.

    Args:
        assertion: The assertion. A value that is a template is checked again when it is rendered.
        value_given: False if the file has no key `value`; null counts as given.
        kinds: The known assertion types.

    Yields:
        Problems without a file. Their paths are a key of the assertion (`.type`, `.value`, `.weight`,
        `.threshold`), or empty for a missing key.

    Example:
        >>> for problem in check_assertion(Assertion(type="contians", value="x")):
        ...     print(problem)
        .type: "contians" is not an assertion type
          did you mean "contains" or "icontains"?
    """
    if assertion.type == SET:
        yield from _set_problems(assertion, kinds)
    else:
        yield from _kind_problems(assertion, kinds, value_given=value_given)
    if not -HEAVIEST <= assertion.weight <= HEAVIEST:
        yield Problem(".weight", f"must be {_WEIGHTS}, got {quote(assertion.weight)}")
    if assertion.threshold is not None and not math.isfinite(assertion.threshold):
        yield Problem(".threshold", f"must be a finite number, got {quote(assertion.threshold)}")


def _set_problems(assertion: Assertion, kinds: Kinds) -> Iterator[Problem]:
    if not assertion.assertions:
        yield Problem("", "a set has no assertions", 'write them as a list under "assert"')
    for place, member in enumerate(assertion.assertions):
        if member.type == SET:
            hint = "write its assertions here"
            yield Problem(f".assert[{place}].type", "a set cannot contain a set", hint)
        kind = kinds.get(split_type(member.type)[0])
        if kind is not None and isinstance(kind.judge, ComparisonJudge):
            message = f"{member.type} compares rows and cannot be in a set"
            yield Problem(f".assert[{place}].type", message, "write it next to the set")


def _kind_problems(assertion: Assertion, kinds: Kinds, *, value_given: bool) -> Iterator[Problem]:
    base, inverted = split_type(assertion.type)
    if assertion.assertions:
        hint = f'only a set has members: write "type": "{SET}"'
        yield Problem(".assert", f"{quote(assertion.type)} has no assertions of its own", hint)
    kind = kinds.get(base)
    if kind is None:
        yield _unknown(assertion, base, kinds)
    elif isinstance(kind.judge, ComparisonJudge) and base not in COMPARISONS:
        known = " and ".join(sorted(COMPARISONS))
        message = f"{quote(assertion.type)} compares rows, which only {known} can do"
        yield Problem(".type", message, "use a type whose judge gets one output")
    else:
        if inverted and not kind.invertible:
            message = f"{quote(assertion.type)} is not an assertion type: {base} cannot be inverted"
            yield Problem(".type", message, f'write "{base}"')
        if kind.requires is not None and find_spec(kind.requires.module) is None:
            hint = f"pip install 'trioeval[{kind.requires.name}]'"
            yield Problem(".type", f"{base} needs a package that is not installed", hint)
        elif kind.tolerant and not kind.accepts(assertion.value):
            return  # see `assertion_warnings`
        elif not value_given and not kind.bare:
            yield Problem("", '"value" is missing', f"it must be {kind.right}")
        elif value_given and not is_template(assertion.value) and not kind.accepts(assertion.value):
            yield Problem(".value", f"must be {kind.right}, got {quote(assertion.value)}")
        else:
            yield from kind.check(assertion)


def assertion_warnings(assertion: Assertion, kinds: Kinds = KINDS) -> Iterator[Problem]:
    """Yield what is probably not intended in an assertion; it is valid, because promptfoo accepts it.

    Example:
        >>> for problem in assertion_warnings(Assertion(type="contains", value="", weight=-1)):
        ...     print(problem.message)
        the weight is below 0: the assertion lowers the score, and still has to pass
        must be text that is not empty, or a number, got "": its rows are ERRORs
    """
    if assertion.weight < 0:
        message = "the weight is below 0: the assertion lowers the score, and still has to pass"
        yield Problem(".weight", message)
    for place, member in enumerate(assertion.assertions):
        for problem in assertion_warnings(member, kinds):
            yield attrs.evolve(problem, path=f".assert[{place}]{problem.path}")
    kind, value = kinds.get(split_type(assertion.type)[0]), assertion.value
    if kind is None or is_template(value):
        return
    if kind.accepts(value):
        yield from kind.warn(assertion)
    elif kind.tolerant and value is None:
        yield Problem(".value", "it is missing: its rows are ERRORs", f"it must be {kind.right}")
    elif kind.tolerant:
        yield Problem(".value", f"must be {kind.right}, got {quote(value)}: its rows are ERRORs")


def _unknown(assertion: Assertion, base: str, kinds: Kinds) -> Problem:
    name = assertion.type
    if (instead := INSTEAD.get(name) or INSTEAD.get(base)) is not None:
        length = quote(assertion.value).strip('"')
        if base in _LENGTHS and length.isdecimal():
            instead = instead.replace(_EXAMPLE, length)
        return Problem(".type", f"{quote(name)} is not an assertion type", instead)
    if base == SET:
        message = f"{quote(name)} is not an assertion type: a set cannot be inverted"
        return Problem(".type", message, f'write "{SET}"')
    both = [SET, *kinds, *(f"not-{known}" for known, kind in kinds.items() if kind.invertible)]
    hint = suggestion(name.lower(), both) or TYPES_ARE_LISTED
    return Problem(".type", f"{quote(name)} is not an assertion type", hint)


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """Return a question with the known names nearest to a misspelt one, at most three; None without any.

    Example:
        >>> suggestion("contians-al", ["contains", "contains-all", "icontains-all", "equals"])
        'did you mean "contains-all" or "icontains-all"?'
    """
    close = difflib.get_close_matches(name, sorted(known), n=_SUGGESTED)
    scores = [difflib.SequenceMatcher(None, one, name).ratio() for one in close]
    near = [
        quote(one) for one, score in zip(close, scores, strict=True) if score >= scores[0] - _NEAR
    ]
    if not near:
        return None
    *others, last = near
    return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"


RENDERED = "renderedAssertionValue"
"""The metadata key of the rendered value, if it differs from the written one."""

Render = Callable[[str], str]
"""Renders the templates of values and metrics; raises `TemplateError`."""


@attrs.define  # not frozen: every row has one
class ReadyAssertion:
    """An assertion that is ready to be judged."""

    assertion: Assertion
    """With its metric rendered; its value is as written in the suite."""
    kind: Kind
    inverted: bool
    value: Any
    """Rendered, or returned by a program."""


def grade(
    output: object,
    assertions: Sequence[Assertion],
    *,
    threshold: float | None = None,
    render: Render = str,
    short_circuit: bool = False,
    kinds: Kinds = KINDS,
) -> Verdict:
    """Return the verdict on an output: those of its assertions, aggregated. Pure if `render` is.

    Types with external calls (a model, a script, a server) are judged by `run_suite` only.

    Args:
        output: The provider's output: text, JSON data, or a `Subject` if more is known.
        assertions: The assertions. Without any, the output passes.
        threshold: Least weighted score to pass; with None every assertion must pass.
        render: Renders the templates of values and metrics.
        short_circuit: Stop at the first assertion that fails, which then decides, whatever the threshold.
        kinds: The known assertion types.

    Raises:
        GradingError: An assertion with a weight above 0 could not be evaluated, or its template could not be
            rendered; the first such error. Or the output is not JSON data.

    Example:
        >>> verdict = grade(
        ...     "Hello", [Assertion(type="contains", value="{{x}}")], render=lambda _: "ll"
        ... )
        >>> verdict.passed, verdict.score, verdict.parts[0].reason
        (True, 1.0, 'the output contains "ll"')
    """
    subject = output if isinstance(output, Subject) else Subject.of(output)
    assertions = with_named_sets(assertions, render)
    weights = [assertion.weight for assertion in assertions]
    verdicts: dict[Place, Verdict] = {}
    for place, assertion in leaves(assertions):
        counts = bool(assertion.weight and weights[place[0]])
        try:
            verdict = judged_here(subject, assertion, render, kinds)
        except (GradingError, TemplateError) as error:
            if counts:
                raise grading_error(assertion, place, error) from error
            verdict = ungraded(assertion, error)
        verdicts[place] = verdict
        if short_circuit and counts and not verdict.passed:
            return fold(assertions, verdicts, decided=True)
    return fold(assertions, verdicts, threshold)


def with_named_sets(assertions: Sequence[Assertion], render: Render) -> Sequence[Assertion]:
    """Return the assertions of a row with the metrics of its sets rendered.

    Raises:
        GradingError: The metric of a set with a weight above 0 cannot be rendered.
    """
    found = list(assertions)
    for place, assertion in enumerate(assertions):
        if assertion.type == SET:
            try:
                found[place] = _with_metric(assertion, render)
            except TemplateError as error:
                if assertion.weight:
                    raise grading_error(assertion, (place,), error) from error
    return found


def with_code_as_written(assertions: Sequence[Assertion], kinds: Kinds) -> Sequence[Assertion]:
    """Return the assertions of a row that is data, with code in them left unrendered.

    Otherwise the texts of a model would become part of the code.

    Example:
        >>> code = Assertion(type="python", value="output == '{{ x }}'")
        >>> type(with_code_as_written([code], KINDS)[0].value).__name__
        'AsWritten'
    """
    return [_with_code_as_written(one, kinds) for one in assertions]


def _with_code_as_written(assertion: Assertion, kinds: Kinds) -> Assertion:
    if assertion.type == SET:
        members = tuple(with_code_as_written(assertion.assertions, kinds))
        return attrs.evolve(assertion, assertions=members)
    value = assertion.value
    if not is_code(assertion, kinds):
        return assertion
    if isinstance(value, str):
        return attrs.evolve(assertion, value=AsWritten(value))
    if isinstance(value, Mapping):
        texts = {key: AsWritten(text) for key, text in value.items() if isinstance(text, str)}
        return attrs.evolve(assertion, value={**value, **texts})
    return assertion


def is_code(assertion: Assertion, kinds: Kinds) -> bool:
    """Return True if the value of an assertion is code."""
    kind = kinds.get(split_type(assertion.type)[0])
    return kind is not None and kind.runs_code


def judged_here(
    subject: Subject,
    assertion: Assertion,
    render: Render,
    kinds: Kinds = KINDS,
    *,
    patient: bool = True,
) -> Verdict:
    """Return the verdict of an assertion whose kind needs no external call.

    Raises:
        GradingError: It could not be evaluated.
        SlowError: It takes long, and `patient` is False.
        TemplateError: One of its texts cannot be rendered.
    """
    ready = make_ready(assertion, render, kinds)
    if isinstance(ready.kind.judge, ExternalJudge | ComparisonJudge):
        msg = "it cannot be judged alone: it needs external calls, or compares rows"
        raise GradingError(msg)
    return verdict_of(ready, find(ready, ready.kind.judge, subject, patient=patient))


def make_ready(assertion: Assertion, render: Render, kinds: Kinds) -> ReadyAssertion:
    """Render the texts of an assertion, and check that its value is valid.

    Raises:
        GradingError: Its type, weight or rendered value is invalid, or a program has to compute the value.
        TemplateError: It cannot be rendered.
    """
    return accepted(rendered(assertion, render, kinds))


def rendered(assertion: Assertion, render: Render, kinds: Kinds) -> ReadyAssertion:
    """Render the texts of an assertion, without checking its value.

    Raises:
        GradingError: Its type or weight is invalid.
        TemplateError: It cannot be rendered.
    """
    base, inverted = split_type(assertion.type)
    kind = kinds.get(base)
    if kind is None:
        msg = f"{quote(assertion.type)} is not an assertion type"
        raise GradingError(msg)
    if not -HEAVIEST <= assertion.weight <= HEAVIEST:
        msg = f"the weight must be {_WEIGHTS}, got {quote(assertion.weight)}"
        raise GradingError(msg)
    value = assertion.value
    if kind.fills_objects and isinstance(value, Mapping):
        value = {key: _rendered(member, render) for key, member in value.items()}
    else:
        value = _rendered(value, render)
    if kind.runs_code and _is_made_by_model(value):
        msg = (
            f"the code of {quote(assertion.type)} would contain text of a model; "
            "read the variable in the code instead, as in context.vars.name"
        )
        raise GradingError(msg)
    return ReadyAssertion(_with_metric(assertion, render), kind, inverted, value)


def _is_made_by_model(code: Any) -> bool:
    """Return True if a model wrote a part of the code, or a program's name; its other words are data."""
    match code:
        case Mapping():
            return any(map(_is_made_by_model, code.values()))
        case [first, *_]:
            return isinstance(first, FromModel)
        case _:
            return isinstance(code, FromModel)


def accepted(ready: ReadyAssertion) -> ReadyAssertion:
    """Check that the value of an assertion is valid, and return the assertion.

    Raises:
        GradingError: It is invalid, or a program has to compute it first.
    """
    kind, value, written = ready.kind, ready.value, ready.assertion.value
    if computes(ready):
        msg = f"the value is computed by {value.written}, which only run_suite can call"
        raise GradingError(msg)
    if not (value is None and kind.bare) and not kind.accepts(value):
        origin = "" if value == written else f", from {quote(written)}"
        msg = f"the value must be {kind.right}, got {quote(value)}{origin}"
        raise GradingError(msg)
    return ready


def computes(ready: ReadyAssertion) -> bool:
    """Return True if its value is computed by a program."""
    return isinstance(ready.value, Computed) and not ready.kind.runs_code


def find(ready: ReadyAssertion, judge: Judge, subject: Subject, *, patient: bool = True) -> Finding:
    """Return the finding of a kind's judge; a custom judge may fail in any way.

    Raises:
        GradingError: It could not be evaluated, or the output is too long for its type.
        SlowError: It takes long, and `patient` is False.
    """
    kind, size = ready.kind, len(subject.text)
    if kind.longest is not None and size > kind.longest:
        name, _ = split_type(ready.assertion.type)
        msg = f"the output has {size:,} characters; {name} takes up to {kind.longest:,}"
        raise GradingError(msg)
    if not patient and size > kind.at_once:
        raise SlowError(lambda: find(ready, judge, subject))
    try:
        try:
            return finding_of(judge(subject, ready.value, ready.assertion), judge, ready.assertion)
        except SlowError as slow:
            if not patient:
                raise
            return finding_of(slow.finish(), judge, ready.assertion)
    except (GradingError, SlowError):
        raise
    except Exception as error:
        msg = f"its judge failed: {type(error).__name__}: {error}"
        raise GradingError(msg) from error


def verdict_of(
    ready: ReadyAssertion, finding: Finding, spent: JudgeUsage = NOTHING_SPENT
) -> Verdict:
    """Turn a finding into a verdict, inverted for `not-`."""
    passed = finding.invertible and finding.holds is not ready.inverted
    metadata = finding.metadata
    if ready.value != ready.assertion.value:
        metadata = {**metadata, RENDERED: ready.value}
    return Verdict(
        passed=passed,
        score=_score(finding, inverted=ready.inverted, passed=passed),
        reason=finding.reason,
        assertion=ready.assertion,
        named_scores=finding.named_scores,
        named_score_weights=finding.named_score_weights,
        parts=finding.parts,
        spent=spent,
        metadata=metadata,
    )


def ungraded(assertion: Assertion, error: Exception, spent: JudgeUsage = NOTHING_SPENT) -> Verdict:
    """Return the verdict of an assertion that could not be evaluated and does not count."""
    metadata = error.metadata if isinstance(error, GradingError) else {}
    return Verdict(
        passed=True,
        score=0.0,
        reason=str(error),
        assertion=assertion,
        spent=spent,
        metadata=metadata,
    )


def grading_error(assertion: Assertion, place: Place, error: Exception) -> GradingError:
    """Return the error of a row whose assertion at `place` could not be evaluated."""
    where = ".".join(f"assert[{number}]" for number in place)
    message = f"{where} ({assertion.type}): {error}"
    if not isinstance(error, GradingError):
        return GradingError(message)
    return GradingError(message, mishap=error.is_transient, metadata=error.metadata)


def _score(finding: Finding, *, inverted: bool, passed: bool) -> float:
    if finding.score is None or not finding.invertible:
        return float(passed)
    if not inverted:
        return finding.score
    return 1 - finding.score if finding.negated is None else finding.negated


def _rendered(value: Any, render: Render) -> Any:
    match value:
        case AsWritten():
            return str(value)
        case str():
            return render(value)
        case list() | tuple():
            return [
                _rendered(member, render) if isinstance(member, str) else member for member in value
            ]
        case _:
            return value


def _with_metric(assertion: Assertion, render: Render) -> Assertion:
    if assertion.metric is None:
        return assertion
    metric = render(assertion.metric) or None  # an empty name counts as none
    return assertion if metric == assertion.metric else attrs.evolve(assertion, metric=metric)
