"""Types that say whether an output is JSON, or has an object in it, by a schema or without."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from trioeval.errors import GradingError, Problem
from trioeval.grading.kind import SLOW_AT_ONCE, Finding, Kind, Kinds
from trioeval.grading.lenient_json import objects_in
from trioeval.grading.model import Assertion
from trioeval.grading.schemas import Rules, rules_of, schema_faults, schema_of
from trioeval.grading.subject import Subject
from trioeval.grading.text import is_template, parse_json, quote

_RIGHT = "a JSON schema: an object, or its JSON or YAML text"


def _is_json(subject: Subject, value: Any, _assertion: Assertion, *, strict: bool) -> Finding:
    schema = _schema(value)
    try:
        document = parse_json(subject.text)
    except ValueError as error:
        return Finding(holds=False, reason=f"the output is not JSON: {error}")
    if schema is None:
        return Finding(holds=True, reason="the output is JSON")
    rules = _rules(schema, strict=strict)
    if rules.hold(document):
        return Finding(holds=True, reason="the output follows the schema")
    faults = "; ".join(rules.faults(document))
    return Finding(holds=False, reason=f"the output does not follow the schema: {faults}")


def _contains_json(subject: Subject, value: Any, _assertion: Assertion, *, strict: bool) -> Finding:
    schema = _schema(value)
    reason = "the output contains no JSON object"
    rules, found = None if schema is None else _rules(schema, strict=strict), None
    for found in objects_in(subject.text):
        if rules is None:
            return Finding(holds=True, reason=f"the output contains {quote(found)}")
        if rules.hold(found):
            return Finding(holds=True, reason=f"{quote(found)} in the output follows the schema")
    if rules is not None and found is not None:
        reason = f"no object in the output follows the schema: {'; '.join(rules.faults(found))}"
    return Finding(holds=False, reason=reason)


def _schema(value: Any) -> Any:
    try:
        return schema_of(value)
    except ValueError as error:
        msg = f"the schema is not YAML: {error}"
        raise GradingError(msg) from None


def _rules(schema: Any, *, strict: bool) -> Rules:
    try:
        return rules_of(schema, strict=strict)
    except ValueError as error:
        msg = f"the schema cannot be used: {error}"
        raise GradingError(msg) from None


def _accepts(value: Any) -> bool:
    return value is None or isinstance(value, str | Mapping)


def _check(assertion: Assertion, *, strict: bool) -> Iterator[Problem]:
    if assertion.value is None or is_template(assertion.value):
        return
    try:
        schema = schema_of(assertion.value)
    except ValueError as error:
        yield Problem(".value", f"must be {_RIGHT}, got text that is not YAML: {error}")
        return
    if schema is not None:
        for fault in schema_faults(schema, strict=strict):
            where = fault.path if isinstance(assertion.value, Mapping) else ""
            yield Problem(f".value{where}", fault.message, fault.hint)


def json_kinds(*, strict: bool = True) -> Kinds:
    """The types.

    Args:
        strict: Whether keywords and formats that are not known are a fault of a schema.
    """
    check = partial(_check, strict=strict)
    return {
        "contains-json": Kind(
            _RIGHT,
            _accepts,
            partial(_contains_json, strict=strict),
            bare=True,
            check=check,
            at_once=SLOW_AT_ONCE,
        ),
        "is-json": Kind(_RIGHT, _accepts, partial(_is_json, strict=strict), bare=True, check=check),
    }


KINDS: Kinds = json_kinds()

LENIENT_KINDS: Kinds = json_kinds(strict=False)
"""The same where `PROMPTFOO_DISABLE_AJV_STRICT_MODE` is set: keywords that are not known are ignored."""
