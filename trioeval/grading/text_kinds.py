"""Types that compare the text of an output with another text."""

from collections.abc import Iterator, Mapping
from typing import Any

from trioeval.errors import Problem
from trioeval.grading.kind import Finding, Kind, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.regex import compile_javascript
from trioeval.grading.subject import Subject
from trioeval.grading.text import is_template, output_text, parse_json, quote, same_json


def _equals(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    if value is None or isinstance(value, list | tuple | Mapping):
        try:
            holds = same_json(parse_json(subject.text), value)
        except ValueError:
            holds = False
    else:
        holds = subject.text == output_text(value)
    return _finding("equals" if holds else "does not equal", quote(value), holds=holds)


def _contains(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    holds = output_text(value) in subject.text
    return _finding("contains" if holds else "does not contain", quote(value), holds=holds)


def _icontains(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    holds = output_text(value).lower() in subject.text.lower()
    what = f"{quote(value)} in any case"
    return _finding("contains" if holds else "does not contain", what, holds=holds)


def _starts_with(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    holds = subject.text.startswith(value)
    return _finding("starts with" if holds else "does not start with", quote(value), holds=holds)


def _regex(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    try:
        pattern = compile_javascript(value)
    except ValueError as error:
        return Finding(holds=False, reason=regex_fault(value, error), invertible=False)
    holds = pattern.search(subject.text) is not None
    return _finding("matches" if holds else "does not match", quote(value), holds=holds)


def regex_fault(pattern: str, error: ValueError) -> str:
    """The sentence for a pattern that cannot be compiled."""
    return f"{quote(pattern)} is not a regular expression that can be used: {error}"


def _is_json(subject: Subject, _value: Any, _assertion: Assertion) -> Finding:
    try:
        parse_json(subject.text)
    except ValueError as error:
        return _finding("is not", f"JSON: {error}", holds=False)
    return _finding("is", "JSON", holds=True)


def _finding(verb: str, what: str, *, holds: bool) -> Finding:
    return Finding(holds=holds, reason=f"the output {verb} {what}")


def _anything(_value: Any) -> bool:
    return True


def _nothing(value: Any) -> bool:
    return value is None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_text_or_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number or _is_text(value)


_TEXT = "text that is not empty"


def _check_pattern(assertion: Assertion) -> Iterator[Problem]:
    if is_template(assertion.value):
        return
    try:
        compile_javascript(assertion.value)
    except ValueError as error:
        hint = "patterns are those of JavaScript, without flags"
        yield Problem(".value", regex_fault(assertion.value, error), hint)


KINDS: Kinds = {
    "contains": Kind(f"{_TEXT}, or a number", _is_text_or_number, _contains),
    "equals": Kind("any value, null included", _anything, _equals),
    "icontains": Kind(f"{_TEXT}, or a number", _is_text_or_number, _icontains),
    "is-json": Kind("left out", _nothing, _is_json, bare=True),
    "regex": Kind(_TEXT, _is_text, _regex, check=_check_pattern),
    "starts-with": Kind(_TEXT, _is_text, _starts_with),
}
