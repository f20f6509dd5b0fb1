"""Types whose value is code: whatever the user's own script says, holds."""

from collections.abc import Awaitable
from typing import Any

from trioeval.errors import ScriptError
from trioeval.grading.kind import Asking, Extra, Finding, Kind, Kinds, OutsideJudge
from trioeval.grading.model import Assertion, Computed
from trioeval.grading.outside import Outside
from trioeval.grading.script_results import failed, read_result
from trioeval.grading.subject import Subject


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


def _kind(language: str, judge: OutsideJudge, requires: Extra | None = None) -> Kind:
    right = f"{language} code, or file://<file>[:<function>]"
    return Kind(right, _is_code, Asking(judge), requires=requires, runs_code=True)


KINDS: Kinds = {
    "javascript": _kind("JavaScript", _javascript, Extra("js", "quickjs")),
    "python": _kind("Python", _python),
    "ruby": _kind("Ruby", _ruby),
}
