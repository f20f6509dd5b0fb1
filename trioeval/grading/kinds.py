"""The assertion types: what their value must be, and what they say of an output.

A table of data and pure functions. `not-` is no business of theirs: they say what is the case, and whoever
grades turns it round.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from trioeval.grading.regex import compile_javascript
from trioeval.grading.text import output_text, parse_json, quote, same_json


@attrs.frozen
class Finding:
    """Whether a type holds of an output."""

    holds: bool
    reason: str
    """What is the case, in words that are also true under `not-`."""
    invertible: bool = True
    """False where nothing could be found out: that is a failure, also under `not-`."""


@attrs.frozen
class Kind:
    """One assertion type."""

    right: str
    """What its value must be, for the sentence "must be …"."""
    accepts: Callable[[Any], bool]
    judge: Callable[[str, Any], Finding]
    """From the output's text and the rendered value; the value has been accepted."""
    bare: bool = False
    """Whether it can stand without a value."""


def _equals(output: str, value: Any) -> Finding:
    if value is None or isinstance(value, list | tuple | Mapping):
        try:
            holds = same_json(parse_json(output), value)
        except ValueError:
            holds = False
    else:
        holds = output == output_text(value)
    return _finding("equals" if holds else "does not equal", quote(value), holds=holds)


def _contains(output: str, value: Any) -> Finding:
    holds = output_text(value) in output
    return _finding("contains" if holds else "does not contain", quote(value), holds=holds)


def _icontains(output: str, value: Any) -> Finding:
    holds = output_text(value).lower() in output.lower()
    what = f"{quote(value)} in any case"
    return _finding("contains" if holds else "does not contain", what, holds=holds)


def _starts_with(output: str, value: Any) -> Finding:
    holds = output.startswith(value)
    return _finding("starts with" if holds else "does not start with", quote(value), holds=holds)


def _regex(output: str, value: Any) -> Finding:
    try:
        pattern = compile_javascript(value)
    except ValueError as error:
        return Finding(holds=False, reason=regex_fault(value, error), invertible=False)
    holds = pattern.search(output) is not None
    return _finding("matches" if holds else "does not match", quote(value), holds=holds)


def regex_fault(pattern: str, error: ValueError) -> str:
    """The sentence for a pattern that cannot be compiled."""
    return f"{quote(pattern)} is not a regular expression that can be used: {error}"


def _is_json(output: str, _value: Any) -> Finding:
    try:
        parse_json(output)
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

KINDS: Mapping[str, Kind] = {
    "contains": Kind(f"{_TEXT}, or a number", _is_text_or_number, _contains),
    "equals": Kind("any value, null included", _anything, _equals),
    "icontains": Kind(f"{_TEXT}, or a number", _is_text_or_number, _icontains),
    "is-json": Kind("left out", _nothing, _is_json, bare=True),
    "regex": Kind(_TEXT, _is_text, _regex),
    "starts-with": Kind(_TEXT, _is_text, _starts_with),
}
"""Every base type."""

ASSERTION_TYPES: frozenset[str] = frozenset(KINDS)
"""The names of the base types; each can be written with `not-` in front as well."""


def split_type(name: str) -> tuple[str, bool]:
    """The base type, and whether it is inverted.

    Example:
        >>> split_type("not-contains"), split_type("contains")
        (('contains', True), ('contains', False))
    """
    base = name.removeprefix("not-")
    return base, base != name
