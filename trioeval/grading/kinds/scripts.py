"""Types whose value is code: the user's own script judges."""

import math
import re
import warnings
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from trioeval.errors import Problem, ScriptError
from trioeval.grading.kind import ExternalJudge, Finding, Kind, Kinds, OutsideJudge, is_not_blank
from trioeval.grading.model import Assertion, Verdict
from trioeval.grading.services import ExternalServices, ScriptRunner
from trioeval.grading.subject import Subject
from trioeval.scripting.evaluator import program as evaluator
from trioeval.scripting.javascript import Script, assertion_script, is_one_statement
from trioeval.scripting.python_syntax import python_fault
from trioeval.text import Computed, is_template, number_text, parse_json, quote, score_text

# The results of scripts.
#
# A script returns true or false, a number, or an object with pass, score and reason. Python and Ruby may
# write the object's keys in snake case, and any of these as text; JavaScript may not, as in promptfoo.


WANTED = "true or false, a number, or an object with pass, score and reason"
"""The result that a script must return."""

_NOTHING_IN_JAVASCRIPT = (
    "the script returned undefined, null, NaN or a function that is never called: "
    f"it must return {WANTED}; several lines need a return"
)
"""None of these is JSON; code with await must be in a function that is called: `(async () => …)()`."""

_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
_NAMES: Mapping[str, str] = {
    "pass_": "pass",
    "named_scores": "namedScores",
    "named_score_weights": "namedScoreWeights",
    "component_results": "componentResults",
}
_DEEPEST = 8
"""Levels of nested results that are stored."""


def read_result(result: Any, threshold: float | None, *, strict: bool = False) -> Finding:
    """Read the result of a script as a finding; an unusable result is a failure, also under `not-`.

    Args:
        result: JSON.
        threshold: The assertion's threshold for a number, or for the score of an object.
        strict: True for JavaScript: no texts, no keys in snake case, and an object passes if its `pass` is
            true.

    Example:
        >>> read_result(0.4, 0.5).reason
        'the script returned 0.4, expected at least 0.5'
        >>> read_result({"pass": True, "score": 1, "reason": "fine"}, None).reason
        'fine'
        >>> read_result("yes", None).invertible
        False
    """
    try:
        match result:
            case bool():
                return Finding(result, f"the script returned {'true' if result else 'false'}")
            case int() | float():
                return _of_number(result, threshold)
            case Mapping():
                return _of_object(result, threshold, strict=strict)
            case str() if not strict:
                return _of_text(result, threshold)
            case None if strict:
                return failed(_NOTHING_IN_JAVASCRIPT)
            case _:
                return failed(_unusable(result))
    except ValueError as error:
        return failed(str(error))


def failed(reason: str) -> Finding:
    """Return the finding of a script that did not work: a failure, also under `not-`."""
    return Finding(holds=False, reason=reason, invertible=False)


def _of_number(score: float, threshold: float | None) -> Finding:
    score = finite(score, "the number")
    reason = f"the script returned {score_text(score, threshold)}"
    if threshold is None:
        return Finding(score > 0, reason, score=score, negated=score)
    holds = score >= threshold
    expected = f"expected at least {number_text(threshold)}"
    return Finding(holds, reason if holds else f"{reason}, {expected}", score=score, negated=score)


def _of_text(text: str, threshold: float | None) -> Finding:
    if (word := text.lower()) in {"true", "false"}:
        return read_result(word == "true", threshold)
    if text.startswith("{"):
        try:
            parsed = parse_json(text)
        except ValueError:
            return failed(_unusable(text))
        return read_result(parsed, threshold)
    if _NUMBER.fullmatch(text):
        return _of_number(float(text), threshold)
    return failed(_unusable(text))


def _of_object(result: Mapping[str, Any], threshold: float | None, *, strict: bool) -> Finding:
    data = result if strict else _camel(result)
    match data:
        case {"pass": bool(passed), "score": int() | float() as given, "reason": str(reason)}:
            score = finite(given, "score")
        case _:
            return failed(_unusable(result))
    if not strict and threshold is not None and score < threshold:
        passed = False
        shown = score_text(score, threshold)
        low = f"the script's score is {shown}, expected at least {number_text(threshold)}"
        reason = f"{low}: {reason}" if reason else low
    metadata = data.get("metadata")
    return Finding(
        passed,
        reason,
        score=score,
        negated=score,
        named_scores=_numbers(data, "namedScores"),
        named_score_weights=_numbers(data, "namedScoreWeights"),
        parts=tuple(_parts(data, strict=strict, deepest=_DEEPEST)),
        metadata=metadata if isinstance(metadata, Mapping) else {},
    )


def _camel(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object with JavaScript's keys, which take precedence over those in snake case."""
    renamed = {_NAMES[key]: value for key, value in result.items() if key in _NAMES}
    return {**renamed, **result}


def _parts(data: Mapping[str, Any], *, strict: bool, deepest: int) -> Iterator[Verdict]:
    """Yield the partial results of a result; they are shown, but do not count."""
    listed = data.get("componentResults")
    if listed is None or deepest == 0:
        return
    if not isinstance(listed, list):
        msg = f"componentResults must be a list, got {quote(listed)}"
        raise ValueError(msg)  # noqa: TRY004 - what a script gives is wrong
    for entry in listed:
        if not isinstance(entry, Mapping):
            msg = f"componentResults must be a list of objects, got {quote(entry)}"
            raise ValueError(msg)  # noqa: TRY004 - what a script gives is wrong
        part = entry if strict else _camel(entry)
        passed = bool(part.get("pass"))
        score, reason = part.get("score"), part.get("reason")
        yield Verdict(
            passed=passed,
            score=float(passed) if score is None else finite(score, "score"),
            reason=reason if isinstance(reason, str) else "",
            assertion=_assertion(part.get("assertion")),
            named_scores=_numbers(part, "namedScores"),
            named_score_weights=_numbers(part, "namedScoreWeights"),
            parts=tuple(_parts(part, strict=strict, deepest=deepest - 1)),
        )


def _assertion(data: Any) -> Assertion | None:
    match data:
        case {"type": str(name)}:
            metric = data.get("metric")
            return Assertion(
                type=name,
                value=data.get("value"),
                metric=metric if isinstance(metric, str) else None,
            )
        case _:
            return None


def _numbers(data: Mapping[str, Any], key: str) -> Mapping[str, float]:
    given = data.get(key)
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        msg = f"{key} must be an object of numbers, got {quote(given)}"
        raise ValueError(msg)  # noqa: TRY004 - what a script gives is wrong
    return {name: finite(value, f"{key}.{name}") for name, value in given.items()}


def finite(value: Any, name: str) -> float:
    """Return a number of a result.

    Raises:
        ValueError: It is not a number, or not finite.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):  # an integer of many digits
            if math.isfinite(value):
                return float(value)
    msg = f"{name} must be a finite number, got {quote(value)}"
    raise ValueError(msg)


def _unusable(result: Any) -> str:
    if result is None:
        return f"the script returned nothing: it must return {WANTED}; several lines need a return"
    return f"the script must return {WANTED}, got {quote(result)}"


NAMES = ("output", "context")
"""The variables of the code."""

_ONE_LINE = (
    "code on one line is an expression; write statements on several lines, one of which returns"
)
_KEPT = 256


def _judging(
    runner: Callable[[ScriptRunner], Callable[[str, Any], Awaitable[Any]]], *, strict: bool
) -> OutsideJudge:
    """Return the judge of a language, made of its runner."""

    async def judge(
        subject: Subject, value: Any, assertion: Assertion, outside: ExternalServices
    ) -> Finding:
        try:
            if isinstance(value, Computed):
                answer = await outside.code.file(value.file, value.function, subject.output)
            else:
                answer = await runner(outside.code)(value, subject.output)
        except (
            ScriptError
        ) as error:  # the script belongs to the test, so its failure is one of the test
            return failed(error.message)
        return read_result(answer, assertion.threshold, strict=strict)

    return judge


def _is_code(value: Any) -> bool:
    return isinstance(value, Computed) or is_not_blank(value)


def _checks(
    fault: Callable[[str], tuple[str, bool] | None],
) -> Callable[[Assertion], Iterator[Problem]]:
    """Return a check for errors in code that are the same for every row."""

    def check(assertion: Assertion) -> Iterator[Problem]:
        code = assertion.value
        if not isinstance(code, str) or is_template(code):
            return
        found = fault(code)
        if found is not None:
            reason, is_statement = found
            hint = _ONE_LINE if is_statement else None
            yield Problem(".value", f"{quote(code)} {reason}", hint)

    return check


def _python_fault(code: str) -> tuple[str, bool] | None:
    """Return the syntax error of Python code, and whether several lines would fix it; None without one."""
    with warnings.catch_warnings(action="ignore"):  # those of the code are shown where it runs
        try:
            evaluator.make_judge(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = python_fault(error, code)
            return reason, "\n" not in code and _python_fault(f"{code}\n") is None
    return None


def _javascript_fault(code: str) -> tuple[str, bool] | None:
    """Return the syntax error of JavaScript code, and whether several lines would fix it; None if valid.

    A statement on one line fails when it runs, as in promptfoo. Code that needs Node is checked where the
    environment is known.
    """
    if is_one_statement(code) or assertion_script(code, NAMES).needs_node is not None:
        return None
    return _engine_fault(code)


# Many tests have the same code, and each check starts an engine.
@lru_cache(_KEPT)
def _engine_fault(code: str) -> tuple[str, bool] | None:
    fault = assertion_script(code, NAMES).fault()
    if fault is None:
        return None
    is_statement = "\n" not in code.rstrip() and Script(code, NAMES, "body").fault() is None
    return fault, is_statement


def _kind(
    language: str,
    runner: Callable[[ScriptRunner], Callable[[str, Any], Awaitable[Any]]],
    *,
    strict: bool = False,
    **more: Any,
) -> Kind:
    right = f"{language} code, or file://<file>[:<function>]"
    return Kind(
        right, _is_code, ExternalJudge(_judging(runner, strict=strict)), runs_code=True, **more
    )


KINDS: Kinds = {
    "javascript": _kind(
        "JavaScript", lambda code: code.javascript, strict=True, check=_checks(_javascript_fault)
    ),
    "python": _kind("Python", lambda code: code.python, check=_checks(_python_fault)),
    "ruby": _kind("Ruby", lambda code: code.ruby),
}
