"""The tests of nunjucks, used after `is`."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from trioeval.templates.faults import RenderError
from trioeval.templates.text_filters import Safe, only_text
from trioeval.templates.values import UndefinedValue, identical, is_number, less, number_of, truth
from trioeval.text import quote


def _divisible(value: Any, by: Any) -> bool:
    return _remainder(value, by) == 0


def _remainder(value: Any, by: Any) -> float:
    number, divisor = number_of(value), number_of(by)
    return math.fmod(number, divisor) if math.isfinite(number) and divisor else math.nan


def _equal_or(value: Any, other: Any, *, order: bool) -> bool:
    return order or identical(value, other)


CHECKS: Mapping[str, Callable[..., bool]] = {
    "callable": callable,
    "defined": lambda value: not isinstance(value, UndefinedValue),
    "divisibleby": _divisible,
    "eq": identical,
    "equalto": identical,
    "escaped": lambda value: isinstance(value, Safe),
    "even": lambda value: _divisible(value, 2),
    "falsy": lambda value: not truth(value),
    "ge": lambda value, other: _equal_or(value, other, order=less(other, value)),
    "greaterthan": lambda value, other: less(other, value),
    "gt": lambda value, other: less(other, value),
    "iterable": lambda value: isinstance(value, str | list | tuple),
    "le": lambda value, other: _equal_or(value, other, order=less(value, other)),
    "lessthan": less,
    "lower": lambda value: only_text(value, "is lower").lower() == value,
    "lt": less,
    "mapping": lambda value: isinstance(value, Mapping),
    "ne": lambda value, other: not identical(value, other),
    "none": lambda value: value is None,
    "null": lambda value: value is None,
    "number": is_number,
    "odd": lambda value: _remainder(value, 2) == 1,
    "sameas": identical,
    "string": lambda value: isinstance(value, str),
    "truthy": truth,
    "undefined": lambda value: isinstance(value, UndefinedValue),
    "upper": lambda value: only_text(value, "is upper").upper() == value,
}

_WITH_ARGUMENT = {
    *("divisibleby", "eq", "equalto", "ge", "greaterthan", "gt"),
    *("le", "lessthan", "lt", "ne", "sameas"),
}


def check_named(name: Any) -> Callable[[Any, Any], bool]:
    """Return a test by its name, as a function of a value and an argument that it may ignore.

    Raises:
        RenderError: The test does not exist.
    """
    found = CHECKS.get(name) if isinstance(name, str) else None
    if found is None:
        msg = f"unknown test {quote(name)}"
        raise RenderError(msg)
    if name in _WITH_ARGUMENT:
        return found
    return lambda value, _argument: found(value)
