"""The assertion types: each a pure function from an output to whether it holds, and why.

A table of data and functions. `not-` is no business of theirs: they say what is, the algebra turns it
round. A type whose answer must not be turned round says so with `Held.either_way`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs

from trioeval.errors import GradingError, Problem
from trioeval.grading.model import Assertion
from trioeval.grading.regex import compile_javascript
from trioeval.grading.text import output_text

_SHOWN = 100  # characters of a value or an output that a reason quotes


@attrs.frozen
class Held:
    """What a type says of an output."""

    holds: bool
    reason: str
    """What is, as a sentence about the output."""
    fails_either_way: bool = False
    """The assertion fails with and without `not-`: it could not be looked for at all."""

    @classmethod
    def of(cls, holds: bool, yes: str, no: str, what: str = "") -> "Held":  # noqa: FBT001
        """Say whether it holds: `contains "x"` or `does not contain "x"`."""
        return cls(holds, f"the output {yes if holds else no} {what}".rstrip())


Judge: TypeAlias = Callable[[Any, Assertion], Held]
"""From an output and an assertion, whose value is rendered, to what is."""


def _equals(output: Any, assertion: Assertion) -> Held:
    value, text = assertion.value, output_text(output)
    if isinstance(value, dict | list) or value is None:
        parsed = _parse(text)
        equal = parsed is not _NOT_JSON and same_json(parsed, value)
    else:
        equal = output_text(value) == text
    return Held.of(equal, "equals", "does not equal", quote(value))


def _contains(output: Any, assertion: Assertion) -> Held:
    value = _needle(assertion)
    return Held.of(value in output_text(output), "contains", "does not contain", quote(value))


def _icontains(output: Any, assertion: Assertion) -> Held:
    value = _needle(assertion)
    found = value.lower() in output_text(output).lower()
    return Held.of(found, "contains", "does not contain", f"{quote(value)} in any case")


def _starts_with(output: Any, assertion: Assertion) -> Held:
    value = _needle(assertion)
    found = output_text(output).startswith(value)
    return Held.of(found, "starts with", "does not start with", quote(value))


def _regex(output: Any, assertion: Assertion) -> Held:
    pattern = output_text(assertion.value)
    try:
        compiled = compile_javascript(pattern)
    except re.error as error:
        reason = f"{quote(pattern)} is not a regular expression that can be used: {error}"
        return Held(holds=False, reason=reason, fails_either_way=True)
    found = compiled.search(output_text(output)) is not None
    return Held.of(found, "matches", "does not match", quote(pattern))


def _is_json(output: Any, _assertion: Assertion) -> Held:
    return Held.of(_parse(output_text(output)) is not _NOT_JSON, "is", "is not", "JSON")


JUDGES: Mapping[str, Judge] = {
    "contains": _contains,
    "equals": _equals,
    "icontains": _icontains,
    "is-json": _is_json,
    "regex": _regex,
    "starts-with": _starts_with,
}

ASSERTION_TYPES = frozenset(JUDGES)
"""The known types, without `not-`."""

HINTS: Mapping[str, str] = {
    "not-empty": 'use "regex" with the value "\\\\S"',
    "min-length": 'use "regex" with the value "^[^]{10,}$"',
    "max-length": 'use "regex" with the value "^[^]{0,10}$"',
    "json-schema-valid": 'use "is-json"',
    "contains-json-property": 'use "is-json"',
}
"""Types that are no types but are seen in the wild, and what does their work."""


def check_value(assertion: Assertion, base: str) -> Iterator[Problem]:
    """What is wrong with the value of an assertion of a known type, as far as it is known before a run."""
    value = assertion.value
    if base in {"contains", "icontains", "starts-with", "regex"}:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number and not (isinstance(value, str) and value):
            message = f"{base} needs text that is not empty, got {quote(value)}"
            yield Problem(".value", message)
            return
    if base == "regex" and "{{" not in str(value):
        try:
            compile_javascript(output_text(value))
        except re.error as error:
            message = f"{quote(value)} is not a regular expression that can be used: {error}"
            yield Problem(".value", message, "patterns are those of JavaScript, without flags")
    if base == "is-json" and value is not None:
        message = f"is-json with a schema is not supported yet, got {quote(value)}"
        yield Problem(".value", message, "leave the value out to ask for any JSON")


def same_json(left: Any, right: Any) -> bool:
    """Deep equality of JSON values: 1 equals 1.0, and true does not equal 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_json(left[k], right[k]) for k in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_json, left, right))
    return bool(left == right)


def quote(value: Any) -> str:
    """A value as a reason or a message shows it: as JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 2] + "…" + text[-1]


_NOT_JSON = object()


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return _NOT_JSON


def _refuse_constant(name: str) -> None:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _needle(assertion: Assertion) -> str:
    value = output_text(assertion.value)
    if not value:
        # A template that rendered to nothing: everything contains it, so the answer would mean nothing.
        msg = f"{assertion.type} has an empty value"
        raise GradingError(msg)
    return value
