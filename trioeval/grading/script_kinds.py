"""Types whose value is code: whatever the user's own script says, holds."""

import warnings
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache
from typing import Any

from trioeval.errors import Problem, ScriptError
from trioeval.grading.kind import Asking, Extra, Finding, Kind, Kinds, OutsideJudge
from trioeval.grading.model import Assertion, Computed
from trioeval.grading.outside import Outside
from trioeval.grading.script_results import failed, read_result
from trioeval.grading.subject import Subject
from trioeval.grading.text import is_template, quote
from trioeval.scripting.evaluator import program as evaluator
from trioeval.scripting.javascript import Script, assertion_script
from trioeval.scripting.python_syntax import python_fault

NAMES = ("output", "context")
"""What the code sees."""

_ONE_LINE = (
    "code on one line is an expression; write statements on several lines, one of which returns"
)
_KEPT = 256


async def _python(subject: Subject, value: Any, assertion: Assertion, outside: Outside) -> Finding:
    if isinstance(value, Computed):
        answer = _from_file(value, subject, outside)
    else:
        answer = outside.code.python(value, subject.output)
    return await _judged(answer, assertion.threshold)


async def _ruby(subject: Subject, value: Any, assertion: Assertion, outside: Outside) -> Finding:
    if isinstance(value, Computed):
        answer = _from_file(value, subject, outside)
    else:
        answer = outside.code.ruby(value, subject.output)
    return await _judged(answer, assertion.threshold)


async def _javascript(
    subject: Subject, value: Any, assertion: Assertion, outside: Outside
) -> Finding:
    if isinstance(value, Computed):
        answer = _from_file(value, subject, outside)
    else:
        answer = outside.code.javascript(value, subject.output)
    return await _judged(answer, assertion.threshold, strict=True)


def _from_file(value: Computed, subject: Subject, outside: Outside) -> Awaitable[Any]:
    return outside.code.file(value.file, value.function, subject.output)


async def _judged(
    answer: Awaitable[Any], threshold: float | None, *, strict: bool = False
) -> Finding:
    try:
        return read_result(await answer, threshold, strict=strict)
    except ScriptError as error:  # the script is part of the test, so its failure is the test's
        return failed(error.message)


def _is_code(value: Any) -> bool:
    return isinstance(value, Computed) or (isinstance(value, str) and bool(value.strip()))


def _checks(
    fault: Callable[[str], tuple[str, bool] | None],
) -> Callable[[Assertion], Iterator[Problem]]:
    """Finds faults of code that no row changes, before rows are paid for."""

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
    """Why code is not Python, and whether it would be on several lines; None if it is."""
    with warnings.catch_warnings(action="ignore"):  # the code's own, told where it runs
        try:
            evaluator.make_judge(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = python_fault(error, code)
            return reason, "\n" not in code and _python_fault(f"{code}\n") is None
    return None


# Many tests have the same few, and each look makes an engine.
@lru_cache(_KEPT)
def _javascript_fault(code: str) -> tuple[str, bool] | None:
    """Likewise of JavaScript."""
    fault = assertion_script(code, NAMES).fault()
    if fault is None:
        return None
    is_statement = "\n" not in code.rstrip() and Script(code, NAMES, "body").fault() is None
    return fault, is_statement


def _kind(language: str, judge: OutsideJudge, **more: Any) -> Kind:
    right = f"{language} code, or file://<file>[:<function>]"
    return Kind(right, _is_code, Asking(judge), runs_code=True, **more)


KINDS: Kinds = {
    "javascript": _kind(
        "JavaScript",
        _javascript,
        check=_checks(_javascript_fault),
        requires=Extra("js", "quickjs"),
    ),
    "python": _kind("Python", _python, check=_checks(_python_fault)),
    "ruby": _kind("Ruby", _ruby),
}
